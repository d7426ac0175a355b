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
from typing import Any

from msgspec import Struct

from moorage.core import key
from moorage.core.answer import Answer
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
from moorage.doors.http.authorizer import Authorizer, RequestHeaders
from moorage.doors.http.browsers import check_browser
from moorage.doors.http.exchange import (
    AsgiApp,
    AsgiReceive,
    AsgiScope,
    AsgiSend,
    ClientDisconnected,
    Exchange,
    RawHeaders,
)
from moorage.doors.http.limits import AccessCheck, Places
from moorage.doors.http.reading import (
    arguments_of,
    is_filled_in,
    knows,
    read_body,
    read_query,
    wanted_version,
)
from moorage.doors.http.refusals import NoSuchPath, Unexpected, WrongVerb
from moorage.doors.http.routing import Handler, Route, RouteNode, Routes
from moorage.doors.http.traces import Traces
from moorage.doors.http.visit import Visit, Visitor
from moorage.remote.operations import OPERATIONS, Operation
from moorage.service.about import learn, working_on
from moorage.service.deps import Caller, Deps
from moorage.service.words import Words

log = logging.getLogger(__name__)

Watcher = Callable[[str, int, float], None]  # the answering route, the status, the duration in seconds

NAMED_BY_HEADERS = (b"x-agent-session-id", b"x-agent-session-name")


class Door:
    """Answers HTTP requests on one store."""

    def __init__(
        self, deps: Deps, authorizer: Authorizer, *, watcher: Watcher | None = None, traces: Traces | None = None
    ) -> None:
        self.deps, self._authorizer, self._watcher, self._traces = deps, authorizer, watcher, traces
        self._by_owner: dict[str, Deps] = {}
        self._sockets: dict[str, AsgiApp] = {}
        self._closing: list[Callable[[], Awaitable[None]]] = []
        self.routes: list[Route] = []
        self.words, self.places = Words(), Places(deps.settings.server)
        self._tree = Routes()
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

    def route(self, verb: str, path: str, scope: key.Scope | None = None, **more: Any) -> Callable[[Handler], None]:
        """Add a route for a function, with its name and docstring; `more` are fields of a Route."""

        def add(endpoint: Any) -> None:
            told = {"name": endpoint.__name__, "summary": str(endpoint.__doc__).splitlines()[0].rstrip("."), **more}
            self.add(Route(verb=verb, path=path, endpoint=endpoint, scope=scope, **told))

        return add

    async def needs_key(self) -> bool:
        """Return whether every caller needs a key."""
        return await self._authorizer.is_closed()

    def add_socket(self, path: str, endpoint: AsgiApp) -> None:
        """Accept WebSockets at a path; the endpoint asks the authorizer."""
        self._sockets[path] = endpoint

    async def admit(self, exchange: Exchange) -> Visitor:
        """Return the visitor. Raise AccessError for an unauthorized caller, and for a page of a foreign origin."""
        check_browser(exchange, self.deps.settings.server.allowed_origins)
        return await self._authorizer.admit(exchange)

    def access(self, exchange: Exchange, every: float) -> AccessCheck:
        """Return a periodic access check for the reader of a stream."""
        return AccessCheck(lambda: self._authorizer.look_at(exchange), every)

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
        known = self._by_owner.get(owner)
        if known is None:
            known = self._by_owner[owner] = self.deps.like()
        return known

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        """Handle one request (ASGI)."""
        if scope["type"] == "websocket":
            await self._sockets.get(_raw_path(scope), _no_socket)(scope, receive, send)
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
            if self._traces is None:
                await self._answer(exchange, route)
            else:
                with self._traces.request(exchange, route.name):
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
            if self._watcher is not None:
                self._watcher(name, exchange.status, took)
            if log.isEnabledFor(logging.DEBUG):
                told = {"operation": name, "status": exchange.status, "seconds": round(took, 6)}
                log.debug("%s %s: %d", exchange.verb, exchange.path, exchange.status, extra=told)

    async def _answer(self, exchange: Exchange, route: Route) -> None:
        if route.is_open:
            await route.endpoint(exchange, STRANGER)
            return
        visitor = await self.admit(exchange)
        if route.scope is not None:
            key.check_held(visitor.scopes, route.scope, route.or_scope)
        if visitor.session_id is not None:
            await self._check_token(exchange, visitor, route)
        request = () if route.operation is not None else await _request_of(route, exchange)
        await route.endpoint(exchange, visitor, *request)

    async def _check_token(self, exchange: Exchange, visitor: Visitor, route: Route) -> None:
        """Raise OutOfReach unless the session's token may use the route and reaches the session of its path."""
        assert visitor.session_id is not None
        if not route.to_token:
            raise OutOfReach(visitor.session_id)
        if route.operation is None and (ref := exchange.params.get("session_id")) is not None:
            await self.visit(exchange, visitor).check_access("ref", ref)

    async def _refuse(self, exchange: Exchange, error: MoorageError) -> None:
        if exchange.status:  # the answer has begun, so it can only be aborted
            raise error
        status = 412 if isinstance(error, VersionConflict) and b"if-match" in exchange.headers else None
        await exchange.problem(error, status=status, headers=headers_of(error))

    async def _call(self, operation: Operation, exchange: Exchange, visitor: Visitor) -> None:
        """Answer with the result of one method."""
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
    session = next((name for name in map(asking.header, NAMED_BY_HEADERS) if is_filled_in(name)), None)
    return Visit(deps, visitor, session=session, run=asking.header(b"x-agent-run-id"))


async def _request_of(route: Route, exchange: Exchange) -> tuple[Any, ...]:
    """Return the query or the body of a request as a value of the route's type, if it has one."""
    if route.query is not None:
        return (read_query(exchange, route.query),)
    if isinstance(route.body, type) and issubclass(route.body, Struct):
        return (read_body(await exchange.body(), route.body),)
    return ()


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
