"""Writes changes with the SQL function `commit_changes`: one JSON value, one statement, one round trip."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from moorage.core.errors import IdTaken, KeyReused, NameTaken
from moorage.core.once import KEPT_FOR
from moorage.core.session import Change
from moorage.stores import Stale, sql
from moorage.stores.postgres.connection import FunctionRefused, PostgresConnection
from moorage.stores.rows import APPROVALS, ENTRY, PINNED, Fields, Table, entry_row, instant, micros
from moorage.stores.session_rows import CHANGING, new_fields
from moorage.stores.sql.db import FEED_CHUNK, Commit, SessionPlace, Written
from moorage.stores.sql.lookup import check_not_spent

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
        payload["once"] = {**asdict(once), "at": micros(once.at), "old": micros(once.at - KEPT_FOR)}
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
        if refusal.code == "MR002" and once is not None:  # the detail is the request made before under the same key
            known = msgspec.json.decode(refusal.detail)
            replace(once, digest=known["digest"], ref=known["ref"], at=instant(known["at"])).check_repeats(once)
        name, detail = str(changes[0].change.session.session_name), refusal.detail
        refusals = {"MR003": IdTaken(new_id), "MR004": NameTaken(name, detail), "MR005": KeyReused(detail)}
        raise refusals[refusal.code] from refusal
    if not rows:
        raise Stale("the session that asks has changed")


def _payload(db: PostgresConnection, owner: str, one: Written) -> Fields:
    change = one.change
    rows = [entry_row(entry, 0, micros(entry.at), db.sealer)[1:] for entry in change.entries]
    entries = [dict(zip(_ENTRY, row, strict=True)) for row in rows]
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
        from moorage.stores.work_rows import ITEMS, RUNS, TURNS, items_in, turns_in

        work = {
            "runs": _rows(db, RUNS, change.runs, one.view.work.runs),
            "turns": _rows(db, TURNS, change.turns, turns_in(one.view)),
            "items": _rows(db, ITEMS, change.items, items_in(one.view)),
        }
        payload["work"] = {name: rows for name, rows in work.items() if rows}
    return payload


def _new(db: PostgresConnection, change: Change, place: SessionPlace, has_pins: bool) -> Fields:
    """Return a new session, and the parts it shares; its source may have pins."""
    new = new_fields(change.session, db.sealer, (place.parent, place.root), place.shared_upto)
    payload: Fields = {"new": {**new, "has_pins": has_pins or bool(place.segments)}}
    if place.segments:
        shared = [{"segment_root": root, "segment": segment, "upto": end} for root, segment, _, end in place.segments]
        payload |= {"shares": place.source, "lineage": shared}
    if place.is_copied:
        payload["copied_records"] = place.source
    return payload


def _rows(db: PostgresConnection, table: Table[Any], values: Iterable[Any], known: Iterable[Any]) -> list[Fields]:
    """Return rows to update, for values in `known`, or to insert."""
    known_ids, rows = {table.id_of(value) for value in known}, list[Fields]()
    for value in values:
        if (value_id := table.id_of(value)) in known_ids:
            changed = zip(table.moving, table.changed(value, db.sealer), strict=True)
            rows.append({"known": True, "id": value_id, **dict(changed)})
        else:
            rows.append({"known": False, **table.new_by_name(value, db.sealer)})
    return rows
