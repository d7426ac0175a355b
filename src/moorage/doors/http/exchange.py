"""One request and its answer, on bare ASGI: what every route needs and nothing else.

A request's body is read once, up to a limit, whatever its declared length is. A compressed body is unpacked up to the
same limit, on a thread, and only while its compression ratio is plausible for text. An answer is sent whole, compressed
if that is worth it.

Content negotiation follows RFC 9110, sections 12.4 and 12.5. Names are compared case-insensitively. The most specific
range that matches a type gives its quality, and the type of the highest quality wins. Of two types with the same
quality, the more specific match wins, then the first offered one.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, MutableMapping
from typing import Any

import msgspec

from moorage.core.codec import encode
from moorage.core.errors import InvalidJson, MoorageError, RequestTooLarge, edge_of
from moorage.doors.http.refusals import STATUS, TooDense, TooManyValues

AsgiScope = MutableMapping[str, Any]
AsgiMessage = MutableMapping[str, Any]
AsgiReceive = Callable[[], Awaitable[AsgiMessage]]
AsgiSend = Callable[[AsgiMessage], Awaitable[None]]
AsgiApp = Callable[[AsgiScope, AsgiReceive, AsgiSend], Awaitable[None]]

JSON = b"application/json"
PROBLEM = b"application/problem+json"
WORTH_PACKING = 1400  # bytes: below, an answer fits into one packet anyway
MAX_BODY = 8 * 1024 * 1024
MAX_RATIO = 100  # of unpacked bytes to received bytes
ANY_RATIO = 1024 * 1024  # bytes that may be unpacked at any ratio
AT_ONCE = 256 * 1024  # bytes unpacked in one step: a thread must not keep the interpreter's lock for long
MAX_VALUES = 100_000  # in one body: checking more would take too long
LITTLE = 4 * 1024  # bytes of gzip that are unpacked without a thread

Range = tuple[bytes, float]  # a name or a wildcard, and its quality
RawHeaders = list[tuple[bytes, bytes]]
NO_SNIFFING = (b"x-content-type-options", b"nosniff")  # a browser must not guess another type
PACKED: RawHeaders = [(b"content-encoding", b"gzip"), (b"vary", b"accept-encoding")]


class ClientDisconnected(Exception):
    """The client has disconnected; no answer can be sent."""


class Unpacker:
    """Unpacks one gzip stream, piece by piece; other data is refused, never dropped."""

    def __init__(self, limit: int) -> None:
        """Set up; `limit` is the maximum number of bytes in all."""
        self._gzip, self._limit = zlib.decompressobj(wbits=31), limit
        self._packed = self._plain = 0

    def unpacked(self, piece: bytes) -> Iterator[bytes]:
        """Yield the content of a piece, part by part. Raise RequestTooLarge or InvalidJson."""
        self._packed += len(piece)
        while piece:
            try:
                part = self._gzip.decompress(piece, AT_ONCE)
            except zlib.error:
                raise InvalidJson("body", "it is not gzip though its content-encoding says so") from None
            self._plain += len(part)
            if self._plain > self._limit:
                raise RequestTooLarge(self._limit)
            if self._plain > max(ANY_RATIO, self._packed * MAX_RATIO):
                raise TooDense(MAX_RATIO)
            if self._gzip.unused_data:
                raise InvalidJson("body", "there is more behind the end of its gzip; send one gzip, whole")
            yield part
            piece = self._gzip.unconsumed_tail

    def end(self) -> None:
        """Raise InvalidJson if the stream is incomplete."""
        if not self._gzip.eof:
            raise InvalidJson("body", "its gzip is cut off")


class Exchange:
    """A request and its answer."""

    __slots__ = ("_receive", "_send", "headers", "params", "path", "request_id", "scope", "status", "verb")

    def __init__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend, request_id: str) -> None:
        self.scope, self._receive, self._send, self.request_id = scope, receive, send, request_id
        self.verb: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.params: dict[str, str] = {}
        self.status = 0

    @property
    def client(self) -> str:
        """Return the address of the client."""
        return str(self.scope["client"][0])

    def header(self, name: bytes) -> str | None:
        """Return a header's value, or None."""
        value = self.headers.get(name)
        if value is None:
            return None
        try:
            return value.decode().strip()  # as our own client sends it
        except UnicodeDecodeError:
            return value.decode("latin-1").strip()

    @property
    def media_type(self) -> str:
        """Return the type of the body, without parameters and in lower case; empty without one."""
        return (self.header(b"content-type") or "").partition(";")[0].strip().lower()

    # The request --------------------------------------------------------------------------------

    async def body(self, limit: int = MAX_BODY) -> bytes:
        """Return the whole body, which is JSON. Raise RequestTooLarge before more than `limit` is kept."""
        if int(self.headers.get(b"content-length", b"0") or b"0") > limit:
            raise RequestTooLarge(limit)
        whole = b"".join([piece async for piece in self._pieces(limit)])
        if (unpacker := self._unpacker(limit)) is not None:
            little = len(whole) <= LITTLE
            whole = _joined(unpacker, whole) if little else await asyncio.to_thread(_joined, unpacker, whole)
        if len(whole) > MAX_VALUES and await asyncio.to_thread(_has_many_values, whole):
            raise TooManyValues(MAX_VALUES)
        return whole

    async def spool(self, write: Callable[[bytes], object], limit: int) -> None:
        """Pass the body to `write` as it comes, on a thread: it is too long for memory. Raise RequestTooLarge."""
        unpacker = self._unpacker(limit)

        def take(piece: bytes) -> None:
            for part in (piece,) if unpacker is None else unpacker.unpacked(piece):
                write(part)

        async for piece in self._pieces(limit):
            await asyncio.to_thread(take, piece)
        if unpacker is not None:
            unpacker.end()

    async def _pieces(self, limit: int) -> AsyncIterator[bytes]:
        """Yield the body as it comes. Raise RequestTooLarge or ClientDisconnected."""
        size, more = 0, True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            piece, more = message.get("body", b""), message.get("more_body", False)
            size += len(piece)
            if size > limit:
                raise RequestTooLarge(limit)
            yield piece

    def _unpacker(self, limit: int) -> Unpacker | None:
        """Return an unpacker for the body, with a limit of bytes; None if it is not compressed."""
        packing = self.headers.get(b"content-encoding", b"identity").lower()
        if packing not in (b"gzip", b"identity"):
            raise InvalidJson("body", "its content-encoding is not known; send it plain or with gzip")
        return Unpacker(limit) if packing == b"gzip" else None

    async def disconnected(self) -> None:
        """Wait until the client has disconnected."""
        while (await self._receive())["type"] != "http.disconnect":
            continue

    async def pass_to(self, app: AsgiApp) -> None:
        """Let another application answer, with the headers of our answers."""
        extra = [NO_SNIFFING, (b"x-request-id", self.request_id.encode())]

        async def send(message: AsgiMessage) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), *extra]}
            await self._send(message)

        waiting: list[AsgiMessage] = []  # the body, read as our own routes do
        if self.verb == "POST" and b"content-encoding" not in self.headers:
            waiting.append({"type": "http.request", "body": await self.body(), "more_body": False})

        async def receive() -> AsgiMessage:
            return waiting.pop() if waiting else await self._receive()

        await app(self.scope, receive, send)

    # The answer ---------------------------------------------------------------------------------

    async def answer(
        self, body: bytes, *, status: int = 200, kind: bytes = JSON, headers: RawHeaders | None = None
    ) -> None:
        """Send a complete answer."""
        every = list(headers or ())
        if len(body) >= WORTH_PACKING and self.takes_packed:
            packer = zlib.compressobj(1, wbits=31)
            body = packer.compress(body) + packer.flush()
            every += PACKED
        await self.answer_as_is(body, status=status, kind=kind, headers=every)

    @property
    def takes_packed(self) -> bool:
        """Return whether the client accepts a compressed answer."""
        ranges = dict(_ranges(self._listed(b"accept-encoding")))
        return ranges.get(b"gzip", ranges.get(b"*", 0.0)) > 0

    def preferred(self, *offered: bytes) -> bytes:
        """Return the preferred one of these media types; the first if the request has no preference."""
        return preferred(self._listed(b"accept"), *offered)

    def _listed(self, name: bytes) -> bytes:
        """Return a header that is a list; repeated headers are joined."""
        return b",".join(value for each, value in self.scope["headers"] if each == name)

    async def answer_as_is(self, body: bytes, *, status: int = 200, kind: bytes, headers: RawHeaders) -> None:
        """Send a complete answer as it is, packed or not."""
        length = (b"content-length", str(len(body)).encode())
        await self.begin([(b"content-type", kind), *headers, length], status=status)
        await self._send({"type": "http.response.body", "body": b"" if self.verb == "HEAD" else body})

    async def problem(
        self, error: MoorageError, *, status: int | None = None, headers: RawHeaders | None = None
    ) -> None:
        """Send an error: its message, its code, its facts, and the request's id for inquiries."""
        status = status or STATUS.get(error.code) or edge_of(error).http
        document = {"type": "about:blank", "title": _TITLES.get(status, "Error"), "status": status, **error.to_dict()}
        document["request_id"] = self.request_id
        await self.answer(_encoded(document), status=status, kind=PROBLEM, headers=headers)

    async def begin(self, headers: RawHeaders, *, status: int = 200) -> None:
        """Begin an answer: send its status and its headers."""
        self.status = status
        every = [*headers, NO_SNIFFING, (b"x-request-id", self.request_id.encode())]
        await self._send({"type": "http.response.start", "status": status, "headers": every})

    async def more(self, body: bytes, *, is_last: bool = False) -> None:
        """Send the next piece."""
        await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})

    async def abort(self) -> None:
        """Close the connection without waiting for unread data, which would keep it open."""
        transport = getattr(getattr(self._send, "__self__", None), "transport", None)
        if transport is not None:  # ASGI has no word for it; this is uvicorn's
            transport.abort()
            await asyncio.sleep(0)  # until the connection has noticed


def _has_many_values(body: bytes) -> bool:
    """Return whether JSON has more values than are read: count separators and brackets, without texts."""
    if sum(body.count(mark) for mark in _MARKS) <= MAX_VALUES:
        return False
    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if unescaped.count(b'"') > 4 * MAX_VALUES:
        return True
    without_texts = b"".join(unescaped.split(b'"')[::2])
    return sum(without_texts.count(mark) for mark in _MARKS) > MAX_VALUES


_MARKS = (b",", b"{", b"[")


def _joined(unpacker: Unpacker, packed: bytes) -> bytes:
    whole = b"".join(unpacker.unpacked(packed))
    unpacker.end()
    return whole


_TITLES = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    410: "Gone",
    412: "Precondition failed",
    413: "Content too large",
    422: "Unprocessable content",
    429: "Too many requests",
    500: "Internal server error",
    503: "Service unavailable",
}


def _encoded(document: dict[str, Any]) -> bytes:
    try:
        return encode(document)
    except (msgspec.EncodeError, UnicodeEncodeError):  # a fact that JSON cannot encode must not hide the error
        return encode({key: str(value).encode("utf-8", "replace").decode() for key, value in document.items()})


# Negotiation ------------------------------------------------------------------------------------


def preferred(accept: bytes, *offered: bytes) -> bytes:
    """Return the offered media type that `Accept` prefers; the first one if it allows none of them, or is empty."""
    ranges = list(_ranges(accept))
    return max(offered, key=lambda kind: _rank(kind, ranges))  # of equals, the first


def names(accept: bytes, kind: bytes) -> bool:
    """Return whether `Accept` names exactly this media type and does not exclude it."""
    return any(name == kind and quality > 0 for name, quality in _ranges(accept))


def _rank(kind: bytes, ranges: list[Range]) -> tuple[float, int]:
    """Return the quality of a media type and how exactly it is named."""
    family = kind.partition(b"/")[0] + b"/*"
    for exactness, name in ((2, kind), (1, family), (0, b"*/*")):
        qualities = [quality for each, quality in ranges if each == name]
        if qualities:
            quality = max(qualities)
            return (quality, exactness) if quality > 0 else (0.0, 0)
    return 0.0, 0


def _ranges(header: bytes) -> Iterator[Range]:
    for part in header.lower().split(b","):
        name, *parameters = (each.strip() for each in part.split(b";"))
        if name:
            yield name, _quality(parameters)


def _quality(parameters: Iterable[bytes]) -> float:
    """Return the value of `q`: 1 without it, and 0 if it is invalid."""
    for parameter in parameters:
        name, _, value = parameter.partition(b"=")
        if name.strip() == b"q":
            text = value.strip()
            is_number = text.replace(b".", b"", 1).isdigit()
            return min(float(text), 1.0) if is_number else 0.0
    return 1.0
