"""SQLite for the jobs of `stores/sql`: coroutines that never suspend, run to their end without a loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from moorage.core.errors import StoreCorrupt
from moorage.stores.rows import Row, json_text
from moorage.stores.sql.db import FEED_ROOM, T
from moorage.stores.sqlite import writes

if TYPE_CHECKING:
    from moorage.core.session import Stamp
    from moorage.stores.sql.db import Commit, Target
    from moorage.stores.sqlite.connection import SqliteConnection

_known: dict[str, str] = {}  # statements in SQLite's syntax, by their shared form
MOST_KNOWN = 500


class BrokenText(StoreCorrupt):
    """A text in the database is not UTF-8: the file was damaged."""

    def __init__(self, where: str) -> None:
        super().__init__(where, "a text in it is not UTF-8")


class Driven:
    """A connection whose methods are coroutines that work at once."""

    __slots__ = ("connection", "opener", "path", "sealer")

    is_postgres = False
    is_locking = True  # a job that writes has the write lock

    def __init__(self, connection: SqliteConnection) -> None:
        self.connection, self.path = connection, connection.path
        self.opener, self.sealer = connection.opener, connection.sealer

    async def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        try:
            row: Row | None = self.connection.execute(_known.get(sql) or _plain(sql), values).fetchone()
        except UnicodeDecodeError as error:
            raise BrokenText(self.path) from error
        return row

    async def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self.connection.all(_plain(sql), values)

    async def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        self.connection.execute(_plain(sql), tuple(values))
        return self.connection.raw.changes()

    async def many(self, sql: str, values: Sequence[Sequence[Any]]) -> None:
        self.connection.executemany(_plain(sql), values)

    async def commit_changes(self, commit: Commit) -> None:
        await writes.commit(self, commit)

    async def new_key(self) -> int:
        row = self.connection.one(writes.NEW_KEY)
        assert row is not None
        return int(row[0])

    async def delete_sessions(self, owner: str, targets: list[Target], stamp: Stamp) -> None:
        await writes.delete(self, owner, targets, stamp)

    def lock(self) -> str:
        return ""

    async def feed_start(self, owner: str) -> int | None:
        number = self.connection.owner_no(owner)
        return None if number is None else number * FEED_ROOM

    async def feed_end(self, owner: str) -> int:
        self.connection.check_file()  # a server's health check depends on it
        if (base := await self.feed_start(owner)) is None:
            return 0
        row = await self.one("SELECT max(id) FROM feed WHERE id < ?", (base + FEED_ROOM,))
        return max(0, (row[0] or 0) - base) if row else 0

    def listed(self, values: Sequence[Any]) -> Any:
        return json_text(values)


class GlanceTooLong(Exception):
    """A read on the thread of the event loop took too long: repeat it on another thread."""


class Glance(Driven):
    """A connection that gives up between two rows when a deadline has passed."""

    __slots__ = ("_deadline",)

    def __init__(self, connection: SqliteConnection, deadline: float) -> None:
        super().__init__(connection)
        self._deadline = deadline

    async def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        rows: list[Row] = []
        try:
            for row in self.connection.execute(_plain(sql), values):
                rows.append(row)
                if monotonic() > self._deadline:
                    raise GlanceTooLong
        except UnicodeDecodeError as error:
            raise BrokenText(self.path) from error
        return rows


_WORDS = {
    "moor.": "",
    "ORDERED JOIN": "CROSS JOIN",
    "json_agg(": "json_group_array(",
    "json_build_array(": "json_array(",
}


def _plain(sql: str) -> str:
    """Return a statement in SQLite's syntax."""
    if (known := _known.get(sql)) is not None:
        return known
    if len(_known) > MOST_KNOWN:
        _known.clear()
    plain = sql
    if "::" in sql or "LOCKED" in sql:
        from re import sub  # hooks have no such statements

        plain = sub(r"IN LIST\((\?\d*)::\w+\)", r"IN (SELECT value FROM json_each(\1))", plain)
        plain = sub(r"(\?\d*)::\w+| FOR UPDATE SKIP LOCKED", r"\1", plain)
    for ours, theirs in _WORDS.items():
        plain = plain.replace(ours, theirs)
    _known[sql] = plain = " ".join(plain.split())  # statements are looked up by their text at every execution
    return plain


SqliteJob = Callable[[Driven], Coroutine[Any, Any, T]]
