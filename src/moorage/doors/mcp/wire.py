"""HTTP for the bridge: one request for each connection, with a streamed answer.

The standard library's client would do, but it loads a mail parser and TLS: on a busy machine the bridge started in 159
ms with it, and starts in 128 without.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress

CONNECT_WITHIN = 5.0  # seconds
MAX_HEAD = 64 * 1024
PORTS = {"http": 80, "https": 443}


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
        self.status, self.headers = self._head()

    def _head(self) -> tuple[int, dict[str, str]]:
        parts = self._file.readline(MAX_HEAD).split(None, 2)
        if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
            raise Broken("it is not a web server, or it closed the connection")
        headers: dict[str, str] = {}
        while (line := self._file.readline(MAX_HEAD).strip()) and len(headers) < 200:
            name, _, value = line.partition(b":")
            headers[name.decode("latin-1").lower()] = value.strip().decode("latin-1")
        return int(parts[1]), headers

    def body(self) -> bytes:
        """Return the whole body."""
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it comes."""
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            yield from self._chunks()
        elif "content-length" in self.headers:
            left = int(self.headers["content-length"])
            while left:
                piece = self._file.read1(min(left, 1 << 16))
                if not piece:
                    raise Broken("it closed the connection before the answer was complete")
                left -= len(piece)
                yield piece
        else:
            while piece := self._file.read1(1 << 16):
                yield piece

    def _chunks(self) -> Iterator[bytes]:
        while True:
            size = self._file.readline(MAX_HEAD).split(b";")[0].strip()
            if not size:
                raise Broken("it closed the connection before the answer was complete")
            length = int(size, 16)
            if not length:
                return
            piece = self._file.read(length)
            if len(piece) < length:
                raise Broken("it closed the connection before the answer was complete")
            self._file.readline(MAX_HEAD)
            yield piece

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


def send(
    connection: socket.socket, place: HttpAddress, verb: str, path: str, headers: dict[str, str], body: bytes
) -> None:
    """Send a request. Raise OSError."""
    told = {"Host": place.name, "Connection": "close", "Content-Length": str(len(body)), **headers}
    head = f"{verb} {place.path}{path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in told.items())
    connection.sendall(head.encode() + b"\r\n" + body)


def hang_up(connection: socket.socket | None) -> None:
    """Close a connection, even while another thread reads from it."""
    if connection is not None:
        with suppress(OSError):  # the server closed it first
            connection.shutdown(socket.SHUT_RDWR)
