"""Media types: how a request may come, and in which form its answer goes (GraphQL over HTTP)."""

from __future__ import annotations

from functools import lru_cache

from moorage.doors.graphql.refusals import UnsupportedMediaType
from moorage.doors.http.exchange import JSON, Exchange
from moorage.doors.http.negotiation import names, preferred
from moorage.doors.http.streams import SSE

GRAPHQL_JSON = b"application/graphql-response+json"


class Accepted:
    """What a client takes, by its Accept header."""

    __slots__ = ("kind", "takes_events")

    def __init__(self, header: bytes) -> None:
        self.takes_events = names(header, SSE)
        newer = (GRAPHQL_JSON,) if names(header, GRAPHQL_JSON) else ()  # a wildcard means plain JSON
        self.kind = preferred(header, *newer, JSON, SSE)  # of an answer that is one document


@lru_cache(maxsize=64)
def accepted_by(header: bytes) -> Accepted:
    """Read an Accept header; b"" stands for none."""
    return Accepted(header)


def accepted(exchange: Exchange) -> Accepted:
    """Return what the client of this request takes."""
    return accepted_by(exchange.headers.get(b"accept", b""))


def check_content_type(exchange: Exchange) -> None:
    """Raise UnsupportedMediaType unless a body comes as JSON, and says so.

    A page of another site can send a body without a type, or with the type of a form, to any server.
    """
    given = exchange.headers.get(b"content-type", b"")
    if given != JSON and given.partition(b";")[0].strip().lower() != JSON:
        raise UnsupportedMediaType(given.decode("latin-1"))
