"""Reads by id for a decision, in any state: an approval, a turn, an item, a run of its session."""

from __future__ import annotations

from msgspec.structs import replace

from moorage.core.errors import ApprovalNotFound, ItemNotFound, NotFound, RunNotFound, TurnNotFound
from moorage.core.session import Needs, View
from moorage.stores.rows import ITEM, Row, approval_of
from moorage.stores.sql.db import Db
from moorage.stores.sql.lookup import existing
from moorage.stores.work_rows import item_of, run_of, turn_of

_DEAD_LETTERS = (
    f"SELECT {ITEM} FROM moor.inbox INDEXED BY inbox_open WHERE owner = ? AND session = ? "
    "AND state = 'dead_letter' AND state <> 'consumed' AND run = ? ORDER BY n"
)


async def with_named(db: Db, owner: str, pk: int, view: View, needs: Needs) -> View:
    """Return a view of a session with the named values. Raises NotFound for one that it does not have."""
    session_id, live = view.session.session_id, view.work.running

    async def row(table: str, columns: str, name: str, missing: type[NotFound]) -> Row:
        sql = f"SELECT {columns} FROM moor.{table} WHERE owner = ? AND session = ? AND id = ?"
        return await existing(db, sql, (owner, pk, name), missing)

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
