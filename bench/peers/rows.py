"""Histories by copying rows: how a store without a bulk call gets 10,000 messages in reasonable time.

The store writes one turn itself; its rows are the pattern and only ids, places and times change. The
file then looks as if the store had written it all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def copy_rows(path: Path, table: str, session: str, copies: Callable[[list[Row]], Iterable[Row]]) -> None:
    """Insert what `copies` makes of the session's present rows."""
    with closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        pattern = [dict(row) for row in db.execute(f"SELECT * FROM {table} WHERE session_id = ?", (session,))]
        names = list(pattern[0])
        statement = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' for _ in names)})"
        db.executemany(statement, ([row[name] for name in names] for row in copies(pattern)))
        db.commit()


def count_rows(path: Path, table: str, session: str) -> int:
    with closing(sqlite3.connect(path)) as db:
        row = db.execute(f"SELECT count(*) FROM {table} WHERE session_id = ?", (session,)).fetchone()
        return int(row[0])
