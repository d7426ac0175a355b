"""What a decision asks for by name, whatever became of it: an approval, a turn, an item, a run of its session."""

from __future__ import annotations

from msgspec.structs import replace

from moorage.core.errors import ItemNotFound, RunNotFound, TurnNotFound
from moorage.core.inbox import Item
from moorage.core.run import Run
from moorage.core.session import View
from moorage.core.turn import Turn
from moorage.stores.rows import Row
from moorage.stores.sql.approvals import approval_of_session
from moorage.stores.sql.db import Db
from moorage.stores.sql.lookup import may_be_ref
from moorage.stores.work_rows import ITEM, item_of, run_of, turn_of

_TURN = "SELECT body, id FROM moor.turns WHERE owner = ? AND session = ? AND id = ?"
_RUN = "SELECT body, id FROM moor.runs WHERE owner = ? AND session = ? AND id = ?"
_ITEM = f"SELECT {ITEM}, body FROM moor.inbox WHERE owner = ? AND session = ? AND id = ?"
_DEAD_LETTERS = (
    f"SELECT {ITEM} FROM moor.inbox INDEXED BY inbox_open WHERE owner = ? AND session = ? "
    "AND state = 'set_aside' AND state <> 'consumed' AND run = ? ORDER BY n"
)


async def with_named(
    db: Db,
    owner: str,
    pk: int,
    view: View,
    *,
    approval: str | None,
    turn: str | None,
    item: str | None,
    run: str | None,
) -> View:
    """Return a view of a session with those that are named. Raises NotFound for one that it does not have."""
    if approval is not None:
        view = replace(view, approval=await approval_of_session(db, owner, pk, approval))
    if turn is not None:
        view = replace(view, turn=await _turn(db, owner, pk, view, turn))
    if item is not None:
        view = replace(view, item=await _item(db, owner, pk, view, item))
    if run is not None:
        letters = await _dead_letters(db, owner, pk, view, run)
        view = replace(view, run=await _run(db, owner, pk, view, run), dead_letters=letters)
    return view


async def _row(db: Db, sql: str, owner: str, pk: int, name: str) -> Row | None:
    return await db.one(sql, (owner, pk, name)) if may_be_ref(name) else None


async def _turn(db: Db, owner: str, pk: int, view: View, turn_id: str) -> Turn:
    live = view.work.running
    if live is not None and live.turn_id == turn_id:
        return live
    row = await _row(db, _TURN, owner, pk, turn_id)
    if row is None:
        raise TurnNotFound(turn_id)
    return turn_of(db, (*row, view.session.session_id))


async def _item(db: Db, owner: str, pk: int, view: View, item_id: str) -> Item:
    row = await _row(db, _ITEM, owner, pk, item_id)
    if row is None:
        raise ItemNotFound(item_id)
    return item_of(db, row, view.session.session_id)


async def _run(db: Db, owner: str, pk: int, view: View, run_id: str) -> Run:
    row = await _row(db, _RUN, owner, pk, run_id)
    if row is None:
        raise RunNotFound(run_id)
    return run_of(db, (*row, view.session.session_id))


async def _dead_letters(db: Db, owner: str, pk: int, view: View, run_id: str) -> tuple[Item, ...]:
    """Return the items of a run that were set aside, oldest first."""
    rows = await db.all(_DEAD_LETTERS, (owner, pk, run_id)) if may_be_ref(run_id) else []
    return tuple(item_of(db, row, view.session.session_id) for row in rows)
