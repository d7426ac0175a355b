"""Writes changes with the SQL function `commit_changes`: one JSON value, one statement, one round trip."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import asdict

from moorage.core.errors import IdTaken, KeyReused, NameTaken
from moorage.stores import Stale, sql
from moorage.stores.postgres.connection import FunctionRefused, PostgresConnection
from moorage.stores.rows import APPROVALS, ENTRY, PINNED, Fields, Table, entry_row, instant, micros
from moorage.stores.session_rows import CHANGING, new_fields
from moorage.stores.sql.db import FEED_CHUNK, Commit, SessionPlace, Written
from moorage.stores.sql.lookup import check_not_spent

if TYPE_CHECKING:
    from moorage.core.once import Once
    from moorage.core.session import Change, Session, View

_ENTRY = ENTRY.split(", ")
_encode = msgspec.json.Encoder().encode
_WRITE = "SELECT moor.commit_changes(?1)"
# The lock waits for a concurrent change of the session, and finds no row after one.
_GUARDED = f"""
{_WRITE} FROM (SELECT FROM moor.sessions WHERE owner = ?2 AND pk = ?3 AND revision = ?4 FOR SHARE) unchanged
"""


async def commit(db: PostgresConnection, unit: Commit) -> None:
    """Commit all of it or nothing. Raises Stale if a concurrent change won, or changed the session of its guard."""
    owner, changes, once, open_at_most, guard = unit
    payload: Fields = {"owner": owner, "changes": [_payload(db, owner, one) for one in changes]}
    root = None if changes[0].place is None else changes[0].place.root
    if root is not None and open_at_most is not None and not db.is_locking:  # a lock protects the family anyway
        payload["room"] = {"root": root, "open_at_most": open_at_most}
    if once is not None:
        payload["once"] = _once(once)
    body, new_id = _encode(payload).decode(), changes[0].change.session.session_id
    if db.is_locking and changes[0].place is not None:  # after a refusal the transaction can read no more
        await check_not_spent(db, owner, new_id)
    try:
        rows = await (
            db.commit_one(_WRITE, (body,)) if guard is None else db.commit_one(_GUARDED, (body, owner, *guard))
        )
    except FunctionRefused as refusal:
        if refusal.detail == "spent":
            await check_not_spent(db, owner, new_id)
        if refusal.code == "MR002" and once is not None:
            _known(refusal.detail).check_repeats(once)
        raise _refusal(refusal, changes[0].change.session) from refusal
    if not rows:
        raise Stale("the session that asks has changed")


def _refusal(refusal: FunctionRefused, new: Session) -> Exception:
    if refusal.code == "MR003":
        return IdTaken(new.session_id)
    if refusal.code == "MR004":
        return NameTaken(str(new.session_name), refusal.detail)
    assert refusal.code == "MR005"
    return KeyReused(refusal.detail)


def _known(detail: str) -> Once:
    """Return the request that was made before under the same key."""
    from moorage.core.once import Once

    row = msgspec.json.decode(detail)
    return Once(row["operation"], row["key"], row["digest"], row["ref"], instant(row["at"]))


def _once(once: Once) -> Fields:
    from moorage.core.once import KEPT_FOR

    return {**asdict(once), "at": micros(once.at), "old": micros(once.at - KEPT_FOR)}


# Sessions ---------------------------------------------------------------------------------------


def _payload(db: PostgresConnection, owner: str, one: Written) -> Fields:
    change, entries = one.change, entry_fields(db, one.change)
    has_pins = any(row["kind"] in PINNED for row in entries)
    payload: Fields = {} if one.pk is None else {"pk": one.pk}
    if one.place is not None:
        payload |= _new(db, change, one.place, has_pins)
    else:
        payload["revision"] = one.revision
        if change.session != one.view.session:
            head = zip(CHANGING.names, CHANGING.values(change.session, db.sealer), strict=True)
            payload["head"] = {**dict(head), "has_pins": has_pins}
        if change.session.session_name != one.view.session.session_name:
            payload["renamed"] = {"name": change.session.session_name}
    if entries:
        numbers = [row["number"] for row in entries]
        chunks = [numbers[start : start + FEED_CHUNK] for start in range(0, len(numbers), FEED_CHUNK)]
        payload |= {"entries": entries, "arrivals": [(chunk[-1], len(chunk)) for chunk in chunks]}
    if change.approvals:
        payload["approvals"] = [APPROVALS.new_by_name(approval, db.sealer) for approval in change.approvals]
    if change.records:
        payload["records"] = sql.records.payload_of(db, owner, one.pk or 0, change.records)
    if change.memory:
        payload["memory"] = sql.records.payload_of(db, owner, sql.records.OWNERS, change.memory)
    if change.runs or change.turns or change.items:
        payload["work"] = _work(db, one.view, change)
    return payload


def _new(db: PostgresConnection, change: Change, place: SessionPlace, has_pins: bool) -> Fields:
    """Return a new session, and the parts it shares; its source may have pins."""
    new = new_fields(change.session, db.sealer, (place.parent, place.root), place.shared_upto)
    payload: Fields = {"new": {**new, "has_pins": has_pins or bool(place.segments)}}
    if place.segments:
        names = ("segment_root", "segment", "upto")
        payload["shares"] = place.source
        payload["lineage"] = [
            dict(zip(names, (root, segment, end), strict=True)) for root, segment, _, end in place.segments
        ]
    if place.is_copied:
        payload["copied_records"] = place.source
    return payload


def entry_fields(db: PostgresConnection, change: Change) -> list[Fields]:
    """Return the entries of a change as the columns of ENTRY."""
    rows = [entry_row(entry, 0, micros(entry.at), db.sealer)[1:] for entry in change.entries]
    return [dict(zip(_ENTRY, row, strict=True)) for row in rows]


def _work(db: PostgresConnection, view: View, change: Change) -> Fields:
    """Return the runs, turns and items of a change. Objects in the view are updated, others are inserted."""
    from moorage.stores.work_rows import ITEMS, RUNS, TURNS, items_in, turns_in

    parts = {
        "runs": _rows(db, RUNS, change.runs, view.work.runs),
        "turns": _rows(db, TURNS, change.turns, turns_in(view)),
        "items": _rows(db, ITEMS, change.items, items_in(view)),
    }
    return {name: rows for name, rows in parts.items() if rows}


def _rows(db: PostgresConnection, table: Table[Any], values: Iterable[Any], known: Iterable[Any]) -> list[Fields]:
    known_ids = {table.id_of(value) for value in known}
    return [
        {"known": True, "id": value_id, **table.changed_by_name(value, db.sealer)}
        if (value_id := table.id_of(value)) in known_ids
        else {"known": False, **table.new_by_name(value, db.sealer)}
        for value in values
    ]
