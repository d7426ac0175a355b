"""The context's rows. What has expired is invisible at once and dropped by the next write."""

from __future__ import annotations

from moorage.core.context import ContextChange, ContextItem
from moorage.core.errors import SessionCorrupt
from moorage.ports import ContextDecision
from moorage.stores.rows import Row, about_context, item_of, json_text, micros, micros_or_none
from moorage.stores.sqlite import heads
from moorage.stores.sqlite.connection import Connection

_ITEMS = "SELECT key, value, version, updated_at, expires_at FROM context WHERE session = ?1"
_LIVING = f"{_ITEMS} AND (expires_at IS NULL OR expires_at > ?2)"


def items(db: Connection, pk: int, at: int, key: str | None) -> dict[str, ContextItem]:
    """What lives at that time, or one key of it."""
    if key is None:
        return _items_of(db, pk, db.all(f"{_LIVING} ORDER BY key", (pk, at)))
    return _items_of(db, pk, db.all(f"{_LIVING} AND key = ?3", (pk, at, key)))


def all_items(db: Connection, pk: int) -> dict[str, ContextItem]:
    """Everything, expired or not."""
    return _items_of(db, pk, db.all(f"{_ITEMS} ORDER BY key", (pk,)))


def _items_of(db: Connection, pk: int, rows: list[Row]) -> dict[str, ContextItem]:
    try:
        return dict(item_of(row, pk, db.opener) for row in rows)
    except ValueError as error:  # it is not JSON, or does not open
        raise SessionCorrupt(heads.id_of(db, pk), f"context: {error}") from error


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
    change = decide(session, items(db, pk, at, key))
    if change.session == session:
        return change
    heads.write_head(db, pk, session, change.session)
    db.execute("DELETE FROM context WHERE session = ? AND expires_at <= ?", (pk, at))
    db.executemany("DELETE FROM context WHERE session = ? AND key = ?", [(pk, dropped) for dropped in change.drop])
    put(db, pk, change.put)
    return change


def put(db: Connection, pk: int, values: dict[str, ContextItem]) -> None:
    """Write items as they are."""
    db.executemany(
        "INSERT OR REPLACE INTO context VALUES (?, ?, ?, ?, ?, ?)",
        [
            (pk, key, _kept(db, pk, key, item), item.version, micros(item.updated_at), micros_or_none(item.expires_at))
            for key, item in values.items()
        ],
    )


def _kept(db: Connection, pk: int, key: str, item: ContextItem) -> str:
    value = json_text(item.value)
    return value if db.sealer is None else db.sealer.seal(value, about_context(pk, key, item.version))
