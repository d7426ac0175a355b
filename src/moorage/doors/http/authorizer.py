"""The authorizer: authenticates each request and returns its scopes.

Without keys, only requests with a local name as their Host are accepted, so a page on the internet cannot call a server
on the reader's machine by DNS rebinding. `browsers.py` rejects requests of other pages, with keys and without. Once a
store has keys, every request needs a key or a session token.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol
from urllib.parse import urlsplit

from moorage.adapters import FRAMEWORKS
from moorage.core.errors import Unauthorized
from moorage.core.key import Scope
from moorage.doors.http.limits import Rates
from moorage.doors.http.refusals import NotLocal
from moorage.doors.http.visit import Visitor
from moorage.service import keys
from moorage.service.deps import Caller, Deps

LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
INTERFACES = frozenset({"rest", "python", "cli", "web", "mcp", "graphql", "grpc", "hooks", *FRAMEWORKS})
OF_A_TOKEN = frozenset({Scope.READ, Scope.WRITE})
OF_A_STRANGER = frozenset(Scope)  # a local caller, without keys
STRANGER = "local"  # the identity of all callers without a key
TOKEN_PREFIX = "moors_"
LOOK_FOR_KEYS = timedelta(seconds=1)
MAX_NAME = 200


class RequestHeaders(Protocol):
    """The part of a request that the authorizer reads: HTTP headers or gRPC metadata."""

    @property
    def request_id(self) -> str:
        """Return the id of the request."""

    @property
    def client(self) -> str:
        """Return the address of the client."""

    def header(self, name: bytes, /) -> str | None:
        """Return a header by its name in lower case."""


class Authorizer:
    """Authenticates requests."""

    def __init__(
        self,
        deps: Deps,
        *,
        hosts: frozenset[str] = frozenset(),
        any_host: bool = False,
        closed: bool = False,
        rates: Rates | None = None,
    ) -> None:
        """Set up the authorizer. `hosts` are further names of this machine. `closed`: every caller needs a key."""
        self._deps, self._closed, self._rates = deps, closed, rates
        self._hosts, self._any_host = LOCAL | hosts, any_host
        self._look_at = float("-inf")

    async def admit(self, asking: RequestHeaders) -> Visitor:
        """Return the visitor. Raise the error for an unauthorized caller."""
        visitor = await self.look_at(asking)
        who = visitor.key_id or visitor.session_id
        if self._rates is not None and (who is not None or self._any_host):
            self._rates.take(asking.client if who is None else who)
        return visitor

    async def look_at(self, asking: RequestHeaders) -> Visitor:
        """Return the visitor again, for the reader of a stream who was admitted before; this counts no request."""
        given = _bearer(asking)
        if given is None:
            return await self._stranger(asking)
        ask = self._token if given.startswith(TOKEN_PREFIX) else self._key
        return await ask(asking, given)

    async def _stranger(self, asking: RequestHeaders) -> Visitor:
        if not self._closed and not self._any_host:
            self._check_local(asking)
        if await self.is_closed():
            raise Unauthorized
        named = _name(asking, b"x-moorage-holder")
        caller = Caller(
            owner="local",
            by=_name(asking, b"x-moorage-by") or "local",
            interface=_interface(asking),
            holder=f"{STRANGER}:{named or f'{_interface(asking)}-{asking.request_id}'}",
            scope=STRANGER,
        )
        return Visitor(caller, OF_A_STRANGER, can_hold=named is not None)

    async def is_closed(self) -> bool:
        """Return whether every caller needs a key: once there is one, created by this process or another."""
        now = self._deps.clock.monotonic()
        if not self._closed and now >= self._look_at:
            self._closed = await keys.has_keys(self._deps) or self._closed
            self._look_at = now + LOOK_FOR_KEYS.total_seconds()  # set after the read, so that no request slips through
        return self._closed

    async def _key(self, asking: RequestHeaders, text: str) -> Visitor:
        key = await keys.authenticate(self._deps, text)
        caller = Caller(
            owner=key.owner,
            by=key.name or key.key_id,
            interface=_interface(asking),
            holder=_holder(asking, key.key_id),
            scope=key.key_id,
        )
        return Visitor(caller, frozenset(filter(key.allows, Scope)), key_id=key.key_id, owners=key.owners)

    async def _token(self, asking: RequestHeaders, text: str) -> Visitor:
        token = await keys.read_token(self._deps, text)
        identity = _of_session(token.session_id)
        caller = Caller(
            owner=token.owner,
            by=f"session {token.session_id}",
            interface=_interface(asking),
            holder=_holder(asking, identity),
            scope=identity,
            session_id=token.session_id,
            run_id=token.run_id,
        )
        return Visitor(caller, OF_A_TOKEN, session_id=token.session_id)

    def _check_local(self, asking: RequestHeaders) -> None:
        host = asking.header(b"host") or ""
        if _host_of(f"//{host}") not in self._hosts:
            raise NotLocal("Host", host)


def _bearer(asking: RequestHeaders) -> str | None:
    """Return the key or the token of a request."""
    given = asking.header(b"authorization")
    if given is None:
        return asking.header(b"x-api-key")
    kind, _, text = given.partition(" ")
    if kind.lower() != "bearer":
        raise Unauthorized
    return text.strip()


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _interface(asking: RequestHeaders) -> str:
    told = asking.header(b"x-moorage-interface")
    return told if told in INTERFACES else "rest"


def _holder(asking: RequestHeaders, identity: str) -> str:
    """Return the holder for this caller: the key or token, and the name that the caller chose."""
    named = _name(asking, b"x-moorage-holder")
    return identity if named is None else f"{identity}:{named}"


def _of_session(session_id: str) -> str:
    """Return the identity of a session's token. Users choose session ids: none may look like a key or another name."""
    return f"session:{session_id.replace(':', '%3A')}"


def _name(asking: RequestHeaders, header: bytes) -> str | None:
    """Return the name that a caller chose; it is shown, never trusted."""
    told = asking.header(header)
    return told[:MAX_NAME] if told and told.isprintable() else None
