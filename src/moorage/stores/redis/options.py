"""The URL of a Redis or Valkey store and its options.

    redis://[user:password@]host[:port][/database]    rediss:// with TLS, unix:///path/of/the.socket
    redis+cluster://host:port                         or ?cluster=true

All options of redis-py's own URLs are passed on (`ssl_ca_certs`, `db` …). Further options of ours:

    prefix=moorage          prefix of every key
    pool=50                 maximum number of connections to each server
    patience=30             seconds that a caller waits for an unreachable server
    timeout=30              seconds that one command may take
    durability=server       when a change is acknowledged: once the server has it (`server`), once it is in the
                            server's append-only file (`fsync`), once a replica has it too (`replica`)
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from moorage.core.errors import InvalidField
from moorage.stores.server import seconds, whole_number

DURABILITIES = ("server", "fsync", "replica")


class RedisOptions(Struct, frozen=True, kw_only=True):
    """The address and options of a Redis store."""

    url: str  # for the driver
    shown: str  # without a password
    cluster: bool = False
    prefix: str = "moorage"
    pool: int = 50
    patience: float = 30.0
    timeout: float = 30.0
    durability: str = "server"

    @property
    def channel(self) -> str:
        """Return the channel on which processes of this store notify each other."""
        return f"{self.prefix}:commits"


def read_url(url: str) -> RedisOptions:
    """Parse a URL. Raises InvalidField."""
    parts = urlsplit(url)
    scheme, _, kind = parts.scheme.partition("+")
    ours: dict[str, Any] = {"cluster": kind == "cluster"}
    theirs: list[tuple[str, str]] = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in _READERS:
            ours[name] = _READERS[name](name, value)
        else:
            theirs.append((name, value))
    if ours["cluster"] and parts.path not in ("", "/", "/0"):
        raise InvalidField("url", "names a database; a cluster has only number 0")
    rest = urlencode(theirs, quote_via=quote)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return RedisOptions(url=urlunsplit((scheme, parts.netloc, parts.path, rest, "")), shown=shown, **ours)


def _matching(name: str, value: str, *, pattern: str, advice: str) -> str:
    if not re.fullmatch(pattern, value):
        raise InvalidField("url", f"has {name}={value!r}; {advice}")
    return value


def _flag(name: str, value: str) -> bool:
    return _matching(name, value, pattern="true|false", advice="write true or false") == "true"


_PREFIX = {"pattern": r"[A-Za-z0-9_.:-]{1,64}", "advice": "use up to 64 letters, digits and _ . : -"}
_DURABILITY = {"pattern": "|".join(DURABILITIES), "advice": f"use one of {', '.join(DURABILITIES)}"}
_READERS: dict[str, Any] = {
    "cluster": _flag, "prefix": partial(_matching, **_PREFIX), "pool": partial(whole_number, most=10_000),
    "patience": seconds, "timeout": seconds, "durability": partial(_matching, **_DURABILITY),
}  # fmt: skip
