"""GraphiQL, for a browser that opens /graphql. All files are part of the package: the page works offline."""

from __future__ import annotations

import os

from moorage.doors.http.app import Door
from moorage.doors.http.exchange import Exchange, RawHeaders
from moorage.doors.http.pages import sending
from moorage.doors.http.routing import Route

FOLDER = os.path.join(os.path.dirname(__file__), "static")
FILES = tuple(name for name in sorted(os.listdir(FOLDER)) if name.endswith((".js", ".css")))
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    b"font-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)  # the editor styles its elements itself; scripts come only from the package's files
SAFE: RawHeaders = [
    (b"content-security-policy", POLICY),
    (b"referrer-policy", b"no-referrer"),
]
show = sending(os.path.join(FOLDER, "index.html"), [*SAFE, (b"cache-control", b"no-cache")])


def add_to(door: Door, path: str) -> None:
    """Serve the page's files."""
    for name in FILES:
        send = sending(os.path.join(FOLDER, name), [*SAFE, (b"cache-control", b"max-age=3600")])
        door.add(Route(verb="GET", path=f"{path}/static/{name}", name="graphql_static", endpoint=send, is_open=True))


def is_wanted(exchange: Exchange) -> bool:
    """Return whether a browser requests a page rather than an answer."""
    accepted = exchange.headers.get(b"accept", b"").lower()
    return b"text/html" in accepted and b"query=" not in exchange.scope["query_string"]
