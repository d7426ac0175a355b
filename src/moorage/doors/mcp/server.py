"""The MCP server: the official library's protocol, in all its revisions, with Moorage's table of tools.

Each call is done in a task of its own. The library interrupts every await of a cancelled call, again and again, until
the call gives up; an orderly stop takes longer than the moment between two interruptions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError

from moorage import __version__
from moorage.client import LocalMoorage
from moorage.core.errors import AgentNotFound, MoorageError, NotFound, ToolNotFound
from moorage.core.render import to_json
from moorage.core.session import Session
from moorage.doors.http.refusals import Unexpected
from moorage.doors.mcp import changes, named, resources
from moorage.doors.mcp.calls import TellProgress, ToolCall, ToolDocument, tool_result
from moorage.doors.mcp.changes import OlderClients, supported
from moorage.doors.mcp.tools import TOOLS

log = logging.getLogger(__name__)

McpContext = ServerRequestContext[Any, Any]
Paging = types.PaginatedRequestParams | None
FindMoorage = Callable[[McpContext], LocalMoorage]
T = TypeVar("T")

PAGE = 100  # tools of one page
NOT_FOUND = -32002  # of a resource, as the protocol has it
INSTRUCTIONS = """\
Moorage keeps sessions of agents: durable conversations that survive pauses, crashes and restarts. Start an agent with
start_agent_session. With mode async_poll or async_callback, continue with other work and call
get_agent_session_status or wait_for_children later. You can also call agents, workers and tools by their own names;
with the same session_id they remember earlier calls. get_context and set_context share values within a session,
get_memory and set_memory between all sessions."""

_running: set[asyncio.Task[Any]] = set()  # running calls; the loop itself would drop them


class NoSuchTool(ToolNotFound):
    """An unknown tool: this is an error of the protocol, whereas the refusal of a tool is an answer."""


class McpServer(Server[Any]):
    """The library's server, which answers with Moorage's tools and resources."""

    def __init__(
        self, moorage_for: FindMoorage, *, is_stateless: bool = False, leaves_work: Callable[[], bool] = lambda: False
    ) -> None:
        """Set up. A stateless one keeps no older clients.

        `moorage_for` gives the API for the caller of a request. `leaves_work` is passed to `ToolCall`.
        """
        self._moorage_for, self._leaves_work = moorage_for, leaves_work
        self._older = None if is_stateless else OlderClients()
        self._open_streams: set[ListenHandler] = set()
        super().__init__(
            "moorage",
            version=__version__,
            title="Moorage",
            description="Durable sessions for AI agents",
            instructions=INSTRUCTIONS,
            **supported(Server.__init__, get_tool_input_schema=lambda _: None),  # no argument is sent in a header
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_list_resources=self.list_resources,
            on_list_resource_templates=self.list_templates,
            on_read_resource=self.read_resource,
            on_subscriptions_listen=self.listen,
        )

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *more: Any, **options: Any
    ) -> InitializationOptions:
        """Return the initialization options: clients that keep a stream hear of changed tools."""
        usual = NotificationOptions(tools_changed=self._older is not None)
        return super().create_initialization_options(notification_options or usual, *more, **options)

    def stream_of(self, client: str) -> AbstractContextManager[None]:
        """Count the stream of a client of the older protocol as open in this block."""
        return nullcontext() if self._older is None else self._older.stream(client)

    def end_streams(self) -> None:
        """End all streams of changes."""
        for stream in tuple(self._open_streams):
            stream.close()
        if self._older is not None:
            self._older.close()

    def _call(self, ctx: McpContext, tell: TellProgress | None = None) -> ToolCall:
        return ToolCall(self._moorage_for(ctx), tell, self._leaves_work)

    async def list_tools(self, ctx: McpContext, params: Paging) -> types.ListToolsResult:
        """Return a page of tools: those of the table, then agents, workers and tools by name."""
        call = self._call(ctx)
        by_name = await named.listed(call)
        every = _every_tool(by_name)
        if self._older is not None:
            self._older.watch(ctx, call, by_name)
        first = _position(every, None if params is None else params.cursor)
        page = every[first : first + PAGE]
        more = first + PAGE < len(every)
        return types.ListToolsResult(tools=page, next_cursor=page[-1].name if more else None)

    async def call_tool(self, ctx: McpContext, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Call a tool; an error is an answer with the error flag."""
        call = self._call(ctx, _teller(ctx))
        try:
            return await _on_its_own(_called(call, params.name, params.arguments or {}), call)
        except NoSuchTool as error:
            raise MCPError(types.INVALID_PARAMS, f"{error.code}: {error.message}", to_json(error.to_dict())) from None
        except MoorageError as error:
            return _refusal(error)
        except Exception:
            log.exception("tool %s failed", params.name)
            return _refusal(Unexpected())

    async def listen(
        self, ctx: McpContext, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve a stream of changes, in the newer protocol."""
        return await changes.listen(ctx, params, self._call(ctx), self._open_streams)

    async def list_resources(self, ctx: McpContext, params: Paging) -> types.ListResourcesResult:
        """Return a page of sessions, each with its log."""
        call = self._call(ctx)
        page = await _answered(resources.list_page(call, None if params is None else params.cursor))
        found = [_resource(session, part) for session in page.items for part in ("", "log")]
        return types.ListResourcesResult(resources=found, next_cursor=page.next)

    async def list_templates(self, ctx: McpContext, params: Paging) -> types.ListResourceTemplatesResult:
        """Return the templates of URIs."""
        every = [
            types.ResourceTemplate(uri_template=uri, name=name, description=told, mime_type=resources.JSON)
            for name, uri, told in resources.TEMPLATES
        ]
        return types.ListResourceTemplatesResult(resource_templates=every)

    async def read_resource(self, ctx: McpContext, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        """Return the resource at an address."""
        uri = str(params.uri)
        text = await _answered(resources.read(self._call(ctx), uri))
        contents = types.TextResourceContents(uri=uri, mime_type=resources.JSON, text=text)
        return types.ReadResourceResult(contents=[contents])


def _resource(session: Session, part: str) -> types.Resource:
    name = session.session_name or session.session_id
    about = f"The log of {name}" if part else f"{session.agent_name or 'no agent'}, {session.status}"
    return types.Resource(
        uri=resources.uri_of(session.session_id, part),
        name=f"{name} {part}".strip(),
        description=about,
        mime_type=resources.JSON,
    )


# Tools ------------------------------------------------------------------------------------------


def _every_tool(by_name: dict[str, types.Tool]) -> list[types.Tool]:
    found = [
        types.Tool(
            name=tool.name,
            title=tool.title,
            description=tool.description,
            input_schema=tool.input_schema,
            output_schema=tool.output_schema,
            annotations=types.ToolAnnotations(
                read_only_hint=tool.reads,
                destructive_hint=tool.destroys,
                idempotent_hint=tool.repeatable,
                open_world_hint=False,
            ),
        )
        for tool in TOOLS.values()
    ]
    return found + [by_name[name] for name in sorted(by_name)]


def _position(every: list[types.Tool], cursor: str | None) -> int:
    """Return the start of the page after the tool of that name, which may be gone meanwhile."""
    if cursor is None:
        return 0
    names = [tool.name for tool in every]
    if cursor in names:
        return names.index(cursor) + 1
    return next((place for place in range(len(TOOLS), len(names)) if names[place] > cursor), len(names))


async def _called(call: ToolCall, name: str, arguments: ToolDocument) -> types.CallToolResult:
    if (tool := TOOLS.get(name)) is not None:
        return await tool(call, arguments)
    try:
        await call.named.agent(name)
    except AgentNotFound:
        if await call.named.tool(name) is None:
            raise NoSuchTool(name) from None
        return await named.call_tool(call, name, arguments)
    return await named.ask_agent(call, name, arguments)


async def _on_its_own(work: Awaitable[types.CallToolResult], call: ToolCall) -> types.CallToolResult:
    """Do a call in a task of its own; cancel it if the caller gives up, unless the work should continue."""
    task: asyncio.Task[types.CallToolResult] = asyncio.ensure_future(work)
    _running.add(task)
    task.add_done_callback(_forget)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not call.leaves_work():
            task.cancel()
        raise


def _forget(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled():
        task.exception()  # retrieve it, in case no caller waits any more


def _teller(ctx: McpContext) -> TellProgress | None:
    """Return the function that reports progress, if the request asks for it."""
    if not ctx.meta or ctx.meta.get("progress_token", ctx.meta.get("progressToken")) is None:
        return None

    async def tell(progress: float, words: str) -> None:
        await ctx.session.report_progress(progress, None, words)

    return tell


# Answers ----------------------------------------------------------------------------------------


def _refusal(error: MoorageError) -> types.CallToolResult:
    """Return an error as an answer: its code and the remedy in words, its facts as a document."""
    return tool_result({"error": to_json(error.to_dict())}, f"{error.code}: {error.message}", failed=True)


async def _answered(work: Awaitable[T]) -> T:
    """Await the result; turn errors into those of the protocol."""
    try:
        return await work
    except MoorageError as error:
        code = NOT_FOUND if isinstance(error, NotFound) else types.INVALID_PARAMS
        raise MCPError(code, f"{error.code}: {error.message}", to_json(error.to_dict())) from None
