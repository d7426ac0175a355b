"""A chat endpoint on this machine, which answers as its script says: well, slowly, wrongly, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

Request = dict[str, Any]


class Server:
    """A chat endpoint that records requests and answers by a script; the last step repeats."""

    def __init__(self, *steps: Callable[[Exchange], None]) -> None:
        self.requests: list[Request] = []
        self.keys: list[str | None] = []
        self.url = ""
        self.closing = Event()
        self._steps = list(steps)

    def answer(self, exchange: Exchange) -> None:
        step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        step(exchange)


class Exchange(BaseHTTPRequestHandler):
    """One request and its answer."""

    chat: Server

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        self.chat.requests.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.chat.keys.append(self.headers.get("authorization"))
        assert self.path == "/v1/chat/completions"
        self.chat.answer(self)

    def reply(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("connection", "close")
        self.end_headers()

    def send(self, event: object) -> None:
        data = event if isinstance(event, str) else json.dumps(event)
        self.wfile.write(f"data: {data}\n\n".encode())
        self.wfile.flush()


def piece(text: str | None = None, *, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """One event of a stream."""
    said = delta if text is None else {"content": text, **delta}
    return {"choices": [{"index": 0, "delta": said, "finish_reason": finish}]}


def streaming(*events: object) -> Callable[[Exchange], None]:
    """An answer that streams these events, and ends as it should."""

    def step(exchange: Exchange) -> None:
        exchange.begin_stream()
        for event in (*events, "[DONE]"):
            exchange.send(event)

    return step


def saying(*words: str) -> Callable[[Exchange], None]:
    """An answer in these pieces."""
    usage = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}}
    return streaming(piece(role="assistant"), *(piece(word) for word in words), piece(finish="stop"), usage)


def breaking(*events: object) -> Callable[[Exchange], None]:
    """An answer that breaks off after these events."""

    def step(exchange: Exchange) -> None:
        exchange.begin_stream()
        for event in events:
            exchange.send(event)

    return step


def failing(
    status: int, body: str = '{"error": {"message": "too busy"}}', **headers: str
) -> Callable[[Exchange], None]:
    """A refusal."""
    return lambda exchange: exchange.reply(status, body.encode(), **headers)


def hanging(*events: object) -> Callable[[Exchange], None]:
    """An answer that begins with these events and then says no more."""

    def step(exchange: Exchange) -> None:
        exchange.begin_stream()
        for event in events:
            exchange.send(event)
        exchange.chat.closing.wait(60)

    return step


@contextmanager
def serving(*steps: Callable[[Exchange], None]) -> Iterator[Server]:
    """A server on a free port."""
    chat = Server(*steps)
    handler = type("Handler", (Exchange,), {"chat": chat})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = False
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    chat.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield chat
    finally:
        chat.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
