"""The HTTP door as one ASGI application.

Every request takes the same path: find the route, admit the caller, read the request, answer it with one call or with
the error of that call. Nothing here decides anything about sessions.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from math import ceil
from time import perf_counter
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from msgspec import Struct

from moorage.core.answer import Answer
from moorage.core.codec import encode
from moorage.core.entry import Entry
from moorage.core.errors import (
    MoorageError,
    OutOfReach,
    RateLimited,
    StoreError,
    Unauthorized,
    VersionConflict,
    edge_of,
)
from moorage.core.key import Scope, check_held
from moorage.core.query import Page
from moorage.core.render import public_fields, to_json
from moorage.core.run import Run
from moorage.core.session import Session
from moorage.doors.http.authorizer import AccessCheck, Authorizer, Places, RequestHeaders, check_browser
from moorage.doors.http.exchange import (
    AsgiApp,
    AsgiReceive,
    AsgiScope,
    AsgiSend,
    ClientDisconnected,
    Exchange,
    RawHeaders,
)
from moorage.doors.http.reading import arguments_of, is_filled_in, knows, read_body, read_query, wanted_version
from moorage.doors.http.refusals import NoSuchPath, Unexpected, WrongVerb
from moorage.doors.http.visit import Visit, Visitor
from moorage.remote.operations import OPERATIONS, Operation
from moorage.service.about import learn, working_on
from moorage.service.deps import Caller, Deps
from moorage.service.words import Words

if TYPE_CHECKING:
    from moorage.doors.http.monitoring import Traces

log = logging.getLogger(__name__)

Handler = Callable[..., Awaitable[None]]  # of an exchange, a visitor and the request, if the route has a type for it
Watcher = Callable[[str, int | str, float], None]  # the route or call, its status, the duration in seconds


class Route(Struct, frozen=True, kw_only=True):
    """One kind of request, its endpoint, and its facts for the OpenAPI document."""

    verb: str
    path: str
    name: str
    endpoint: Handler
    scope: Scope | None = None  # without one, any visitor may call it
    or_scope: Scope | None = None  # an alternative scope
    to_token: bool = True  # else it concerns all of an owner's sessions or more, which no session's token reaches
    is_open: bool = False  # answered before the authorizer
    summary: str | None = None  # without one, it is not in the document
    query: type[Struct] | None = None  # the type of the query, as which it is passed to the endpoint
    body: Any = None  # the same of the body; None: it has none; `bytes`: a file, which the endpoint reads
    may_be_empty: bool = False  # whether a file may be empty
    answer: Any = None  # the type of the answer; None: text
    kind: str = "application/json"
    status: int = 200
    or_as: tuple[str, ...] = ()  # other text types of a 200, on request
    operation: Operation | None = None  # the row of the table it was generated from, with all other facts


class RouteNode:
    """A node of the tree of path segments: finding a route costs a few lookups, however many routes there are."""

    __slots__ = ("below", "name", "routes", "variable")

    def __init__(self, name: str = "") -> None:
        self.name = name  # of a variable segment
        self.below: dict[str, RouteNode] = {}
        self.variable: RouteNode | None = None
        self.routes: dict[str, Route] = {}  # by verb

    def add(self, route: Route) -> None:
        """Add a route below this node."""
        node, path = self, route.path
        for segment in path.strip("/").split("/"):
            if segment.startswith("{"):
                name = segment.strip("{}")
                node.variable = node.variable or RouteNode(name)
                assert node.variable.name == name, f"two names for one place in {path}"
                node = node.variable
            else:
                node = node.below.setdefault(segment, RouteNode())
        assert route.verb not in node.routes, f"{route.verb} {path} is there already"
        node.routes[route.verb] = route

    def find(self, path: str) -> tuple[RouteNode, dict[str, str]] | None:
        """Return the node of a path (still percent-encoded) and the values of its variable segments."""
        node, params = self, {}
        for segment in path.strip("/").split("/"):
            if (literal := node.below.get(segment)) is not None:
                node = literal
            elif node.variable is not None and segment:
                node = node.variable
                params[node.name] = unquote(segment, errors="replace") if "%" in segment else segment
            else:
                return None
        return (node, params) if node.routes else None


class Door:
    """Answers HTTP requests on one store."""

    def __init__(
        self, deps: Deps, authorizer: Authorizer, *, watcher: Watcher | None = None, traces: Traces | None = None
    ) -> None:
        self.deps, self.authorizer, self.watcher, self.traces = deps, authorizer, watcher, traces
        self._by_owner: dict[str, Deps] = {}
        self.sockets: dict[str, AsgiApp] = {}  # WebSockets by path; each asks the authorizer itself
        self._closing: list[Callable[[], Awaitable[None]]] = []
        self.routes: list[Route] = []
        self.words, self.places = Words(), Places(deps.settings.server)
        self._tree = RouteNode()
        for operation in OPERATIONS:
            self.add_operation(operation)

    def add_operation(self, operation: Operation, name: str | None = None) -> None:
        """Add a route for a method of `Moorage`; `name` is that of the route, if not the method's."""
        self.add(
            Route(
                verb=operation.verb,
                path=operation.path,
                name=name or operation.name,
                endpoint=partial(self._call, operation),
                scope=operation.scope,
                or_scope=operation.or_scope,
                to_token=operation.to_token,
                operation=operation,
            )
        )

    def add(self, route: Route) -> None:
        """Add a route."""
        self._tree.add(route)
        self.routes.append(route)

    def route(self, verb: str, path: str, scope: Scope | None = None, **more: Any) -> Callable[[Handler], None]:
        """Add a route for a function, with its name and docstring; `more` are fields of a Route."""

        def add(endpoint: Any) -> None:
            told = {"name": endpoint.__name__, "summary": str(endpoint.__doc__).splitlines()[0].rstrip("."), **more}
            self.add(Route(verb=verb, path=path, endpoint=endpoint, scope=scope, **told))

        return add

    async def admit(self, exchange: Exchange) -> Visitor:
        """Return the visitor. Raise AccessError for an unauthorized caller, and for a page of a foreign origin."""
        check_browser(exchange, self.deps.settings.server.allowed_origins)
        return await self.authorizer.admit(exchange)

    def access(self, exchange: Exchange, every: float) -> AccessCheck:
        """Return a periodic access check for the reader of a stream."""
        return AccessCheck(lambda: self.authorizer.look_at(exchange), every)

    def on_close(self, close: Callable[[], Awaitable[None]]) -> None:
        """Call this when the door is closed."""
        self._closing.append(close)

    async def close(self) -> None:
        """End everything that would never end by itself."""
        for close in self._closing:
            await close()

    def visit(self, exchange: Exchange, visitor: Visitor) -> Visit:
        """Return Moorage as seen by this visitor."""
        return visit_of(self.deps_of(visitor.caller.owner), visitor, exchange)

    async def visit_to_change(self, exchange: Exchange, visitor: Visitor) -> Visit:
        """Return the same for a request that changes the session of its path, at the version that If-Match names.

        Raises VersionConflict if the session has another version; the store compares again at the first change.
        """
        moor, version, ref = self.visit(exchange, visitor), wanted_version(exchange), exchange.params.get("session_id")
        if version is None or ref is None:
            return moor
        session = await moor.get(ref)
        session.check_version(version)
        return moor.on(moor.deps.at_version(ref, session))

    def deps_of(self, owner: str) -> Deps:
        """Return the same store and settings for an owner; expired sessions are checked for each owner separately."""
        if owner not in self._by_owner:
            self._by_owner[owner] = self.deps.like()
        return self._by_owner[owner]

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        """Handle one request (ASGI)."""
        if scope["type"] == "websocket":
            await self.sockets.get(_raw_path(scope), _no_socket)(scope, receive, send)
            return
        found = self._tree.find(_raw_path(scope)) if scope["type"] == "http" else None
        exchange = Exchange(scope, receive, send, request_id(scope, self.deps))
        with working_on(request_id=exchange.request_id):
            await self._attended(exchange, found)

    async def _attended(self, exchange: Exchange, found: tuple[RouteNode, dict[str, str]] | None) -> None:
        """Answer in any case, and report the request to watchers."""
        began, name = perf_counter(), "none"
        try:
            route = _chosen(exchange, found)
            name = route.name
            learn(session=exchange.params.get("session_id"), run=exchange.params.get("run_id"))
            if self.traces is None:
                await self._answer(exchange, route)
            else:
                with self.traces.request(exchange, route.name):
                    await self._answer(exchange, route)
        except ClientDisconnected:
            exchange.status = exchange.status or 499
        except MoorageError as error:
            if edge_of(error).http >= 500:
                log.error("%s %s: %s", exchange.verb, exchange.path, error.message)
            await self._refuse(exchange, error)
        except Exception:
            log.exception("%s %s failed", exchange.verb, exchange.path)
            await self._refuse(exchange, Unexpected())
        finally:
            took = perf_counter() - began
            if self.watcher is not None:
                self.watcher(name, exchange.status, took)
            if log.isEnabledFor(logging.DEBUG):
                told = {"operation": name, "status": exchange.status, "seconds": round(took, 6)}
                log.debug("%s %s: %d", exchange.verb, exchange.path, exchange.status, extra=told)

    async def _answer(self, exchange: Exchange, route: Route) -> None:
        if route.is_open:
            await route.endpoint(exchange, STRANGER)
            return
        visitor = await self.admit(exchange)
        if route.scope is not None:
            check_held(visitor.scopes, route.scope, route.or_scope)
        if visitor.session_id is not None:
            if not route.to_token:
                raise OutOfReach(visitor.session_id)
            if route.operation is None and (ref := exchange.params.get("session_id")) is not None:
                await self.visit(exchange, visitor).check_access("ref", ref)
        if route.query is not None:
            await route.endpoint(exchange, visitor, read_query(exchange, route.query))
        elif isinstance(route.body, type) and issubclass(route.body, Struct):
            await route.endpoint(exchange, visitor, read_body(await exchange.body(), route.body))
        else:
            await route.endpoint(exchange, visitor)

    async def _refuse(self, exchange: Exchange, error: MoorageError) -> None:
        if exchange.status:  # the answer has begun, so it can only be aborted
            raise error
        status = 412 if isinstance(error, VersionConflict) and b"if-match" in exchange.headers else None
        await exchange.problem(error, status=status, headers=headers_of(error))

    async def _call(self, operation: Operation, exchange: Exchange, visitor: Visitor) -> None:
        arguments = await arguments_of(operation, exchange)
        moor = self.visit(exchange, visitor)
        if visitor.session_id is not None:
            await moor.check_operation(operation, arguments)
        if operation.verb != "GET" and b"if-match" in exchange.headers:
            moor = await self.visit_to_change(exchange, visitor)
        value = await operation.method(moor)(**arguments)
        _learn_from(value)
        status, body, headers = operation.status, answer_of(operation, value), []
        if type(value) is Session:
            headers = [(b"etag", etag_of(value))]
            if operation.verb == "GET" and knows(exchange, headers[0][1]):
                status, body = 304, b""
        await exchange.answer(body, status=status, headers=headers)


STRANGER = Visitor(Caller(owner="", by=None, interface="rest", holder=""), frozenset())  # not yet authorized


def visit_of(deps: Deps, visitor: Visitor, asking: RequestHeaders) -> Visit:
    """Return Moorage as seen by this visitor; the headers name the calling session and run, if any."""
    named = map(asking.header, (b"x-agent-session-id", b"x-agent-session-name"))
    session = next(filter(is_filled_in, named), None)
    return Visit(deps, visitor, session=session, run=asking.header(b"x-agent-run-id"))


def _chosen(exchange: Exchange, found: tuple[RouteNode, dict[str, str]] | None) -> Route:
    """Return the route of the request. Raise NoSuchPath or WrongVerb."""
    if found is None:
        raise NoSuchPath(exchange.path)
    node, exchange.params = found
    route = node.routes.get("GET" if exchange.verb == "HEAD" else exchange.verb)
    if route is None:
        raise WrongVerb(exchange.verb, sorted(node.routes))
    return route


def headers_of(error: MoorageError) -> RawHeaders:
    """Return the response headers of an error."""
    if isinstance(error, WrongVerb):
        return [(b"allow", ", ".join(error.allowed).encode())]
    if isinstance(error, RateLimited):
        return [(b"retry-after", str(ceil(error.retry_after)).encode())]
    if isinstance(error, StoreError):
        return [(b"retry-after", b"1")]
    return [(b"www-authenticate", b"Bearer")] if isinstance(error, Unauthorized) else []


def _learn_from(value: Any) -> None:
    """Add ids from the answer to later lines of the log."""
    if type(value) is Answer:
        value = value.run
    if type(value) is Session:
        learn(session=value.session_id, task=value.task_id)
    elif type(value) is Run:
        learn(session=value.session_id, task=value.task_id, run=value.run_id)


async def _no_socket(_: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
    """Refuse a WebSocket at a path without one, before it is opened."""
    await receive()
    await send({"type": "websocket.close", "code": 1000})


def _raw_path(scope: AsgiScope) -> str:
    """Return the path as it was sent: an encoded slash separates nothing."""
    raw = scope.get("raw_path")
    return str(scope["path"]) if raw is None else str(raw.decode("latin-1").partition("?")[0])


def request_id(scope: AsgiScope, deps: Deps) -> str:
    """Return the caller's request id, else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and 0 < len(value) <= 128 and value.isascii() and value.decode().isprintable():
            return str(value.decode())
    return deps.entropy(8).hex()


# Answers ----------------------------------------------------------------------------------------


def answer_of(operation: Operation, value: Any) -> bytes:
    """Encode the result of a method."""
    if type(value) is Session:
        return encode(public_fields(value))
    if operation.is_list:
        value = Page(value)
    if operation.wraps is not None:
        value = {operation.wraps: value}
    return document(value)


def document(value: Any) -> bytes:
    """Return any of our values as a JSON document."""
    if type(value) is Page:
        kinds = {type(item) for item in value.items}
        if kinds <= {Session}:
            return encode({"items": [public_fields(item) for item in value.items], "next": value.next})
        if kinds <= {Entry}:
            return encode(value)
    return encode(to_json(value))


def etag_of(session: Session) -> bytes:
    """Return the entity tag of a session: its version and its last entry."""
    return f'"{session.version}-{session.last_entry}"'.encode()
