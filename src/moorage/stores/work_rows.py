"""Convert rows of runs, turns and inboxes to values and back: a body of JSON, and columns that repeat parts of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TypeVar

import msgspec

from moorage.core.errors import SessionCorrupt
from moorage.core.inbox import Item, ItemKind, ItemState
from moorage.core.run import Join, Run, RunState
from moorage.core.session import View
from moorage.core.turn import Turn, TurnState
from moorage.stores.rows import Row, Table, about_body, instant, json_text, kept, micros, micros_or_none, opened
from moorage.stores.sql.db import Db

T = TypeVar("T")

PARENT_CORRUPT = "parent_corrupt"  # the fate of a callback whose parent cannot be read

_decode_run = msgspec.json.Decoder(Run).decode
_decode_turn = msgspec.json.Decoder(Turn).decode
_decode_body = msgspec.json.Decoder(dict[str, object]).decode
_KINDS = {kind.value: kind for kind in ItemKind}
_ITEM_STATES = {state.value: state for state in ItemState}


def run_of(db: Db, row: Sequence[str]) -> Run:
    """Return a run from its body, its id and its session's. Raises SessionCorrupt if they are invalid."""
    return _decoded(db, _decode_run, row, "run")


def turn_of(db: Db, row: Sequence[str]) -> Turn:
    """Return a turn from its body, its id and its session's. Raises SessionCorrupt if they are invalid."""
    return _decoded(db, _decode_turn, row, "turn")


def item_of(db: Db, row: Row, session_id: str) -> Item:
    """Return an item from the columns of ITEM and its body, if that follows."""
    id_, kind, state, given, turn, run, entry, is_joined, created_at = row[:9]
    try:
        body = (
            {} if len(row) == 9 else _decode_body(opened(db.opener, row[9], about_body("item", f"{session_id} {id_}")))
        )
        return Item(
            item_id=id_, session_id=session_id, kind=_KINDS[kind], created_at=instant(created_at), run_id=run,
            state=_ITEM_STATES[state], given=given, turn_id=turn, entry=entry, body=body,
            join=Join.ALL if is_joined else Join.EACH,
        )  # fmt: skip
    except (KeyError, ValueError, TypeError, OverflowError) as error:  # DecodeError is a ValueError
        raise SessionCorrupt(session_id, f"item {id_}: {type(error).__name__}: {error}") from error


def _decoded(db: Db, decode: Callable[[str], T], row: Sequence[str], what: str) -> T:
    body, id_, session_id = row
    try:
        return decode(opened(db.opener, body, about_body(what, id_)))
    except ValueError as error:  # DecodeError is one
        raise SessionCorrupt(session_id, f"a {what}: {error}") from error


def due_at(turn: Turn) -> int | None:
    """Return when a silent turn is overdue: an unstarted one is given out again, a started one is lost."""
    if turn.state is not TurnState.RUNNING or turn.lease_until is None or turn.lost_at is None:
        return None
    return micros(turn.lease_until if turn.started_at is None else max(turn.lease_until, turn.lost_at))


RUNS: Table[Run] = Table(
    "runs",
    attrgetter("run_id"),
    lambda run, sealer: kept(sealer, json_text(run), "run", run.run_id),
    fixed={
        "agent": attrgetter("agent_name"),
        "mode": attrgetter("mode"),
        "is_joined": lambda run: run.join is Join.ALL,
        "parent": attrgetter("parent_session_id"),
        "parent_run": attrgetter("parent_run_id"),
        "key": attrgetter("idempotency_key"),
    },
    moving={
        "state": attrgetter("state"),
        "expires_at": lambda run: (  # until when it waits for a launcher to take it
            micros_or_none(run.expires_at) if run.state is RunState.QUEUED and not run.turns else None
        ),
    },
)
TURNS: Table[Turn] = Table(
    "turns",
    attrgetter("turn_id"),
    lambda turn, sealer: kept(sealer, json_text(turn), "turn", turn.turn_id),
    fixed={"agent": attrgetter("agent_name")},
    moving={
        "state": attrgetter("state"),
        "launcher": attrgetter("launcher_id"),
        "not_before": lambda turn: micros_or_none(turn.not_before),
        "due_at": due_at,
    },
)
ITEMS: Table[Item] = Table(
    "inbox",
    attrgetter("item_id"),
    lambda item, sealer: kept(sealer, json_text(item.body), "item", f"{item.session_id} {item.item_id}"),
    fixed={
        "kind": attrgetter("kind"),
        "entry": attrgetter("entry"),
        "is_joined": lambda item: item.join is Join.ALL,
        "created_at": lambda item: micros(item.created_at),
    },
    moving={
        "state": attrgetter("state"),
        "given": attrgetter("given"),
        "turn": attrgetter("turn_id"),
        "run": attrgetter("run_id"),
    },
    is_body_fixed=True,
)


def turns_in(view: View) -> list[Turn]:
    """Return the turns in a decision's view: they are updated, others are inserted."""
    return [turn for turn in (view.work.queued, view.work.running, view.turn) if turn is not None]


def items_in(view: View) -> list[Item]:
    """Return the items in a decision's view."""
    return [*view.work.items, *view.dead_letters, *([] if view.item is None else [view.item])]
