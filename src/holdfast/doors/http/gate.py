"""The gate: who is asking, and whether they may.

Without keys only requests that were meant for this machine get in: their Host is a local name, and
their Origin, if a browser sends one, is too. So a page on the internet cannot talk to a server on the
reader's own machine, not even by pointing its name there (DNS rebinding). Once a store has keys,
every request needs one, or the token of a session.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from holdfast.doors.http.exchange import Exchange
from holdfast.doors.http.refusals import NotLocal
from holdfast.doors.http.visit import Visitor
from holdfast.service.deps import Caller

LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
INTERFACES = frozenset({"rest", "python", "cli", "web", "mcp", "graphql", "grpc", "hooks"})
MAX_NAME = 200


class Gate:
    """Lets requests in."""

    def __init__(self, *, hosts: frozenset[str] = frozenset()) -> None:
        self._hosts = LOCAL | hosts

    async def admit(self, exchange: Exchange) -> Visitor:
        """Who is asking. Raises what a stranger is told."""
        self._check_local(exchange)
        return Visitor(
            Caller(
                owner="local",
                by=_name(exchange, b"x-holdfast-by") or "local",
                interface=_interface(exchange),
                holder=_name(exchange, b"x-holdfast-holder") or "rest",
            )
        )

    def _check_local(self, exchange: Exchange) -> None:
        host = exchange.header(b"host") or ""
        if _host_of(f"//{host}") not in self._hosts:
            raise NotLocal("Host", host)
        origin = exchange.header(b"origin")
        if origin is not None and _host_of(origin) not in self._hosts:
            raise NotLocal("Origin", origin)


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _interface(exchange: Exchange) -> str:
    told = exchange.header(b"x-holdfast-interface")
    return told if told in INTERFACES else "rest"


def _name(exchange: Exchange, header: bytes) -> str | None:
    """A name that somebody gives themselves; shown, never trusted."""
    told = exchange.header(header)
    return told[:MAX_NAME] if told and told.isprintable() else None
