"""Clients of the GraphQL door: by POST, by `graphql-transport-ws` and by `graphql-sse`, as their specifications say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

PATIENCE = 60.0
Answer = dict[str, Any]


class Client:
    """Asks by POST."""

    def __init__(self, url: str, key: str | None = None, **headers: str) -> None:
        self.url, self.headers = url, {**headers, **({} if key is None else {"authorization": f"Bearer {key}"})}
        self.http = httpx2.AsyncClient(base_url=url, timeout=PATIENCE, headers=self.headers)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def post(self, body: Any, **headers: str) -> httpx2.Response:
        return await self.http.post("/graphql", json=body, headers=headers)

    async def ask(self, query: str, **variables: Any) -> Answer:
        """The whole answer, errors and all."""
        answer: Answer = (await self.post({"query": query, "variables": variables})).json()
        return answer

    async def data(self, query: str, **variables: Any) -> Answer:
        """Return the data of the answer; there must be no errors."""
        answer = await self.ask(query, **variables)
        assert "errors" not in answer, answer
        data: Answer = answer["data"]
        return data

    async def code(self, query: str, **variables: Any) -> str:
        """The code of the only error."""
        answer = await self.ask(query, **variables)
        assert len(answer.get("errors", ())) == 1, answer
        return str(answer["errors"][0]["extensions"]["code"])

    @asynccontextmanager
    async def socket(self, payload: Any = None, **options: Any) -> AsyncIterator[Socket]:
        """A connection that was let in."""
        async with raw_socket(self.url, **options) as socket:
            await socket.say(type="connection_init", payload=payload or self.headers)
            assert await socket.hear() == {"type": "connection_ack"}
            yield socket

    @asynccontextmanager
    async def sse(self, query: str, headers: dict[str, str] | None = None, **variables: Any) -> AsyncIterator[Events]:
        """A subscription by server-sent events."""
        every = {"accept": "text/event-stream", **(headers or {})}
        body = {"query": query, "variables": variables}
        async with self.http.stream("POST", "/graphql", json=body, headers=every) as response:
            assert response.status_code == 200, await response.aread()
            assert response.headers["content-type"] == "text/event-stream"
            yield Events(response)


class Socket:
    """A connection that speaks graphql-transport-ws."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def say(self, **message: Any) -> None:
        await self.connection.send(json.dumps(message))

    async def subscribe(self, name: str, query: str, **variables: Any) -> None:
        await self.say(type="subscribe", id=name, payload={"query": query, "variables": variables})

    async def hear(self) -> Answer:
        """The next message."""
        async with asyncio.timeout(PATIENCE):
            message: Answer = json.loads(await self.connection.recv())
        return message

    async def next(self, name: str = "1") -> Any:
        """Return the payload of the operation's next message; skip pings that a slow machine may get."""
        while (message := await self.hear())["type"] == "ping":
            pass
        assert (message["type"], message["id"]) == ("next", name), message
        return message["payload"]

    async def some(self, count: int, name: str = "1") -> list[Any]:
        return [await self.next(name) for _ in range(count)]

    async def closed(self) -> tuple[int, str]:
        """With which code and why the server has closed; what it still says is left alone."""
        async with asyncio.timeout(PATIENCE):
            with suppress(ConnectionClosed):
                while True:
                    await self.connection.recv()
        frame = self.connection.protocol.close_rcvd
        assert frame is not None, "it broke off without a word"
        return frame.code, frame.reason


@asynccontextmanager
async def raw_socket(url: str, protocol: str | None = "graphql-transport-ws", **options: Any) -> AsyncIterator[Socket]:
    """A connection that has said nothing yet."""
    protocols: Any = None if protocol is None else [protocol]
    address = url.replace("http", "ws", 1) + "/graphql"
    async with connect(address, subprotocols=protocols, compression=None, **options) as connection:
        yield Socket(connection)


class Events:
    """Reads the events of graphql-sse."""

    def __init__(self, response: httpx2.Response) -> None:
        self._lines = response.aiter_lines()
        self.id: int | None = None
        self.comments = 0

    async def hear(self) -> tuple[str, Any]:
        """The next event: its name, and what it says."""
        name, data = "message", None
        async with asyncio.timeout(PATIENCE):
            async for line in self._lines:
                field, _, value = line.partition(": ")
                if line.startswith(":"):
                    self.comments += 1
                elif field == "event":
                    name = value
                elif field == "id":
                    self.id = int(value)
                elif field == "data":
                    data = value
                elif not line and data is not None:
                    return name, json.loads(data) if data else None
        raise AssertionError("the stream has ended")

    async def next(self) -> Any:
        name, data = await self.hear()
        assert name == "next", (name, data)
        return data
