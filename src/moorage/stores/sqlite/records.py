"""Everything as records, into this store. Each function runs inside a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
from moorage.stores.rows import TOMBSTONE, entry_row, micros
from moorage.stores.sql import counts, documents, once
from moorage.stores.sql.dump import MARK
from moorage.stores.sqlite import context, heads, work
from moorage.stores.sqlite.connection import Connection
from moorage.stores.sqlite.cursors import feed_base, feed_end_id
from moorage.stores.sqlite.driven import Driven, drive


def load(db: Connection, records: Iterable[Record], mark: str | None) -> None:
    """Write records, and how far that is."""
    for kind, some in groupby(records, type):
        _WRITERS[kind](db, list(some))
    drive(documents.set_note(Driven(db), MARK, mark))


def _load_tombstones(db: Connection, records: list[TombstoneRecord]) -> None:
    for record in records:
        stone = record.tombstone
        db.execute(
            f"INSERT INTO tombstones (owner, {TOMBSTONE.removeprefix('n, ')}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                record.owner, stone.session_id, stone.session_name, stone.agent_name, stone.task_id, stone.state,
                stone.root_of_deletion, micros(stone.deleted_at), stone.deleted_by, stone.reason,
            ),
        )  # fmt: skip


def _load_sessions(db: Connection, records: list[SessionRecord]) -> None:
    for serial, session, lineage in ((one.serial, one.session, one.lineage) for one in records):
        db.new_owner_no(session.owner)
        parent = _pk(db, session.owner, session.parent_session_id)
        root = _pk(db, session.owner, session.root_session_id)
        shared_upto = lineage[-1][1] if lineage else 0
        pk = heads.insert(db, session, family=(parent, root), shared_upto=shared_upto)
        db.execute(
            "UPDATE sessions SET pk = ?, has_pins = ? WHERE pk = ?",
            (serial, int(bool(lineage)), pk),
        )
        db.executemany("INSERT INTO lineage VALUES (?, ?, ?)", [(serial, *part) for part in lineage])


def _pk(db: Connection, owner: str, session_id: str | None) -> int | None:
    row = db.one("SELECT pk FROM sessions WHERE owner = ? AND id = ?", (owner, session_id)) if session_id else None
    return None if row is None else int(row[0])


def _load_entries(db: Connection, records: list[EntryRecord]) -> None:
    rows = [entry_row(record.entry, record.segment, micros(record.entry.at), db.sealer) for record in records]
    db.executemany(heads.INSERT_ENTRY, rows)
    db.execute("UPDATE spent_keys SET pk = max(pk, ?)", (max(row[0] for row in rows),))
    pinned = {row[0] for row in rows if row[2] in ("system", "summary")}
    db.executemany("UPDATE sessions SET has_pins = 1 WHERE pk = ?", [(pk,) for pk in pinned])


def _load_context(db: Connection, records: list[ContextRecord]) -> None:
    for record in records:
        context.put(db, heads.key_of(db, record.owner, record.session_id)[0], {record.key: record.item})


def _load_approvals(db: Connection, records: list[ApprovalRecord]) -> None:
    for record in records:
        pk = heads.key_of(db, record.owner, record.approval.session_id)[0]
        heads.write_approval(db, pk, record.owner, record.approval)


def _load_runs(db: Connection, records: list[RunRecord]) -> None:
    for record in records:
        pk = heads.key_of(db, record.owner, record.run.session_id)[0]
        work.write_runs(db, record.owner, pk, [record.run], set())


def _load_turns(db: Connection, records: list[TurnRecord]) -> None:
    for record in records:
        pk = heads.key_of(db, record.owner, record.turn.session_id)[0]
        work.write_turns(db, record.owner, pk, [record.turn], set())
        db.execute(
            "UPDATE turns SET n = ? WHERE owner = ? AND id = ?", (record.number, record.owner, record.turn.turn_id)
        )


def _load_items(db: Connection, records: list[ItemRecord]) -> None:
    for record in records:
        pk = heads.key_of(db, record.owner, record.item.session_id)[0]
        work.write_items(db, record.owner, pk, [record.item], set())


_SUBJECT = "SELECT pk FROM sessions WHERE owner = ? AND id = ?"
_STONE = "SELECT n FROM tombstones WHERE owner = ? AND id = ?"


def _load_feed(db: Connection, records: list[FeedRecord]) -> None:
    for record in records:
        number = db.new_owner_no(record.owner)
        subject = db.one(_SUBJECT if record.last else _STONE, (record.owner, record.session_id))
        assert subject is not None, "what the feed tells of came in before it"
        feed_id = feed_base(number) + record.cursor
        assert feed_id < feed_end_id(number)
        db.execute("INSERT INTO feed VALUES (?, ?, ?, ?)", (feed_id, subject[0], record.last, record.count))


def _load_delegations(db: Connection, records: list[DelegationRecord]) -> None:
    drive(counts.write(Driven(db), [(record.owner, record.delegation) for record in records]))


def _load_once(db: Connection, records: list[OnceRecord]) -> None:
    drive(once.write(Driven(db), [(record.owner, record.once) for record in records]))


def _load_documents(db: Connection, records: list[DocumentRecord]) -> None:
    drive(documents.write(Driven(db), [record.document for record in records]))


_WRITERS: dict[type[Any], Callable[[Connection, Any], None]] = {
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
