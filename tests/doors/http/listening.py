"""Readers of streams: one event at a time for tests that look closely, ids only for those that need a thousand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2

PATIENCE = 60.0
STREAM = {"Accept": "text/event-stream"}  # without it, what there is so far comes as JSON


class Heard(NamedTuple):
    """An event as a reader gets it."""

    id: int | None
    type: str
    data: Any


class Listener:
    """Reads server-sent events as their specification says."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response, self._lines = response, response.aiter_lines()
        self.comments = 0

    async def next(self) -> Heard:
        """The next event, waited for."""
        async with asyncio.timeout(PATIENCE):
            heard = await self._next()
        assert heard is not None, "the stream has ended"
        return heard

    async def some(self, count: int) -> list[Heard]:
        """The next events."""
        return [await self.next() for _ in range(count)]

    async def rest(self) -> list[Heard]:
        """All events until the stream ends."""
        heard = []
        async with asyncio.timeout(PATIENCE):
            while (event := await self._next()) is not None:
                heard.append(event)
        return heard

    async def _next(self) -> Heard | None:
        number, kind, data = None, "message", ""
        async for line in self._lines:
            name, _, value = line.partition(": ")
            if line.startswith(":"):
                self.comments += 1
            elif name == "id":
                number = int(value)
            elif name == "event":
                kind = value
            elif name == "data":
                data = value
            elif not line and data:
                return Heard(number, kind, json.loads(data))
        return None


@asynccontextmanager
async def listening(http: httpx2.AsyncClient, path: str, **request: Any) -> AsyncIterator[Listener]:
    """A stream, closed afterwards."""
    verb, headers = request.pop("verb", "GET"), {**STREAM, **request.pop("headers", {})}
    async with http.stream(verb, path, headers=headers, **request) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"] == "text/event-stream"
        yield Listener(response)


class Plain:
    """A stream on a bare connection that notes the ids it sees: cheap enough to have a thousand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer, self._id = reader, writer, 0
        self.ids: list[int] = []

    @classmethod
    async def open(cls, url: str, path: str, after: int = 0) -> Plain:
        """Ask for a stream, and wait until it has begun."""
        place = urlsplit(url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        head = f"GET {path}?after={after} HTTP/1.1\r\nhost: {place.netloc}\r\naccept: text/event-stream\r\n\r\n"
        writer.write(head.encode())
        begun = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        assert b" 200 " in begun, begun
        return cls(reader, writer)

    async def read_until(self, number: int) -> None:
        """Note ids until this one has come."""
        while not self.ids or self.ids[-1] < number:
            line = await self._reader.readline()
            assert line, "the stream has ended"
            if line.startswith(b"id: "):
                self._id = int(line[4:])
            elif line.startswith(b"data: "):
                self.ids.append(self._id)

    def close(self) -> None:
        """Hang up."""
        self.writer.close()
