"""Media types: how a request may come, and in which form its answer goes (GraphQL over HTTP)."""

from __future__ import annotations

import re
from functools import lru_cache

from moorage.doors.graphql.refusals import UnsupportedMediaType
from moorage.doors.http.exchange import JSON, Exchange
from moorage.doors.http.streams import SSE

GRAPHQL_JSON = b"application/graphql-response+json"
_WEIGHT = re.compile(rb"q\s*=\s*(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)")


class Accepted:
    """What a client takes, by its Accept header."""

    __slots__ = ("kind", "takes_events")

    def __init__(self, header: bytes) -> None:
        weights = _weights(header)
        self.takes_events = weights.get(SSE, 0.0) > 0
        self.kind = _preferred(weights)  # of an answer that is one document


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


def _preferred(weights: dict[bytes, float]) -> bytes:
    """Return the type that weighs most; a wildcard means plain JSON, which is also for whoever takes none of ours."""
    plain = weights.get(JSON, weights.get(b"application/*", weights.get(b"*/*", 0.0)))
    weight, _, kind = max(
        (weights.get(GRAPHQL_JSON, 0.0), True, GRAPHQL_JSON),
        (plain, JSON in weights, JSON),
        (weights.get(SSE, 0.0), True, SSE),
        key=lambda each: each[:2],  # the first of equals
    )
    return kind if weight > 0 else JSON


def _weights(header: bytes) -> dict[bytes, float]:
    weights: dict[bytes, float] = {}
    for each in header.lower().split(b","):
        kind, *parameters = (part.strip() for part in each.split(b";"))
        found = (_WEIGHT.fullmatch(part) for part in parameters)
        weights[kind] = next((float(weight[1]) for weight in found if weight), 1.0)
    return weights
