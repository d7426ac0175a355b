"""`moor.records` and `moor.memory`: large values in parts, bad input, one commit with messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import moorage
from moorage.core.errors import InvalidRequest, SessionNotFound, TooLarge, VersionConflict
from moorage.core.record import MAX_INLINE, MAX_VALUE
from moorage.records import Append, Drop, Put, Records, Touch
from tests.remote.server import Doors

LARGE = bytes(range(256)) * 4096 * 3 + b"end"  # three mebibytes and a little


@pytest.fixture(params=["sqlite", "http"])
async def moor(request: pytest.FixtureRequest, tmp_path: Path, doors: Doors) -> AsyncIterator[moorage.Moorage]:
    url = f"sqlite:///{tmp_path}/moorage.db"
    async with moorage.connect(doors.open(url) if request.param == "http" else url) as moor:
        await moor.create(agent="a", name="one", parent=None)
        yield moor


async def parts(moor: moorage.Moorage) -> int:
    return len((await moor.records.list("one", ".parts", values=False)).items)


async def test_large_value_is_written_in_parts_and_read_whole(moor: moorage.Moorage) -> None:
    await moor.records.put("one", "n", "k", LARGE)
    found = await moor.records.get("one", "n", "k")
    assert found is not None
    assert (found.value, found.size, await parts(moor)) == (LARGE, len(LARGE), 4)

    [listed] = (await moor.records.list("one", "n")).items
    assert listed.value == LARGE
    await moor.records.put("one", "n", "k", {"small": True})
    assert await parts(moor) == 0


async def test_many_values_that_are_too_much_for_one_commit_are_written_in_one(moor: moorage.Moorage) -> None:
    values = [bytes([n]) * (MAX_INLINE - n) for n in range(6)]
    writes = [Put(namespace="n", key=str(n), value=value) for n, value in enumerate(values)]
    await moor.records.write("one", writes)

    found = await moor.records.get_many("one", "n", [str(n) for n in range(6)])
    assert [record and record.value for record in found] == values


async def test_value_above_the_limit_is_refused_and_leaves_nothing(moor: moorage.Moorage) -> None:
    with pytest.raises(TooLarge, match="67,108,864"):
        await moor.records.put("one", "n", "k", bytes(MAX_VALUE + 1))
    assert await moor.records.get("one", "n", "k") is None
    assert await parts(moor) == 0


async def test_content_is_returned_unchanged(moor: moorage.Moorage) -> None:
    for key, value in {"text": "é", "list": [1, None], "bytes": b"\xff", "object": {"a": 1.5}}.items():
        await moor.memory.put("n", key, value)
        found = await moor.memory.get("n", key)
        assert found is not None
        assert found.content == value


@pytest.mark.parametrize(
    "wish",
    [
        Put(namespace="", key="k", value=b""),
        Put(namespace=".hidden", key="k", value=b""),
        Put(namespace="n", key="", value=b""),
        Put(namespace="n", key="a\0b", value=b""),
        Put(namespace="n", key="é" * 513, value=b""),
        Put(namespace="n", key="k", value=b"{", form="json"),
        Put(namespace="n", key="k", value=b"", form="pickle"),
        Put(namespace="n", key="k", value=b"", ttl=-1),
        Put(namespace="n", key="k", value=b"up", parts=2),
        Append(namespace="n", prefix="x" * 1020, value=b""),
        Touch(namespace="n", key="k", ttl=0),
        Drop(namespace="n", key=""),
    ],
)
async def test_bad_request_is_refused_and_writes_nothing(moor: moorage.Moorage, wish: Any) -> None:
    good = Put(namespace="n", key="good", value=b"")
    with pytest.raises(InvalidRequest):
        await moor.records.write("one", [good, wish], messages=["hello"])
    assert (await moor.records.list("one", "n")).items == []
    assert (await moor.get("one")).last_entry == 1


async def test_one_key_is_put_once_in_a_write(moor: moorage.Moorage) -> None:
    twice = [Put(namespace="n", key="k", value=b"1"), Put(namespace="n", key="k", value=b"2")]
    with pytest.raises(InvalidRequest, match="twice"):
        await moor.records.write("one", twice)


async def test_write_gives_the_entries_that_messages_became(moor: moorage.Moorage) -> None:
    messages = [
        {"role": "user", "content": "a", "client_key": "1"},
        {"role": "user", "content": "b", "client_key": "2"},
    ]
    first = await moor.records.write("one", [], messages=messages[:1])
    done = await moor.records.write("one", [Put(namespace="n", key="k", value=b"")], messages=messages)
    assert [entry.number for entry in done.entries] == [first.entries[0].number, first.entries[0].number + 1]
    assert [(record.key, record.version) for record in done.records] == [("k", 1)]


async def test_pages_follow_each_other(moor: moorage.Moorage) -> None:
    writes = [Append(namespace="n", prefix="", value=str(n).encode()) for n in range(7)]
    await moor.records.write("one", writes)
    seen, after = [], None
    while True:
        page = await moor.records.list("one", "n", after=after, limit=3, descending=True)
        seen += [record.value for record in page.items]
        after = page.next
        if after is None:
            break
    assert seen == [str(n).encode() for n in reversed(range(7))]


async def test_exported_session_brings_its_records_back(moor: moorage.Moorage, tmp_path: Path) -> None:
    await moor.records.put("one", "n", "k", LARGE)
    await moor.records.put("one", "n", "j", [1])
    lines = [line async for line in moor.export("one")]
    async with moorage.connect(f"sqlite:///{tmp_path}/other.db") as other:
        await other.import_(lines)
        found = await other.records.get_many("one", "n", ["k", "j"])
    assert [record and record.content for record in found] == [LARGE, [1]]


async def test_unknown_session_is_said_so(moor: moorage.Moorage) -> None:
    with pytest.raises(SessionNotFound):
        await moor.records.put("nobody", "n", "k", 1)


async def test_writers_of_one_counter_lose_nothing(moor: moorage.Moorage) -> None:
    async def add(records: Records) -> None:
        while True:
            known = await records.get("one", "n", "count")
            try:
                value = 1 if known is None else known.content + 1
                await records.put("one", "n", "count", value, version=0 if known is None else known.version)
            except VersionConflict:
                continue
            return

    await asyncio.gather(*(add(moor.records) for _ in range(20)))
    found = await moor.records.get("one", "n", "count")
    assert found is not None
    assert found.content == 20
