"""Moving in: tables of frameworks' own backends in SQLite or PostgreSQL. Existing sessions are unchanged.

Only the source of the rows differs: a framework's reader sends both kinds of databases the same statements where
their tables are alike. `$1` is the first value in both.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import apsw

from moorage.config import without_password
from moorage.core.errors import InvalidField
from moorage.core.extras import provided_by
from moorage.remote.background import Background
from moorage.service.transfer import MAX_TOLD, ImportReport, LeftOut

Row = tuple[Any, ...]
POSTGRES = re.compile(r"postgres(ql)?(\+\w+)?://")  # SQLAlchemy's URLs may name a driver
AT_ONCE = 20  # rows of a stream in memory at once; a row may hold a whole state
PATIENCE = 5.0  # seconds for the connection to close

# For a user with the name of our schema, PostgreSQL would find our own `sessions` first.
_LEAVE_OUR_SCHEMA = """
    SELECT set_config('search_path', coalesce(string_agg(quote_ident(name), ', '), 'public'), true)
    FROM unnest(current_schemas(false)) AS name WHERE name <> 'moorage'
"""
_COLUMNS = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped"


class Tables(Protocol):
    """The tables of a framework, for reading."""

    shown: str  # the file or the database, for a report
    is_postgres: bool

    def columns(self, table: str) -> set[str]:
        """Return the names of a table's columns; none if there is no such table."""

    def stream(self, sql: str) -> Iterator[Row]:
        """Yield rows, few of them in memory at a time."""

    def rows(self, sql: str, *values: Any) -> list[Row]:
        """Return the rows of one session or checkpoint."""

    def close(self) -> None:
        """Close the file or the connection."""


def is_postgres(source: str) -> bool:
    """Return whether a source is the URL of a PostgreSQL database, and no file."""
    return POSTGRES.match(source) is not None


@contextmanager
def tables_of(source: str, whose: str, wanted: set[str]) -> Iterator[Tables]:
    """Open a file of SQLite, or the PostgreSQL database of a URL. Raises InvalidField if wanted tables are missing."""
    tables: Tables = PostgresTables(source) if is_postgres(source) else SqliteTables(source)
    try:
        if missing := sorted(table for table in wanted if not tables.columns(table)):
            raise InvalidField("import", f"{tables.shown!r} has no tables of {whose}: {', '.join(missing)}")
        yield tables
    finally:
        tables.close()


class SqliteTables:
    """A file of SQLite."""

    is_postgres = False

    def __init__(self, path: str) -> None:
        self.shown = path
        try:
            self._db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
            self._db.execute("PRAGMA schema_version").fetchall()
        except apsw.Error as error:
            raise InvalidField("import", f"{path!r} cannot be read: {error}") from error

    def columns(self, table: str) -> set[str]:
        return {row[1] for row in self._db.execute(f"PRAGMA table_info({table})")}

    def stream(self, sql: str) -> Iterator[Row]:
        yield from self._db.execute(sql)

    def rows(self, sql: str, *values: Any) -> list[Row]:
        return self._db.execute(sql, values).fetchall()

    def close(self) -> None:
        self._db.close()


class PostgresTables:
    """A PostgreSQL database, in a read-only transaction that sees all of it at one instant.

    Adapters run on event loops and threads of all kinds, so the connection has its own loop.
    """

    is_postgres = True

    def __init__(self, url: str) -> None:
        with provided_by("postgres", "PostgreSQL"):
            import asyncpg
        self.shown = without_password(url).partition("?")[0]  # the options may contain a password, too
        self._failures = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)
        self._loop = Background()
        try:
            with self._told(ValueError):
                self._db = self._loop.run(asyncpg.connect(POSTGRES.sub("postgresql://", url), statement_cache_size=0))
                self._loop.run(self._begin())
        except BaseException:
            self._loop.close()
            raise

    def columns(self, table: str) -> set[str]:
        return {row[0] for row in self.rows(_COLUMNS, table)}

    def stream(self, sql: str) -> Iterator[Row]:
        with self._told():
            for some in self._loop.driven(self._batches(sql)):
                yield from some

    def rows(self, sql: str, *values: Any) -> list[Row]:
        with self._told():
            found: list[Row] = self._loop.run(self._db.fetch(sql, *values))
        return found

    def close(self) -> None:
        with suppress(*self._failures):
            self._loop.run(self._db.close(timeout=PATIENCE))
        self._loop.close()

    async def _begin(self) -> None:
        await self._db.transaction(isolation="repeatable_read", readonly=True).start()
        await self._db.execute(_LEAVE_OUR_SCHEMA)

    async def _batches(self, sql: str) -> AsyncIterator[list[Row]]:
        cursor = await self._db.cursor(sql)
        while some := await cursor.fetch(AT_ONCE):
            yield some

    @contextmanager
    def _told(self, *more: type[Exception]) -> Iterator[None]:
        try:
            yield
        except (*self._failures, *more) as error:
            raise InvalidField("import", f"{self.shown!r} cannot be read: {error}") from error


def leave_out(report: ImportReport, tables: Tables, reason: str) -> None:
    """Report that a session or a checkpoint is not imported."""
    if len(report.left_out) < MAX_TOLD:
        report.left_out.append(LeftOut(file=tables.shown, line=None, reason=reason))
    report.left_out_total += 1
