"""MCP without a server: the library's own loop on standard input and output, on a store of this process.

The library drops open requests when the input ends. A user who pipes requests into a program wants their answers first,
so the library sees the end of the input only when no request waits any more, or after some seconds.
"""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from msgspec.structs import replace
from pydantic import ValidationError

from moorage.client import LocalMoorage, OpenStore
from moorage.connection import caller_for
from moorage.doors.mcp.changes import STDIO
from moorage.doors.mcp.server import McpServer
from moorage.doors.mcp.stdio import GOODBYE_WITHIN


async def serve(url: str) -> None:
    """Speak the protocol until the input ends. Agents started by this process end with it."""
    async with LocalMoorage(OpenStore(url=url), caller_for(interface="mcp")) as moor:
        moor.caller = replace(moor.caller, parent=moor.asks_from())  # the environment is read, and warned of, once
        server = McpServer(lambda _: moor)
        waiting = PendingRequests()
        async with stdio_server() as (reading, writing), anyio.create_task_group() as group:
            asked, read = anyio.create_memory_object_stream[SessionMessage | Exception]()
            write, answered = anyio.create_memory_object_stream[SessionMessage]()
            group.start_soon(waiting.carry_in, reading, asked, writing)
            group.start_soon(waiting.carry_out, answered, writing)
            with server.stream_of(STDIO):
                await server.run(read, write, server.create_initialization_options())
            server.end_streams()


class PendingRequests:
    """Requests that wait for their answers."""

    def __init__(self) -> None:
        self._ids: set[Any] = set()
        self._is_idle = anyio.Event()

    async def carry_in(self, source: Any, target: Any, back: Any) -> None:
        """Forward messages of the client, and refuse what is none; return when all are answered."""
        async with target:
            async for item in source:
                if isinstance(item, Exception):  # the library says nothing, and its client would wait
                    if (refusal := _refusal(item)) is not None:
                        await back.send(SessionMessage(refusal))
                    continue
                self._note(item)
                await target.send(item)
            with anyio.move_on_after(GOODBYE_WITHIN):
                while self._ids:
                    await self._is_idle.wait()

    async def carry_out(self, source: Any, target: Any) -> None:
        """Forward messages of the server."""
        async with target:
            async for item in source:
                await target.send(item)
                if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
                    self._forget(item.message.id)

    def _note(self, item: SessionMessage) -> None:
        message = item.message
        if isinstance(message, types.JSONRPCRequest):
            self._ids.add(message.id)
        elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
            self._forget((message.params or {}).get("requestId"))  # a cancelled request gets no answer

    def _forget(self, request_id: Any) -> None:
        self._ids.discard(request_id)
        if not self._ids:
            self._is_idle.set()
            self._is_idle = anyio.Event()


def _refusal(error: Exception) -> types.JSONRPCError | None:
    """Return the answer to a line that is no message; its id, if it has one, is not known. None for an empty line."""
    code, why = types.INVALID_REQUEST, "this line is not a single JSON-RPC message"
    first = error.errors()[0] if isinstance(error, ValidationError) else None
    if first is not None and first["type"] == "json_invalid":
        code, why = types.PARSE_ERROR, "this line is not JSON"
        if not str(first["input"]).strip():
            return None
    return types.JSONRPCError(jsonrpc="2.0", id=None, error=types.ErrorData(code=code, message=why))
