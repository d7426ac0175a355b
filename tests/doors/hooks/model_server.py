"""A stand-in for the model behind a host: it answers with what a script says, streamed as the real one does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Block = dict[str, Any]
Script = Callable[[str], list[Block]]  # the conversation so far, as text → the blocks of the answer


def text(words: str) -> list[Block]:
    """An answer in words."""
    return [{"type": "text", "text": words}]


def call(call_id: str, name: str, **arguments: Any) -> list[Block]:
    """An answer that calls a tool."""
    return [{"type": "tool_use", "id": call_id, "name": name, "input": arguments}]


@contextmanager
def serving(script: Script) -> Iterator[str]:
    """A server on a free port of this machine; its address."""

    class Handler(_Handler):
        answer = staticmethod(script)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answer: Script

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._send(404, "application/json", b"{}")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "count_tokens" in self.path:
            self._send(200, "application/json", b'{"input_tokens": 10}')
            return
        blocks = self.answer(json.dumps(asked.get("messages", [])))
        if asked.get("stream"):
            self._send(200, "text/event-stream", b"".join(_events(asked.get("model"), blocks)))
        else:
            message = {**_message(asked.get("model")), "content": blocks, "stop_reason": _stop_reason(blocks)}
            self._send(200, "application/json", json.dumps(message).encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _message(model: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 5}
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "usage": usage}


def _stop_reason(blocks: list[Block]) -> str:
    return "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"


def _events(model: Any, blocks: list[Block]) -> Iterator[bytes]:
    yield _event("message_start", message=_message(model) | {"stop_reason": None, "stop_sequence": None})
    for index, block in enumerate(blocks):
        start: Block = {"type": "text", "text": ""}
        delta: Block = {"type": "text_delta", "text": block.get("text")}
        if block["type"] == "tool_use":
            start = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield _event("content_block_start", index=index, content_block=start)
        yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    ended = {"stop_reason": _stop_reason(blocks), "stop_sequence": None}
    yield _event("message_delta", delta=ended, usage={"output_tokens": 5})
    yield _event("message_stop")


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
