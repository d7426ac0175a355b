"""Out, in and out again gives the same bytes, whatever happened in the sessions: from one kind of store to another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import moorage
from moorage.api import Moorage
from moorage.connection import Connection, LaunchOptions
from moorage.core.errors import MoorageError

numbers = count()
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
jsons = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
objects = st.dictionaries(texts, jsons, max_size=3)


async def create(moor: Moorage, ref: str, new: str, draw: Any) -> None:
    await moor.create("echo-agent", session_id=new, parent=ref, metadata=draw(objects), task_id=draw(st.none() | texts))


async def fork(moor: Moorage, ref: str, new: str, draw: Any) -> None:
    last = (await moor.get(ref)).last_entry
    await moor.fork(ref, at=draw(st.integers(1, last)), session_id=new, name=f"name-{new}")


async def say(moor: Moorage, ref: str, new: str, draw: Any) -> None:
    call = {"type": "tool_call", "id": new, "name": "weather", "input": draw(jsons)}
    result = {"type": "tool_result", "call_id": new, "output": draw(jsons)}
    await moor.append(ref, [{"role": "user", "content": draw(texts), "client_key": new}])
    await moor.append(ref, [{"role": "assistant", "content": [call]}, {"role": "tool", "content": [result]}])


async def update(moor: Moorage, ref: str, new: str, draw: Any) -> None:
    phase = draw(st.sampled_from(["planning", "executing", "investigating"]))
    await moor.update(ref, phase=phase, metadata=draw(objects), error=draw(st.none() | texts))


async def remember(moor: Moorage, ref: str, new: str, draw: Any) -> None:
    await moor.context.merge(ref, {"a": draw(jsons), new: draw(jsons)}, ttl=draw(st.none() | st.just(3600)))
    if draw(st.booleans()):
        await moor.context.delete(ref, "a")


async def ask(moor: Moorage, ref: str, new: str, draw: Any) -> None:
    asked = await moor.request_approval(ref, draw(texts), plan=draw(jsons), options=["later"], expires_in=3600)
    if draw(st.booleans()):
        await moor.decide(asked.approval_id, draw(st.sampled_from(["approve", "reject", "later"])), note=draw(texts))


async def pause(moor: Moorage, ref: str, new: str, draw: Any) -> None:
    await moor.suspend(ref, checkpoint=draw(objects), reason=draw(texts))
    if draw(st.booleans()):
        await moor.resume(ref)


async def keep(moor: Moorage, ref: str, new: str, draw: Any) -> None:
    await moor.save_checkpoint(ref, draw(objects))
    await moor.compact(ref, draw(texts))


async def run(moor: Moorage, ref: str, new: str, draw: Any) -> None:
    await moor.run(
        None, draw(texts), session=ref, parent=None, mode=draw(st.sampled_from(["sync", "async_poll"])), timeout=1
    )


async def end(moor: Moorage, ref: str, new: str, draw: Any) -> None:
    await moor.finalize(
        ref, draw(st.sampled_from(["completed", "failed", "abandoned"])), summary=draw(st.none() | texts)
    )


DEEDS = [create, fork, say, say, update, remember, ask, pause, keep, run, end]


@asynccontextmanager
async def place(url: str) -> AsyncIterator[Connection]:
    async with moorage.connect(url, by="ann", holder="ann") as moor:
        moor.launching = LaunchOptions(launches=False)
        yield moor


async def lived(moor: Connection, draw: Any) -> list[str]:
    """Sessions in which something has happened, parents before their children."""
    ids = ["s-0"]
    await moor.create("echo-agent", session_id="s-0", name="root")
    for number in range(1, draw(st.integers(2, 9))):
        deed, new = draw(st.sampled_from(DEEDS)), f"s-{number}"
        moor.launching = LaunchOptions(launches=deed is run)
        try:
            await deed(moor, draw(st.sampled_from(ids)), new, draw)
        except MoorageError:
            continue  # not every deed is possible everywhere
        if deed in (create, fork):
            ids.append(new)
    return ids


async def exported(moor: Moorage, ids: list[str]) -> list[str]:
    return [line for ref in ids async for line in moor.export(ref)]


@pytest.mark.timeout(300)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_export_import_export_gives_the_same_bytes(tmp_path: Path, data: st.DataObject) -> None:
    number = next(numbers)

    async def there_and_back() -> None:
        async with (
            place(f"memory://{tmp_path}-{number}") as first,
            place(f"sqlite:///{tmp_path / str(number)}.db") as second,
            place(f"memory://{tmp_path}-{number}-again") as third,
        ):
            ids = await lived(first, data.draw)
            for run in (await first.runs(open_only=True)).items:
                await first.result(run.run_id, wait=5)
            out = await exported(first, ids)
            for source, target in ((first, second), (second, third)):
                for ref in ids:
                    await target.import_([line async for line in source.export(ref)])
                assert await exported(target, ids) == out
                assert await target.check() == []

    asyncio.run(there_and_back())
