"""The web page: its files, unchanged from the package, at `/` and below `/web/`.

Every client may load them because they contain no data; their data comes from REST, with a key where keys are used. The
policy allows only these files: no inline scripts and none from elsewhere.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import zlib
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from moorage.doors.http.app import Door, Handler, Route
from moorage.doors.http.exchange import PACKED, WORTH_PACKING, Exchange, RawHeaders
from moorage.doors.http.reading import knows
from moorage.doors.http.visit import Visitor

FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "web", "static")
KINDS = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".mjs": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS: RawHeaders = [
    (b"content-security-policy", POLICY),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),  # cache it, but revalidate it
]


class PageFile(Struct, frozen=True):
    """A file of the page, ready to send."""

    kind: bytes
    body: bytes
    packed: bytes
    etag: bytes


def add_to(door: Door) -> None:
    """Add the routes for `/` and the files below `/web/`."""
    send = sending(os.path.join(FOLDER, "index.html"))
    page = Route(verb="GET", path="/", name="web", endpoint=send, is_open=True, kind="text/html")
    door.add(replace(page, summary="The web page, for a browser"))
    for name in names():
        door.add(replace(page, path=f"/web/{name}", endpoint=sending(os.path.join(FOLDER, name))))


def names() -> Iterator[str]:
    """Yield the files of the page, as paths below their folder."""
    for folder, _, files in os.walk(FOLDER):
        for file in sorted(files):
            if os.path.splitext(file)[1] in KINDS:
                yield os.path.relpath(os.path.join(folder, file), FOLDER).replace(os.sep, "/")


def sending(path: str, headers: RawHeaders = HEADERS) -> Handler:
    """Return an endpoint that sends one file. It checks the file for each request, so that changes show at once."""
    kept: dict[float, PageFile] = {}

    async def endpoint(exchange: Exchange, _: Visitor) -> None:
        changed = os.stat(path).st_mtime
        if changed not in kept:
            kept.clear()
            kept[changed] = await asyncio.to_thread(read, path)  # packing a large one takes a tenth of a second
        file = kept[changed]
        told = [*headers, (b"etag", file.etag)]
        if knows(exchange, file.etag):
            await exchange.answer_as_is(b"", status=304, kind=file.kind, headers=told)
        elif len(file.body) >= WORTH_PACKING and exchange.takes_packed:
            await exchange.answer_as_is(file.packed, kind=file.kind, headers=[*told, *PACKED])
        else:
            await exchange.answer_as_is(file.body, kind=file.kind, headers=told)

    return endpoint


def read(path: str) -> PageFile:
    """Read a file and prepare it for sending."""
    with open(path, "rb") as file:
        body = file.read()
    packer = zlib.compressobj(9, wbits=31)
    tag = hashlib.sha256(body).hexdigest()[:32]
    return PageFile(
        kind=KINDS[os.path.splitext(path)[1]],
        body=body,
        packed=packer.compress(body) + packer.flush(),
        etag=f'"{tag}"'.encode(),
    )
