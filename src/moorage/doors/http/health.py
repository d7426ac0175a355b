"""Routes for operators: health of the server, readiness of its store, and its documentation."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

from msgspec import Struct

from moorage import __version__
from moorage.core.codec import encode
from moorage.core.errors import StoreUnavailable
from moorage.doors.http.app import Door
from moorage.doors.http.docs_page import POLICY, docs_page
from moorage.doors.http.exchange import Exchange
from moorage.doors.http.openapi import openapi
from moorage.doors.http.visit import Visitor
from moorage.service.deps import Deps

READY_WITHIN = 5.0  # seconds for the store to answer
SILENT_AFTER = 10.0  # seconds without a successful write: the server is not ready
DEAD_AFTER = 60.0  # the same: it will not recover by itself
HTML = b"text/html; charset=utf-8"
DOCS_HEADERS = [(b"content-security-policy", POLICY), (b"referrer-policy", b"no-referrer")]


class Health(Struct, frozen=True, kw_only=True):
    """How a server does."""

    status: str
    version: str = __version__


class Heart:
    """The time of the last successful write: a store that can be read may have lost its disk."""

    def __init__(self) -> None:
        self._beaten_at = monotonic()

    def beat(self) -> None:
        """Note a successful write."""
        self._beaten_at = monotonic()

    def check(self, silent_after: float) -> None:
        """Raise StoreUnavailable if nothing was written for this number of seconds."""
        silent = monotonic() - self._beaten_at
        if silent > silent_after:
            raise StoreUnavailable(f"no write has succeeded for {silent:.0f} seconds", store="store")


async def check_ready(deps: Deps, heart: Heart | None = None) -> None:
    """Raise StoreError if the store does not answer, or takes no writes."""
    if heart is not None:
        heart.check(SILENT_AFTER)
    try:
        async with asyncio.timeout(READY_WITHIN):
            await deps.store.feed_end("local")
    except TimeoutError:
        raise StoreUnavailable("the store does not answer in time", store="store") from None


def add_to(door: Door, heart: Heart | None = None) -> None:
    """Add /healthz, /readyz, /openapi.json and /docs; a server with a heart is healthy as long as it beats."""
    documents: dict[bool, dict[str, Any]] = {}  # the OpenAPI documents, by whether a key is needed

    async def whole() -> dict[str, Any]:
        needs_key = await door.needs_key()
        if needs_key not in documents:
            # Making it takes a tenth of a second, so the event loop does not do it.
            documents[needs_key] = await asyncio.to_thread(openapi, door.routes, needs_key=needs_key)
        return documents[needs_key]

    @door.route("GET", "/healthz", is_open=True, answer=Health)
    async def healthz(exchange: Exchange, _: Visitor) -> None:
        """Return whether the server answers."""
        if heart is not None:
            heart.check(DEAD_AFTER)
        await exchange.answer(encode(Health(status="ok")))

    @door.route("GET", "/readyz", is_open=True, answer=Health)
    async def readyz(exchange: Exchange, _: Visitor) -> None:
        """Return whether the store answers and takes writes."""
        await check_ready(door.deps, heart)
        await exchange.answer(encode(Health(status="ready")))

    @door.route("GET", "/openapi.json", name="openapi", is_open=True, answer=dict[str, Any])
    async def document(exchange: Exchange, _: Visitor) -> None:
        """This document."""
        await exchange.answer(encode(await whole()))

    @door.route("GET", "/docs", is_open=True, kind="text/html")
    async def docs(exchange: Exchange, _: Visitor) -> None:
        """Show this document to people."""
        await exchange.answer(docs_page(await whole()).encode(), kind=HTML, headers=DOCS_HEADERS)
