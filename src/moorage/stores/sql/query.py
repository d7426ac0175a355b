"""Statements: in files, walks through tables, and migrations.

A file is `queries/<name>.sql`, or one for each dialect if they differ. It follows the rules of `db.py`, and is read at
its first use: hooks start in milliseconds.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from moorage.stores.rows import Row
from moorage.stores.sql.db import Db

_FOLDER = os.path.join(os.path.dirname(__file__), "queries")
# Conditions for the entries `e` that a session `s` wrote itself, and for an owner's rows of the feed.
_CONDITIONS = {
    "sqlite": {"own_entries": "e.segment = s.pk", "of_owner": ""},
    "postgres": {
        "own_entries": "e.owner = s.owner AND e.root = coalesce(s.root, s.pk) AND e.segment = s.pk",
        "of_owner": "owner = ?1 AND",
    },
}


class Query:
    """A statement. `parts` replace their names in braces."""

    __slots__ = ("_name", "_parts", "_texts")

    def __init__(self, name: str, **parts: str) -> None:
        self._name, self._parts = name, parts
        self._texts: dict[bool, str] = {}

    def __call__(self, db: Db) -> str:
        """Return it in the dialect of a database."""
        if (known := self._texts.get(db.is_postgres)) is not None:
            return known
        dialect = "postgres" if db.is_postgres else "sqlite"
        path = os.path.join(_FOLDER, f"{self._name}.{dialect}.sql")
        if not os.path.exists(path):
            path = os.path.join(_FOLDER, f"{self._name}.sql")
        with open(path, encoding="utf-8") as file:
            text = "".join(line for line in file if not line.startswith("--"))
        self._texts[db.is_postgres] = text = text.format(**_CONDITIONS[dialect], **self._parts)
        return text


class Walk(NamedTuple):
    """A walk through a whole table along its key, some rows at a time."""

    tables: str  # with conditions, if there are any
    key: str  # columns that identify and order rows
    columns: str
    leads: str = "t.owner"  # prefix of the key on PostgreSQL only: SQLite's keys span all owners

    def key_on(self, db: Db) -> list[str]:
        """Return the key in a database's form."""
        return (f"{self.leads}, {self.key}" if self.leads and db.is_postgres else self.key).split(", ")

    async def rows(self, db: Db, after: Row | None, limit: int) -> list[tuple[Row, Row]]:
        """Return keys and rows after a key."""
        key = self.key_on(db)
        names, sql = ", ".join(key), f"SELECT {', '.join(key)}, {self.columns} FROM {self.tables}"
        if after is not None:
            sql += f" {'AND' if ' WHERE ' in self.tables else 'WHERE'} ({names}) > ({', '.join('?' * len(key))})"
        rows = await db.all(f"{sql} ORDER BY {names} LIMIT ?{db.lock()}", (*(after or ()), limit))
        return [(tuple(row[: len(key)]), tuple(row[len(key) :])) for row in rows]


class Migration(NamedTuple):
    """One numbered file of the schema of a store."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> int:
        """Return a checksum of the file."""
        from zlib import crc32  # few processes create a store

        return crc32(self.sql.encode())

    @property
    def needs(self) -> int:
        """Return the oldest schema that a release must know to work with the migrated one."""
        first = self.sql.partition("\n")[0]
        return int(first.removeprefix("-- needs ")) if first.startswith("-- needs ") else self.number


def read_migrations(module: str) -> list[Migration]:
    """Return the migrations beside a module, in order."""
    folder, found = os.path.join(os.path.dirname(module), "migrations"), []
    for name in sorted(name for name in os.listdir(folder) if name.endswith(".sql")):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            found.append(Migration(int(name[:4]), name[5:-4], file.read()))
    return found
