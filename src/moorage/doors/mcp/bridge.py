"""`moorage mcp` with a running server: JSON-RPC lines of this process become requests to the server's `/mcp`.

Hosts start this for every conversation, so it starts in milliseconds: it uses threads and sockets, no event loop, no
library of the protocol. Both versions of the protocol pass through. In the older one a client has a session at the
server after a handshake; if the server loses it (a restart), the bridge repeats the handshake, unseen by the client.
"""

from __future__ import annotations

import select
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from socket import socket
from time import monotonic
from typing import Any

import msgspec

from moorage.doors.mcp.wire import Broken, HttpAddress, HttpResponse, connect, hang_up, send

PATH = "/mcp"
VERSION = "io.modelcontextprotocol/protocolVersion"
NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
MOST_AT_ONCE = 256  # concurrent requests
MAX_LINE = 16 * 1024 * 1024
COMES_BACK_WITHIN = 3.0  # seconds that a server may be away before the client gets an error
GOODBYE_WITHIN = 2.0  # seconds for a last message to the server
PARSE_ERROR, INVALID_REQUEST, SERVER_ERROR = -32700, -32600, -32000

RpcMessage = dict[str, Any]


class Bridge:
    """Forwards the lines of one client to one server."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self._place, self._headers = HttpAddress(url), headers
        self._out = sys.stdout.buffer
        self._writing, self._shaking = threading.Lock(), threading.Lock()
        self._open: dict[str, socket | None] = {}  # open requests, by their ids
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
                send(connection, self._place, "HEAD", PATH, self._headers, b"")
                return HttpResponse(connection).status == 200
        except (OSError, ValueError):
            return False

    def run(self, lines: Iterable[bytes], patience: float = 0.0) -> None:
        """Forward lines until the input ends; open requests then have `patience` seconds for their answers."""
        try:
            for line in lines:
                if line.strip():
                    self.take(line)
            ends = monotonic() + patience
            while self._open and monotonic() < ends and self._is_read():
                time.sleep(0.02)
        finally:
            self._leave()

    def _is_read(self) -> bool:
        """Return whether the reader of the output still exists."""
        watch = select.poll()
        watch.register(self._out, 0)
        return not watch.poll(0)

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
        """Forward a request on a thread of its own."""
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
        """Send a message, and write the answers."""
        request_id, key = message.get("id"), _key(message.get("id"))
        try:
            settled = self._exchange(message, key)
        except (OSError, ValueError) as error:
            settled = False
            why: object = error
        else:
            why = "it closed the connection before it answered"
        if not settled and "id" in message and "method" in message and key not in self._cancelled:
            self._refuse(
                request_id, SERVER_ERROR, f"the server at {self._place.name} did not answer ({why}); try again"
            )

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

    def _connected(self) -> socket:
        """Return a connection to the server, which may be restarting."""
        ends = monotonic() + COMES_BACK_WITHIN
        while True:
            try:
                return connect(self._place)
            except ConnectionRefusedError:
                if monotonic() > ends:
                    raise
                time.sleep(0.1)

    def _ask(self, connection: socket, message: RpcMessage) -> HttpResponse:
        """Send a message; return the answer of the server after its head."""
        headers = {**self._headers, **self._about(message), "Content-Type": "application/json"}
        headers["Accept"] = "application/json, text/event-stream"
        send(connection, self._place, "POST", PATH, headers, msgspec.json.encode(message))
        return HttpResponse(connection)

    def _about(self, message: RpcMessage) -> dict[str, str]:
        """Return the headers that the protocol requires."""
        if _is_modern(message):
            method = str(message.get("method"))
            found = {"MCP-Protocol-Version": str(message["params"]["_meta"][VERSION]), "Mcp-Method": method}
            name = message["params"].get(NAMES.get(method, ""))
            return {key: as_header(value) for key, value in {**found, **({"Mcp-Name": name} if name else {})}.items()}
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
                headers = {**self._headers, **self._about({}), "Accept": "text/event-stream"}
                send(connection, self._place, "GET", PATH, headers, b"")
                answer = HttpResponse(connection)
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
        body = answer.body()
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
        error: RpcMessage = {"code": code, "message": why}
        if data is not None:
            error["data"] = data
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
                    answer.body()
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
            hang_up(self._open[key])

    def _leave(self) -> None:
        """Cancel the requests that are still open."""
        if self._session is None:
            return
        try:
            with connect(self._place, GOODBYE_WITHIN) as connection:
                connection.settimeout(GOODBYE_WITHIN)
                send(connection, self._place, "DELETE", PATH, {**self._headers, **self._about({})}, b"")
                HttpResponse(connection)
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
    """Return message and data of an error of our server."""
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
