"""Statements in files: `queries/<name>.sql`, or one for each dialect if they differ.

They follow the rules of `db.py`, and are read at their first use: hooks start in milliseconds.
"""

from __future__ import annotations

import os

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
        text = self._texts.get(db.is_postgres)
        if text is None:
            text = self._texts[db.is_postgres] = self._read("postgres" if db.is_postgres else "sqlite")
        return text

    def _read(self, dialect: str) -> str:
        path = os.path.join(_FOLDER, f"{self._name}.{dialect}.sql")
        if not os.path.exists(path):
            path = os.path.join(_FOLDER, f"{self._name}.sql")
        with open(path, encoding="utf-8") as file:
            text = "".join(line for line in file if not line.startswith("--"))
        return text.format(**_CONDITIONS[dialect], **self._parts)
