"""Routes for whoever looks after a server: is it there, does its store answer, what does it offer."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from moorage import __version__
from moorage.core.codec import encode
from moorage.core.errors import StoreUnavailable
from moorage.doors.http.app import Door, Route
from moorage.doors.http.described import Described
from moorage.doors.http.docs_page import POLICY, docs_page
from moorage.doors.http.exchange import Exchange
from moorage.doors.http.openapi import openapi
from moorage.doors.http.visit import Visitor
from moorage.service.deps import Deps

READY_WITHIN = 5.0  # seconds for the store to answer
SILENT_AFTER = 10.0  # seconds without a write that went well: the server is not ready
DEAD_AFTER = 60.0  # the same: it will not recover by itself
HTML = b"text/html; charset=utf-8"
DOCS_HEADERS = [(b"content-security-policy", POLICY), (b"referrer-policy", b"no-referrer")]


class Health(Struct, frozen=True, kw_only=True):
    """How a server does."""

    status: str
    version: str = __version__


class Heart:
    """When the store last took something from this server: what reads well may have lost its way to the disk."""

    def __init__(self) -> None:
        self._beaten_at = monotonic()

    def beat(self) -> None:
        """Something was written."""
        self._beaten_at = monotonic()

    def check(self, silent_after: float) -> None:
        """Raise StoreUnavailable if nothing was written for so many seconds."""
        silent = monotonic() - self._beaten_at
        if silent > silent_after:
            raise StoreUnavailable(f"nothing could be written for {silent:.0f} seconds", store="store")


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
    """Answer /healthz, /readyz, /openapi.json and /docs; a server that has a heart is well as long as it beats."""

    async def healthz(exchange: Exchange, _: Visitor) -> None:
        if heart is not None:
            heart.check(DEAD_AFTER)
        await exchange.answer(encode(Health(status="ok")))

    async def readyz(exchange: Exchange, _: Visitor) -> None:
        await check_ready(door.deps, heart)
        await exchange.answer(encode(Health(status="ready")))

    async def document(exchange: Exchange, _: Visitor) -> None:
        await exchange.answer(encode(await _document(door)))

    async def page(exchange: Exchange, _: Visitor) -> None:
        await exchange.answer(docs_page(await _document(door)).encode(), kind=HTML, headers=DOCS_HEADERS)

    told = {
        "/healthz": (healthz, Described(name="healthz", summary="Whether the server is there", answer=Health)),
        "/readyz": (
            readyz,
            Described(name="readyz", summary="Whether its store answers and takes writes", answer=Health),
        ),
        "/openapi.json": (document, Described(name="openapi", summary="This document", answer=dict[str, Any])),
        "/docs": (page, Described(name="docs", summary="This document, to read", kind="text/html")),
    }
    for path, (endpoint, described) in told.items():
        route = Route(described.name, endpoint, is_open=True)
        door.add("GET", path, route, replace(described, is_open=True))


async def _document(door: Door) -> dict[str, Any]:
    """The document, made once, and once more when keys are needed from now on."""
    needs_key = await door.needs_key()
    if needs_key not in door.documents:
        door.documents[needs_key] = openapi(door.described, needs_key=needs_key)
    return door.documents[needs_key]
