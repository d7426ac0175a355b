"""A connection to PostgreSQL: runs the statements shared by all SQL stores, and translates errors.

`stores/sql/db.py` says how a statement is written. Each is prepared once for a connection, unless there is a
pooler in between.

All options of PostgreSQL's own URLs are passed on: user, password, host, port, database, `sslmode`, `sslrootcert`,
`host=/folder/of/a/socket` … Further options of ours:

    schema=moorage         schema of the tables
    pool=10                 maximum number of connections
    pooler=transaction      connections go through a transaction pooler: no prepared statements, poll only
    patience=30             seconds that a caller waits for a connection, and for an unreachable database
    statement_timeout=30    seconds that one statement may take
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import count
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import asyncpg
from msgspec import Struct

from moorage.core.errors import (
    EncryptionKeyMissing,
    InvalidField,
    StoreBusy,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from moorage.core.session import Stamp
from moorage.stores import Stale
from moorage.stores.rows import Row, micros
from moorage.stores.sealing import Sealer
from moorage.stores.server import seconds, whole_number
from moorage.stores.sql.db import Commit, Target

REFUSED_PLAIN = "MR006"  # error code of the triggers of a sealed store
STALE = "MR001"
_AGAIN = frozenset({"40001", "40P01", "23505", "23503", STALE})  # a concurrent change won: read again and decide again
_RULES = frozenset({"23505", "23503"})  # a concurrent change, or a permanent violation of a database constraint
_GOING = ("57P", "08", "25P03", "25P04")  # the server shuts down, starts, or ended a slow connection
_BUSY = frozenset({"55P03", "57014", "53300"})
_NO_TEXT = frozenset({"22021", "22P05"})
STATEMENTS_KEPT = 500
GRACE = 5.0  # seconds after a statement's time-out until the network is considered dead: then no answer comes
LONGEST_ROLLBACK = 2.0
_VALUE = re.compile(r"\?(\d*)")
_HINTS = re.compile(r"\b(INDEXED BY \w+|NOT INDEXED)")
_NOT_IN_LIST = re.compile(r"NOT IN LIST\((\?\d*::\w+)\)")
_IN_LIST = re.compile(r"IN LIST\((\?\d*::\w+)\)")


class LostConnection(Exception):
    """The connection is lost; `is_certain` if the commands under way cannot have been committed."""

    def __init__(self, cause: BaseException, *, is_certain: bool) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.is_certain = is_certain


class Statements:
    """Statements in PostgreSQL's syntax, by their shared form."""

    def __init__(self, schema: str) -> None:
        self.prefix = f'"{schema}".'
        self._known: dict[str, str] = {}

    def __getitem__(self, sql: str) -> str:
        known = self._known.get(sql)
        if known is None:
            if len(self._known) > 4 * STATEMENTS_KEPT:
                self._known.clear()
            known = self._known[sql] = _translated(sql).replace("moor.", self.prefix)
        return known


def _translated(sql: str) -> str:
    """Return a statement of `stores/sql` without its hints for SQLite, with lists as arrays and values numbered."""
    sql = sql.replace("ORDERED JOIN", "JOIN").replace("instr(", "strpos(")
    sql = _NOT_IN_LIST.sub(r"<> ALL(\1[])", sql)
    sql = _HINTS.sub("", _IN_LIST.sub(r"= ANY(\1[])", sql))
    places = count(1)

    def number(found: re.Match[str]) -> str:
        place = next(places)  # values with a number count, too
        return f"${found[1] or place}"

    return _VALUE.sub(number, sql)


class PostgresConnection:
    """One connection, used by one task at a time."""

    is_postgres = True

    def __init__(self, raw: asyncpg.Connection[Any], where: str, statements: Statements, sealer: Sealer | None) -> None:
        self.raw, self.path, self.statements = raw, where, statements
        self.prefix = statements.prefix
        self.opener = sealer  # opens sealed bodies, whether or not new bodies are sealed
        self.sealer = sealer if sealer is not None and sealer.seals else None
        self.has_written = False  # since it was taken from the pool
        self.changes = 1  # number of changes in its next commit
        self.is_locking = False  # whether sessions are locked when read
        self._in_transaction = False
        self._is_committing = False

    async def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        row: Row | None = await self._asked(self.raw.fetchrow, sql, values)
        return row

    async def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        rows: list[Row] = await self._asked(self.raw.fetch, sql, values)
        return rows

    async def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        done: str = await self._written(self.raw.execute, sql, values)
        count = done.rpartition(" ")[2]
        return int(count) if count.isdecimal() else 0

    async def many(self, sql: str, values: Sequence[Sequence[Any]]) -> None:
        if values:
            await self._written(self.raw.executemany, sql, (values,))

    async def commit_changes(self, commit: Commit) -> None:
        from moorage.stores.postgres import writes

        await writes.commit(self, commit)

    async def new_key(self) -> int:
        [(key,)] = await self.all("SELECT nextval('moor.sessions_pk_seq')")
        return int(key)

    async def delete_sessions(self, owner: str, targets: list[Target], stamp: Stamp) -> None:
        """Delete sessions, leaves first. Raises Stale if a concurrent change won.

        Callbacks are decided on their parents, so they need a transaction: if one is due, the first attempt is refused.
        """
        columns = [list(each) for each in zip(*targets, strict=True)]
        if self.is_locking:
            from moorage.stores.sql import work  # only sessions with turns of a launcher need it

            await work.call_back_for(self, owner, columns[0], stamp)
        sql = "SELECT moor.delete_sessions(?, ?::bigint[], ?::text[], ?::text[], ?::bigint[], ?, ?)"
        await self.commit_one(sql, (owner, *columns, micros(stamp.at), stamp.by))

    def lock(self) -> str:
        return " FOR NO KEY UPDATE" if self.is_locking else ""

    async def feed_start(self, owner: str) -> int | None:
        return 0  # each owner has separate ids

    async def feed_end(self, owner: str) -> int:
        row = await self.one("SELECT feed_end FROM moor.owners WHERE name = ?", (owner,))
        return int(row[0]) if row else 0

    def listed(self, values: Sequence[Any]) -> Any:
        return values

    async def commit_one(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return the rows of a writing statement. Outside a transaction it commits by itself."""
        rows: list[Row] = await self._written(self.raw.fetch, sql, values)
        return rows

    async def script(self, sql: str, timeout: float | None = None) -> None:
        """Run statements without values, with the given time-out or that of every statement."""
        self.has_written = True
        await self._called(self.raw.execute(sql.replace("moor.", self.prefix), timeout=timeout))

    async def _asked(self, method: Any, sql: str, values: Sequence[Any]) -> Any:
        return await self._called(method(self.statements[sql], *values))

    async def _written(self, method: Any, sql: str, values: Sequence[Any]) -> Any:
        self.has_written = True
        self._is_committing = not self._in_transaction
        try:
            return await self._called(method(self.statements[sql], *values))
        finally:
            self._is_committing = False

    async def _called(self, call: Awaitable[Any]) -> Any:
        """Await a call of the driver, and translate its errors."""
        try:
            return await call
        except _TROUBLE as error:
            raise self._translated(error) from error

    def snapshot(self) -> AbstractAsyncContextManager[None]:
        """Let several reads see one instant."""
        return self.transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    @asynccontextmanager
    async def transaction(self, begin: str = "BEGIN") -> AsyncIterator[None]:
        """Run the block in a transaction: all of it or nothing is committed."""
        await self._called(self.raw.execute(begin))
        self._in_transaction = True
        try:
            yield
        except BaseException as error:
            self._in_transaction = False
            await self._rollback(error)
            raise
        self._in_transaction = False
        self._is_committing = self.has_written
        try:
            await self._called(self.raw.execute("COMMIT"))
        finally:
            self._is_committing = False

    async def _rollback(self, error: BaseException) -> None:
        """Leave the rollback to the server if the connection is lost or was interrupted."""
        if isinstance(error, LostConnection) or self.raw.is_closed():
            self.raw.terminate()
            return
        try:
            await asyncio.shield(self.raw.execute("ROLLBACK", timeout=LONGEST_ROLLBACK))
        except BaseException:
            self.raw.terminate()

    def _translated(self, error: BaseException) -> BaseException:
        """Return our error for an error of PostgreSQL or its driver."""
        code = getattr(error, "sqlstate", None) or ""
        if not isinstance(error, asyncpg.PostgresError) or isinstance(error, asyncpg.PostgresConnectionError):
            if isinstance(error, (asyncpg.DataError, UnicodeEncodeError)):
                return InvalidField("text", f"cannot be kept ({error})")
            if isinstance(error, asyncpg.InterfaceError) and not self.raw.is_closed():
                return StoreUnavailable(f"{self.path} cannot be used ({error})", store=self.path)
            return LostConnection(error, is_certain=not self._is_committing)
        if code in _AGAIN:
            return Stale(str(error), is_rule=code in _RULES)
        if code.startswith(_GOING) and code != "57014":
            return LostConnection(error, is_certain=True)  # the server itself reports the rollback
        if code == REFUSED_PLAIN:
            return EncryptionKeyMissing(None)
        if code.startswith("MR"):
            return FunctionRefused(code, getattr(error, "detail", None) or "")
        if code in _BUSY:
            return StoreBusy(self.path)
        if code.startswith("53"):
            return StoreFull(self.path)
        if code in ("25006", "42501"):
            return StoreReadOnly(self.path)
        if code in _NO_TEXT:
            return InvalidField("text", "has a character that PostgreSQL cannot keep: NUL")
        return StoreUnavailable(f"{self.path} cannot be used ({type(error).__name__}: {error})", store=self.path)


_TROUBLE = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError, UnicodeEncodeError)


class FunctionRefused(Exception):
    """The refusal code of a database function; its caller translates it."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code, detail)
        self.code, self.detail = code, detail


async def connect(options: PostgresOptions, timeout: float) -> asyncpg.Connection[Any]:
    """Open a connection with all settings it needs. With a pooler there are none: it shares connections."""
    timeout_ms = str(int(options.statement_timeout * 1000))
    settings = {
        "application_name": "moorage",
        "statement_timeout": timeout_ms,
        "lock_timeout": timeout_ms,
        "idle_in_transaction_session_timeout": str(int(min(options.statement_timeout, 60) * 1000)),
        "jit": "off",  # statements are short
        "enable_seqscan": "off",  # every statement has its index; a table that is small when planned grows
        "plan_cache_mode": "force_generic_plan",  # plans must not depend on values: planning took longer than execution
    }
    raw: asyncpg.Connection[Any] = await asyncpg.connect(
        options.dsn,
        timeout=timeout,
        command_timeout=options.statement_timeout + GRACE,
        statement_cache_size=0 if options.pooler else STATEMENTS_KEPT,
        max_cached_statement_lifetime=0,
        server_settings={} if options.pooler else settings,
    )
    return raw


# URLs -------------------------------------------------------------------------------------------

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
    given = parse_qsl(parts.query, keep_blank_values=True)
    for name, value in given:
        if name in _FILES and not os.path.isfile(value):  # the driver would not name it
            raise InvalidField("url", f"has {name}={value!r}, and there is no such file")
    ours: dict[str, Any] = {name: _READERS[name](name, value) for name, value in given if name in _READERS}
    theirs = urlencode([pair for pair in given if pair[0] not in _READERS], quote_via=quote)
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, theirs, ""))
    shown = f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return PostgresOptions(dsn=dsn, shown=shown, **ours)


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
