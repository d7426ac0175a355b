"""Connections that mean no good, on the wire as it is served: each costs little and ends, and others are answered."""

from __future__ import annotations

import asyncio
import gzip
import json
import resource
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from moorage import config
from moorage.doors.http.exchange import MAX_BODY
from moorage.doors.http.protocol import BoundedProtocol
from moorage.doors.http.serve import make_door
from moorage.testing.faults import PATIENCE
from tests.doors.http.server import address_of, running

MANY = 200


class Impatient(BoundedProtocol):
    """The same bounds, sooner."""

    head_within = 0.5
    pace_every = 0.5
    pace = 1024


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    deps = config.open_deps(f"sqlite:///{tmp_path / 'moorage.db'}", threaded=True)
    async with running(make_door(deps), http=Impatient) as server:
        yield address_of(server)
    await deps.store.close()


class Wire:
    """A connection without manners."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, url: str) -> Wire:
        return cls(*await asyncio.open_connection("127.0.0.1", httpx2.URL(url).port))

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def trickle(self, data: bytes, every: float) -> None:
        """Send a byte now and then, until the connection is closed."""
        try:
            for byte in data:
                await self.send(bytes([byte]))
                await asyncio.sleep(every)
        except ConnectionError:
            pass

    async def heard(self) -> bytes:
        """All that comes until the other side hangs up."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self._reader.read()
            except ConnectionError:
                return b""
            finally:
                self._writer.close()


HEAD = b"POST /sessions HTTP/1.1\r\nhost: localhost\r\n"


SLOW = {
    "head": (HEAD, b"x"),
    "body": (HEAD + b"content-length: 100000\r\n\r\n{", b" "),
    "chunks": (HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n", b"1\r\n \r\n"),
}


@pytest.mark.parametrize(("said", "drop"), SLOW.values(), ids=SLOW)
async def test_slow_client_is_disconnected_and_others_are_served(url: str, said: bytes, drop: bytes) -> None:
    wires = [await Wire.open(url) for _ in range(MANY)]
    for wire in wires:
        await wire.send(said)
    slow = [asyncio.create_task(wire.trickle(drop * 10_000, 0.1)) for wire in wires]
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http:
        assert (await http.post("/sessions", json={"session_id": "s"})).status_code == 201
        answers = [await wire.heard() for wire in wires]
        await asyncio.gather(*slow)
        assert {answer[:20] for answer in answers} <= {b"HTTP/1.1 408 Request", b""}
        assert [each["session_id"] for each in (await http.get("/sessions")).json()["items"]] == ["s"]


async def test_a_slow_body_that_keeps_coming_is_waited_for(url: str) -> None:
    body = json.dumps({"metadata": {"long": "x" * 6000}}).encode()
    wire = await Wire.open(url)
    await wire.send(HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body))
    for start in range(0, len(body), 1000):
        await wire.send(body[start : start + 1000])
        await asyncio.sleep(0.2)
    assert (await wire.heard()).startswith(b"HTTP/1.1 201")


@pytest.mark.parametrize(
    "said",
    [
        b"GET /sessions HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /sessions?x=" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /sessions HTTP/1.1\r\nhost: localhost\r\n" + b"x: a\r\n" * 20_000 + b"\r\n",
        b"GET /sessions HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 100_000,
    ],
    ids=["header", "address", "headers", "endless"],
)
async def test_a_head_that_is_too_large_is_refused(url: str, said: bytes) -> None:
    wire = await Wire.open(url)
    await wire.send(said)
    assert (await wire.heard()).startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize("said", [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", HEAD + b"content-length: -1\r\n\r\n"])
async def test_invalid_http_is_refused(url: str, said: bytes) -> None:
    wire = await Wire.open(url)
    await wire.send(said)
    assert (await wire.heard()).startswith(b"HTTP/1.1 400")


async def test_a_body_that_is_too_large_costs_no_memory(url: str) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b" " * (1024 * 1024)

    before, wire = _peak(), await Wire.open(url)
    await wire.send(HEAD + b"connection: close\r\ncontent-length: 1000000000000\r\n\r\n{")
    assert (await wire.heard()).startswith(b"HTTP/1.1 413")
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http:
        for _ in range(4):
            answer = await http.post("/sessions", content=endless())
            assert (answer.status_code, answer.json()["code"]) == (413, "request_too_large")
    assert _peak() - before < 4 * MAX_BODY


def _peak() -> int:
    """The most memory that this process, server and client, has had; in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


DEEP = 90_000
BODIES: dict[str, Any] = {
    "deep list": b'{"metadata": {"a": ' + b"[" * DEEP + b"]" * DEEP + b"}}",
    "deep object": b'{"metadata": ' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
    "deeper than is kept": b'{"metadata": {"a": ' + b"[" * 100 + b"]" * 100 + b"}}",
    "unfinished": b'{"metadata": {"a": ' + b"[" * DEEP,
    "a number of digits": b'{"metadata": {"a": ' + b"9" * DEEP + b"}}",
    "an exponent": b'{"metadata": {"a": 1e999999}}',
    "a lone surrogate": b'{"metadata": {"a": "\\ud800"}}',
    "no text": b'{"metadata": {"a": "\xff"}}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_json_that_is_made_to_hurt_is_refused(url: str, body: bytes) -> None:
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http:
        for path in ("/sessions", "/agent-sessions/create"):
            assert (await http.post(path, content=body)).status_code == 422
        await http.post("/sessions", json={"session_id": "s"})
        assert (await http.put("/sessions/s/context/k", content=body)).status_code == 422
        assert (await http.put("/sessions/s/context", content=body)).status_code == 422
        assert len((await http.get("/sessions")).json()["items"]) == 1


BOMB = gzip.compress(b" " * (64 * 1024 * 1024))
PACKED: dict[str, tuple[bytes, str, int]] = {
    "no gzip": (b"{}", "gzip", 422),
    "cut off": (gzip.compress(b'{"purpose": "x"}')[:-4], "gzip", 422),
    "a bomb": (BOMB, "gzip", 413),
    "a bomb in a bomb": (gzip.compress(BOMB), "gzip", 422),
    "another packing": (b"{}", "br", 422),
    "packed twice": (gzip.compress(gzip.compress(b"{}")), "gzip, gzip", 422),
    "nothing": (b"", "gzip", 422),
    "one behind another": (gzip.compress(b"") + gzip.compress(b""), "gzip", 422),
    "something behind it": (gzip.compress(b"") + b"\0", "gzip", 422),
}


@pytest.mark.parametrize("case", PACKED.values(), ids=PACKED)
async def test_a_packed_body_that_is_made_to_hurt_is_refused(url: str, case: tuple[bytes, str, int]) -> None:
    body, packing, status = case
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http:
        for path in ("/sessions", "/import"):
            headers = {"content-encoding": packing}
            answer = await http.post(path, content=body, headers=headers)
            expected = status
            assert answer.status_code == expected, answer.text
        assert (await http.get("/sessions")).json()["items"] == []


async def test_too_many_fields_in_a_query_are_refused(url: str) -> None:
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http:
        for path in ("/sessions", "/events", "/turns/t/approvals/a", "/import"):
            verb = "POST" if path == "/import" else "GET"
            answer = await http.request(verb, f"{path}?{'a=1&' * 5000}", headers={"accept": "application/json"})
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_query"), path


@pytest.mark.parametrize("name", ["%0A", "a%0Ab", "%00", "%F0%9F%8C%8A", "`", "%24."])
async def test_whatever_a_field_is_called_it_is_told_as_unknown(url: str, name: str) -> None:
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http:
        for path in ("/sessions", "/approvals", "/events"):
            answer = await http.get(f"{path}?{name}=1", headers={"accept": "application/json"})
            assert answer.status_code == 422, path
