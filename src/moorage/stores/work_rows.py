"""The rows of runs, turns and inboxes to values and back: a body of JSON, and columns that say some of it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from moorage.core.errors import SessionCorrupt
from moorage.core.inbox import Item, ItemKind, ItemState
from moorage.core.run import Join, Run
from moorage.core.turn import Turn, TurnState
from moorage.stores.rows import Row, about_body, instant, micros, opened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from moorage.stores.sealing import Sealer

T = TypeVar("T")

PARENT_CORRUPT = "parent_corrupt"  # what became of a callback whose parent does not read back whole
OPEN = "state IN ('queued', 'running')"  # of runs, as the partial indexes say it
# Without the body, which only whoever shows an item needs.
ITEM = "id, kind, state, given, turn, run, entry, is_joined, created_at"

_decode_run = msgspec.json.Decoder(Run).decode
_decode_turn = msgspec.json.Decoder(Turn).decode
_decode_body = msgspec.json.Decoder(dict[str, object]).decode
_KINDS = {kind.value: kind for kind in ItemKind}
_ITEM_STATES = {state.value: state for state in ItemState}


class Opens(Protocol):
    """Whatever knows what sealed bodies are opened with: a connection."""

    opener: Sealer | None


def run_of(db: Opens, row: Sequence[str]) -> Run:
    """A run from its body, its id and its session's; SessionCorrupt if it makes none."""
    return _decoded(db, _decode_run, row, "run")


def turn_of(db: Opens, row: Sequence[str]) -> Turn:
    """A turn from its body, its id and its session's; SessionCorrupt if it makes none."""
    return _decoded(db, _decode_turn, row, "turn")


def item_of(db: Opens, row: Row, session_id: str) -> Item:
    """An item from the columns of ITEM and, if it follows, its body."""
    id_, kind, state, given, turn, run, entry, is_joined, created_at = row[:9]
    try:
        return Item(
            item_id=id_,
            session_id=session_id,
            kind=_KINDS[kind],
            created_at=instant(created_at),
            run_id=run,
            state=_ITEM_STATES[state],
            given=given,
            turn_id=turn,
            entry=entry,
            body=_decode_body(opened(db.opener, row[9], about_body("item", f"{session_id} {id_}")))
            if len(row) > 9
            else {},
            join=Join.ALL if is_joined else Join.EACH,
        )
    except (KeyError, ValueError, TypeError, OverflowError) as error:  # DecodeError is a ValueError
        raise SessionCorrupt(session_id, f"item {id_}: {type(error).__name__}: {error}") from error


def _decoded(db: Opens, decode: Callable[[str], T], row: Sequence[str], what: str) -> T:
    body, id_, session_id = row
    try:
        return decode(opened(db.opener, body, about_body(what, id_)))
    except ValueError as error:  # DecodeError is one
        raise SessionCorrupt(session_id, f"a {what}: {error}") from error


def due_at(turn: Turn) -> int | None:
    """When silence has consequences: one that was not started is given out again, one that was is lost."""
    if turn.state is not TurnState.RUNNING or turn.lease_until is None or turn.lost_at is None:
        return None
    return micros(turn.lease_until if turn.started_at is None else max(turn.lease_until, turn.lost_at))
