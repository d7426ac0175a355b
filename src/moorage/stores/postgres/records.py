"""Everything as records, into this store. They are written as one JSON value for each kind, in one statement."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

from moorage.core.record import (
    ApprovalRecord,
    ContextRecord,
    DelegationRecord,
    DocumentRecord,
    EntryRecord,
    FeedRecord,
    ItemRecord,
    OnceRecord,
    Record,
    RunRecord,
    SessionRecord,
    TombstoneRecord,
    TurnRecord,
)
from moorage.core.session import Change, Session, View
from moorage.stores.postgres import log, work, writes
from moorage.stores.postgres.connection import Connection
from moorage.stores.rows import ENTRY, instant, json_text, micros
from moorage.stores.sql import counts, documents, once
from moorage.stores.sql.dump import MARK


async def number_all(db: Connection) -> None:
    """Give everything that has arrived its cursors."""
    for (owner,) in await db.all("SELECT DISTINCT owner FROM moor.arrivals"):
        await log.number(db, owner)


async def load(db: Connection, records: Iterable[Record], mark: str | None) -> None:
    """Write records, and how far that is. Within a transaction."""
    for kind, some in groupby(records, type):
        await _WRITERS[kind](db, list(some))
    await documents.set_note(db, MARK, mark)


async def _insert(db: Connection, table: str, rows: Sequence[dict[str, Any]]) -> None:
    """Rows with the same columns, in their order."""
    if not rows:
        return
    columns = ", ".join(rows[0])
    await db.run(
        f"INSERT INTO moor.{table} ({columns}) SELECT {', '.join(f'r.{name}' for name in rows[0])} "
        "FROM jsonb_array_elements(?::text::jsonb) WITH ORDINALITY a (value, place), "
        f"jsonb_populate_record(NULL::moor.{table}, a.value) r ORDER BY a.place",
        (json_text(rows),),
    )


async def _reach(db: Connection, sequence: str, number: int) -> None:
    """Let a sequence go on behind a number."""
    row = await db.one(f"SELECT last_value FROM moor.{sequence}")
    if row is not None and row[0] < number:
        await db.all(f"SELECT setval('moor.{sequence}', ?)", (number,))


Place = tuple[str, int]  # an owner, and a session's key


async def _roots(db: Connection, places: Iterable[Place]) -> dict[Place, int]:
    """The roots of sessions by their keys. A segment whose session is gone is kept as a root of its own."""
    wanted = sorted(set(places))
    rows = await db.all(
        "SELECT s.owner, s.pk, coalesce(s.root, s.pk) FROM unnest(?::text[], ?::bigint[]) w (owner, pk) "
        "JOIN moor.sessions s ON s.owner = w.owner AND s.pk = w.pk",
        ([owner for owner, _ in wanted], [pk for _, pk in wanted]),
    )
    found = {(owner, pk): root for owner, pk, root in rows}
    return {place: found.get(place, place[1]) for place in wanted}


async def _keys(db: Connection, names: Iterable[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Sessions' keys by owner and id."""
    wanted = sorted(set(names))
    rows = await db.all(
        "SELECT s.owner, s.id, s.pk FROM unnest(?::text[], ?::text[]) w (owner, id) "
        "JOIN moor.sessions s ON s.owner = w.owner AND s.id = w.id",
        ([owner for owner, _ in wanted], [name for _, name in wanted]),
    )
    return {(owner, name): pk for owner, name, pk in rows}


async def _load_tombstones(db: Connection, records: list[TombstoneRecord]) -> None:
    rows = []
    for record in records:
        stone = record.tombstone
        rows.append(
            {
                "owner": record.owner, "id": stone.session_id, "name": stone.session_name, "agent": stone.agent_name,
                "task": stone.task_id, "state": stone.state, "root_of_deletion": stone.root_of_deletion,
                "deleted_at": micros(stone.deleted_at), "deleted_by": stone.deleted_by, "reason": stone.reason,
            }
        )  # fmt: skip
    await _insert(db, "tombstones", rows)


async def _load_sessions(db: Connection, records: list[SessionRecord]) -> None:
    known = await _keys(db, _relatives(records))
    known |= {(one.session.owner, one.session.session_id): one.serial for one in records}
    rows = [_session_row(db, record, known) for record in records]
    owners = sorted({record.session.owner for record in records})
    await db.run("INSERT INTO moor.owners (name) SELECT unnest(?::text[]) ON CONFLICT DO NOTHING", (owners,))
    await _insert(db, "sessions", rows)
    await _load_lineages(db, records)
    await _reach(db, "sessions_pk_seq", max(record.serial for record in records))


def _relatives(records: list[SessionRecord]) -> Iterable[tuple[str, str]]:
    for session in (record.session for record in records):
        for name in (session.parent_session_id, session.root_session_id):
            if name is not None:
                yield session.owner, name


def _session_row(db: Connection, record: SessionRecord, known: dict[tuple[str, str], int]) -> dict[str, Any]:
    session, lineage = record.session, record.lineage
    parent = known.get((session.owner, session.parent_session_id or ""))
    root = known.get((session.owner, session.root_session_id))
    family = (parent, None if root == record.serial else root)
    made = writes.made(db, session, family=family, shared_upto=lineage[-1][1] if lineage else 0)["new"]
    return {**made, "pk": record.serial, "owner": session.owner, "revision": 1, "has_pins": bool(lineage)}


async def _load_lineages(db: Connection, records: list[SessionRecord]) -> None:
    shared = [(one.session.owner, one.serial, segment, upto) for one in records for segment, upto in one.lineage]
    roots = await _roots(db, ((owner, segment) for owner, _, segment, _ in shared))
    rows = [
        {"owner": owner, "session": serial, "segment": segment, "segment_root": roots[owner, segment], "upto": upto}
        for owner, serial, segment, upto in shared
    ]
    await _insert(db, "lineage", rows)


async def _load_entries(db: Connection, records: list[EntryRecord]) -> None:
    roots = await _roots(db, ((record.owner, record.segment) for record in records))
    names = ENTRY.split(", ")
    rows = []
    for record in records:
        root = roots[record.owner, record.segment]
        place = {"owner": record.owner, "root": root, "segment": record.segment}
        rows.append(place | dict(zip(names, writes.row_of(record.entry, db), strict=True)))
    await _insert(db, "entries", rows)
    pinned = sorted({(row["owner"], row["segment"]) for row in rows if row["kind"] in ("system", "summary")})
    await db.many("UPDATE moor.sessions SET has_pins = true WHERE owner = ? AND pk = ?", pinned)
    await _reach(db, "sessions_pk_seq", max(record.segment for record in records))


async def _load_context(db: Connection, records: list[ContextRecord]) -> None:
    known = await _keys(db, ((record.owner, record.session_id) for record in records))
    rows = []
    for record in records:
        pk = known[record.owner, record.session_id]
        (item,) = writes.context_items(db, pk, {record.key: record.item})
        rows.append({"owner": record.owner, "session": pk, **item})
    await _insert(db, "context", rows)


async def _load_approvals(db: Connection, records: list[ApprovalRecord]) -> None:
    known = await _keys(db, ((record.owner, record.approval.session_id) for record in records))
    rows = []
    for record in records:
        (row,) = writes.approvals(db, [record.approval])
        rows.append({"owner": record.owner, "session": known[record.owner, record.approval.session_id], **row})
    await _insert(db, "approvals", rows)


_NOBODY = View(Session("", "", "", instant(0), instant(0), instant(0)))  # whose work nothing is known of


def _work_row(db: Connection, part: str, owner: str, pk: int, change: Change) -> dict[str, Any]:
    (row,) = work.written(db, _NOBODY, change)[part]
    return {"owner": owner, "session": pk, **{name: value for name, value in row.items() if name != "known"}}


async def _load_runs(db: Connection, records: list[RunRecord]) -> None:
    known = await _keys(db, ((record.owner, record.run.session_id) for record in records))
    rows = [
        _work_row(
            db,
            "runs",
            one.owner,
            known[one.owner, one.run.session_id],
            Change(session=_NOBODY.session, runs=(one.run,)),
        )
        for one in records
    ]
    await _insert(db, "runs", rows)


async def _load_turns(db: Connection, records: list[TurnRecord]) -> None:
    known = await _keys(db, ((record.owner, record.turn.session_id) for record in records))
    roots = await _roots(db, ((owner, pk) for (owner, _), pk in known.items()))
    rows = []
    for record in records:
        pk = known[record.owner, record.turn.session_id]
        change = Change(session=_NOBODY.session, turns=(record.turn,))
        place = {"n": record.number, "root": roots[record.owner, pk]}
        rows.append(_work_row(db, "turns", record.owner, pk, change) | place)
    await _insert(db, "turns", rows)
    await _reach(db, "turns_n_seq", max(record.number for record in records))


async def _load_items(db: Connection, records: list[ItemRecord]) -> None:
    known = await _keys(db, ((record.owner, record.item.session_id) for record in records))
    rows = []
    for record in records:
        pk = known[record.owner, record.item.session_id]
        change = Change(session=_NOBODY.session, items=(record.item,))
        rows.append(_work_row(db, "items", record.owner, pk, change))
    await _insert(db, "inbox", rows)


_STONES = """
SELECT t.owner, t.id, t.n FROM unnest(?::text[], ?::text[]) w (owner, id)
JOIN moor.tombstones t ON t.owner = w.owner AND t.id = w.id
"""
_ENDS = """
INSERT INTO moor.owners (name, feed_end) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET feed_end = greatest(owners.feed_end, excluded.feed_end)
"""


async def _load_feed(db: Connection, records: list[FeedRecord]) -> None:
    told = [(record.owner, record.session_id) for record in records if record.last]
    gone = [(record.owner, record.session_id) for record in records if not record.last]
    known = await _keys(db, told)
    roots = await _roots(db, ((owner, pk) for (owner, _), pk in known.items()))
    found = await db.all(_STONES, ([owner for owner, _ in gone], [name for _, name in gone]))
    stones = {(owner, name): n for owner, name, n in found}
    rows = []
    for record in records:
        name = (record.owner, record.session_id)
        subject = known[name] if record.last else stones[name]
        root = roots[record.owner, subject] if record.last else 0
        counts = {"last": record.last, "count": record.count}
        rows.append({"owner": record.owner, "id": record.cursor, "subject": subject, "root": root, **counts})
    await _insert(db, "feed", rows)
    ends = {record.owner: record.cursor for record in records}  # the last of each counts
    await db.many(_ENDS, sorted(ends.items()))


async def _load_delegations(db: Connection, records: list[DelegationRecord]) -> None:
    await counts.write(db, [(record.owner, record.delegation) for record in records])


async def _load_once(db: Connection, records: list[OnceRecord]) -> None:
    await once.write(db, [(record.owner, record.once) for record in records])


async def _load_documents(db: Connection, records: list[DocumentRecord]) -> None:
    await documents.write(db, [record.document for record in records])


_WRITERS: dict[type[Any], Callable[[Connection, Any], Awaitable[None]]] = {
    TombstoneRecord: _load_tombstones,
    SessionRecord: _load_sessions,
    EntryRecord: _load_entries,
    ContextRecord: _load_context,
    ApprovalRecord: _load_approvals,
    RunRecord: _load_runs,
    TurnRecord: _load_turns,
    ItemRecord: _load_items,
    FeedRecord: _load_feed,
    DelegationRecord: _load_delegations,
    OnceRecord: _load_once,
    DocumentRecord: _load_documents,
}
