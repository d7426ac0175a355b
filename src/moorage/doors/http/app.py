"""The HTTP door as one ASGI application.

Every request passes the same way: found in the tree of routes, let in at the gate, read, answered
by one call, or by the error that call ended with. Nothing here decides anything about sessions.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from math import ceil
from time import perf_counter
from typing import Any

from moorage.core import key
from moorage.core.errors import (
    MoorageError,
    OutOfReach,
    RateLimited,
    StoreError,
    Unauthorized,
    VersionConflict,
    edge_of,
)
from moorage.core.run import Run
from moorage.core.session import Session
from moorage.doors.http.answers import answer_of, etag_of
from moorage.doors.http.browsers import check_browser
from moorage.doors.http.described import Described
from moorage.doors.http.exchange import App, Exchange, Gone, Headers, Receive, Scope, Send
from moorage.doors.http.gate import Gate
from moorage.doors.http.reach import check_reach
from moorage.doors.http.reading import arguments_of, knows, wanted_version
from moorage.doors.http.refusals import NoSuchPath, Unexpected, WrongVerb
from moorage.doors.http.routing import Node, Routes
from moorage.doors.http.standing import Standing
from moorage.doors.http.traces import Traces
from moorage.doors.http.visit import Visit, Visitor
from moorage.remote.operations import OPERATIONS, Operation
from moorage.service.about import learn, working_on
from moorage.service.at_version import at_version
from moorage.service.deps import Caller, Deps
from moorage.service.runs import RunReply
from moorage.service.words import Words

log = logging.getLogger(__name__)

Endpoint = Callable[[Exchange, Visitor], Awaitable[None]]
Watcher = Callable[[Exchange, str, float], None]  # what was asked, the route that answered, the seconds it took

NAMED_BY_HEADERS = (b"x-agent-session-id", b"x-agent-session-name")


class Route:
    """How one thing is asked for, and what answers it."""

    __slots__ = ("endpoint", "is_open", "name", "or_scope", "scope", "to_token")

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        scope: key.Scope | None = None,
        *,
        is_open: bool = False,
        to_token: bool = True,
        or_scope: key.Scope | None = None,
    ) -> None:
        """Without a scope, any visitor may ask; what is open is answered before the gate. `or_scope` is enough as well.

        What is not `to_token` is about all of an owner's sessions or more, which no session's token reaches.
        """
        self.name, self.endpoint, self.is_open, self.to_token = name, endpoint, is_open, to_token
        self.scope, self.or_scope = scope, or_scope


class Door:
    """Answers HTTP requests on one store."""

    def __init__(
        self,
        deps: Deps,
        gate: Gate,
        *,
        rest: App | None = None,
        watcher: Watcher | None = None,
        traces: Traces | None = None,
    ) -> None:
        """`rest` answers what is on no route of ours: pages, other doors."""
        self.deps, self._gate, self._rest, self._watcher, self._traces = deps, gate, rest, watcher, traces
        self._by_owner: dict[str, Deps] = {}
        self._sockets: dict[str, App] = {}
        self._closing: list[Callable[[], Awaitable[None]]] = []
        self.described: list[tuple[str, str, Described]] = []
        self.words = Words()
        self.documents: dict[bool, dict[str, Any]] = {}  # OpenAPI's, by whether a key is needed
        self._routes = Routes()
        for operation in OPERATIONS:
            calling, scope, or_scope = self._calling(operation), operation.scope, operation.or_scope
            self.add(operation.verb, operation.path, Route(operation.name, calling, scope, or_scope=or_scope))

    def add(self, verb: str, path: str, route: Route, described: Described | None = None) -> None:
        """Answer `verb path` from now on; what is described is in the OpenAPI document."""
        self._routes.add(verb, path, route)
        if described is not None:
            self.described.append((verb, path, described))

    async def needs_key(self) -> bool:
        """Whether nobody gets in without a key."""
        return await self._gate.is_closed()

    def add_socket(self, path: str, endpoint: App) -> None:
        """Let WebSockets be opened at a path; whoever answers them asks the gate."""
        self._sockets[path] = endpoint

    async def admit(self, exchange: Exchange) -> Visitor:
        """Return the visitor. Raises AccessError for a stranger, and for a page that may not ask."""
        check_browser(exchange, self.deps.settings.server.allowed_origins)
        return await self._gate.admit(exchange)

    def standing(self, exchange: Exchange, every: float) -> Standing:
        """How whoever reads a stream stands, looked at every so many seconds."""
        return Standing(lambda: self._gate.look_at(exchange), every)

    def on_close(self, close: Callable[[], Awaitable[None]]) -> None:
        """Do this when the door is closed."""
        self._closing.append(close)

    async def close(self) -> None:
        """End what would never end by itself."""
        for close in self._closing:
            await close()

    def visit(self, exchange: Exchange, visitor: Visitor) -> Visit:
        """Moorage as this visitor sees it; the headers name the session and the run that ask, if any do."""
        session = next((name for name in map(exchange.header, NAMED_BY_HEADERS) if is_filled_in(name)), None)
        run = exchange.header(b"x-agent-run-id")
        return Visit(self.deps_of(visitor.caller.owner), visitor, session=session, run=run)

    async def visit_to_change(self, exchange: Exchange, visitor: Visitor) -> Visit:
        """The same for a request that changes the session of its path, at the version that If-Match names.

        Raises VersionConflict if it is at another one now; at its first change the store compares again.
        """
        moor, version, ref = self.visit(exchange, visitor), wanted_version(exchange), exchange.params.get("session_id")
        if version is None or ref is None:
            return moor
        session = await moor.get(ref)
        session.check_version(version)
        return moor.on(at_version(moor.deps, ref, session))

    def deps_of(self, owner: str) -> Deps:
        """The same store and settings; whose time runs out is looked at for each owner alone."""
        known = self._by_owner.get(owner)
        if known is None:
            mine = self.deps
            known = self._by_owner[owner] = Deps(
                mine.store,
                mine.clock,
                mine.entropy,
                mine.settings,
                mine.find_agent,
                mine.registered,
                mine.defined_agents,
            )
        return known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI: one request."""
        if scope["type"] == "websocket":
            await self._sockets.get(_raw_path(scope), _no_socket)(scope, receive, send)
            return
        found = self._routes.find(_raw_path(scope)) if scope["type"] == "http" else None
        if found is None and self._rest is not None:
            await self._rest(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send, request_id(scope, self.deps))
        with working_on(request_id=exchange.request_id):
            await self._attended(exchange, found)

    async def _attended(self, exchange: Exchange, found: tuple[Node, dict[str, str]] | None) -> None:
        """Answer, whatever happens, and tell those who watch."""
        began, name = perf_counter(), "none"
        try:
            route = _chosen(exchange, found)
            name = route.name
            learn(session=exchange.params.get("session_id"), run=exchange.params.get("run_id"))
            await self._traced(exchange, route)
        except Gone:
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
            if self._watcher is not None:
                self._watcher(exchange, name, took)
            if log.isEnabledFor(logging.DEBUG):
                told = {"operation": name, "status": exchange.status, "seconds": round(took, 6)}
                log.debug("%s %s: %d", exchange.verb, exchange.path, exchange.status, extra=told)

    async def _traced(self, exchange: Exchange, route: Route) -> None:
        if self._traces is None:
            await self._answer(exchange, route)
            return
        with self._traces.request(exchange, route.name):
            await self._answer(exchange, route)

    async def _answer(self, exchange: Exchange, route: Route) -> None:
        if route.is_open:
            await route.endpoint(exchange, STRANGER)
            return
        visitor = await self.admit(exchange)
        if route.scope is not None:
            key.check_held(visitor.scopes, route.scope, route.or_scope)
        if visitor.session_id is not None and not route.to_token:
            raise OutOfReach(visitor.session_id)
        await route.endpoint(exchange, visitor)

    async def _refuse(self, exchange: Exchange, error: MoorageError) -> None:
        if exchange.status:  # the answer has begun: all that is left is to break it off
            raise error
        status = 412 if isinstance(error, VersionConflict) and b"if-match" in exchange.headers else None
        await exchange.problem(error, status=status, headers=headers_of(error))

    def _calling(self, operation: Operation) -> Endpoint:
        """An endpoint that calls one method."""
        door, _, method = operation.name.rpartition(".")

        async def endpoint(exchange: Exchange, visitor: Visitor) -> None:
            arguments = await arguments_of(operation, exchange)
            moor = self.visit(exchange, visitor)
            if visitor.session_id is not None:
                await check_reach(moor, visitor, operation, arguments)
            if operation.verb != "GET" and b"if-match" in exchange.headers:
                moor = await self.visit_to_change(exchange, visitor)
            target: Any = moor.context if door else moor
            value = await getattr(target, method)(**arguments)
            _learn_from(value)
            if type(value) is not Session:
                await exchange.answer(answer_of(operation, value), status=operation.status)
                return
            await _answer_session(exchange, operation, value)

        return endpoint


async def _answer_session(exchange: Exchange, operation: Operation, session: Session) -> None:
    tag = etag_of(session)
    if operation.verb == "GET" and knows(exchange, tag):
        await exchange.answer(b"", status=304, headers=[(b"etag", tag)])
        return
    await exchange.answer(answer_of(operation, session), status=operation.status, headers=[(b"etag", tag)])


STRANGER = Visitor(Caller(owner="", by=None, interface="rest", holder=""), frozenset())  # who passed no gate


def _chosen(exchange: Exchange, found: tuple[Node, dict[str, str]] | None) -> Route:
    """The route for what is asked. Raises NoSuchPath, WrongVerb."""
    if found is None:
        raise NoSuchPath(exchange.path)
    node, exchange.params = found
    route: Route | None = node.routes.get("GET" if exchange.verb == "HEAD" else exchange.verb)
    if route is None:
        raise WrongVerb(exchange.verb, sorted(node.routes))
    return route


def headers_of(error: MoorageError) -> Headers:
    """What an error says in headers besides."""
    if isinstance(error, WrongVerb):
        return [(b"allow", ", ".join(error.allowed).encode())]
    if isinstance(error, RateLimited):
        return [(b"retry-after", str(ceil(error.retry_after)).encode())]
    if isinstance(error, StoreError):
        return [(b"retry-after", b"1")]
    return [(b"www-authenticate", b"Bearer")] if isinstance(error, Unauthorized) else []


def _learn_from(value: Any) -> None:
    """From the answer on, lines of the log name what it is about."""
    if type(value) is RunReply:
        value = value.run
    if type(value) is Session:
        learn(session=value.session_id, task=value.task_id)
    elif type(value) is Run:
        learn(session=value.session_id, task=value.task_id, run=value.run_id)


def is_filled_in(name: str | None) -> bool:
    """Whether a header names something; a template that nobody filled in names nothing."""
    if name and name.startswith("${"):
        log.warning("a header still reads %s: nobody filled it in; it counts as absent", name[:100])
        return False
    return bool(name)


async def _no_socket(_: Scope, receive: Receive, send: Send) -> None:
    """Nothing answers here: refused before it is opened."""
    await receive()
    await send({"type": "websocket.close", "code": 1000})


def _raw_path(scope: Scope) -> str:
    """The path as it was sent: an encoded slash parts nothing."""
    raw = scope.get("raw_path")
    return str(scope["path"]) if raw is None else str(raw.decode("latin-1").partition("?")[0])


def request_id(scope: Scope, deps: Deps) -> str:
    """The id the caller gave the request, else one of ours."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and 0 < len(value) <= 128 and value.isascii() and value.decode().isprintable():
            return str(value.decode())
    return deps.entropy(8).hex()
