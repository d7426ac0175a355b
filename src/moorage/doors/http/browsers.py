"""Requests of browsers: which pages may call this server.

A browser sends the origin of the calling page (`Origin`, `Sec-Fetch-Site`). Only pages of this very server may call it,
with the port compared too: another program on the same machine has its own port. Pages of other origins need to be
allowed by configuration (`server.allowed_origins`). Programs send neither header and are not concerned.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from moorage.doors.http.exchange import Exchange
from moorage.doors.http.refusals import ForeignOrigin, FormType, RepeatedHeader

PORTS = {"http": 80, "https": 443}
OWN_SITES = frozenset({"same-origin", "none"})  # none: typed by the user
READING = frozenset({"GET", "HEAD", "OPTIONS"})
# A page may send these types to any server without a preflight request, so no body of ours has one of them.
FORM_TYPES = frozenset({"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"})


def check_browser(exchange: Exchange, allowed: frozenset[str] = frozenset()) -> None:
    """Raise an AccessError unless the request comes from a program or an allowed page.

    Raises:
        RepeatedHeader: it has two Host or Origin headers, and a proxy may have checked the other one.
        ForeignOrigin: it comes from a page of another origin.
        FormType: it changes something, with a content type that needs no preflight request.
    """
    for name in (b"host", b"origin"):
        if sum(each == name for each, _ in exchange.scope["headers"]) > 1:
            raise RepeatedHeader(name.decode())
    origin, site = exchange.header(b"origin"), exchange.header(b"sec-fetch-site")
    if origin is None and site is None:
        return
    if origin not in allowed:
        if origin is not None and not is_same(origin, exchange.header(b"host") or ""):
            raise ForeignOrigin("Origin", origin)
        if site is not None and site.lower() not in OWN_SITES:
            raise ForeignOrigin("Sec-Fetch-Site", site)
    if exchange.verb not in READING and _has_body(exchange) and _media_type(exchange) in FORM_TYPES:
        raise FormType(_media_type(exchange))


def is_same(origin: str, host: str) -> bool:
    """Return whether a page of `origin` was loaded from the server at `host`, port included."""
    try:
        page, server = urlsplit(origin), urlsplit(f"//{host}")
        usual = PORTS.get(page.scheme)
        return (
            usual is not None  # extensions of browsers, files and sandboxed pages are foreign
            and page.hostname is not None
            and (page.hostname, page.port or usual) == (server.hostname, server.port or usual)
        )
    except ValueError:
        return False


def _has_body(exchange: Exchange) -> bool:
    return b"transfer-encoding" in exchange.headers or exchange.headers.get(b"content-length", b"0") != b"0"


def _media_type(exchange: Exchange) -> str:
    return (exchange.header(b"content-type") or "").partition(";")[0].strip().lower()
