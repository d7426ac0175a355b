"""Callbacks: a change that settles a run notifies the session that requested it, in the same commit."""

from __future__ import annotations

from msgspec.structs import replace

from moorage.core.errors import SessionCorrupt
from moorage.core.session import Callback, Change, Stamp
from moorage.core.work import DELIVERED, callbacks_of_deleted, deliver, fate_with
from moorage.stores import Stale
from moorage.stores.rows import OPEN
from moorage.stores.sql import changes
from moorage.stores.sql.db import Commit, Db
from moorage.stores.sql.lookup import OF_SESSION
from moorage.stores.sql.views import Seen, load_parent
from moorage.stores.work_rows import PARENT_CORRUPT, run_of


async def save(db: Db, owner: str, seen: Seen, change: Change) -> Change:
    """Commit a change that settles runs, with its effect on the requesting sessions; return their outcome.

    Each parent's own change is decided on the parent's current state, in which the child's run is settled already.
    """
    settled = [callback.child_run_id for callback in change.callbacks]
    found = [await _fate(db, owner, callback, settled) for callback in change.callbacks]
    fates = {callback.child_run_id: fate for callback, (fate, _) in zip(change.callbacks, found, strict=True)}
    runs = tuple(replace(run, callback=fates.get(run.run_id, run.callback)) for run in change.runs)
    change = replace(change, runs=runs)
    parents = [(callback, parent) for callback, (_, parent) in zip(change.callbacks, found, strict=True) if parent]
    own = changes.written_of(seen, change)
    if len({seen.pk, *(parent.pk for _, parent in parents)}) == 1 + len(parents):
        told = [changes.written_of(parent, _delivery(parent, callback)) for callback, parent in parents]
        await db.commit_changes(Commit(owner, [own, *told], change.once))
        return change
    if not db.is_locking:  # a parent may get several, or be the session itself: decide each on its new state
        raise Stale("several callbacks to one parent")
    await db.commit_changes(Commit(owner, [own], change.once))
    for callback, _ in parents:
        await _deliver(db, owner, callback)
    return change


async def _fate(db: Db, owner: str, callback: Callback, settled: list[str]) -> tuple[str, Seen | None]:
    """Return the outcome of a callback, and its parent. A damaged parent does not keep a child from ending."""
    try:
        parent = await load_parent(db, owner, callback, settled)
    except SessionCorrupt:
        return PARENT_CORRUPT, None
    fate = fate_with(None if parent is None else parent.view.session)
    return fate, parent if fate == DELIVERED else None


def _delivery(parent: Seen, callback: Callback) -> Change:
    change = deliver(parent.view, callback, callback.stamp)
    assert not change.callbacks, "a callback settles no run"
    return change


async def _deliver(db: Db, owner: str, callback: Callback) -> None:
    parent = await load_parent(db, owner, callback, [])
    assert parent is not None
    await changes.save(db, owner, parent, _delivery(parent, callback))


_CALLING = (
    f"SELECT t.session, t.n, t.body, t.id, s.id FROM moor.runs t INDEXED BY runs_by_session {OF_SESSION} "
    f"WHERE t.owner = ? AND t.session IN LIST(?::bigint) AND t.{OPEN} AND t.mode = 'async_callback' "
    "AND t.parent IS NOT NULL"
)


_IDS = "SELECT id FROM moor.sessions WHERE owner = ? AND pk IN LIST(?::bigint)"


async def call_back_for(db: Db, owner: str, pks: list[int], stamp: Stamp) -> None:
    """Notify parents outside a tree that is about to be deleted of the end of their runs."""
    rows = await db.all(_CALLING, (owner, db.listed(pks)))
    if not rows:
        return
    ids = await db.all(_IDS, (owner, db.listed(pks)))
    places = {pk: place for place, pk in enumerate(pks)}
    runs = [run_of(db, row[2:]) for row in sorted(rows, key=lambda row: (places[row[0]], row[1]))]
    for callback in callbacks_of_deleted(runs, {row[0] for row in ids}, stamp):
        stopped = "UPDATE moor.runs SET state = 'stopped' WHERE owner = ? AND id = ?"  # no longer under way
        await db.run(stopped, (owner, callback.child_run_id))
        _, parent = await _fate(db, owner, callback, [])
        if parent is not None:
            await changes.save(db, owner, parent, _delivery(parent, callback))
