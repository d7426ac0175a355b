"""The inbox: what waits for a session's next turn.

::

    held ──→ waiting ⇄ given ──→ consumed
                │        │
                └────────┴──→ set_aside ──→ waiting     a person sent it again

An item is given to a turn and consumed when that turn completes. A turn that fails or gets
lost gives it back, counted; after three times it is set aside, where a person sees it. An
item is held while callbacks that belong together are still on their way. What waits for a run
that is stopped, or in a session that is closed, is consumed without having been given.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from zlib import crc32

from msgspec import Struct

from moorage.core.codec import canonical
from moorage.core.run import Join

MAX_GIVEN = 3  # how often an item is given to a turn that does not complete


class ItemKind(StrEnum):
    """What waits."""

    MESSAGE = "message"
    CALLBACK = "callback"
    DECISION = "decision"


class ItemState(StrEnum):
    """Where an item stands."""

    HELD = "held"
    WAITING = "waiting"
    GIVEN = "given"
    CONSUMED = "consumed"
    SET_ASIDE = "set_aside"


# The transition table of inbox items; docs/lifecycle.md draws it and a test compares the two.
ITEM_MOVES: dict[ItemState, frozenset[ItemState]] = {
    ItemState.HELD: frozenset({ItemState.WAITING, ItemState.SET_ASIDE, ItemState.CONSUMED}),
    ItemState.WAITING: frozenset({ItemState.GIVEN, ItemState.SET_ASIDE, ItemState.CONSUMED}),
    ItemState.GIVEN: frozenset({ItemState.WAITING, ItemState.CONSUMED, ItemState.SET_ASIDE}),
    ItemState.CONSUMED: frozenset(),
    ItemState.SET_ASIDE: frozenset({ItemState.WAITING}),
}
OPEN_ITEMS = frozenset({ItemState.HELD, ItemState.WAITING, ItemState.GIVEN})


class Item(Struct, frozen=True, kw_only=True):
    """One thing that waits for a session."""

    item_id: str
    session_id: str
    kind: ItemKind
    created_at: datetime
    run_id: str | None = None  # of this session: whom it belongs to
    state: ItemState = ItemState.WAITING
    given: int = 0  # to how many turns that did not complete
    turn_id: str | None = None
    entry: int | None = None  # the log's entry that says it
    body: dict[str, Any] = {}
    join: Join = Join.EACH


def inbox_fingerprint(session_id: str | None, states: tuple[str, ...]) -> int:
    """What the cursors of such a list carry: no other list takes them."""
    return crc32(canonical(["inbox", session_id, sorted(states)]))
