"""SQLite as the jobs of `stores/sql` see it: coroutines that never suspend, driven to their end without a loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from moorage.stores.rows import Row, json_text
from moorage.stores.sqlite.connection import Connection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from moorage.stores.sql.db import Job, T

_known: dict[str, str] = {}  # statements as SQLite takes them, by how they are written
MOST_KNOWN = 2000


class Driven:
    """A connection whose methods are coroutines, and do their work at once."""

    __slots__ = ("connection", "opener", "path", "sealer")

    is_postgres = False

    def __init__(self, connection: Connection) -> None:
        self.connection, self.path = connection, connection.path
        self.opener, self.sealer = connection.opener, connection.sealer

    async def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        return self.connection.one(_plain(sql), values)

    async def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self.connection.all(_plain(sql), values)

    async def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        self.connection.execute(_plain(sql), tuple(values))
        return self.connection.raw.changes()

    async def many(self, sql: str, values: Sequence[Sequence[Any]]) -> None:
        self.connection.executemany(_plain(sql), values)

    def lock(self) -> str:
        return ""

    def listed(self, values: Sequence[Any]) -> Any:
        return json_text(values)


def _plain(sql: str) -> str:
    """Return a statement as SQLite takes it."""
    known = _known.get(sql)
    if known is None:
        if len(_known) > MOST_KNOWN:
            _known.clear()
        known = _known[sql] = _translated(sql)
    return known


def _translated(sql: str) -> str:
    if "::" in sql or "LOCKED" in sql:
        from re import sub  # hooks have no such statements

        sql = sub(r"IN LIST\((\?\d*)::\w+\)", r"IN (SELECT value FROM json_each(\1))", sql)
        sql = sub(r"(\?\d*)::\w+| FOR UPDATE SKIP LOCKED", r"\1", sql)
    return sql.replace("moor.", "").replace("ORDERED JOIN", "CROSS JOIN")


def drive(job: Coroutine[Any, Any, T]) -> T:
    """Run a job to its end."""
    try:
        job.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    job.close()
    raise RuntimeError("a job of SQLite has suspended")


def driven(job: Job[T]) -> Callable[[Connection], T]:
    """Return a job of `stores/sql` as one of this store."""
    return lambda db: drive(job(Driven(db)))  # type: ignore[arg-type]  # they are coroutines
