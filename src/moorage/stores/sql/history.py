"""Reading a session's log. Its entries are in segments: its own, and those that it shares as a fork."""

from __future__ import annotations

from collections.abc import Sequence

from moorage.core.entry import Entry, Kind
from moorage.core.errors import NotFound, SessionCorrupt
from moorage.core.query import OLDEST, LogQuery
from moorage.core.session import Session
from moorage.ports import Tail
from moorage.stores.rows import ENTRY, RARE, Row, entries_of, stored_kinds
from moorage.stores.sql.db import Db, Query, Segment
from moorage.stores.sql.lookup import SessionColumns, key_of, load

NO_END = (1 << 32) - 1

# By whether it is PostgreSQL, whose keys begin with the owner and the root. The values are the same.
_LINEAGE = {
    False: "SELECT 0, segment, upto FROM moor.lineage WHERE session = ?2 ORDER BY upto",
    True: "SELECT segment_root, segment, upto FROM moor.lineage WHERE owner = ?1 AND session = ?2 ORDER BY upto",
}
_OF_SEGMENT = {False: "segment = ?3", True: "owner = ?1 AND root = ?2 AND segment = ?3"}


async def shared_segments(db: Db, owner: str, key: SessionColumns, upto: int) -> list[Segment]:
    """Return where a session's entries up to a number are stored, oldest first."""
    segments, after = list[Segment](), 0
    for root, segment, end in await db.all(_LINEAGE[db.is_postgres], (owner, key.pk)) if key.shared_upto else ():
        if after >= upto:
            break
        segments.append((root, segment, after, min(end, upto)))
        after = end
    if after < upto:
        segments.append((key.root, key.pk, after, upto))
    return segments


async def newest_checkpoint(db: Db, owner: str, segments: list[Segment]) -> int | None:
    """Return the number of the newest checkpoint in these segments."""
    of_segment = f"{_OF_SEGMENT[db.is_postgres]} AND number > ?4 AND number <= ?5"
    sql = f"SELECT max(number) FROM moor.entries WHERE {of_segment} AND kind = 'checkpoint' AND {RARE}"
    for segment in reversed(segments):
        row = await db.one(sql, (owner, *segment))
        if row is not None and row[0] is not None:
            return int(row[0])
    return None


async def said_under(db: Db, owner: str, key: SessionColumns, client_keys: Sequence[str]) -> dict[str, Entry]:
    """Return the newest entry of a session's own log with each of these client keys."""
    under = f"INDEXED BY entries_by_key WHERE {_OF_SEGMENT[db.is_postgres]} AND client_key IN LIST(?4::text)"
    sql = f"SELECT {ENTRY} FROM moor.entries {under} ORDER BY number"
    rows = await db.all(sql, (owner, key.root, key.pk, db.listed(client_keys)))
    return {str(entry.client_key): entry for entry in entries_of(rows, key.session_id, key.task_id, db.opener)}


async def log(db: Db, owner: str, ref: str, query: LogQuery = OLDEST) -> list[Entry]:
    key = await key_of(db, owner, ref)
    upto = NO_END if query.before is None else min(query.before - 1, NO_END)  # behind it other sessions' entries begin
    segments = await _segments(db, owner, key, query.after, upto) if query.after < upto else []
    kinds = None if query.kinds is None else stored_kinds(query.kinds)
    rows = await _read(db, owner, segments, query.limit, kinds, query.newest_first)
    return entries_of(rows, key.session_id, key.task_id, db.opener)


async def _segments(db: Db, owner: str, key: SessionColumns, after: int, upto: int) -> list[Segment]:
    """Return where the entries between two numbers are stored, oldest first."""
    if after >= key.shared_upto:
        return [(key.root, key.pk, after, upto)]
    return [
        (root, segment, max(start, after), end)
        for root, segment, start, end in await shared_segments(db, owner, key, upto)
        if end > after
    ]


async def _read(
    db: Db, owner: str, segments: list[Segment], limit: int, kinds: tuple[str, ...] | None, newest_first: bool
) -> list[Row]:
    rows: list[Row] = []
    for segment in reversed(segments) if newest_first else segments:
        if len(rows) < limit:
            rows += await _range(db, owner, segment, limit - len(rows), kinds, newest_first)
    return rows


async def _range(
    db: Db, owner: str, segment: Segment, limit: int, kinds: tuple[str, ...] | None, newest_first: bool
) -> list[Row]:
    select = f"SELECT {ENTRY} FROM moor.entries"
    between = f"{_OF_SEGMENT[db.is_postgres]} AND number > ?4 AND number <= ?5"
    ending = f"ORDER BY number {'DESC' if newest_first else 'ASC'} LIMIT ?6"
    if kinds is None:
        return await db.all(f"{select} WHERE {between} {ending}", (owner, *segment, limit))
    if Kind.MESSAGE.value in kinds:
        sql = f"{select} WHERE {between} AND kind IN LIST(?7::text) {ending}"
        return await db.all(sql, (owner, *segment, limit, db.listed(kinds)))
    rows: list[Row] = []
    for kind in kinds:  # find rare kinds by their index: SQLite itself would read all messages in between
        where = f"WHERE number = 1 AND {between}" if kind == Kind.CREATED else f"{_BY_KIND} AND {between}"
        rows += await db.all(f"{select} {where} AND kind = ?7 {ending}", (owner, *segment, limit, kind))
    return sorted(rows, key=lambda row: int(row[0]), reverse=newest_first)[:limit]


_BY_KIND = f"INDEXED BY entries_by_kind WHERE {RARE}"
_TAIL = {
    is_postgres: Query("tail", entry=ENTRY, rare=RARE, of_segment=where) for is_postgres, where in _OF_SEGMENT.items()
}
_NEWEST = {
    is_postgres: f"SELECT {ENTRY} FROM moor.entries WHERE {where} AND kind = 'message' ORDER BY number DESC LIMIT ?4"
    for is_postgres, where in _OF_SEGMENT.items()
}


async def tail(db: Db, owner: str, ref: str, limit: int, pins: int = 100, *, with_session: bool = False) -> Tail:
    session: Session | None = None
    if with_session:
        session, key = await load(db, owner, ref)
    else:
        key = await key_of(db, owner, ref)
    if not key.has_pins:
        rows = await db.all(_NEWEST[db.is_postgres], (owner, key.root, key.pk, limit))
        return Tail([], entries_of(rows, key.session_id, key.task_id, db.opener), session)
    if key.shared_upto:
        rows = await _tail_of_fork(db, owner, key, limit, pins)
    else:
        rows = await db.all(_TAIL[db.is_postgres](db), (owner, key.root, key.pk, limit, pins))
    rows = sorted(rows, key=lambda row: (row[-1], -row[0]))
    split = next((place for place, row in enumerate(rows) if row[-1]), len(rows))
    entries = entries_of([row[:-1] for row in rows], key.session_id, key.task_id, db.opener)
    pinned, messages = entries[:split], entries[split:]
    if pinned:
        pinned.sort(key=lambda entry: entry.number)
        upto = max((entry.data["upto"] for entry in pinned if entry.data), default=0)
        messages = [entry for entry in messages if entry.number > upto]
    return Tail(pinned, messages, session)


async def _tail_of_fork(db: Db, owner: str, key: SessionColumns, limit: int, pins: int) -> list[Row]:
    segments = await _segments(db, owner, key, 0, NO_END)
    kept = await _read(db, owner, segments, 1, (Kind.SUMMARY.value,), True)
    kept += await _read(db, owner, segments, pins, ("system",), True)
    messages = await _read(db, owner, segments, limit, stored_kinds((Kind.MESSAGE.value,)), True)
    return [(*row, 0) for row in kept] + [(*row, 1) for row in messages]


# Many sessions at once: in SQLite, a statement per session costs little compared with a switch of threads.


async def tails(
    db: Db, owner: str, session_ids: list[str], limit: int, pins: int = 100, *, before: int | None = None
) -> list[Tail]:
    found = []
    for session_id in session_ids:
        try:
            found.append(await tail_before(db, owner, session_id, limit, pins, before))
        except (NotFound, SessionCorrupt):  # a deleted or damaged session must not hide others
            found.append(Tail([], []))
    return found


async def tail_before(db: Db, owner: str, session_id: str, limit: int, pins: int, before: int | None) -> Tail:
    """Return the end of one conversation, or the part before a number."""
    if before is None:
        return await tail(db, owner, session_id, limit, pins)
    query = LogQuery(before=before, limit=limit, kinds=(Kind.MESSAGE.value,), newest_first=True)
    return Tail([], await log(db, owner, session_id, query))
