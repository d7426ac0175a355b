"""Ends of many conversations: one statement for all of them, if possible."""

from __future__ import annotations

from contextlib import suppress

from moorage.core.entry import Entry, Kind
from moorage.core.errors import NotFound, SessionCorrupt
from moorage.ports import Tail
from moorage.stores.postgres.connection import PostgresConnection
from moorage.stores.rows import ENTRY, Row, entries_of, stored_kinds
from moorage.stores.sql import lookup
from moorage.stores.sql.lookup import SessionColumns
from moorage.stores.sql.many import tail
from moorage.stores.sql.query import Query


async def tails(
    db: PostgresConnection,
    owner: str,
    session_ids: list[str],
    limit: int,
    pins: int = 100,
    *,
    before: int | None = None,
) -> list[Tail]:
    """Return the end of each conversation, or the part before a number."""
    ids = [session_id for session_id in session_ids if lookup.may_be_ref(session_id)]
    found_keys = await db.all(f"{lookup.KEY} WHERE owner = ? AND id = ANY(?::text[])", (owner, ids))
    keys = {row[1]: SessionColumns(*row) for row in found_keys}
    plain = [key for key in keys.values() if not key.shared_upto and (before is not None or not key.has_pins)]
    found = await _newest(db, owner, plain, limit, before)
    for key in keys.values():
        if key.session_id not in found:
            with suppress(NotFound, SessionCorrupt):
                found[key.session_id] = await tail(db, owner, key.session_id, limit, pins, before)
    return [found.get(session_id, Tail([], [])) for session_id in session_ids]


_NEWEST = Query("newest_of_many", entry=ENTRY)
_NO_END = 1 << 62


async def _newest(
    db: PostgresConnection, owner: str, keys: list[SessionColumns], limit: int, before: int | None
) -> dict[str, Tail]:
    places = ([key.root for key in keys], [key.pk for key in keys])
    kinds = stored_kinds((Kind.MESSAGE.value,))
    rows = await db.all(_NEWEST(db), (owner, *places, _NO_END if before is None else before, kinds, limit))
    of_key: list[list[Row]] = [[] for _ in keys]
    for place, *row in rows:
        of_key[place - 1].append(tuple(row))
    return {key.session_id: Tail([], _entries(db, key, of)) for key, of in zip(keys, of_key, strict=True)}


def _entries(db: PostgresConnection, key: SessionColumns, rows: list[Row]) -> list[Entry]:
    try:
        return entries_of(rows, key.session_id, key.task_id, db.opener)
    except SessionCorrupt:  # a damaged session must not hide others
        return []
