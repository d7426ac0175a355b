"""The inbox: the items that wait for a session's next turn.

::

    held ──→ waiting ⇄ given ──→ consumed
                │        │
                └────────┴──→ dead_letter ──→ waiting     a person sent it again

An item is given to a turn and consumed when that turn completes. A turn that fails or is lost
returns it, which is counted; after three times the item becomes a dead letter, which a person sees.
An item is held while callbacks that belong together are still on their way. Stopping a run or closing
a session consumes its waiting items.

The prompt of a turn has all its items, in order of arrival. Messages of people are passed on unchanged. Answers of
children are untrusted: each callback is one line of JSON, which cannot contain another line, so a child cannot forge
the callback of a sibling.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Any
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from moorage.core.brief import brief
from moorage.core.codec import canonical, encode_text
from moorage.core.entry import text_of
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

    @property
    def is_joined(self) -> bool:
        """Return whether it is a callback that is delivered together with others of its run."""
        return self.kind is ItemKind.CALLBACK and self.join is Join.ALL and self.run_id is not None


def inbox_fingerprint(session_id: str | None, states: tuple[str, ...]) -> int:
    """Return the fingerprint that binds cursors to this list."""
    return crc32(canonical(["inbox", session_id, sorted(states)]))


def with_final_counts(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return the items of a turn; callbacks delivered together get the count of the last of them.

    Each was stored with the number of children that were out when it came.
    """
    out = {item.run_id: item.body["still_out"] for item in items if item.is_joined}
    return tuple(
        replace(item, body={**item.body, "still_out": out[item.run_id]}) if item.is_joined else item for item in items
    )


# The prompt of a turn ---------------------------------------------------------------------------

_ENDS_OF_LINES = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}  # JSON does not escape them
CALLBACKS = "Callbacks of agents you have started, a JSON object in each line:"
DECISIONS = "Answers to what you have asked, a JSON object in each line:"
CUT_OFF = (
    "Your last turn was cut off before it ended. What you have said until then is in the history; look what is done "
    "before you do it again."
)


def composed(items: Iterable[Item], *, cut_off: bool = False) -> str:
    """Return the prompt of a turn from its items."""
    parts = [CUT_OFF] if cut_off else []
    frame: str | None = None
    for item in items:
        heading, line = _said(item)
        if heading is not None and heading != frame:
            parts.append(heading)
        frame = heading
        parts.append(line)
    return "\n".join(parts)


def _said(item: Item) -> tuple[str | None, str]:
    if item.kind is ItemKind.MESSAGE:
        return None, text_of(item.body.get("content"))
    if item.kind is ItemKind.CALLBACK:
        return CALLBACKS, as_line(_callback(item.body))
    return DECISIONS, as_line(item.body)


def as_line(body: dict[str, Any]) -> str:
    """Return JSON in one line, escaping every character that a reader may take for the end of a line."""
    return encode_text(body).translate(_ENDS_OF_LINES)


def _callback(body: dict[str, Any]) -> dict[str, Any]:
    """Return a callback without empty fields; if its result was cut, add how to get the rest."""
    shown = {name: value for name, value in body.items() if value is not None and name != "is_cut"}
    if body.get("is_cut"):
        shown["rest"] = f"moorage result {body['run_id']}"
    return shown
