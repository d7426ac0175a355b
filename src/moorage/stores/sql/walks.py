"""Walking through a whole table along its key, some rows at a time."""

from __future__ import annotations

from typing import NamedTuple

from moorage.stores.rows import Row
from moorage.stores.sql.db import Db


class Walk(NamedTuple):
    """The rows to read, and their order."""

    tables: str  # with conditions, if there are any
    key: tuple[str, ...]  # columns that identify and order rows
    columns: str
    leads: tuple[str, ...] = ("t.owner",)  # prefix of the key on PostgreSQL only: SQLite's keys span all owners

    def key_on(self, db: Db) -> tuple[str, ...]:
        """Return the key in a database's form."""
        return (*self.leads, *self.key) if db.is_postgres else self.key

    async def rows(self, db: Db, after: Row | None, limit: int) -> list[tuple[Row, Row]]:
        """Return keys and rows after a key."""
        key = self.key_on(db)
        names, sql = ", ".join(key), f"SELECT {', '.join(key)}, {self.columns} FROM {self.tables}"
        if after is not None:
            sql += f" {'AND' if ' WHERE ' in self.tables else 'WHERE'} ({names}) > ({', '.join('?' * len(key))})"
        rows = await db.all(f"{sql} ORDER BY {names} LIMIT ?{db.lock()}", (*(after or ()), limit))
        return [(tuple(row[: len(key)]), tuple(row[len(key) :])) for row in rows]
