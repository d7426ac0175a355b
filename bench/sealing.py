"""The cost of encryption at rest: the same work on a plain and on an encrypted file, alternating.

python -m bench.sealing
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from moorage.stores.sealing import Sealer
from moorage.stores.sqlite.store import SqliteStore
from moorage.testing.builders import (
    NOON,
    OWNER,
    a_session,
    a_stamp,
    context_of,
    drive,
    remembering,
    said,
    write_context,
)

ROUNDS, TIMES = 7, 200
TEXT = "what an agent says in one message, more or less. " * 20  # a thousand characters


def main() -> None:
    """Print a line for each kind of work."""
    with TemporaryDirectory(prefix="moorage-bench-") as folder:
        plain = SqliteStore.open(Path(folder) / "plain.db")
        sealed = SqliteStore.open(Path(folder) / "sealed.db", sealer=Sealer({"bench": os.urandom(32)}))
        for store in (plain, sealed):
            drive(store.create(OWNER, a_session("s-1", purpose="to be measured")))
            drive(write_context(store, OWNER, "s-1", remembering("plan", TEXT)))
        print(f"{'µs each, median of ' + str(ROUNDS):28}{'plain':>8}{'sealed':>8}{'ratio':>7}")
        for name, work in WORKS.items():
            one, other = compared(lambda store, work=work: work(store), plain, sealed)
            print(f"{name:28}{one * 1e6:8.0f}{other * 1e6:8.0f}{other / one:7.2f}")
        for store in (plain, sealed):
            drive(store.close())
        sizes = [(Path(folder) / f"{name}.db").stat().st_size for name in ("plain", "sealed")]
        print(f"{'bytes of the file':28}{sizes[0]:8}{sizes[1]:8}{sizes[1] / sizes[0]:7.2f}")


WORKS: dict[str, Callable[[SqliteStore], object]] = {
    "append a message": lambda store: drive(store.append(OWNER, "s-1", said(TEXT), a_stamp())),
    "get a session": lambda store: drive(store.get(OWNER, "s-1")),
    "read the last 20 messages": lambda store: drive(store.tail(OWNER, "s-1", 20)),
    "read a context": lambda store: drive(context_of(store, OWNER, "s-1", NOON)),
}


def compared(work: Callable[[SqliteStore], object], *stores: SqliteStore) -> list[float]:
    """Seconds that the work takes on each: by turns, so that a busy machine is busy for all."""
    rounds = [[timed(work, store) for store in stores] for _ in range(ROUNDS)]
    return [median(times) for times in zip(*rounds, strict=True)]


def timed(work: Callable[[SqliteStore], object], store: SqliteStore) -> float:
    """Seconds for one, on average."""
    started = time.perf_counter()
    for _ in range(TIMES):
        work(store)
    return (time.perf_counter() - started) / TIMES


if __name__ == "__main__":
    main()
