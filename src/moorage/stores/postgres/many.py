"""Reads of many sessions: one statement for all of them, wherever that is possible."""

from __future__ import annotations

from contextlib import suppress

from moorage.core.approval import Approval
from moorage.core.entry import Entry, Kind
from moorage.core.errors import NotFound, SessionCorrupt
from moorage.core.query import Page, SessionQuery
from moorage.core.session import Session
from moorage.ports import Tail
from moorage.stores.postgres import find
from moorage.stores.postgres.connection import Connection
from moorage.stores.rows import ENTRY, Row, approval_of, entries_of, stored_kinds
from moorage.stores.sql import history, lookup
from moorage.stores.sql.lookup import Key


async def find_many(db: Connection, owner: str, queries: list[SessionQuery]) -> list[Page[Session]]:
    """A page for each query."""
    return [await find.find(db, owner, query) for query in queries]


async def tails(
    db: Connection, owner: str, session_ids: list[str], limit: int, pins: int, before: int | None
) -> list[Tail]:
    """The end of each conversation, or what is before a number."""
    keys = await _keys(db, owner, session_ids)
    plain = [key for key in keys.values() if not key.shared_upto and (before is not None or not key.has_pins)]
    found = await _newest(db, owner, plain, limit, before)
    for key in keys.values():
        if key.session_id not in found:
            with suppress(NotFound, SessionCorrupt):
                found[key.session_id] = await _tail(db, owner, key.session_id, limit, pins, before)
    return [found.get(session_id, Tail([], [])) for session_id in session_ids]


async def _keys(db: Connection, owner: str, session_ids: list[str]) -> dict[str, Key]:
    rows = await db.all(f"{lookup.KEY} WHERE owner = ? AND id = ANY(?::text[])", (owner, _askable(session_ids)))
    return {row[1]: Key(*row) for row in rows}


async def _tail(db: Connection, owner: str, session_id: str, limit: int, pins: int, before: int | None) -> Tail:
    """Of one that shares entries, or has some that are kept in any case."""
    if before is None:
        return await history.tail(db, owner, session_id, limit, pins, False)
    return Tail([], await history.log(db, owner, session_id, 0, before, limit, (Kind.MESSAGE.value,), True))


_NEWEST = f"""
SELECT s.place, e.* FROM unnest(?2::bigint[], ?3::bigint[]) WITH ORDINALITY s (root, pk, place) CROSS JOIN LATERAL (
    SELECT {ENTRY} FROM moor.entries WHERE owner = ?1 AND root = s.root AND segment = s.pk AND number < ?4
        AND kind = ANY(?5::text[]) ORDER BY number DESC LIMIT ?6
) e ORDER BY s.place, e.number DESC
"""
_NO_END = 1 << 62


async def _newest(db: Connection, owner: str, keys: list[Key], limit: int, before: int | None) -> dict[str, Tail]:
    places = ([key.root for key in keys], [key.pk for key in keys])
    kinds = stored_kinds((Kind.MESSAGE.value,))
    rows = await db.all(_NEWEST, (owner, *places, _NO_END if before is None else before, kinds, limit))
    of_key: list[list[Row]] = [[] for _ in keys]
    for place, *row in rows:
        of_key[place - 1].append(tuple(row))
    return {key.session_id: Tail([], _entries(db, key, of)) for key, of in zip(keys, of_key, strict=True)}


def _entries(db: Connection, key: Key, rows: list[Row]) -> list[Entry]:
    try:
        return entries_of(rows, key.session_id, key.task_id, db.opener)
    except SessionCorrupt:  # one that is damaged hides no other
        return []


_APPROVALS = """
SELECT s.id, a.body, a.id FROM moor.sessions s CROSS JOIN LATERAL (
    SELECT body, id, n FROM moor.approvals WHERE owner = s.owner AND session = s.pk AND (NOT ?3 OR state = 'pending')
    ORDER BY n LIMIT ?4
) a WHERE s.owner = ?1 AND s.id = ANY(?2::text[]) ORDER BY a.n
"""


async def approvals_of(
    db: Connection, owner: str, session_ids: list[str], pending_only: bool, limit: int
) -> list[list[Approval]]:
    """The approvals of each, oldest first."""
    found: dict[str, list[Approval]] = {}
    damaged: set[str] = set()
    for session_id, *row in await db.all(_APPROVALS, (owner, _askable(session_ids), pending_only, limit)):
        try:
            found.setdefault(session_id, []).append(approval_of(tuple(row), db.opener))
        except ValueError:  # it is not JSON, or does not open: that hides no other session's
            damaged.add(session_id)
    return [[] if each in damaged else found.get(each, []) for each in session_ids]


def _askable(session_ids: list[str]) -> list[str]:
    return [session_id for session_id in session_ids if lookup.may_be_ref(session_id)]
