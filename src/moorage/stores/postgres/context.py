"""The context's rows. What has expired is invisible at once and dropped by the next write."""

from __future__ import annotations

from moorage.core.context import ContextChange, ContextItem
from moorage.core.errors import SessionCorrupt
from moorage.ports import ContextDecision
from moorage.stores.postgres import heads, writes
from moorage.stores.postgres.connection import Connection
from moorage.stores.rows import Row, item_of

_ITEMS = "SELECT key, value, version, updated_at, expires_at FROM moor.context WHERE owner = ?1 AND session = ?2"
_LIVING = f"{_ITEMS} AND (expires_at IS NULL OR expires_at > ?3)"


async def items(db: Connection, owner: str, pk: int, at: int, key: str | None) -> dict[str, ContextItem]:
    """What lives at that time, or one key of it."""
    if key is None:
        return await _items_of(db, owner, pk, await db.all(f"{_LIVING} ORDER BY key", (owner, pk, at)))
    return await _items_of(db, owner, pk, await db.all(f"{_LIVING} AND key = ?4", (owner, pk, at, key)))


async def all_items(db: Connection, owner: str, pk: int) -> dict[str, ContextItem]:
    """Everything, expired or not."""
    return await _items_of(db, owner, pk, await db.all(f"{_ITEMS} ORDER BY key", (owner, pk)))


async def _items_of(db: Connection, owner: str, pk: int, rows: list[Row]) -> dict[str, ContextItem]:
    try:
        return dict(item_of(row, pk, db.opener) for row in rows)
    except ValueError as error:  # it is not JSON, or does not open
        raise SessionCorrupt(await heads.id_of(db, owner, pk), f"context: {error}") from error


async def write(
    db: Connection,
    owner: str,
    ref: str,
    decide: ContextDecision,
    at: int,
    key: str | None,
    expected: int | None = None,
) -> ContextChange:
    """Load, decide, write. Whoever writes to a context changes its head, too: so the head's revision guards both."""
    pk, revision, session = await heads.load(db, owner, ref)
    session.check_version(expected)
    change = decide(session, await items(db, owner, pk, at, key))
    if change.session == session:
        return change
    written = writes.head(db, pk, revision, change.session)
    written["context"] = {"at": at, "drop": list(change.drop), "put": writes.context_items(db, pk, change.put)}
    await writes.commit(db, owner, [written])
    return change
