"""HTTP requests: sent, repeated if that is safe, and given up after a deadline.

A request is repeated while the server cannot be reached, for up to a deadline. A request whose answer was lost may have
been done: it is repeated only if it is idempotent, because it reads, by its nature, or because it has a key.

A server that was reached before is restarting, so it is waited for. An address that was never reached is
probably wrong: a refused connection or a name that does not resolve fails at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit

import httpx2
import msgspec
from msgspec import Struct

from moorage.core.codec import encode
from moorage.core.errors import (
    InvalidField,
    InvalidJson,
    MoorageError,
    RateLimited,
    ServerUnreachable,
    StoreUnavailable,
    error_from,
)

log = logging.getLogger(__name__)

DEADLINE = 30.0  # seconds after which a server counts as unreachable
CONNECT_WITHIN = 5.0  # seconds
RESOLVE_WITHIN = 3.0  # seconds
ANSWER_WITHIN = 30.0  # seconds, besides the wait that was requested
KEEP_FOR = 4.0  # seconds of an unused connection: less than servers keep it, so that none is closed in use
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0  # seconds between two attempts
QUIET_FOR = 1.0  # seconds of retries before they are reported
PIECE = 64 * 1024  # bytes sent at once of a long body
LATER = (502, 503, 504)  # a proxy's statuses when its server is down
TOO_MANY = 429
LOCAL = ("localhost", "127.0.0.1", "::1")
PROXIES = ("http_proxy", "https_proxy", "all_proxy")  # a proxy resolves names by itself
JSON = "application/json"
NOT_FACTS = frozenset({"type", "title", "status", "code", "detail", "request_id"})  # of a problem document

LINE_END = b"\n"

T = TypeVar("T")
Headers = dict[str, str]
QueryPairs = list[tuple[str, str]]


class Ask(Struct, frozen=True, kw_only=True):
    """One request."""

    verb: str
    path: str  # percent-encoded
    query: QueryPairs = []
    body: bytes | None = None
    file: Any = None  # a long body: a file open for reading, sent from its beginning
    headers: Headers = {}
    is_repeatable: bool = False  # whether a repetition has no further effect
    wait: float = 0.0  # seconds the server may take before it answers


class Transport:
    """The connections to one server, for one event loop."""

    def __init__(
        self, url: str, headers: Headers, *, key: str | None = None, deadline: float = DEADLINE, is_known: bool = False
    ) -> None:
        """Set up. `headers` are for every request. `is_known`: wait for the server if it does not answer."""
        self.url, self._headers, self._key, self._deadline = check_url(url), headers, key, deadline
        self._is_known = is_known
        self._client: httpx2.AsyncClient | None = None
        self._closed = False

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def answer(self, ask: Ask) -> bytes:
        """Return the server's answer. Raise the error in it, or ServerUnreachable."""
        patience = self.patience()
        while True:
            try:
                response = await self._sent(ask)
            except httpx2.TransportError as error:
                patience.is_unsure |= ask.verb != "GET" and not _was_not_sent(error)
                await patience.after(error, again=ask.is_repeatable or _was_not_sent(error))
            except httpx2.HTTPError as error:
                raise ServerUnreachable(self.url, _told(error)) from error
            else:
                if not _is_for_later(response, ask):
                    return _checked(self.url, response)
                await patience.after(_refusal(self.url, response), pause=_retry_after(response))

    @asynccontextmanager
    async def streaming(self, ask: Ask) -> AsyncIterator[httpx2.Response]:
        """Yield an answer as it comes. Nothing is repeated here: the reader handles interruptions."""
        try:
            response = await self._sent(ask, stream=True)
            try:
                if response.status_code >= 300:
                    await response.aread()
                    if _is_for_later(response, ask):
                        raise Interrupted(_refusal(self.url, response), _retry_after(response))
                    _checked(self.url, response)
                yield response
            finally:
                await response.aclose()
        except httpx2.TransportError as error:
            raise Interrupted(error) from error

    def patience(self) -> RequestRetries:
        """Return how long to retry, from now."""
        return RequestRetries(self.url, self._deadline, lambda: self._is_known)

    async def _sent(self, ask: Ask, *, stream: bool = False) -> httpx2.Response:
        if not self._is_known:
            await self._check_name()
        response = await self._opened().send(self._request(ask), stream=stream)
        self._is_known = True
        return response

    async def _check_name(self) -> None:
        """Raise ServerUnreachable if the host's name does not resolve in time."""
        host = str(urlsplit(self.url).hostname)
        if host in LOCAL or any(name.lower() in PROXIES for name in os.environ):
            return
        try:
            async with asyncio.timeout(RESOLVE_WITHIN):
                await _resolved(host)
        except (TimeoutError, OSError) as error:
            raise ServerUnreachable(self.url, f"the name {host} does not resolve", is_unsure=False) from error

    def _request(self, ask: Ask) -> httpx2.Request:
        headers = {"Accept": JSON, **self._headers, **ask.headers}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        if ask.body is not None:
            headers.setdefault("Content-Type", JSON)
        content = ask.body if ask.file is None else _pieces(ask.file)
        timeout = httpx2.Timeout(ANSWER_WITHIN, connect=CONNECT_WITHIN, read=ANSWER_WITHIN + ask.wait)
        url = httpx2.URL(self.url + ask.path, params=ask.query or None)
        encoded = [(name, value.encode()) for name, value in headers.items()]
        return self._opened().build_request(ask.verb, url, content=content, headers=encoded, timeout=timeout)  # type: ignore[arg-type]

    def _opened(self) -> httpx2.AsyncClient:
        if self._closed:
            raise StoreUnavailable("this connection is closed; connect again")
        if self._client is None:
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=KEEP_FOR)
            is_local = urlsplit(self.url).hostname in LOCAL  # no proxy can reach this machine
            is_plain = self.url.startswith("http:")  # loading the CA certificates takes 50 ms
            self._client = httpx2.AsyncClient(limits=limits, trust_env=not is_local, verify=not is_plain)
        return self._client


class Requester:
    """A launcher's connection to its server: one attempt for each request, because the launcher itself retries."""

    def __init__(self, url: str, key: str | None = None) -> None:
        self._transport = Transport(url, {"X-Moorage-Interface": "python"}, key=key, deadline=0.0)
        self.url = self._transport.url

    async def post(self, path: str, body: Any, kind: type[T], *, wait: float = 0.0) -> T:
        """Send a value and return the answer; `wait` is how long the server may take on purpose."""
        try:
            content = encode(body)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidJson("body", f"it cannot be sent ({error})") from None
        return await self._ask(Ask(verb="POST", path=path, body=content, wait=wait), kind)

    async def get(self, path: str, kind: type[T], query: dict[str, Any] | None = None, *, wait: float = 0.0) -> T:
        """Request a value."""
        pairs = [(name, str(value)) for name, value in (query or {}).items()]
        return await self._ask(Ask(verb="GET", path=path, query=pairs, wait=wait), kind)

    async def close(self) -> None:
        """Close the connection."""
        await self._transport.close()

    async def _ask(self, ask: Ask, kind: type[T]) -> T:
        try:
            content = await self._transport.answer(ask)
        except RateLimited as error:  # temporary, like an unreachable server
            raise StoreUnavailable(f"{self.url} asks to try again later ({error})", store=self.url) from error
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StoreUnavailable(f"{self.url} sent an invalid answer ({error})") from error


class RequestRetries:
    """The retries of one request, and the pauses between them."""

    def __init__(self, url: str, deadline: float, is_known: Callable[[], bool]) -> None:
        """Set up. `is_known` tells whether the server was ever reached."""
        self._url, self._ends, self._tries, self._is_known = url, time.monotonic() + deadline, 0, is_known
        self._tell_at: float | None = time.monotonic() + QUIET_FOR
        self.is_unsure = False  # whether the request may have been done

    async def after(self, error: Exception, *, again: bool = True, pause: float | None = None) -> None:
        """Pause before the next attempt; raise the caller's error if there is none."""
        left = self._ends - time.monotonic()
        if pause is None:
            pause = random.uniform(0.5, 1) * min(FIRST_PAUSE * 2**self._tries, LONGEST_PAUSE)
        if not again or pause >= left or (_is_refused(error) and not self._is_known()):
            if isinstance(error, MoorageError):  # the server is there, and sent the error
                raise error
            raise ServerUnreachable(self._url, _told(error), is_unsure=self.is_unsure) from error
        self._tell(error, left)
        self._tries += 1
        await asyncio.sleep(pause)

    def _tell(self, error: Exception, left: float) -> None:
        """Log once why a request is waiting."""
        if self._tell_at is not None and time.monotonic() >= self._tell_at:
            self._tell_at = None
            log.warning("no answer from %s (%s); trying for another %.0f seconds", self._url, _told(error), left)


class Interrupted(Exception):
    """A stream that cannot begin now, or broke off."""

    def __init__(self, cause: Exception, pause: float | None = None) -> None:
        self.cause, self.pause = cause, pause
        super().__init__(str(cause))


def check_url(url: str) -> str:
    """Return a server's address, without a slash at its end."""
    parts = urlsplit(url)
    if parts.username or parts.password:
        raise InvalidField("url", "has a name or a password in it; give a key with MOORAGE_KEY or key=")
    if not parts.hostname or parts.query or parts.fragment:
        raise InvalidField("url", f"is {url[:200]!r}; write http://HOST:PORT or https://HOST")
    return url.rstrip("/")


async def _resolved(host: str) -> None:
    """Resolve a name in a daemon thread: a hanging resolver must block neither the caller nor the process."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[None] = loop.create_future()

    def settle(how: Callable[[Any], None], outcome: OSError | None) -> None:
        if not found.done():
            how(outcome)

    def look_up() -> None:
        with suppress(RuntimeError):  # the caller has given up, and its loop is closed
            try:
                socket.getaddrinfo(host, None)
            except OSError as error:
                loop.call_soon_threadsafe(settle, found.set_exception, error)
            else:
                loop.call_soon_threadsafe(settle, found.set_result, None)

    threading.Thread(target=look_up, daemon=True).start()
    await found


async def _pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    file.seek(0)
    while piece := file.read(PIECE):
        yield piece


# Streams ----------------------------------------------------------------------------------------


async def lines_of(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield lines without their ends. Only a line feed ends one: texts may have other separators in them."""
    rest = b""
    async for piece in pieces:
        *whole, rest = (rest + piece).split(LINE_END)
        for line in whole:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest


async def messages_of(
    lines: AsyncIterator[bytes], begins: str | None = None
) -> AsyncIterator[tuple[str | None, bytes]]:
    """Yield the id and the data of messages; the first has no data if their start is known.

    A truncated message is not yielded: it comes again. Nothing follows a refusal: a reconnecting caller gets its
    reason.
    """
    if begins is not None:
        yield begins, b""
    place: str | None = None
    data: list[bytes] = []
    async for line in lines:
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif line == b"event: refused":
            return
        elif line.startswith(b"id:"):
            place = line[3:].strip().decode("latin-1")
        elif not line and data:
            yield place, LINE_END.join(data)
            place, data = None, []


# Answers ----------------------------------------------------------------------------------------


def _was_not_sent(error: httpx2.TransportError) -> bool:
    return isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError))


def _is_refused(error: BaseException | None) -> bool:
    """Return whether nothing listens at any address of the server."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_refused(each) for each in error.exceptions)
    if error is None or isinstance(error, ConnectionRefusedError):
        return error is not None
    return _is_refused(error.__cause__ or error.__context__)


def _is_for_later(response: httpx2.Response, ask: Ask) -> bool:
    """Return whether the same request may be repeated after a while.

    A Moorage server that refuses has changed nothing; Retry-After tells that a later request may succeed. A proxy that
    has lost its server does not know what was done.
    """
    status = response.status_code
    if status == TOO_MANY or (status in LATER and "retry-after" in response.headers):
        return True
    return status in LATER and ask.is_repeatable and _problem(response) is None


def _checked(url: str, response: httpx2.Response) -> bytes:
    if response.status_code >= 300:
        raise _refusal(url, response)
    return response.content


def _refusal(url: str, response: httpx2.Response) -> MoorageError:
    """Return the server's error; for a foreign answer, an error that this is not a Moorage server."""
    problem = _problem(response)
    if problem is None:
        why = f"something else answers there, with status {response.status_code}"
        return ServerUnreachable(url, why, is_unsure=False)
    facts = {name: value for name, value in problem.items() if name not in NOT_FACTS}
    return error_from(str(problem["code"]), str(problem.get("detail", "")), facts, response.status_code)


def _problem(response: httpx2.Response) -> dict[str, Any] | None:
    try:
        document = msgspec.json.decode(response.content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return document if isinstance(document, dict) and "code" in document else None


def _retry_after(response: httpx2.Response) -> float | None:
    given = response.headers.get("retry-after", "")
    return max(float(given), FIRST_PAUSE) if given.isdecimal() else None


def _told(error: Exception) -> str:
    """Return the message of an error."""
    if _is_refused(error):
        return "connection refused"
    return str(error).strip() or type(error).__name__
