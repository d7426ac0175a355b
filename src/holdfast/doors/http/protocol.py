"""HTTP/1.1 on the wire, with bounds: how long and how large the head of a request may be.

uvicorn waits for ever for a head that comes a byte at a time, and takes one of any size. A thousand
such connections are a cheap way to tie a server up, so each has ten seconds and 64 KiB.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD = 64 * 1024
HEAD_WITHIN = 10.0  # seconds

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class BoundedProtocol(HttpToolsProtocol):
    """One connection, which has to say what it wants in time and in short."""

    head_within = HEAD_WITHIN
    max_head = MAX_HEAD

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._fed += len(data)
        super().data_received(data)
        if self._timer is not None and self._fed > self.max_head:
            self._break_off(_TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._timer is None:  # the next request on a connection that was kept
            self._begin_head()

    def on_headers_complete(self) -> None:
        self._end_head()
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.max_head:
            self._break_off(_TOO_LARGE)
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.transport.is_closing():
            super().on_message_complete()

    def _begin_head(self) -> None:
        self._fed = 0
        self._timer: asyncio.TimerHandle | None = self.loop.call_later(self.head_within, self._break_off, _TOO_SLOW)

    def _end_head(self) -> None:
        timer: asyncio.TimerHandle | None = getattr(self, "_timer", None)
        if timer is not None:
            timer.cancel()
        self._timer = None

    def _break_off(self, answer: bytes) -> None:
        self._end_head()
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()
