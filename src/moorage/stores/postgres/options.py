"""The URL of a PostgreSQL store and its options.

All options of PostgreSQL's own URLs are passed on: user, password, host, port, database,
`sslmode`, `sslrootcert`, `host=/folder/of/a/socket` … Further options of ours:

    schema=moorage         schema of the tables
    pool=10                 maximum number of connections
    pooler=transaction      connections go through a transaction pooler: no prepared statements, poll only
    patience=30             seconds that a caller waits for a connection, and for an unreachable database
    statement_timeout=30    seconds that one statement may take
"""

from __future__ import annotations

import os
import re
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from moorage.core.errors import InvalidField
from moorage.stores.server import seconds, whole_number

MAX_SCHEMA = 48  # bytes: names derived from it have at most 63
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class PostgresOptions(Struct, frozen=True, kw_only=True):
    """The address and options of a PostgreSQL store."""

    dsn: str  # for the driver
    shown: str  # without a password
    schema: str = "moorage"
    pool: int = 10
    pooler: bool = False
    patience: float = 30.0
    statement_timeout: float = 30.0

    @property
    def channel(self) -> str:
        """Return the channel on which servers of this store notify each other."""
        return f"moorage_{self.schema}"


def read_url(url: str) -> PostgresOptions:
    """Parse a URL. Raises InvalidField."""
    parts = urlsplit(url)
    ours: dict[str, str] = {}
    theirs: list[tuple[str, str]] = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in _READERS:
            ours[name] = value
        else:
            _check_file(name, value)
            theirs.append((name, value))
    rest = urlencode(theirs, quote_via=quote)
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, rest, ""))
    shown = f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"
    given: dict[str, Any] = {name: _READERS[name](name, value) for name, value in ours.items()}
    return PostgresOptions(dsn=dsn, shown=shown, **given)


def _check_file(name: str, value: str) -> None:
    """Raise an error that names a missing file: the driver would not name it."""
    if name in _FILES and not os.path.isfile(value):
        raise InvalidField("url", f"has {name}={value!r}, and there is no such file")


def _schema(name: str, value: str) -> str:
    if not _SCHEMA.fullmatch(value) or len(value) > MAX_SCHEMA or value.startswith("pg_"):
        raise InvalidField("url", f"has {name}={value!r}; use letters, digits and _, not beginning with pg_")
    return value


def _pooler(name: str, value: str) -> bool:
    if value not in ("transaction", "none"):
        raise InvalidField("url", f"has {name}={value!r}; write transaction, or none")
    return value == "transaction"


_READERS: dict[str, Any] = {
    "schema": _schema, "pool": partial(whole_number, most=1000), "pooler": _pooler, "patience": seconds,
    "statement_timeout": seconds,
}  # fmt: skip
