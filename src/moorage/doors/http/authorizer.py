"""The authorizer: authenticates each request, returns its scopes, and limits the requests and streams of one visitor.

Without keys, only requests with a local name as their Host are accepted, so a page on the internet cannot call a server
on the reader's machine by DNS rebinding. Once a store has keys, every request needs a key or a session token.

A browser sends the origin of the calling page (`Origin`, `Sec-Fetch-Site`). Only pages of this very server may call it,
with the port compared too: another program on the same machine has its own port. Pages of other origins need to be
allowed by configuration (`server.allowed_origins`). Programs send neither header and are not concerned.

Servers of one store share the rate of a visitor evenly, so that together they allow no more than the limit. No server
has to ask another one for each request; a visitor that always uses the same server gets only its share.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from time import monotonic
from typing import Protocol
from urllib.parse import urlsplit

from moorage.adapters import FRAMEWORKS
from moorage.core.errors import RateLimited, StoreError, Unauthorized
from moorage.core.key import Scope
from moorage.doors.http.exchange import Exchange
from moorage.doors.http.refusals import ForeignOrigin, FormType, NotLocal, RepeatedHeader, TooManyStreams
from moorage.doors.http.visit import Visitor
from moorage.service import keys
from moorage.service.deps import STRANGER, Caller, Deps, ServerSettings

LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
INTERFACES = frozenset({"rest", "python", "cli", "web", "mcp", "graphql", "grpc", "hooks", *FRAMEWORKS})
OF_A_TOKEN = frozenset({Scope.READ, Scope.WRITE})
TOKEN_PREFIX = "moors_"
LOOK_FOR_KEYS = timedelta(seconds=1)
MAX_NAME = 200
MOST_VISITORS = 10_000  # whose buckets are kept; the least recently seen are dropped first
LOOK_EVERY = 15.0  # seconds between two access checks of a stream's reader

PORTS = {"http": 80, "https": 443}
OWN_SITES = frozenset({"same-origin", "none"})  # none: typed by the user
READING = frozenset({"GET", "HEAD", "OPTIONS"})
# A page may send these types to any server without a preflight request, so no body of ours has one of them.
FORM_TYPES = frozenset({"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"})


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
        named, interface = _name(asking, b"x-moorage-holder"), _interface(asking)
        caller = Caller(
            owner="local",
            by=_name(asking, b"x-moorage-by") or "local",
            interface=interface,
            holder=f"{STRANGER}:{named or f'{interface}-{asking.request_id}'}",
            scope=STRANGER,
        )
        return Visitor(caller, can_hold=named is not None)

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
        host, name = asking.header(b"host") or "", None
        with suppress(ValueError):
            name = urlsplit(f"//{host}").hostname
        if name not in self._hosts:
            raise NotLocal(host)


def _bearer(asking: RequestHeaders) -> str | None:
    """Return the key or the token of a request."""
    given = asking.header(b"authorization")
    if given is None:
        return asking.header(b"x-api-key")
    kind, _, text = given.partition(" ")
    if kind.lower() != "bearer":
        raise Unauthorized
    return text.strip()


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


# Browsers ---------------------------------------------------------------------------------------


def check_browser(exchange: Exchange, allowed: frozenset[str] = frozenset()) -> None:
    """Raise an AccessError unless the request comes from a program or an allowed page.

    Raises:
        RepeatedHeader: it has two Host or Origin headers, and a proxy may have checked the other one.
        ForeignOrigin: it comes from a page of another origin.
        FormType: it changes something, with a content type that needs no preflight request.
    """
    for name in (b"host", b"origin"):
        if sum(each == name for each, _ in exchange.scope["headers"]) > 1:
            raise RepeatedHeader(name.decode())
    origin, site = exchange.header(b"origin"), exchange.header(b"sec-fetch-site")
    if origin is None and site is None:
        return
    if origin not in allowed:
        if origin is not None and not is_same(origin, exchange.header(b"host") or ""):
            raise ForeignOrigin("Origin", origin)
        if site is not None and site.lower() not in OWN_SITES:
            raise ForeignOrigin("Sec-Fetch-Site", site)
    has_body = b"transfer-encoding" in exchange.headers or exchange.headers.get(b"content-length", b"0") != b"0"
    if exchange.verb not in READING and has_body and exchange.media_type in FORM_TYPES:
        raise FormType(exchange.media_type)


def is_same(origin: str, host: str) -> bool:
    """Return whether a page of `origin` was loaded from the server at `host`, port included."""
    try:
        page, server = urlsplit(origin), urlsplit(f"//{host}")
        usual = PORTS.get(page.scheme)
        return (
            usual is not None  # extensions of browsers, files and sandboxed pages are foreign
            and page.hostname is not None
            and (page.hostname, page.port or usual) == (server.hostname, server.port or usual)
        )
    except ValueError:
        return False


# Limits -----------------------------------------------------------------------------------------


class Rates:
    """A token bucket for each visitor, which fills at a steady rate and holds a burst."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second, self._burst = self._whole = per_second, burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens left, and since when

    def share(self, servers: int) -> None:
        """Set the number of servers that share the rate; each allows at least one request at a time."""
        per_second, burst = self._whole
        self._per_second, self._burst = per_second / servers, max(1.0, burst / servers)

    def take(self, visitor: str) -> None:
        """Count one request. Raise RateLimited, which has the time to wait."""
        now = monotonic()
        left, since = self._buckets.get(visitor, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._per_second)
        if left < 1:
            raise RateLimited((1 - left) / self._per_second)
        self._buckets[visitor] = (left - 1, now)
        self._buckets.move_to_end(visitor)
        if len(self._buckets) > MOST_VISITORS:
            self._buckets.popitem(last=False)


class Places:
    """Limits on streams: in all on a server, and for one visitor, at any door."""

    def __init__(self, limits: ServerSettings) -> None:
        self._in_all, self._per_visitor = limits.streams, limits.streams_per_visitor
        self.watcher: Callable[[int], None] = lambda _: None  # gets the number of open streams
        self._open: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """Return the number of open streams."""
        return self._open.total()

    @contextmanager
    def place_for(self, visitor: Visitor) -> Iterator[None]:
        """Take a place during the block. Raise TooManyStreams."""
        who = visitor.key_id or visitor.session_id or visitor.caller.owner
        if self.taken >= self._in_all:
            raise TooManyStreams(self._in_all, "on this server")
        if self._open[who] >= self._per_visitor:
            raise TooManyStreams(self._per_visitor, "for you")
        self._open[who] += 1
        self.watcher(self.taken)
        try:
            yield
        finally:
            self._open[who] -= 1
            if not self._open[who]:
                del self._open[who]
            self.watcher(self.taken)


class AccessCheck:
    """Repeats the authorization of a stream at intervals: its key may be revoked, its token may expire.

    If the store cannot answer, the stream continues.
    """

    def __init__(self, admit: Callable[[], Awaitable[object]], every: float | None = None) -> None:
        """`admit` authorizes the request again and raises AccessError if that fails."""
        self._admit, self.every = admit, LOOK_EVERY if every is None else every
        self._next = monotonic() + self.every

    async def check(self) -> None:
        """Authorize again if the interval has passed. Raises AccessError."""
        now = monotonic()
        if now >= self._next:
            self._next = now + self.every
            with suppress(StoreError):
                await self._admit()
