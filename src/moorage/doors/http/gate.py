"""The gate: who is asking, and whether they may.

Without keys only requests that were meant for this machine get in: their Host is a local name. So a page on
the internet cannot talk to a server on the reader's own machine by pointing its name there (DNS rebinding).
`browsers.py` keeps other pages out, with keys and without. Once a store has keys, every request needs one, or
the token of a session.
"""

from __future__ import annotations

from datetime import timedelta
from functools import lru_cache
from typing import Protocol
from urllib.parse import urlsplit

from moorage.core.errors import Unauthorized
from moorage.core.key import Key, Scope
from moorage.doors.http.limits import Rates
from moorage.doors.http.refusals import NotLocal
from moorage.doors.http.visit import Visitor
from moorage.service import keys
from moorage.service.deps import Caller, Deps

LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
INTERFACES = frozenset({"rest", "python", "cli", "web", "mcp", "graphql", "grpc", "hooks"})
OF_A_TOKEN = frozenset({Scope.READ, Scope.WRITE})
OF_A_STRANGER = frozenset(Scope)  # on their own machine, without keys
STRANGER = "local"  # the identity of all who come without a key
TOKEN_PREFIX = "moors_"
LOOK_FOR_KEYS = timedelta(seconds=1)
MAX_NAME = 200


class Asking(Protocol):
    """A request, as far as it concerns the gate: HTTP's headers, gRPC's metadata."""

    @property
    def request_id(self) -> str:
        """By which the request is known."""

    @property
    def client(self) -> str:
        """The address that it comes from."""

    def header(self, name: bytes, /) -> str | None:
        """A header by its name in lower case."""


class Gate:
    """Lets requests in."""

    def __init__(
        self,
        deps: Deps,
        *,
        hosts: frozenset[str] = frozenset(),
        any_host: bool = False,
        closed: bool = False,
        rates: Rates | None = None,
    ) -> None:
        """`hosts` are names of this machine besides the usual. `closed`: nobody gets in without a key."""
        self._deps, self._closed, self._rates = deps, closed, rates
        self._hosts, self._any_host = LOCAL | hosts, any_host
        self._look_at = float("-inf")

    async def admit(self, asking: Asking) -> Visitor:
        """Who is asking. Raises what a stranger is told."""
        visitor = await self.look_at(asking)
        who = visitor.key_id or visitor.session_id
        if self._rates is not None and (who is not None or self._any_host):
            self._rates.take(asking.client if who is None else who)
        return visitor

    async def look_at(self, asking: Asking) -> Visitor:
        """The same for whoever was admitted before and is still here: it does not count as a request."""
        given = _bearer(asking)
        if given is None:
            return await self._stranger(asking)
        ask = self._token if given.startswith(TOKEN_PREFIX) else self._key
        return await ask(asking, given)

    async def _stranger(self, asking: Asking) -> Visitor:
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
        """Whether nobody gets in without a key: once somebody has made one, in this process or another."""
        now = self._deps.clock.monotonic()
        if not self._closed and now >= self._look_at:
            self._closed = await keys.has_keys(self._deps) or self._closed
            self._look_at = now + LOOK_FOR_KEYS.total_seconds()  # not before: whoever comes meanwhile must not slip in
        return self._closed

    async def _key(self, asking: Asking, text: str) -> Visitor:
        key = await keys.authenticate(self._deps, text)
        caller = Caller(
            owner=key.owner,
            by=key.name or key.key_id,
            interface=_interface(asking),
            holder=_holder(asking, key.key_id),
            scope=key.key_id,
        )
        return Visitor(caller, _scopes(key), key_id=key.key_id, owners=key.owners)

    async def _token(self, asking: Asking, text: str) -> Visitor:
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

    def _check_local(self, asking: Asking) -> None:
        host = asking.header(b"host") or ""
        if _host_of(f"//{host}") not in self._hosts:
            raise NotLocal("Host", host)


def _scopes(key: Key) -> frozenset[Scope]:
    return frozenset(scope for scope in Scope if key.allows(scope))


def _bearer(asking: Asking) -> str | None:
    """The key or the token that a request carries."""
    given = asking.header(b"authorization")
    if given is None:
        return asking.header(b"x-api-key")
    kind, _, text = given.partition(" ")
    if kind.lower() != "bearer":
        raise Unauthorized
    return text.strip()


@lru_cache
def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _interface(asking: Asking) -> str:
    told = asking.header(b"x-moorage-interface")
    return told if told in INTERFACES else "rest"


def _holder(asking: Asking, identity: str) -> str:
    """Who would drive a session: whoever has the key or token, told apart by the name they give themselves."""
    named = _name(asking, b"x-moorage-holder")
    return identity if named is None else f"{identity}:{named}"


def _of_session(session_id: str) -> str:
    """Name the identity of a session's token. People choose session ids: none may read like a key or another's name."""
    return f"session:{session_id.replace(':', '%3A')}"


def _name(asking: Asking, header: bytes) -> str | None:
    """A name that somebody gives themselves; shown, never trusted."""
    told = asking.header(header)
    return told[:MAX_NAME] if told and told.isprintable() else None
