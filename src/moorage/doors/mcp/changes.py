"""Notifications to clients: the list of tools changed, or a followed session changed.

In the newer protocol a client opens a stream for that (`subscriptions/listen`); in the older one it gets changes of
tools by the stream of its session with the server, if it has one. Agents come and go by files, by the API and by
registration, so each stream checks every few seconds.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated, ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from moorage.core.errors import MoorageError
from moorage.core.session import Session
from moorage.doors.mcp import named, resources
from moorage.doors.mcp.calls import ToolCall

LOOK_EVERY = 1.0  # seconds
MOST_FOLLOWED = 100  # resources of one stream
LOOKS_WITHOUT_STREAM = 60  # checks in which a client of the older protocol has to open its stream, or to open it again
STDIO = ""  # the only client on standard input has no session id

McpContext = ServerRequestContext[Any, Any]


async def listen(
    ctx: McpContext, params: types.SubscriptionsListenRequestParams, call: ToolCall, open_streams: set[ListenHandler]
) -> types.SubscriptionsListenResult:
    """Serve one stream until its client closes it; read the current state before the client hears of the start."""
    bus, asked = InMemorySubscriptionBus(), params.notifications
    work: list[Coroutine[Any, Any, None]] = []
    if asked.tools_list_changed:
        known = await named.listed(call)
        work.append(watch_tools(call, known, lambda: bus.publish(ToolsListChanged())))
    for uri in map(str, (asked.resource_subscriptions or [])[:MOST_FOLLOWED]):
        with suppress(MoorageError):  # of missing or foreign sessions, there is nothing to report
            session = await call.moor.get(await resources.session_at(call, uri))
            work.append(_follow(call, session, uri, bus))
    tasks = [asyncio.create_task(each) for each in work]
    stream = ListenHandler(bus)
    open_streams.add(stream)
    try:
        return await stream(ctx, params)
    finally:
        open_streams.discard(stream)
        for task in tasks:
            task.cancel()


async def watch_tools(
    call: ToolCall, known: object, tell: Callable[[], Awaitable[None]], goes_on: Callable[[], bool] = lambda: True
) -> None:
    """Check repeatedly whether the tools differ from the known ones."""
    while goes_on():
        await asyncio.sleep(LOOK_EVERY)
        with suppress(MoorageError):  # the store does not answer
            found = await named.listed(call)
            if found != known:
                known = found
                await tell()


async def _follow(call: ToolCall, session: Session, uri: str, bus: InMemorySubscriptionBus) -> None:
    """Report everything that happens in a session from now on, until it is deleted."""
    with suppress(MoorageError):
        async for _ in call.moor.events(session.session_id, after=session.last_entry):
            await bus.publish(ResourceUpdated(uri=uri))


class OlderClients:
    """Notifies clients of the older protocol that have listed tools when the tools change.

    The library does not report when a client has gone; its closed stream is the only sign.
    """

    def __init__(self) -> None:
        self._streams: Counter[str] = Counter()
        self._watching: dict[str, asyncio.Task[None]] = {}

    @contextmanager
    def stream(self, client: str) -> Iterator[None]:
        """Count a stream of a client as open in this block."""
        self._streams[client] += 1
        try:
            yield
        finally:
            self._streams[client] -= 1
            self._streams += Counter()  # forget those without streams

    def watch(self, ctx: McpContext, call: ToolCall, known: object) -> None:
        """Watch the tools for the client that has listed these, unless that is done already."""
        client = STDIO if ctx.request is None else ctx.request.headers.get("mcp-session-id")
        if client is None or client in self._watching or ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return
        tell, goes_on = ctx.session.send_tool_list_changed, self._patience(client)
        watching = asyncio.create_task(watch_tools(call, known, tell, goes_on))
        self._watching[client] = watching
        watching.add_done_callback(lambda _: self._watching.pop(client, None))

    def close(self) -> None:
        """Stop watching."""
        for watching in self._watching.values():
            watching.cancel()

    def _patience(self, client: str) -> Callable[[], bool]:
        """Return a function that tells whether to check again."""
        without = 0

        def goes_on() -> bool:
            nonlocal without
            without = 0 if client in self._streams else without + 1
            return without < LOOKS_WITHOUT_STREAM

        return goes_on


def supported(function: Callable[..., object], **options: Any) -> dict[str, Any]:
    """Return those options that this version of the library supports."""
    known = inspect.signature(function).parameters
    return {name: value for name, value in options.items() if name in known}
