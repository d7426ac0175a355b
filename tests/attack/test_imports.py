"""Small requests that unpack to much, and large ones that say nothing: the server answers others meanwhile."""

from __future__ import annotations

import asyncio
import gzip
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest

from moorage.testing.faults import PATIENCE
from tests.doors.web.stage import Stage

MIB = 1024 * 1024
SLOWEST_ANSWER = 1.0  # seconds for /healthz on a busy machine; a frozen loop took 3.5 to 31
MOST_MEMORY = 200 * MIB  # that a server may need more than before


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path, "--no-launcher")
    yield stage
    stage.close()


def packed(byte: bytes, size: int) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    piece = byte * MIB
    return b"".join([*(packer.compress(piece) for _ in range(size // MIB)), packer.flush()])


NEWLINES = packed(b"\n", 600 * MIB)
BRACKETS = packed(b"[", 500 * MIB)
DENSE_LINES = gzip.compress(b'{"type": "moorage", "format": 1}\n' + b'{"x": 1}\n' * (20 * MIB))


def resident(process_id: int) -> int:
    """Return the bytes of memory that a process has."""
    status = Path(f"/proc/{process_id}/status")
    if not status.exists():
        pytest.skip("this system has no /proc to read a process's memory from")
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


class Watch:
    """Asks a server how it does, again and again; remembers the slowest answer and the most memory."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self.slowest, self.most, self.looks = stage, 0.0, 0, 0

    async def run(self) -> None:
        async with httpx2.AsyncClient(base_url=self._stage.url, timeout=PATIENCE) as http:
            while True:
                began = time.monotonic()
                answer = await http.get("/healthz")
                self.slowest = max(self.slowest, time.monotonic() - began)
                assert answer.status_code == 200
                self.most = max(self.most, resident(self._stage.process.pid))
                self.looks += 1
                await asyncio.sleep(0.01)


async def slowly(size: int) -> AsyncIterator[bytes]:
    for _ in range(size // MIB):
        yield b"\n" * MIB


@pytest.mark.parametrize("path", ["/import", "/import/histories"])
@pytest.mark.parametrize(
    ("body", "copies", "statuses"),
    [
        pytest.param(NEWLINES, 8, {413, 429}, id="eight bombs of newlines"),
        pytest.param(BRACKETS, 6, {413, 429}, id="six bombs of brackets"),
        pytest.param(DENSE_LINES, 2, {413, 422, 429}, id="lines of little"),
        pytest.param(None, 2, {200, 422, 429}, id="plain newlines"),
    ],
)
async def test_imports_freeze_nobody(
    stage: Stage, path: str, body: bytes | None, copies: int, statuses: set[int]
) -> None:
    before, watch = resident(stage.process.pid), Watch(stage)
    watching = asyncio.create_task(watch.run())
    async with httpx2.AsyncClient(base_url=stage.url, timeout=PATIENCE) as http:
        plain = {"content-type": "application/x-ndjson"}
        headers = plain if body is None else {**plain, "content-encoding": "gzip"}
        asked = [
            http.post(path, content=slowly(64 * MIB) if body is None else body, headers=headers) for _ in range(copies)
        ]
        answers = await asyncio.gather(*asked)
    watching.cancel()
    assert {answer.status_code for answer in answers} <= statuses, [answer.text for answer in answers]
    assert watch.looks > 0
    assert watch.slowest < SLOWEST_ANSWER
    assert watch.most - before < MOST_MEMORY
    assert stage.ask("GET", "/sessions")["items"] == []


async def test_a_line_that_never_ends_is_refused(stage: Stage) -> None:
    async with httpx2.AsyncClient(base_url=stage.url, timeout=PATIENCE) as http:
        answer = await http.post("/import", content=b"[" * (17 * MIB))
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
