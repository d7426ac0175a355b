"""Work: a session's runs, turns and inbox, loaded for a decision and written back with its change.

Only sessions that a launcher has to do with have any, so `heads` loads this module only for
them. Each function runs inside a transaction. A callback is part of the change that settles
its run: the parent's own change is decided and written right behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from moorage.core.errors import KeyReused, MoorageError, SessionCorrupt
from moorage.core.inbox import Item
from moorage.core.run import Join, Run, RunState
from moorage.core.session import Asker, AskerView, Callback, Change, Session, Stamp, View, Work
from moorage.core.turn import Turn, TurnState
from moorage.core.work import DELIVERED, callbacks_of_deleted, deliver, fate_with
from moorage.stores import SEALED
from moorage.stores.rows import Row, json_text, kept, micros, micros_or_none
from moorage.stores.sql import lookup
from moorage.stores.sqlite import heads
from moorage.stores.sqlite.connection import Connection
from moorage.stores.sqlite.driven import Driven, drive
from moorage.stores.work_rows import ITEM, OPEN, PARENT_CORRUPT, due_at, item_of, run_of, turn_of

# Loading ----------------------------------------------------------------------------------------

_RUNS = f"SELECT body, id FROM runs WHERE session = ? AND {OPEN} ORDER BY n"
_TURNS = """
SELECT body, id FROM turns WHERE session = ?1 AND state = 'queued'
UNION ALL SELECT body, id FROM turns WHERE session = ?1 AND state = 'running'
"""
_OPEN_ITEMS = "state IN ('held', 'waiting', 'given') AND state <> 'consumed'"
_ITEMS = f"SELECT {ITEM} FROM inbox WHERE session = ? AND {_OPEN_ITEMS} ORDER BY n"
_WHOLE_ITEMS = f"SELECT {ITEM}, body FROM inbox WHERE session = ? AND {_OPEN_ITEMS} ORDER BY n"
# Of an inbox that may be long, what the delivery of a callback has to know.
_ONE_WAITING = f"SELECT {ITEM} FROM inbox WHERE session = ? AND state = 'waiting' AND state <> 'consumed' LIMIT 1"
_HELD = f"""
SELECT {ITEM} FROM inbox WHERE session = ? AND state = 'held' AND state <> 'consumed' AND run = ? ORDER BY n
"""
_CHILDREN = f"""
SELECT parent_run, count(*), sum(is_joined) FROM runs INDEXED BY runs_to_call_back
WHERE owner = ? AND parent_run IN (SELECT value FROM json_each(?)) AND {OPEN} AND mode = 'async_callback'
GROUP BY parent_run
"""


def work_of(db: Connection, owner: str, pk: int, session_id: str, items: str = _ITEMS) -> Work:
    """What is going on in a session; `items` is how those of its inbox are read."""
    runs = tuple(run_of(db, (*row, session_id)) for row in db.all(_RUNS, (pk,)))
    turns = {(turn := turn_of(db, (*row, session_id))).state: turn for row in db.all(_TURNS, (pk,))}
    children = db.all(_CHILDREN, (owner, json_text([run.run_id for run in runs]))) if runs else []
    return Work(
        runs=runs,
        queued=turns.get(TurnState.QUEUED),
        running=turns.get(TurnState.RUNNING),
        items=tuple(item_of(db, row, session_id) for row in db.all(items, (pk,))),
        children={run_id: count for run_id, count, _ in children},
        joined={run_id: joined for run_id, _, joined in children if joined},
    )


_ASKING_RUN = """
SELECT r.body, r.id, s.id, s.pk FROM runs r CROSS JOIN sessions s ON s.pk = r.session WHERE r.owner = ? AND r.id = ?
"""


def asker_of(db: Connection, owner: str, asker: Asker, pk: int | None) -> AskerView:
    """Who asks for something new; `pk` is the session whose turn it is if nothing else is named."""
    run = None
    if asker.run_id is not None and lookup.may_be_ref(asker.run_id):
        row = db.one(_ASKING_RUN, (owner, asker.run_id))
        run, pk = (None, pk) if row is None else (run_of(db, row[:3]), row[3])
    if run is None and asker.session_id is not None:
        found = db.one("SELECT pk FROM sessions WHERE owner = ? AND id = ?", (owner, asker.session_id))
        pk = None if found is None else found[0]
    row = db.one("SELECT body, id FROM turns WHERE session = ? AND state = 'running'", (pk,))
    return AskerView(run, None if row is None else turn_of(db, (*row, drive(lookup.id_of(Driven(db), owner, pk or 0)))))


# Writing ----------------------------------------------------------------------------------------


def check(db: Connection, owner: str, view: View, change: Change) -> None:
    """Raise KeyReused if another run was asked for with the idempotency key of a new one."""
    known = {run.run_id for run in view.work.runs}
    for run in change.runs:
        key = run.idempotency_key if run.run_id not in known else None
        if key is not None and db.one("SELECT 1 FROM runs WHERE owner = ? AND key = ?", (owner, key)):
            raise KeyReused(key)


def write(db: Connection, owner: str, pk: int, view: View, change: Change) -> Change:
    """The runs, turns and items of a change, and its callbacks delivered; the change with what became of those."""
    fates = {callback.child_run_id: _fate(db, owner, callback) for callback in change.callbacks}
    runs = tuple(replace(run, callback=fates.get(run.run_id, run.callback)) for run in change.runs)
    write_runs(db, owner, pk, runs, {run.run_id for run in view.work.runs})
    write_turns(db, owner, pk, change.turns, {turn.turn_id for turn in _turns_in(view)})
    write_items(db, owner, pk, change.items, {item.item_id for item in _items_in(view)})
    for callback in change.callbacks:
        if fates[callback.child_run_id] == DELIVERED:
            _deliver(db, owner, callback)
    return replace(change, runs=runs)


def _turns_in(view: View) -> list[Turn]:
    return [turn for turn in (view.work.queued, view.work.running, view.turn) if turn is not None]


def _items_in(view: View) -> list[Item]:
    return [*view.work.items, *view.dead_letters, *([] if view.item is None else [view.item])]


# What a decision has seen is updated, everything else is new: an id that comes twice is refused by its index.

_INSERT_RUN = """
INSERT INTO runs (session, owner, id, agent, mode, is_joined, parent, parent_run, key, state, expires_at, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def write_runs(db: Connection, owner: str, pk: int, runs: Iterable[Run], known: set[str]) -> None:
    """Runs of a session, those among `known` in the place of what was there."""
    for run in runs:
        untaken = run.state is RunState.QUEUED and not run.turns
        body = kept(db.sealer, json_text(run), "run", run.run_id)
        moving = (run.state.value, micros_or_none(run.expires_at) if untaken else None, body)
        if run.run_id in known:
            sql = "UPDATE runs SET state = ?, expires_at = ?, body = ? WHERE owner = ? AND id = ?"
            db.execute(sql, (*moving, owner, run.run_id))
            continue
        fixed = (
            pk, owner, run.run_id, run.agent_name, run.mode.value, int(run.join is Join.ALL), run.parent_session_id,
            run.parent_run_id, run.idempotency_key,
        )  # fmt: skip
        db.execute(_INSERT_RUN, (*fixed, *moving))
        known.add(run.run_id)


_INSERT_TURN = """
INSERT INTO turns (session, root, owner, id, agent, state, launcher, not_before, due_at, body)
VALUES (?1, (SELECT coalesce(root, pk) FROM sessions WHERE pk = ?1), ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
"""


def write_turns(db: Connection, owner: str, pk: int, turns: Iterable[Turn], known: set[str]) -> None:
    """Turns of a session, likewise."""
    for turn in turns:
        body = kept(db.sealer, json_text(turn), "turn", turn.turn_id)
        moving = (turn.state.value, turn.launcher_id, micros_or_none(turn.not_before), due_at(turn), body)
        if turn.turn_id in known:
            sql = "UPDATE turns SET state = ?, launcher = ?, not_before = ?, due_at = ?, body = ? "
            db.execute(f"{sql} WHERE owner = ? AND id = ?", (*moving, owner, turn.turn_id))
        else:
            db.execute(_INSERT_TURN, (pk, owner, turn.turn_id, turn.agent_name, *moving))
            known.add(turn.turn_id)


def write_items(db: Connection, owner: str, pk: int, items: Iterable[Item], known: set[str]) -> None:
    """Items of a session, likewise; the body of a known one stays."""
    for item in items:
        moving = (item.state.value, item.given, item.turn_id, item.run_id)
        if item.item_id in known:
            sql = "UPDATE inbox SET state = ?, given = ?, turn = ?, run = ? WHERE session = ? AND id = ?"
            db.execute(sql, (*moving, pk, item.item_id))
            continue
        body = kept(db.sealer, json_text(item.body), "item", f"{item.session_id} {item.item_id}")
        db.execute(
            f"INSERT INTO inbox (session, owner, body, {ITEM}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                pk, owner, body, item.item_id, item.kind.value, *moving, item.entry, int(item.join is Join.ALL),
                micros(item.created_at),
            ),
        )  # fmt: skip
        known.add(item.item_id)


# Callbacks --------------------------------------------------------------------------------------


def _fate(db: Connection, owner: str, callback: Callback) -> str:
    """What becomes of a callback. A parent that is damaged must not keep its child from ending."""
    try:
        found = heads.by_id(db, owner, callback.parent_session_id)
    except SessionCorrupt:
        return PARENT_CORRUPT
    return fate_with(None if found is None else found[1])


def _deliver(db: Connection, owner: str, callback: Callback) -> None:
    """Into the parent's inbox, as the parent is now: the child's run counts as settled already."""
    found = heads.by_id(db, owner, callback.parent_session_id)
    assert found is not None
    view = _view_for(db, owner, *found, callback)
    change = deliver(view, callback, callback.stamp)
    assert not change.callbacks, "a callback settles no run"
    heads.save(db, owner, found[0], view, change)


def _view_for(db: Connection, owner: str, pk: int, session: Session, callback: Callback) -> View:
    """A parent without most of its inbox: a thousand children that end together must not read each other's results."""
    view = view_with_work(db, owner, pk, session, _ONE_WAITING)
    if callback.run_id is None or view.work.joined.get(callback.run_id):
        return view
    if callback.run_id not in {run.run_id for run in view.work.runs}:
        row = db.one("SELECT body, id FROM runs WHERE owner = ? AND id = ?", (owner, callback.run_id))
        view = replace(view, run=None if row is None else run_of(db, (*row, session.session_id)))
    held = [item_of(db, row, session.session_id) for row in db.all(_HELD, (pk, callback.run_id))]
    return replace(view, work=replace(view.work, items=(*view.work.items, *held)))


def view_with_work(db: Connection, owner: str, pk: int, session: Session, items: str = _ITEMS) -> View:
    """A session with what is going on in it, whether or not a run was ever asked of it."""
    view = heads.view_of(db, pk, session)
    return replace(view, work=work_of(db, owner, pk, session.session_id, items))


def view_with_whole_items(db: Connection, owner: str, pk: int, session: Session) -> View:
    """The same, with what the items of its inbox say."""
    return view_with_work(db, owner, pk, session, _WHOLE_ITEMS)


_CALLING = f"""
SELECT r.body, r.id, s.id FROM json_each(?) doomed CROSS JOIN runs r ON r.session = doomed.value CROSS JOIN sessions s
    ON s.pk = r.session
WHERE r.{OPEN} AND r.mode = 'async_callback' AND r.parent IS NOT NULL ORDER BY doomed.key, r.n
"""


def call_back_for(db: Connection, owner: str, pks: list[int], stamp: Stamp) -> None:
    """Tell parents outside a tree that is about to be deleted what became of what they had asked for."""
    rows = db.all(_CALLING, (json_text(pks),))
    if not rows:
        return
    ids = db.all("SELECT id FROM sessions WHERE pk IN (SELECT value FROM json_each(?))", (json_text(pks),))
    runs = [run_of(db, row) for row in rows]
    for callback in callbacks_of_deleted(runs, {row[0] for row in ids}, stamp):
        sql = "UPDATE runs SET state = 'stopped' WHERE owner = ? AND id = ?"  # so it is no longer on its way
        db.execute(sql, (owner, callback.child_run_id))
        if _fate(db, owner, callback) == DELIVERED:
            _deliver(db, owner, callback)


# Looking after it -------------------------------------------------------------------------------


def unreadable(db: Connection) -> list[str]:
    """Which runs, turns and items do not read back whole, in words."""
    problems = []
    for table, columns, read in _READERS:
        sql = f"SELECT t.state, {columns}, s.id FROM {table} t CROSS JOIN sessions s ON s.pk = t.session WHERE t.n = ?"
        for (n,) in db.all(f"SELECT n FROM {table}"):
            try:
                row = db.one(sql, (n,))
                assert row is not None
                value = read(db, row[1:])
                if value.state.value != row[0] and row[1].startswith(SEALED):  # of plain ones a statement can say so
                    problems.append(f"row {n} of {table} is {row[0]} in a list, and says otherwise itself")
            except MoorageError as error:
                problems.append(f"row {n} of {table}: {error.message}")
    return problems


_READERS: tuple[tuple[str, str, Callable[[Connection, Row], Run | Turn | Item]], ...] = (
    ("runs", "t.body, t.id", run_of),
    ("turns", "t.body, t.id", turn_of),
    (
        "inbox",
        ", ".join(f"t.{column}" for column in [*ITEM.split(", "), "body"]),
        lambda db, row: item_of(db, row[:-1], row[-1]),
    ),
)
