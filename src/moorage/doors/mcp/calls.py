"""A call at the MCP door: the caller, their session and rights, the reports of progress; and the table of tools.

Each tool is a function. Its signature is the schema that hosts see and the check of every call, and its docstring is
the description, so they always agree.
"""

from __future__ import annotations

from asyncio import CancelledError, shield
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from inspect import signature
from time import monotonic
from typing import Any, get_type_hints

import msgspec
from mcp_types import CallToolResult, TextContent
from msgspec import Struct, defstruct
from msgspec.structs import asdict

from moorage.asking.named import NamedAgents
from moorage.client import LocalMoorage
from moorage.core.codec import encode_text
from moorage.core.entry import Entry, text_of
from moorage.core.errors import InvalidField, MoorageError, SessionNotFound
from moorage.core.key import Scope, check_held
from moorage.core.render import to_json
from moorage.core.run import Run
from moorage.core.status import Because
from moorage.doors.http.reading import read_fields
from moorage.doors.http.visit import Visit

Schema = dict[str, Any]
ToolDocument = dict[str, Any]
TellProgress = Callable[[float, str], Awaitable[None]]  # the progress as a number and in words

LOOK_EVERY = 1.0  # seconds between two checks of an agent's output, if the client wants progress
WAIT_AT_ONCE = 15.0  # seconds of one wait, if it does not
MAX_WORD = 300  # characters of a progress message


class ToolCall:
    """One call of one caller. A caller admitted by a server's authorizer (`Visit`) has scopes and a reach."""

    def __init__(
        self, moor: LocalMoorage, tell: TellProgress | None = None, leaves_work: Callable[[], bool] = lambda: False
    ) -> None:
        """Set up the call.

        `tell` gets reports of progress. `leaves_work` tells whether work continues without a waiting client: this
        server is about to stop, its agents are not.
        """
        self.moor, self.parent, self.leaves_work = moor, moor.asks_from(), leaves_work
        self._visit = moor if isinstance(moor, Visit) else None
        self.named = NamedAgents(moor, tell_why=self.tell_why)
        self._tell, self._told = tell, 0.0

    # Authorization ------------------------------------------------------------------------------

    def check_scope(self, scope: Scope) -> None:
        """Raise Forbidden for a key without this scope."""
        if self._visit is not None:
            check_held(self._visit.visitor.scopes, scope)

    def check_no_token(self) -> None:
        """Raise OutOfReach if the caller has a session's token."""
        if self._visit is not None:
            self._visit.check_no_token()

    @property
    def token(self) -> str | None:
        """Return the session whose token the caller has."""
        return None if self._visit is None else self._visit.visitor.session_id

    async def session(self, ref: str | None, *, strictly: bool = False) -> str:
        """Return the named session, else the caller's own. Raise OutOfReach; InvalidField if there is none."""
        if ref is None and self.parent is None:
            raise InvalidField("session_id", "is missing: this call does not come from a session")
        wanted = ref if ref is not None else str(self.parent)
        await self._check("ref", wanted, strictly=strictly)
        return wanted

    async def run_id(self, run_id: str) -> str:
        """Return the id of a run that the caller reaches. Raise OutOfReach."""
        await self._check("run_id", run_id)
        return run_id

    async def opened(self, ref: str | None) -> str:
        """Return the session as `session` does, but create an unknown one below the caller's."""
        if ref is not None and not await self.is_known(ref):
            await self.check_parent()
            await self.moor.create(session_id=ref, parent=self.parent)
        return await self.session(ref)

    async def check_first_use(self, ref: str) -> None:
        """Raise OutOfReach if the caller does not reach this session; an unknown one becomes a child of their own."""
        if self._visit is not None:
            await self._visit.check_first_use(ref)

    async def is_known(self, ref: str) -> bool:
        """Return whether this session exists."""
        try:
            await self.moor.get(ref)
        except SessionNotFound:
            return False
        return True

    async def check_parent(self) -> None:
        """Raise OutOfReach if the caller's session is not below that of their token."""
        if self.parent is not None and self.parent != self.token:
            await self._check("parent", self.parent)

    async def other_than(self, ref: str) -> str | None:
        """Return the caller's session, unless it is the one they ask: no session waits for itself."""
        if self.parent is None:
            return None
        asked, own = await self.moor.get(ref), await self.moor.get(self.parent)
        return None if asked.session_id == own.session_id else own.session_id

    async def _check(self, name: str, ref: str, *, strictly: bool = False) -> None:
        if self._visit is not None:
            await self._visit.check_access(name, ref, strictly=strictly)

    async def start_launcher(self) -> None:
        """Make sure that a launcher runs: a server has one, an embedded call starts one."""
        await self.moor.ready()
        await self.moor.launch("")

    # Waiting ------------------------------------------------------------------------------------

    @property
    def is_heard(self) -> bool:
        """Return whether the client wants progress."""
        return self._tell is not None

    async def tell(self, words: str) -> None:
        """Send progress, if the client wants it."""
        if self._tell is not None:
            self._told += 1
            await self._tell(self._told, words[:MAX_WORD])

    async def tell_why(self, because: Because) -> None:
        """Send why a run has not started, if the client wants progress."""
        await self.tell(f"The run waits {because.in_words} ({because.reason.value})")

    async def settled(self, run: Run, wait: float | None = None) -> Run:
        """Return the run once it has settled, or after `wait` seconds; report its agent's output meanwhile."""
        ends, seen = None if wait is None else monotonic() + wait, run.asked_entry or 0
        if run.because is not None:
            await self.tell_why(run.because)
        while not run.is_settled:
            left = WAIT_AT_ONCE if ends is None else ends - monotonic()
            if left <= 0:
                return run
            run = await self.moor.result(run.run_id, wait=min(left, LOOK_EVERY if self.is_heard else WAIT_AT_ONCE))
            if run.needs_a_person:
                return run
            if self.is_heard and not run.is_settled:
                seen = await self._tell_of(run, seen)
        return run

    @asynccontextmanager
    async def stopping(self, run: Run) -> AsyncIterator[None]:
        """Stop the run if the caller gives up meanwhile, but not if the server is about to stop."""
        try:
            yield
        except CancelledError:
            if not self.leaves_work():
                await shield(self._stopped(run))
            raise

    async def _stopped(self, run: Run) -> None:
        with suppress(MoorageError):  # it has settled, or was deleted
            await self.moor.stop_run(run.run_id)

    async def _tell_of(self, run: Run, seen: int) -> int:
        """Report new entries in the log of a run's session, or that it continues; return the last reported entry."""
        page = await self.moor.log(run.session_id, after=seen, limit=20)
        for entry in page.items:
            await self.tell(_word(entry))
        if not page.items:
            await self.tell(f"{run.agent_name or 'the agent'} is {run.state.value}")
        return page.items[-1].number if page.items else seen


def _word(entry: Entry) -> str:
    if entry.is_message:
        said = entry.content if isinstance(entry.content, str) else text_of(entry.content)
        return f"{entry.role}: {said}"
    return f"{entry.kind} {encode_text(entry.data or {})}"


# The table --------------------------------------------------------------------------------------

Function = Callable[..., Awaitable[Struct]]  # of a call and the tool's arguments


class McpTool:
    """One tool of the table."""

    def __init__(
        self, function: Function, title: str, scope: Scope, *, destroys: bool = False, repeatable: bool = False
    ) -> None:
        """Set up the row. `destroys`: it may delete something. `repeatable`: a repetition has no further effect."""
        self._function, self.name = function, function.__name__
        self.title, self.description = title, " ".join(str(function.__doc__).split())
        self.scope, self.reads, self.destroys = scope, scope is Scope.READ, destroys
        self.repeatable = repeatable or self.reads

    @cached_property
    def _types(self) -> dict[str, Any]:
        return get_type_hints(self._function, include_extras=True)

    @cached_property
    def request(self) -> type[Struct]:
        """Return the type of its arguments, with a field for each parameter after the call."""
        _, *parameters = signature(self._function).parameters.values()
        fields = [
            (each.name, self._types[each.name], msgspec.NODEFAULT if each.default is each.empty else each.default)
            for each in parameters
        ]
        return defstruct(self.name, fields, frozen=True, forbid_unknown_fields=True)

    @cached_property
    def input_schema(self) -> Schema:
        """Return the schema of its arguments."""
        return schema_of(self.request)

    @cached_property
    def output_schema(self) -> Schema:
        """Return the schema of its answer."""
        return schema_of(self._types["return"])

    async def __call__(self, call: ToolCall, arguments: ToolDocument) -> CallToolResult:
        """Call the tool. Raise MoorageError."""
        call.check_scope(self.scope)
        given = asdict(read_fields(without_empty(arguments), self.request))
        value = await self._function(call, **given)
        return tool_result(to_json(value), failed=bool(getattr(value, "failed", False)))


TOOLS: dict[str, McpTool] = {}


def tool(title: str, scope: Scope = Scope.WRITE, **effects: bool) -> Callable[[Function], Function]:
    """Add a function to the table."""

    def put(function: Function) -> Function:
        TOOLS[function.__name__] = McpTool(function, title, scope, **effects)
        return function

    return put


def tool_result(document: ToolDocument, text: str | None = None, *, failed: bool = False) -> CallToolResult:
    """Return the answer of a tool. Without a text, it has the document as text, too."""
    content = TextContent(text=encode_text(document) if text is None else text)
    return CallToolResult(content=[content], structured_content=document, is_error=failed)


def without_empty(arguments: ToolDocument) -> ToolDocument:
    """Return the arguments without sessions whose name is empty: models fill in every field they know."""
    return {name: value for name, value in arguments.items() if value != "" or name not in ("session_id", "parent")}


def schema_of(kind: type[Struct]) -> Schema:
    """Return a type as a JSON schema with an object at its root."""
    _, every = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    root = dict(every.pop(kind.__name__))
    root.pop("title", None)
    root.pop("description", None)
    return {**root, "$defs": every} if every else root
