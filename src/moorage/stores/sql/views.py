"""The view of a decision: a session with its open work, read by one statement, so at one instant.

The statements are here and not in files because hooks make decisions and must start in milliseconds. For the same
reason the modules that read runs, turns and items are imported only if there are some.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from moorage.core.errors import (
    ApprovalNotFound,
    ItemNotFound,
    NotFound,
    RunNotFound,
    SessionCorrupt,
    StoreCorrupt,
    TurnNotFound,
)
from moorage.core.session import Asker, AskerView, Callback, Needs, OpenWork, View
from moorage.stores import Stale
from moorage.stores.rows import ITEM, OPEN, Row, approval_of
from moorage.stores.session_rows import session_of
from moorage.stores.sql import lookup
from moorage.stores.sql.db import Db, Guard
from moorage.stores.sql.lookup import HEAD_OF_S


class Seen(NamedTuple):
    """The view of a decision and the row it was read from."""

    pk: int
    revision: int
    view: View
    root: int = 0

    @property
    def key(self) -> lookup.SessionColumns:
        """Return the columns that reading its log needs."""
        session = self.view.session
        return lookup.SessionColumns(self.pk, session.session_id, session.task_id, root=self.root)


# By whether it is PostgreSQL: how the rows of a session are selected, and its revision is read. SQLite keeps no
# revisions: its decisions are written in the same transaction. With the owner in the condition, SQLite might walk an
# index by owner instead of one by session.
_WORDS = {
    False: {"ours": "session = s.pk", "revision": "0"},
    True: {"ours": "owner = s.owner AND session = s.pk", "revision": "s.revision"},
}
_OPEN_ITEMS = "state IN ('held', 'waiting', 'given') AND state <> 'consumed'"
_ITEMS = f"SELECT {{item}}, n FROM moor.inbox WHERE {{ours}} AND {_OPEN_ITEMS}"
# The part of a long inbox that the delivery of a callback to run ?4 needs: whether something waits and, once all
# callbacks of the group have arrived, those that were held back.
_TO_DELIVER = f"""
SELECT * FROM (
    SELECT {{item}}, n FROM moor.inbox WHERE {{ours}} AND state = 'waiting' AND state <> 'consumed' LIMIT 1
) one
UNION ALL
SELECT {{item}}, n FROM moor.inbox
WHERE {{ours}} AND state = 'held' AND state <> 'consumed' AND run = ?4 AND NOT EXISTS (
    SELECT 1 FROM moor.runs c WHERE c.owner = s.owner AND c.parent_run = ?4 AND c.is_joined AND c.{OPEN}
        AND c.mode = 'async_callback' AND c.id NOT IN LIST(?3::text)
)
"""
_HEAD = f"coalesce(s.root, s.pk), {HEAD_OF_S}"
_GOING_ON = f"""
    CASE WHEN s.pending_approvals > 0 THEN (
        SELECT json_agg(json_build_array(body, id) ORDER BY n) FROM moor.approvals WHERE {{ours}} AND state = 'pending'
    ) END,
    CASE WHEN {{busy}} THEN (
        SELECT json_agg(json_build_array(body, id) ORDER BY n) FROM moor.runs WHERE {{ours}} AND {OPEN}
    ) END,
    CASE WHEN {{busy}} THEN (
        SELECT json_agg(json_build_array(body, id)) FROM (
            SELECT body, id FROM moor.turns WHERE {{ours}} AND state = 'queued'
            UNION ALL SELECT body, id FROM moor.turns WHERE {{ours}} AND state = 'running'
        ) live
    ) END,
    CASE WHEN {{busy}} THEN (SELECT json_agg(json_build_array({{item}}) ORDER BY n) FROM ({{items}}) mail) END,
    CASE WHEN {{busy}} THEN (
        SELECT json_agg(json_build_array(parent_run, children, joined)) FROM (
            SELECT c.parent_run, count(*) AS children, count(*) FILTER (WHERE c.is_joined) AS joined
            FROM (SELECT id FROM moor.runs WHERE {{ours}} AND {OPEN}) mine
            ORDERED JOIN moor.runs c INDEXED BY runs_to_call_back ON c.owner = s.owner AND c.parent_run = mine.id
            WHERE c.{OPEN} AND c.mode = 'async_callback' {{settled}} GROUP BY c.parent_run
        ) below
    ) END
"""
_BUSY = f"(s.launched OR EXISTS (SELECT 1 FROM moor.inbox WHERE {{ours}} AND {_OPEN_ITEMS}))"


def _going_on(is_postgres: bool, items: str = _ITEMS, item: str = ITEM, settled: str = "") -> str:
    words = {**_WORDS[is_postgres], "item": item, "settled": settled}
    return _GOING_ON.format(**words, busy=_BUSY.format(**words), items=items.format(**words))


def _view(is_postgres: bool, **how: str) -> str:
    return f"SELECT {_WORDS[is_postgres]['revision']}, {_HEAD}, {_going_on(is_postgres, **how)}"


_FROM = "FROM moor.sessions s WHERE s.owner = ?1 AND s.id = ?2"
_BY_ID = f"{_view(True)} {_FROM}"
# SQLite first reads whether there is open work, then which: a long statement costs more than a second one.
_HEAD_FIRST = f"SELECT 0, {_HEAD}, s.pending_approvals > 0 OR {_BUSY.format(**_WORDS[False])} {_FROM}"
_THEN_WORK = f"SELECT {_going_on(False)} {_FROM}"
_NOTHING = (None,) * 5
WHOLE_VIEW = {is_postgres: _view(is_postgres, item=f"{ITEM}, body") for is_postgres in _WORDS}
_OVER = f"(SELECT json_build_array(body, id) FROM moor.runs WHERE owner = s.owner AND id = ?4 AND NOT {OPEN})"
_PARENT = {
    is_postgres: f"{_view(is_postgres, items=_TO_DELIVER, settled='AND c.id NOT IN LIST(?3::text)')}, {_OVER} {_FROM}"
    for is_postgres in _WORDS
}
_decode = msgspec.json.Decoder(list[Any]).decode


async def load_view(db: Db, owner: str, ref: str) -> Seen:
    """Return a session with its open work."""
    if db.lock():  # lock before reading: data read before the lock may be old
        ref = (await lookup.key_of(db, owner, ref)).session_id
    try:
        row = await _by_id(db, owner, ref) if lookup.may_be_ref(ref) else None
        row = row or await _by_id(db, owner, (await lookup.key_of(db, owner, ref)).session_id)
    except StoreCorrupt as error:
        raise SessionCorrupt(ref, "a text of it is not UTF-8") from error
    if row is None:
        raise Stale(ref)
    return seen_of(db, row)


async def load_head(db: Db, owner: str, ref: str) -> Seen:
    """Return a session without its open work."""
    session, key = await lookup.load(db, owner, ref)
    return Seen(key.pk, key.revision, View(session), key.root)


async def _by_id(db: Db, owner: str, session_id: str) -> Row | None:
    if db.is_postgres:
        return await db.one(_BY_ID, (owner, session_id))
    head = await db.one(_HEAD_FIRST, (owner, session_id))
    if head is None:
        return None
    return (*head[:-1], *((await db.one(_THEN_WORK, (owner, session_id)) or _NOTHING) if head[-1] else _NOTHING))


async def load_parent(db: Db, owner: str, callback: Callback, settled: list[str]) -> Seen | None:
    """Return a parent as if runs had settled; without most of its inbox.

    A thousand children that end together must not read the results of each other.
    """
    parent_id = callback.parent_session_id
    if db.lock() and not await db.all(f"{lookup.KEY} WHERE owner = ? AND id = ?{db.lock()}", (owner, parent_id)):
        return None
    try:
        row = await db.one(_PARENT[db.is_postgres], (owner, parent_id, db.listed(settled), callback.run_id))
    except StoreCorrupt as error:
        raise SessionCorrupt(parent_id, "a text of it is not UTF-8") from error
    if row is None:
        return None
    seen, over = seen_of(db, row[:-1]), row[-1]
    if over is None:
        return seen
    from moorage.stores.work_rows import run_of

    return seen._replace(view=replace(seen.view, run=run_of(db, (*_decode(over), parent_id))))


_NO_WORK = OpenWork()


def seen_of(db: Db, row: Row) -> Seen:
    """Return a session from the columns of a view. Raises SessionCorrupt if they are invalid."""
    revision, root, *head, pending, runs, turns, items, children = row
    session = session_of(tuple(head), db.opener)
    work = _NO_WORK
    if runs or turns or items:
        work = _work(
            db, session.session_id, *(_decode(each) if each else [] for each in (runs, turns, items, children))
        )
    bodies = _decode(pending) if pending else ()
    approvals = tuple(approval_of((*row, session.session_id), db.opener) for row in bodies)
    return Seen(head[-1], revision, View(session, approvals, work=work), root)


def _work(
    db: Db, session_id: str, runs: list[Row], turns: list[Row], items: list[Row], children: list[Row]
) -> OpenWork:
    from moorage.core.turn import TurnState
    from moorage.stores.work_rows import item_of, run_of, turn_of

    live = {(turn := turn_of(db, (*row, session_id))).state: turn for row in turns}
    return OpenWork(
        runs=tuple(run_of(db, (*row, session_id)) for row in runs),
        queued=live.get(TurnState.QUEUED),
        running=live.get(TurnState.RUNNING),
        items=tuple(item_of(db, row, session_id) for row in items),
        children={run_id: count for run_id, count, _ in children},
        joined={run_id: joined for run_id, _, joined in children if joined},
    )


_DEAD_LETTERS = (
    f"SELECT {ITEM} FROM moor.inbox INDEXED BY inbox_open WHERE owner = ? AND session = ? "
    "AND state = 'dead_letter' AND state <> 'consumed' AND run = ? ORDER BY n"
)


async def with_named(db: Db, owner: str, pk: int, view: View, needs: Needs) -> View:
    """Return a view of a session with values named by id, in any state. Raises NotFound for a missing one."""
    from moorage.stores.work_rows import item_of, run_of, turn_of

    session_id, live = view.session.session_id, view.work.running

    async def row(table: str, columns: str, name: str, missing: type[NotFound]) -> Row:
        sql = f"SELECT {columns} FROM moor.{table} WHERE owner = ? AND session = ? AND id = ?"
        return await lookup.existing(db, sql, (owner, pk, name), missing)

    if needs.approval is not None:
        body = await row("approvals", "body, id", needs.approval, ApprovalNotFound)
        view = replace(view, approval=approval_of((*body, session_id), db.opener))
    if needs.turn is not None:
        if live is None or live.turn_id != needs.turn:
            live = turn_of(db, (*await row("turns", "body, id", needs.turn, TurnNotFound), session_id))
        view = replace(view, turn=live)
    if needs.item is not None:
        found = await row("inbox", f"{ITEM}, body", needs.item, ItemNotFound)
        view = replace(view, item=item_of(db, found, session_id))
    if needs.run is not None:
        run = run_of(db, (*await row("runs", "body, id", needs.run, RunNotFound), session_id))
        letters = await db.all(_DEAD_LETTERS, (owner, pk, needs.run))
        view = replace(view, run=run, dead_letters=tuple(item_of(db, letter, session_id) for letter in letters))
    return view


_ASKER = """
SELECT {revision}, s.pk, s.id,
    (SELECT json_build_array(body, id) FROM moor.runs r WHERE r.owner = ?1 AND r.id = ?2),
    (SELECT json_build_array(body, id) FROM moor.turns WHERE {ours} AND state = 'running')
FROM moor.sessions s WHERE s.owner = ?1 AND s.pk = coalesce(
    (SELECT session FROM moor.runs r WHERE r.owner = ?1 AND r.id = ?2),
    (SELECT pk FROM moor.sessions named WHERE named.owner = ?1 AND named.id = ?3), CAST(?4 AS bigint)
)
"""


async def asker_of(db: Db, owner: str, asker: Asker, pk: int | None) -> tuple[AskerView, Guard | None]:
    """Return the asker, and a guard for what must not change before the commit.

    `pk` is the session whose turn it is if the asker names no other.
    """
    names = [
        name if name is not None and lookup.may_be_ref(name) else None for name in (asker.run_id, asker.session_id)
    ]
    if pk is None and names == [None, None]:
        return AskerView(), None
    sql = _ASKER.format(**_WORDS[db.is_postgres])
    row = await db.one(sql, (owner, *names, pk))
    if row is not None and db.lock():  # lock before reading
        await db.all("SELECT FROM moor.sessions WHERE owner = ? AND pk = ? FOR SHARE", (owner, row[1]))
        row = await db.one(sql, (owner, *names, pk))
    if row is None:
        return AskerView(), None
    revision, key, session_id, run, turn = row
    if run is None and turn is None:
        return AskerView(), (key, revision)
    from moorage.stores.work_rows import run_of, turn_of

    return AskerView(
        None if run is None else run_of(db, (*_decode(run), session_id)),
        None if turn is None else turn_of(db, (*_decode(turn), session_id)),
    ), (key, revision)
