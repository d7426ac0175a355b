"""Small requests that unpack to much, and large ones that say nothing: the server answers others meanwhile."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Callable
from functools import cache

import httpx2
import pytest

from moorage.testing.faults import PATIENCE
from tests.attack.watching import MIB, attacked
from tests.doors.web.stage import Stage

HEADER = b'{"type": "moorage", "format": 1}\n'
METADATA = b'{"type": "session", "session": {"metadata": {"a": ['
PLAIN = {"content-type": "application/x-ndjson"}
PACKED = {**PLAIN, "content-encoding": "gzip"}


@cache
def packed(byte: bytes, size: int) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    piece = byte * MIB
    return b"".join([*(packer.compress(piece) for _ in range(size // MIB)), packer.flush()])


@cache
def dense_lines() -> bytes:
    return gzip.compress(HEADER + b'{"x": 1}\n' * (20 * MIB))


async def slowly(size: int) -> AsyncIterator[bytes]:
    for _ in range(size // MIB):
        yield b"\n" * MIB


@pytest.mark.timeout(300)  # seconds of packing on a busy machine
@pytest.mark.parametrize("path", ["/import", "/import/histories"])
@pytest.mark.parametrize(
    ("made", "headers", "copies", "statuses"),  # bodies are made by the tests, not by every process that reads them
    [
        pytest.param(lambda: packed(b"\n", 600 * MIB), PACKED, 8, {413, 429}, id="eight bombs of newlines"),
        pytest.param(lambda: packed(b"[", 500 * MIB), PACKED, 6, {413, 422, 429}, id="six bombs of brackets"),
        pytest.param(dense_lines, PACKED, 2, {413, 422, 429}, id="lines of little"),
        pytest.param(None, PLAIN, 2, {200, 422, 429}, id="plain newlines"),
        pytest.param(lambda: HEADER + METADATA + b"{}," * (5 * MIB), PLAIN, 2, {422}, id="one line of many values"),
        pytest.param(lambda: b"[" + b"{},\n" * (5 * MIB) + b"1]", PLAIN, 2, {422}, id="one document of many values"),
        pytest.param(lambda: b'{"role": "user", "content": "hi"}\n' * 130_000, PLAIN, 2, {422}, id="many messages"),
    ],
)
async def test_imports_do_not_block_others(
    stage: Stage,
    path: str,
    made: Callable[[], bytes] | None,
    headers: dict[str, str],
    copies: int,
    statuses: set[int],
) -> None:
    body = await asyncio.to_thread(made) if made else None

    async def attack(http: httpx2.AsyncClient) -> list[httpx2.Response]:
        contents = [slowly(64 * MIB) if body is None else body for _ in range(copies)]
        return await asyncio.gather(*(http.post(path, content=each, headers=headers) for each in contents))

    answers = await attacked(stage, attack)
    assert {answer.status_code for answer in answers} <= statuses, [answer.text for answer in answers]


def an_export(stage: Stage, entries: int, text: str) -> bytes:
    """A session with so many messages, as it would be exported."""
    session = stage.create()
    stage.ask("POST", f"/sessions/{session}/messages", {"content": "x", "run": False})
    lines = [json.loads(line) for line in httpx2.get(f"{stage.url}/sessions/{session}/export").text.splitlines()]
    header, head, message, end = lines[0], lines[1], lines[-2], lines[-1]
    head["session"] |= {"session_id": f"s-{entries}", "root_session_id": f"s-{entries}", "last_entry": entries}
    numbered = [
        {**message, "entry": {**message["entry"], "number": number, "content": text}}
        for number in range(1, entries + 1)
    ]
    return b"".join(
        json.dumps(line).encode() + b"\n" for line in (header, head, *numbered, {**end, "entries": entries})
    )


@pytest.mark.parametrize(
    ("entries", "size", "status"),
    [
        pytest.param(60_000, 1, 200, id="many entries"),
        pytest.param(101_000, 1, 422, id="too many entries"),
        pytest.param(50, 900_000, 200, id="long entries"),
        pytest.param(80, 900_000, 422, id="too long in all"),
    ],
)
async def test_large_session_does_not_block_others_and_a_larger_one_is_refused(
    stage: Stage, entries: int, size: int, status: int
) -> None:
    lines = await asyncio.to_thread(an_export, stage, entries, "y" * size)
    answer = await attacked(stage, lambda http: http.post("/import", content=lines))
    assert answer.status_code == status, answer.text
    if status == 422:
        assert "moorage import" in answer.json()["detail"]


async def test_a_line_that_never_ends_is_refused(stage: Stage) -> None:
    async with httpx2.AsyncClient(base_url=stage.url, timeout=PATIENCE) as http:
        answer = await http.post("/import", content=b"x" * (17 * MIB))
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_import")
        assert "16 MiB" in answer.json()["detail"]


async def test_export_that_packs_too_well_is_told_to_come_plain(stage: Stage) -> None:
    session = stage.create()
    for _ in range(3):
        stage.ask("POST", f"/sessions/{session}/messages", {"content": "x" * 400_000, "run": False})
    async with httpx2.AsyncClient(base_url=stage.url, timeout=PATIENCE) as http:
        lines = (await http.get(f"/sessions/{session}/export")).content
        await http.delete(f"/sessions/{session}")
        refused = await http.post("/import", content=gzip.compress(lines), headers={"content-encoding": "gzip"})
        assert refused.status_code == 413
        assert "send it plain" in refused.json()["detail"]
        assert (await http.post("/import", content=lines)).status_code == 410  # read, and its id is spent
