"""`moorage mcp` with a running server: JSON-RPC lines of this process become requests to the server's `/mcp`.

Hosts start this for every conversation, so it starts in milliseconds: it uses threads and sockets, no event loop, no
library of the protocol. Both versions of the protocol pass through. In the older one a client has a session at the
server after a handshake; if the server loses it (a restart), the bridge repeats the handshake, unseen by the client.
"""

from __future__ import annotations

import select
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from time import monotonic
from typing import Any

import msgspec

PATH = "/mcp"
VERSION = "io.modelcontextprotocol/protocolVersion"
NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
MOST_AT_ONCE = 256  # concurrent requests
MAX_LINE = 16 * 1024 * 1024
COMES_BACK_WITHIN = 3.0  # seconds that a server may be away before the client gets an error
GOODBYE_WITHIN = 2.0  # seconds for a last message to the server
CONNECT_WITHIN = 5.0  # seconds
MAX_HEAD = 64 * 1024
PORTS = {"http": 80, "https": 443}
PARSE_ERROR, INVALID_REQUEST, SERVER_ERROR = -32700, -32600, -32000

RpcMessage = dict[str, Any]


class Bridge:
    """Forwards the lines of one client to one server."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self._place, self._headers = HttpAddress(url), headers
        self._out = sys.stdout.buffer
        self._writing, self._shaking = threading.Lock(), threading.Lock()
        self._open: dict[str, socket.socket | None] = {}  # open requests, by their ids
        self._cancelled: set[str] = set()
        self._greeting: RpcMessage | None = None  # the client's handshake, to repeat it
        self._session: str | None = None
        self._version: str | None = None
        self._is_listening = False

    def is_welcome(self, within: float) -> bool:
        """Return whether the server offers MCP and admits this caller."""
        try:
            with connect(self._place, within) as connection:
                connection.settimeout(within)
                return self._send(connection, "HEAD", {}).status == 200
        except (OSError, ValueError):
            return False

    def run(self, lines: Iterable[bytes], patience: float = 0.0) -> None:
        """Forward lines until the input ends; open requests then have `patience` seconds for their answers."""
        try:
            for line in lines:
                if line.strip():
                    self.take(line)
            ends, watch = monotonic() + patience, select.poll()
            watch.register(self._out, 0)  # reports when the reader of the output is gone
            while self._open and monotonic() < ends and not watch.poll(0):
                time.sleep(0.02)
        finally:
            self._leave()

    def take(self, line: bytes) -> None:
        """Handle one line of the client."""
        try:
            message = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._refuse(None, PARSE_ERROR, "this line is not JSON")
            return
        if not isinstance(message, dict) or len(line) > MAX_LINE:
            self._refuse(None, INVALID_REQUEST, "this line is not a single JSON-RPC message, or it is too long")
        elif message.get("method") == "initialize" and "id" in message:
            self._greeting = message
            self._carry(message)  # later messages need its result
        elif "method" in message and "id" in message:
            self._begin(message)
        elif "method" not in message and self._session is None:
            return  # the newer protocol has no requests of the server
        else:
            self._notify(message)

    # One message --------------------------------------------------------------------------------

    def _notify(self, message: RpcMessage) -> None:
        """Forward a notification. The newer protocol has none; a cancellation closes the connection."""
        if self._session is not None:
            self._carry(message)
        if message.get("method") == "notifications/cancelled":
            self._hang_up(message)
        elif message.get("method") == "notifications/initialized":
            self._begin_to_listen()

    def _begin(self, message: RpcMessage) -> None:
        key = _key(message["id"])
        if key in self._open or len(self._open) >= MOST_AT_ONCE:
            self._refuse(message["id"], INVALID_REQUEST, "this id is in use, or too many requests wait already")
            return
        self._open[key] = None
        threading.Thread(target=self._carried, args=(message, key), daemon=True).start()

    def _carried(self, message: RpcMessage, key: str) -> None:
        try:
            self._carry(message)
        finally:
            self._open.pop(key, None)
            self._cancelled.discard(key)

    def _carry(self, message: RpcMessage) -> None:
        key, settled = _key(message.get("id")), False
        why: object = "it closed the connection before it answered"
        try:
            settled = self._exchange(message, key)
        except (OSError, ValueError) as error:
            why = error
        if not settled and "id" in message and "method" in message and key not in self._cancelled:
            said = f"the server at {self._place.name} did not answer ({why}); try again"
            self._refuse(message["id"], SERVER_ERROR, said)

    def _exchange(self, message: RpcMessage, key: str, *, again: bool = False) -> bool:
        """Send a message and write the answer; return whether there was one."""
        session = self._session
        connection = self._connected()
        try:
            if key in self._open:
                self._open[key] = connection
            if key in self._cancelled:  # cancelled meanwhile
                return True
            answer = self._ask(connection, message)
            if answer.status == 404 and session is not None and not again and not _is_modern(message):
                self._shake_hands_again(session)
                return self._exchange(message, key, again=True)
            return self._write_all(message, answer)
        finally:
            connection.close()

    def _connected(self) -> socket.socket:
        """Return a connection to the server, which may be restarting."""
        ends = monotonic() + COMES_BACK_WITHIN
        while True:
            try:
                return connect(self._place)
            except ConnectionRefusedError:
                if monotonic() > ends:
                    raise
                time.sleep(0.1)

    def _ask(self, connection: socket.socket, message: RpcMessage) -> HttpResponse:
        """Send a message; return the answer of the server after its head."""
        kinds = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        return self._send(connection, "POST", self._about(message) | kinds, msgspec.json.encode(message))

    def _send(self, connection: socket.socket, verb: str, headers: dict[str, str], body: bytes = b"") -> HttpResponse:
        """Send a request; return the answer after its head. Raise OSError."""
        told = {"Host": self._place.name, "Connection": "close", "Content-Length": str(len(body))}
        lines = [f"{name}: {value}\r\n" for name, value in {**told, **self._headers, **headers}.items()]
        head = f"{verb} {self._place.path}{PATH} HTTP/1.1\r\n{''.join(lines)}\r\n"
        connection.sendall(head.encode() + body)
        return HttpResponse(connection)

    def _about(self, message: RpcMessage) -> dict[str, str]:
        """Return the headers that the protocol requires."""
        if _is_modern(message):
            method = str(message.get("method"))
            found = {"MCP-Protocol-Version": message["params"]["_meta"][VERSION], "Mcp-Method": method}
            if name := message["params"].get(NAMES.get(method, "")):
                found["Mcp-Name"] = name
            return {key: as_header(value) for key, value in found.items()}
        told = {"Mcp-Session-Id": self._session, "MCP-Protocol-Version": self._version}
        return {name: value for name, value in told.items() if value is not None and message is not self._greeting}

    # Notifications of the server, in the older protocol -----------------------------------------

    def _begin_to_listen(self) -> None:
        """Listen to the server's notifications on a thread; without a session there are none."""
        if self._session is not None and not self._is_listening:
            self._is_listening = True
            threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        """Forward them to the client until the server ends the stream, or does not know the session any more."""
        try:
            with connect(self._place) as connection:
                answer = self._send(connection, "GET", self._about({}) | {"Accept": "text/event-stream"})
                if answer.status == 200:
                    for event in answer.events():
                        self._write(msgspec.json.decode(event))
        except (OSError, ValueError):
            pass  # the next request shows what became of the server
        finally:
            self._is_listening = False

    # Responses ----------------------------------------------------------------------------------

    def _write_all(self, message: RpcMessage, answer: HttpResponse) -> bool:
        """Write all messages of an answer; return whether the request is answered."""
        if message is self._greeting and answer.status == 200:
            self._session = answer.headers.get("mcp-session-id")
        kind = answer.headers.get("content-type", "").partition(";")[0].strip()
        if kind == "text/event-stream":
            return any(self._write_answer(message, event) for event in answer.events())  # the answer is the last of it
        body = b"".join(answer.pieces())
        if kind == "application/json" and body:
            return self._write_answer(message, body)
        if answer.status >= 400 and "id" in message:
            self._refuse(message["id"], SERVER_ERROR, *_problem(answer, body))
            return True
        return answer.status < 400

    def _write_answer(self, message: RpcMessage, body: bytes) -> bool:
        """Write one message of the server; return whether it is the answer."""
        said = msgspec.json.decode(body)
        if not isinstance(said, dict):
            raise Broken("it sent an invalid message")
        is_answer = "method" not in said
        if is_answer and said.get("id") is None and "id" in message:
            said["id"] = message["id"]  # the server refused the request before reading its id
        if is_answer and message is self._greeting and isinstance(said.get("result"), dict):
            self._version = said["result"].get("protocolVersion")
        if _key(message.get("id")) not in self._cancelled:
            self._write(said)
        return is_answer

    def _refuse(self, request_id: object, code: int, why: str, data: object = None) -> None:
        error = {"code": code, "message": why} | ({} if data is None else {"data": data})
        self._write({"jsonrpc": "2.0", "id": request_id, "error": error})

    def _write(self, message: RpcMessage) -> None:
        with self._writing, suppress(OSError):  # a client that is gone reads no answers; its input will end, too
            self._out.write(msgspec.json.encode(message) + b"\n")
            self._out.flush()

    # Sessions of the older protocol, and the end ------------------------------------------------

    def _shake_hands_again(self, forgotten: str) -> None:
        """Get a new session for one that the server does not know any more."""
        with self._shaking:
            if self._session != forgotten or self._greeting is None:
                return  # another thread has done it
            with connect(self._place) as connection:
                answer = self._ask(connection, self._greeting)
                if answer.status == 200:
                    b"".join(answer.pieces())
                    self._session = answer.headers.get("mcp-session-id")
            with connect(self._place) as connection:
                self._ask(connection, {"jsonrpc": "2.0", "method": "notifications/initialized"})
            self._begin_to_listen()

    def _hang_up(self, message: RpcMessage) -> None:
        """Stop waiting for an answer; in the newer protocol, closing the connection cancels a request."""
        params = message.get("params")
        key = _key(params.get("requestId")) if isinstance(params, dict) else ""
        if key in self._open:
            self._cancelled.add(key)
            if (connection := self._open[key]) is not None:
                with suppress(OSError):  # the server closed it first
                    connection.shutdown(socket.SHUT_RDWR)  # works while another thread reads from it

    def _leave(self) -> None:
        """Cancel the requests that are still open."""
        if self._session is None:
            return
        try:
            with connect(self._place, GOODBYE_WITHIN) as connection:
                connection.settimeout(GOODBYE_WITHIN)
                self._send(connection, "DELETE", self._about({}))
        except (OSError, ValueError):
            return  # the server will notice


def _key(request_id: object) -> str:
    return f"{type(request_id).__name__}:{request_id}"


def _is_modern(message: RpcMessage) -> bool:
    """Return whether a message names its own protocol version, as all of the newer protocol do."""
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and isinstance(meta.get(VERSION), str)


def _problem(answer: HttpResponse, body: bytes) -> tuple[str, object]:
    try:
        told = msgspec.json.decode(body)
        return f"{told['code']}: {told['detail']}", told
    except (msgspec.DecodeError, KeyError, TypeError):
        return f"the server answered with {answer.status}", None


def as_header(value: object) -> str:
    """Return a text as the protocol encodes it in headers: in base64 unless it is plain."""
    text = str(value)
    if text.isascii() and text.isprintable() and text == text.strip() and not text.startswith("=?base64?"):
        return text
    from base64 import b64encode

    return f"=?base64?{b64encode(text.encode()).decode()}?="


# HTTP -------------------------------------------------------------------------------------------

# One request for each connection, with a streamed answer. The standard library's client would do, but it loads a mail
# parser and TLS: on a busy machine the bridge started in 159 ms with it, and starts in 128 without.


class HttpAddress:
    """The parts of a server's URL."""

    __slots__ = ("host", "path", "port", "secure")

    def __init__(self, url: str) -> None:
        scheme, _, rest = url.partition("://")
        place, _, path = rest.partition("/")
        place = place.rpartition("@")[2]
        self.secure, self.path = scheme == "https", "/" + path.strip("/") if path.strip("/") else ""
        if place.startswith("["):
            host, _, port = place[1:].partition("]")
            port = port.removeprefix(":")
        else:
            host, _, port = place.partition(":")
        self.host, self.port = host, int(port) if port else PORTS[scheme]

    @property
    def name(self) -> str:
        """Return the name for the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Broken(OSError):
    """The server closed the connection, or sent an invalid answer."""


class HttpResponse:
    """The streamed answer of a server."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rb")
        parts = self._file.readline(MAX_HEAD).split(None, 2)
        if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
            raise Broken("it is not a web server, or it closed the connection")
        self.status, self.headers = int(parts[1]), dict[str, str]()
        while (line := self._file.readline(MAX_HEAD).strip()) and len(self.headers) < 200:
            name, _, value = line.partition(b":")
            self.headers[name.decode("latin-1").lower()] = value.strip().decode("latin-1")

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it comes."""
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            while size := self._chunk_size():
                yield from self._exactly(size)
                self._file.readline(MAX_HEAD)
        elif "content-length" in self.headers:
            yield from self._exactly(int(self.headers["content-length"]))
        else:
            while piece := self._file.read1(1 << 16):
                yield piece

    def _chunk_size(self) -> int:
        return int(self._complete(self._file.readline(MAX_HEAD).split(b";")[0].strip()), 16)

    def _exactly(self, size: int) -> Iterator[bytes]:
        while size:
            piece = self._complete(self._file.read1(min(size, 1 << 16)))
            size -= len(piece)
            yield piece

    def _complete(self, piece: bytes) -> bytes:
        if not piece:
            raise Broken("it closed the connection before the answer was complete")
        return piece

    def events(self) -> Iterator[bytes]:
        """Yield the data of server-sent events."""
        rest, data = b"", []
        for piece in self.pieces():
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                line = line.rstrip(b"\r")
                if line.startswith(b"data:"):
                    data.append(line[5:].removeprefix(b" "))
                elif not line and data:
                    yield b"\n".join(data)
                    data = []
        if data:
            yield b"\n".join(data)


def connect(place: HttpAddress, within: float = CONNECT_WITHIN) -> socket.socket:
    """Return a connection. Raise OSError."""
    connection = socket.create_connection((place.host, place.port), within)
    connection.settimeout(None)
    if not place.secure:
        return connection
    import ssl

    return ssl.create_default_context().wrap_socket(connection, server_hostname=place.host)
