"""Walking through a whole table along its key, some rows at a time."""

from __future__ import annotations

from typing import NamedTuple

from moorage.stores.rows import Row
from moorage.stores.sql.db import Db


class Walk(NamedTuple):
    """Which rows are read, and in which order."""

    tables: str  # with conditions, if there are any
    key: tuple[str, ...]  # columns that tell rows apart and put them in order
    columns: str
    leads: tuple[str, ...] = ("t.owner",)  # stand in front of the key on PostgreSQL alone: SQLite's is of all owners

    def key_on(self, db: Db) -> tuple[str, ...]:
        """Return the key as a database has it."""
        return (*self.leads, *self.key) if db.is_postgres else self.key

    async def rows(self, db: Db, after: Row | None, limit: int) -> list[tuple[Row, Row]]:
        """Return keys and rows behind a key."""
        key = self.key_on(db)
        names, sql = ", ".join(key), f"SELECT {', '.join(key)}, {self.columns} FROM {self.tables}"
        if after is not None:
            sql += f" {'AND' if ' WHERE ' in self.tables else 'WHERE'} ({names}) > ({', '.join('?' * len(key))})"
        rows = await db.all(f"{sql} ORDER BY {names} LIMIT ?{db.lock()}", (*(after or ()), limit))
        return [(tuple(row[: len(key)]), tuple(row[len(key) :])) for row in rows]
