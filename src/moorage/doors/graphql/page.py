"""GraphiQL, for a browser that comes to /graphql. All files are our own: the page works without the internet."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files

from moorage.doors.http.app import Door, Route
from moorage.doors.http.exchange import Exchange, Headers
from moorage.doors.http.reading import knows
from moorage.doors.http.refusals import NoSuchPath
from moorage.doors.http.visit import Visitor

KINDS = {".js": b"text/javascript; charset=utf-8", ".css": b"text/css; charset=utf-8"}
SCRIPTS = ("react.production.min.js", "react-dom.production.min.js", "graphiql.min.js", "page.js")
STYLES = ("graphiql.min.css", "page.css")
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    b"font-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)  # the editor styles its elements itself; scripts are files of ours and nothing else
SAFE: Headers = [
    (b"content-security-policy", POLICY),
    (b"referrer-policy", b"no-referrer"),
]


def add_to(door: Door, path: str) -> None:
    """Serve the page's files."""
    door.add("GET", f"{path}/static/{{name}}", Route("graphql_static", _file, is_open=True))


def is_wanted(exchange: Exchange) -> bool:
    """Whether a browser asks for a page rather than for an answer."""
    accepted = exchange.headers.get(b"accept", b"").lower()
    return b"text/html" in accepted and b"query=" not in exchange.scope["query_string"]


async def show(exchange: Exchange) -> None:
    """The page."""
    await exchange.answer(_page(), kind=b"text/html; charset=utf-8", headers=[*SAFE, (b"cache-control", b"no-cache")])


@cache
def _page() -> bytes:
    styles = "".join(f'<link rel="stylesheet" href="graphql/static/{name}">' for name in STYLES)
    scripts = "".join(f'<script src="graphql/static/{name}" defer></script>' for name in SCRIPTS)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>Moorage: GraphQL</title>{styles}{scripts}</head>"
        '<body><main id="graphiql"><h1>Moorage: GraphQL</h1>'
        "<p>GraphiQL is being loaded; it needs JavaScript.</p></main></body></html>"
    ).encode()


async def _file(exchange: Exchange, _: Visitor) -> None:
    name = exchange.params["name"]
    if name not in (*SCRIPTS, *STYLES):
        raise NoSuchPath(exchange.path)
    body, tag = _content(name)
    kept: Headers = [*SAFE, (b"cache-control", b"max-age=3600"), (b"etag", tag)]
    is_known = knows(exchange, tag)
    kind = KINDS[name[name.rindex(".") :]]
    await exchange.answer(b"" if is_known else body, status=304 if is_known else 200, kind=kind, headers=kept)


@cache
def _content(name: str) -> tuple[bytes, bytes]:
    """A file, and what changes whenever it does."""
    body = (files("moorage.doors.graphql") / "static" / name).read_bytes()
    return body, b'"%s"' % sha256(body).hexdigest()[:16].encode()
