"""What clients are told without asking: that there are other tools now, and that a session they follow has changed.

In the newer era a client opens a stream for that (`subscriptions/listen`); in the older one it hears of tools by the
stream of its session with the server, if it has one. Agents come and go by files, by the API and by registering, so
whoever is to be told looks every few seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import ListenHandler, ResourceUpdated, ServerEvent, ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from moorage.core.errors import MoorageError
from moorage.core.session import Session
from moorage.doors.mcp import resources
from moorage.doors.mcp.calls import Call

log = logging.getLogger(__name__)

LOOK_EVERY = 1.0  # seconds
MOST_FOLLOWED = 100  # resources of one stream
WATCHED = "moorage.tools"  # where a connection has whoever watches tools for it

Context = ServerRequestContext[Any, Any]
Tell = Callable[[ServerEvent], None]
ListTools = Callable[[Call], Awaitable[object]]  # something that differs when the tools do


class TellingServer(Server[Any]):
    """The library's server, which says that it tells of tools."""

    def __init__(self, *args: Any, tells: bool, open_streams: set[ListenHandler], **options: Any) -> None:
        """`tells`: clients of the older era have a stream to be told by."""
        super().__init__(*args, **options)
        self._tells, self._open_streams = tells, open_streams

    def end_streams(self) -> None:
        """Tell those who listen that nothing more will come."""
        for stream in tuple(self._open_streams):
            stream.close()

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *more: Any, **options: Any
    ) -> InitializationOptions:
        """What a client is told of it."""
        usual = NotificationOptions(tools_changed=self._tells)
        return super().create_initialization_options(notification_options or usual, *more, **options)


class Feed:
    """What one stream hears: the library asks for it as a bus."""

    def __init__(self) -> None:
        self._listeners: list[Tell] = []

    def tell(self, event: ServerEvent) -> None:
        """Here is what happened."""
        for listener in self._listeners:
            listener(event)

    async def publish(self, event: ServerEvent) -> None:
        """As the library has it."""
        self.tell(event)

    def subscribe(self, listener: Tell) -> Callable[[], None]:
        """Hear everything from now on."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)


async def listen(
    ctx: Context,
    params: types.SubscriptionsListenRequestParams,
    call: Call,
    tools: ListTools,
    open_streams: set[ListenHandler],
) -> types.SubscriptionsListenResult:
    """Serve one stream until its client has enough; how things stand is looked at before it hears that this began."""
    feed, asked = Feed(), params.notifications
    work: list[Coroutine[Any, Any, None]] = []
    if asked.tools_list_changed:
        work.append(watch_tools(call, tools, await tools(call), lambda: feed.tell(ToolsListChanged())))
    for uri in map(str, (asked.resource_subscriptions or [])[:MOST_FOLLOWED]):
        with suppress(MoorageError):  # of what is not there, or not theirs, there is nothing to tell
            session = await call.moor.get(await resources.session_at(call, uri))
            work.append(_follow(call, session, uri, feed.tell))
    tasks = [asyncio.create_task(each) for each in work]
    stream = ListenHandler(feed)
    open_streams.add(stream)
    try:
        return await stream(ctx, params)
    finally:
        open_streams.discard(stream)
        for task in tasks:
            task.cancel()


async def watch_tools(call: Call, tools: ListTools, known: object, tell: Callable[[], object]) -> None:
    """Look again and again whether there are other tools than those that are known."""
    while True:
        await asyncio.sleep(LOOK_EVERY)
        with suppress(MoorageError):  # the store is away
            found = await tools(call)
            if found != known:
                known = found
                tell()


async def _follow(call: Call, session: Session, uri: str, tell: Tell) -> None:
    """Tell of everything that happens in a session from now on, until it is deleted."""
    with suppress(MoorageError):
        async for _ in call.moor.events(session.session_id, after=session.last_entry):
            tell(ResourceUpdated(uri=uri))


def watch_for_older(ctx: Context, call: Call, tools: ListTools, known: object) -> None:
    """Tell a client of the older era, who has listed these tools, when there are others; once for each connection."""
    connection: Any = getattr(ctx.session, "_connection", None)  # the library has no other way to know when it ends
    if connection is None or ctx.protocol_version in MODERN_PROTOCOL_VERSIONS or WATCHED in connection.state:
        return
    if connection.has_standalone_channel:
        watching = asyncio.create_task(_watch_for(connection, call, tools, known))
        connection.state[WATCHED] = watching
        connection.exit_stack.callback(watching.cancel)


async def _watch_for(connection: Any, call: Call, tools: ListTools, known: object) -> None:
    changed = asyncio.Event()
    watching = asyncio.create_task(watch_tools(call, tools, known, changed.set))
    try:
        while True:
            await changed.wait()
            changed.clear()
            await connection.send_tool_list_changed()
    except Exception:
        log.debug("a client could not be told of tools", exc_info=True)
    finally:
        watching.cancel()
