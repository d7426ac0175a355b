"""Inputs of fuzz tests: how many there are, and what becomes of them.

MOORAGE_FUZZ is the number of inputs for one reader, MOORAGE_SEED decides which. Each is counted. One that fails is kept
in tests/fuzz/corpus, a folder for each reader; every run begins with what is there. Commit such a file with the fix.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from moorage.doors.http import monitoring
from tests.counting import count

CORPUS = Path(__file__).parent / "corpus"
SEED = int(os.environ.get("MOORAGE_SEED", "1"))
SHORT = "MOORAGE_FUZZ" not in os.environ


def many(short: int) -> int:
    """Return how many inputs to try."""
    return int(os.environ.get("MOORAGE_FUZZ", short))


def kept(reader: str) -> list[bytes]:
    """Return the inputs of the corpus."""
    return [path.read_bytes() for path in sorted((CORPUS / reader).iterdir())]


@contextmanager
def tried(reader: str, sent: bytes) -> Iterator[None]:
    """Count an input; keep it in the corpus if the block fails, instead of what failed before in the same test."""
    count(f"inputs: {reader}", 1)
    try:
        yield
    except Exception:
        test = os.environ["PYTEST_CURRENT_TEST"].split("::")[-1].split()[0]
        name = "".join(sign if sign.isalnum() or sign in "_-" else "-" for sign in test)
        (CORPUS / reader / f"failed-{name}").write_bytes(sent)
        raise


@asynccontextmanager
async def no_stalls() -> AsyncIterator[None]:
    """Fail if the event loop computes for more than 100 ms without a pause within the block.

    Processor time is what counts: on a busy machine every loop is late. Objects that were there before are kept from
    the garbage collector, because a test process has many more of them than a server.
    """
    computed, stop = list[float](), asyncio.Event()
    gc.collect()
    gc.freeze()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(monitoring, "LOOK_EVERY", 0.005)  # what is computed before a stall counts: let it be little
        watching = asyncio.create_task(monitoring.watch_stalls(lambda _, computing: computed.append(computing), stop))
        await asyncio.sleep(0)  # it begins
        try:
            yield
        finally:
            stop.set()
            await watching
            gc.unfreeze()
    assert max(computed) <= monitoring.LONG_STALL, f"the event loop computed for {max(computed) * 1000:.0f} ms"
