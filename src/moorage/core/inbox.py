"""The inbox: the items that wait for a session's next turn.

::

    held ──→ waiting ⇄ given ──→ consumed
                │        │
                └────────┴──→ dead_letter ──→ waiting     a person sent it again

An item is given to a turn and consumed when that turn completes. A turn that fails or is lost
returns it, which is counted; after three times the item becomes a dead letter, which a person sees.
An item is held while callbacks that belong together are still on their way. Stopping a run or closing
a session consumes its waiting items.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from zlib import crc32

from msgspec import Struct

from moorage.core.brief import brief
from moorage.core.codec import canonical
from moorage.core.run import Join

MAX_GIVEN = 3  # how often an item is given to a turn that does not complete


class ItemKind(StrEnum):
    """The kind of an inbox item."""

    MESSAGE = "message"
    CALLBACK = "callback"
    DECISION = "decision"


class ItemState(StrEnum):
    """The state of an item."""

    HELD = "held"
    WAITING = "waiting"
    GIVEN = "given"
    CONSUMED = "consumed"
    DEAD_LETTER = "dead_letter"


# The transition table of inbox items; docs/lifecycle.md draws it and a test compares the two.
ITEM_MOVES: dict[ItemState, frozenset[ItemState]] = {
    ItemState.HELD: frozenset({ItemState.WAITING, ItemState.DEAD_LETTER, ItemState.CONSUMED}),
    ItemState.WAITING: frozenset({ItemState.GIVEN, ItemState.DEAD_LETTER, ItemState.CONSUMED}),
    ItemState.GIVEN: frozenset({ItemState.WAITING, ItemState.CONSUMED, ItemState.DEAD_LETTER}),
    ItemState.CONSUMED: frozenset(),
    ItemState.DEAD_LETTER: frozenset({ItemState.WAITING}),
}
OPEN_ITEMS = frozenset({ItemState.HELD, ItemState.WAITING, ItemState.GIVEN})


@brief("kind", "state", "given", "session_id", "item_id")
class Item(Struct, frozen=True, kw_only=True):
    """One item that waits for a session."""

    item_id: str
    session_id: str
    kind: ItemKind
    created_at: datetime
    run_id: str | None = None  # the run of this session that it belongs to
    state: ItemState = ItemState.WAITING
    given: int = 0  # the number of turns that got it and did not complete
    turn_id: str | None = None
    entry: int | None = None  # its entry in the log
    body: dict[str, Any] = {}
    join: Join = Join.EACH


def inbox_fingerprint(session_id: str | None, states: tuple[str, ...]) -> int:
    """Return the fingerprint that binds cursors to this list."""
    return crc32(canonical(["inbox", session_id, sorted(states)]))
