"""The one table of operations: routes, parameters and required access over HTTP.

Each row names a method of `Moorage`. Its parameters, their types and its answer are read from
that method's signature, so the routes, the OpenAPI document and the remote client cannot drift
apart from the Python door or from each other. A parameter that the path does not have travels in
the query of a GET or DELETE and in the JSON body of everything else.
"""

from __future__ import annotations

import inspect
import re
from functools import cached_property
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct

from moorage.api import Context, Moorage
from moorage.core.key import Scope
from moorage.core.query import Page

Arguments = dict[str, Any]

_IN_PATH = re.compile(r"{(\w+)}")
SESSION = "session_id"  # in a path: the session's id or name, which methods call `ref`


class Operation(Struct, dict=True, eq=False):
    """An operation that a caller can request: a method of `Moorage`, and its form over HTTP."""

    name: str
    verb: str
    path: str
    scope: Scope
    wire: dict[str, str] = {}  # parameters, with their names on the wire
    also: dict[str, str] = {}  # further names on the wire, with their parameters
    local: tuple[str, ...] = ()  # parameters that are never sent
    refs: tuple[str, ...] = ("ref",)  # those that name sessions, runs, approvals or items: a token has to reach them
    body: str | None = None  # the parameter that is the whole body; the others are then in the query
    wraps: str | None = None  # the field that holds a plain value
    status: int = 200
    to_token: bool = True  # whether a session's token may call it; else it needs a key
    or_scope: Scope | None = None  # an alternative to the scope

    def __post_init__(self) -> None:
        self.refs = tuple(ref for ref in self.refs if ref in self.parameters)

    @cached_property
    def function(self) -> Any:
        """Return the method of the API."""
        door, _, method = self.name.rpartition(".")
        return getattr(Context if door == "context" else Moorage, method)

    def method(self, moor: Moorage) -> Any:
        """Return the same method of one connection."""
        door, _, method = self.name.rpartition(".")
        return getattr(moor.context if door else moor, method)

    @property
    def summary(self) -> str:
        """Return the first line of the method's docstring."""
        return str(inspect.getdoc(self.function)).splitlines()[0]

    @cached_property
    def hints(self) -> dict[str, Any]:
        """Return the types of the method's parameters and of its answer."""
        from moorage import values

        return get_type_hints(self.function, localns=vars(values))

    @property
    def answer(self) -> Any:
        """Return the type of the answer."""
        return self.hints["return"]

    @cached_property
    def is_list(self) -> bool:
        """Return whether the answer is a plain list, which is sent as the items of a page."""
        return get_origin(self.answer) is list

    @property
    def document(self) -> Any:
        """Return the type of the answer as it is sent."""
        if self.is_list:
            return Page[get_args(self.answer)[0]]  # type: ignore[misc]
        return self.answer if self.wraps is None else dict[str, self.answer]  # type: ignore[name-defined]

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """Return the parameters that are sent."""
        every = dict(inspect.signature(self.function).parameters)
        return {name: each for name, each in every.items() if name not in ("self", *self.local)}

    @cached_property
    def in_path(self) -> dict[str, str]:
        """Return the names in the path, with their parameters."""
        return {name: "ref" if name == SESSION else name for name in _IN_PATH.findall(self.path)}

    @property
    def has_body(self) -> bool:
        """Return whether parameters are sent in a JSON body rather than in the query."""
        return self.body is None and self.verb in ("POST", "PUT", "PATCH")

    @cached_property
    def key(self) -> str | None:
        """Return the parameter that the header Idempotency-Key gives; None if a repetition is a new request."""
        return next((name for name in ("idempotency_key", "delegation_id") if name in self.parameters), None)

    @cached_property
    def fields(self) -> dict[str, str]:
        """Return the names on the wire of the fields of the body or of the query, with their parameters."""
        elsewhere = (*self.in_path.values(), self.body)
        own = {self.wire.get(name, name): name for name in self.parameters if name not in elsewhere}
        return {**own, **self.also}

    @cached_property
    def request(self) -> type[Struct]:
        """Return the type of the body, or of the query."""
        fields: list[Any] = []
        for wire, name in self.fields.items():
            kind = on_the_wire(name, self.hints[name])
            kind = kind if self.has_body else _without_none(kind)
            is_required = self.is_required(name) and wire not in self.also
            fields.append((wire, kind) if is_required else (wire, Union[kind, UnsetType], UNSET))  # noqa: UP007  a value
        fields.sort(key=len)  # required fields come first
        title = "".join(part.title() for part in re.split(r"[._]", self.name))
        return defstruct(f"{title}Request", fields, kw_only=True, forbid_unknown_fields=True)

    def is_required(self, name: str) -> bool:
        return self.parameters[name].default is inspect.Parameter.empty and NoneType not in get_args(self.hints[name])

    def arguments(self, request: Struct) -> Arguments:
        """Return the arguments of the method: the given fields and those without a default."""
        given: Arguments = dict.fromkeys(self._without_default)
        # Backwards, because later ones win: first a parameter's own name, then the first alternative.
        for wire, name in reversed(self.fields.items()):
            value = getattr(request, wire)
            if value is not UNSET and (value != "" or given.get(name) is None):  # an empty name hides no other
                given[name] = value
        return given

    @cached_property
    def _without_default(self) -> list[str]:
        every = dict.fromkeys(self.fields.values())
        return [name for name in every if self.parameters[name].default is inspect.Parameter.empty]

    @cached_property
    def numbers_in_path(self) -> frozenset[str]:
        """Return the parameters of the path that are numbers."""
        return frozenset(name for name in self.in_path.values() if self.hints[name] == int | None)


def on_the_wire(name: str, kind: Any) -> Any:
    """Return the type of a parameter in JSON, where Python's type says less, or more than JSON can carry."""
    if name in _TYPES:
        return _TYPES[name]
    if get_origin(kind) in (Union, UnionType):
        parts = [on_the_wire("", part) for part in get_args(kind) if part is not UnsetType]
        return Union[tuple(parts)]  # noqa: UP007  made from values
    if kind is object:
        return Any
    if get_origin(kind) is not None and getattr(get_origin(kind), "__name__", "") == "Iterable":
        return list[get_args(kind)[0]]  # type: ignore[misc]
    return kind


def _without_none(kind: Any) -> Any:
    """Return the same for a query, which has no null: absent values are left out."""
    parts = tuple(part for part in get_args(kind) if part is not NoneType)
    return Union[parts] if get_origin(kind) in (Union, UnionType) else kind  # noqa: UP007  made from values


_SECONDS = Annotated[float, Meta(ge=0)]
_SHORTLY = Annotated[float, Meta(ge=0, le=60)]
_TYPES: dict[str, Any] = {
    "limit": Annotated[int, Meta(ge=1, le=1000)],
    "wait": _SHORTLY | None,
    "timeout": _SHORTLY | None,
    "ttl": _SECONDS | None,
    "expires_in": _SECONDS | None,
    "hours": _SECONDS | None,
}


_R, _W, _A = Scope.READ, Scope.WRITE, Scope.APPROVE
_NEW = {"agent": "agent_name", "name": "session_name", "ttl": "ttl_seconds"}
_CHILD = {**_NEW, "parent": "parent_session_id"}
_ASK = {**_NEW, "timeout": "wait"}
_PARENT = {"parent_session_name": "parent"}
_PARENTS = {"parent_session_id": "parent", **_PARENT}
_BOTH = ("session", "parent")
_TASK = {"task_id": "task"}
_OF = {"ref": "session"}
_FILTERS = {"agent_name": "agent", "parent_session_id": "parent", "root_session_id": "root"}  # as a session names them
_RUN_FILTERS = {"session_id": "session", "agent_name": "agent", "parent_session_id": "parent"}
_ONE = f"/sessions/{{{SESSION}}}"
_KEY = f"{_ONE}/context/{{key}}"

OPERATIONS: tuple[Operation, ...] = (
    # The most frequent first: routes are searched in this order.
    Operation("get", "GET", _ONE, _R),
    Operation("messages", "GET", f"{_ONE}/messages", _R, local=("count_tokens",)),
    Operation("create", "POST", "/sessions", _W, wire=_CHILD, also=_PARENT, refs=("parent",), status=201),
    # Sessions
    Operation("list", "GET", "/sessions", _R, wire=_TASK, also={**_FILTERS, "task_id": "task_id"}, refs=("parent",)),
    Operation("update", "PATCH", _ONE, _W),
    Operation("delete", "DELETE", _ONE, _W),
    Operation("resolve", "GET", f"{_ONE}/id", _R, wraps="session_id"),
    Operation("rename", "POST", f"{_ONE}/rename", _W, wire={"name": "session_name"}),
    Operation("suspend", "POST", f"{_ONE}/suspend", _W),
    Operation("resume", "POST", f"{_ONE}/resume", _W),
    Operation("release", "POST", f"{_ONE}/release", _W),
    Operation("finalize", "POST", f"{_ONE}/finalize", _W),
    Operation("fork", "POST", f"{_ONE}/fork", _W, wire=_NEW, status=201, to_token=False),  # a fork is a root
    Operation("stop", "POST", f"{_ONE}/stop", _W),
    Operation("should_resume", "GET", f"{_ONE}/resume-verdict", _R, refs=("ref", "host")),
    Operation("should_resume", "GET", "/resume-verdict", _R, local=("ref",), to_token=False),
    Operation("resumable", "GET", "/resumable", _R, to_token=False),
    Operation("delegate", "POST", "/delegations", _W, to_token=False),
    Operation("delegations", "GET", "/delegations", _R, wire=_TASK, to_token=False),
    # Families
    Operation("children", "GET", f"{_ONE}/children", _R),
    Operation("count_children", "GET", f"{_ONE}/children/count", _R, wraps="count"),
    Operation("ancestors", "GET", f"{_ONE}/ancestors", _R),
    Operation("tree", "GET", f"{_ONE}/tree", _R),
    Operation("deleted", "GET", "/deleted", _R, to_token=False),
    Operation("cleanup", "POST", "/cleanup", _W, local=("progress",), to_token=False),
    # Conversation and memory
    Operation("log", "GET", f"{_ONE}/log", _R),
    Operation("compact", "POST", f"{_ONE}/compact", _W, local=("agent",), status=201),  # who asks an agent waits for it
    Operation("search", "GET", "/search", _R, wire={"text": "q"}, to_token=False),
    Operation("context.get", "GET", f"{_ONE}/context", _R, local=("key",)),
    Operation("context.replace", "PUT", f"{_ONE}/context", _W, body="values"),
    Operation("context.merge", "PATCH", f"{_ONE}/context", _W, body="values", local=("key",)),
    Operation("context.delete", "DELETE", f"{_ONE}/context", _W, local=("key",)),
    Operation("context.items", "GET", f"{_ONE}/context-items", _R),
    Operation("context.get", "GET", _KEY, _R),
    Operation("context.put", "PUT", _KEY, _W, body="value"),
    Operation("context.merge", "PATCH", _KEY, _W, body="values"),
    Operation("context.delete", "DELETE", _KEY, _W),
    Operation("save_checkpoint", "POST", f"{_ONE}/checkpoints", _W, status=201),
    Operation("checkpoints", "GET", f"{_ONE}/checkpoints", _R),
    Operation("checkpoint", "GET", f"{_ONE}/checkpoints/newest", _R, local=("number",)),
    Operation("checkpoint", "GET", f"{_ONE}/checkpoints/{{number}}", _R),
    # Approvals
    Operation("request_approval", "POST", f"{_ONE}/approvals", _W, status=201),
    Operation("approvals", "GET", "/approvals", _R, wire=_OF, also={"session_id": "ref"}, or_scope=_A),
    Operation("approval", "GET", "/approvals/{approval_id}", _R, refs=("approval_id",), or_scope=_A),
    Operation("decide", "POST", "/approvals/{approval_id}/decision", _A, to_token=False),
    # Runs
    Operation("run", "POST", "/runs", _W, wire=_ASK, also=_PARENTS, local=("on_event",), refs=_BOTH, status=201),
    Operation("runs", "GET", "/runs", _R, also=_RUN_FILTERS, refs=_BOTH),
    Operation("get_run", "GET", "/runs/{run_id}", _R, refs=("run_id",)),
    Operation("result", "GET", "/runs/{run_id}/result", _R, refs=("run_id",)),
    Operation("stop_run", "POST", "/runs/{run_id}/stop", _W, refs=("run_id",)),
    Operation("retry", "POST", "/runs/{run_id}/retry", _W, refs=("run_id",), status=201),
    Operation("inbox", "GET", "/inbox", _R, wire=_OF, also={"session_id": "ref"}),
    Operation("send_again", "POST", "/inbox/{item_id}/resend", _W, to_token=False),
    Operation("launchers", "GET", "/launchers", _R, to_token=False),
    Operation("drain_launcher", "POST", "/launchers/{launcher_id}/drain", Scope.ADMIN, to_token=False),
    # Agents
    Operation("agents", "GET", "/agents", _R),
    Operation("agent", "GET", "/agents/{name}", _R),
    Operation("define_agent", "POST", "/agents", Scope.ADMIN, local=("source",), status=201, to_token=False),
    Operation("remove_agent", "DELETE", "/agents/{name}", Scope.ADMIN, to_token=False),
    # Tools
    Operation("tools", "GET", "/tools", _R),
    Operation("call_tool", "POST", "/tools/{tool}", _W, wire={"session": "session_id"}, refs=("session",)),
    # Care
    Operation("keys", "GET", "/keys", Scope.ADMIN, to_token=False),
    Operation("create_key", "POST", "/keys", Scope.ADMIN, status=201, to_token=False),
    Operation("revoke_key", "DELETE", "/keys/{key_id}", Scope.ADMIN, to_token=False),
    Operation("stats", "GET", "/analytics", _R, wire=_TASK, to_token=False),
    Operation("check", "GET", "/check", Scope.ADMIN, to_token=False),
)


def variants(name: str) -> list[Operation]:
    """Return the operations of one method: the one with the longest path first."""
    found = [operation for operation in OPERATIONS if operation.name == name]
    return sorted(found, key=lambda operation: -len(operation.in_path))
