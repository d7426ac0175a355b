"""Writing the context. What has expired is dropped by the next write."""

from __future__ import annotations

from moorage.core.context import ContextChange, ContextItem
from moorage.ports import ContextDecision
from moorage.stores import sql
from moorage.stores.sqlite import heads
from moorage.stores.sqlite.connection import Connection
from moorage.stores.sqlite.driven import Driven, drive


def write(
    db: Connection,
    owner: str,
    ref: str,
    decide: ContextDecision,
    at: int,
    key: str | None,
    expected: int | None = None,
) -> ContextChange:
    """Load, decide, write."""
    pk, session = heads.load(db, owner, ref)
    session.check_version(expected)
    change = decide(session, drive(sql.context.items(Driven(db), owner, pk, at, key)))
    if change.session == session:
        return change
    heads.write_head(db, pk, session, change.session)
    db.execute("DELETE FROM context WHERE session = ? AND expires_at <= ?", (pk, at))
    db.executemany("DELETE FROM context WHERE session = ? AND key = ?", [(pk, dropped) for dropped in change.drop])
    put(db, pk, change.put)
    return change


def put(db: Connection, pk: int, values: dict[str, ContextItem]) -> None:
    """Write items as they are."""
    jobs = Driven(db)
    db.executemany(
        "INSERT OR REPLACE INTO context VALUES (?, ?, ?, ?, ?, ?)",
        [(pk, *sql.context.row_of(jobs, pk, key, item)) for key, item in values.items()],
    )
