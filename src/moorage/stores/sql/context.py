"""Reading the context. What has expired is invisible at once and dropped by the next write."""

from __future__ import annotations

from moorage.core.context import ContextItem
from moorage.core.errors import SessionCorrupt
from moorage.stores.rows import Row, about_context, item_of, json_text, micros, micros_or_none
from moorage.stores.sql.db import Db
from moorage.stores.sql.lookup import id_of, key_of

# By whether it is PostgreSQL, whose keys all lead with the owner.
_ITEMS = {
    False: "SELECT key, value, version, updated_at, expires_at FROM moor.context WHERE session = ?2",
    True: "SELECT key, value, version, updated_at, expires_at FROM moor.context WHERE owner = ?1 AND session = ?2",
}
_LIVING = "(expires_at IS NULL OR expires_at > ?3)"


async def items_of(db: Db, owner: str, ref: str, at: int, key: str | None) -> dict[str, ContextItem]:
    """Return what lives at that time in a session's context, or one key of it."""
    return await items(db, owner, (await key_of(db, owner, ref)).pk, at, key)


async def items(db: Db, owner: str, pk: int, at: int, key: str | None) -> dict[str, ContextItem]:
    """Return what lives at that time, or one key of it."""
    living = f"{_ITEMS[db.is_postgres]} AND {_LIVING}"
    if key is None:
        return await _read(db, owner, pk, await db.all(f"{living} ORDER BY key", (owner, pk, at)))
    return await _read(db, owner, pk, await db.all(f"{living} AND key = ?4", (owner, pk, at, key)))


async def all_items(db: Db, owner: str, pk: int) -> dict[str, ContextItem]:
    """Return everything, expired or not."""
    return await _read(db, owner, pk, await db.all(f"{_ITEMS[db.is_postgres]} ORDER BY key", (owner, pk)))


async def _read(db: Db, owner: str, pk: int, rows: list[Row]) -> dict[str, ContextItem]:
    try:
        return dict(item_of(row, pk, db.opener) for row in rows)
    except ValueError as error:  # it is not JSON, or does not open
        raise SessionCorrupt(await id_of(db, owner, pk), f"context: {error}") from error


def row_of(db: Db, pk: int, key: str, item: ContextItem) -> Row:
    """Return an item as its key, value, version and times, sealed if new bodies are."""
    value = json_text(item.value)
    kept = value if db.sealer is None else db.sealer.seal(value, about_context(pk, key, item.version))
    return key, kept, item.version, micros(item.updated_at), micros_or_none(item.expires_at)
