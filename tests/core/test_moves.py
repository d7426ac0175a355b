"""The transition tables: what they allow, and that the page draws exactly them."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import pytest

from moorage.core.approval import APPROVAL_MOVES, ApprovalState
from moorage.core.errors import IllegalMove
from moorage.core.inbox import ITEM_MOVES, OPEN_ITEMS, ItemState
from moorage.core.run import RUN_MOVES, SETTLED, RunState
from moorage.core.session import FINAL_STATES, OPEN_STATES, SESSION_MOVES, State
from moorage.core.turn import ENDED, TURN_MOVES, TurnState
from tests.core.heads import a_head

T = TypeVar("T", bound=StrEnum)
Moves = set[tuple[str, str]]

LIFECYCLE = Path(__file__).parents[2] / "docs" / "lifecycle.md"
SECTION = re.compile(r"^## +(?P<title>[^\n]+?) *\n(?P<body>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
DRAWING = re.compile(r"^ *```mermaid *\n *stateDiagram-v2 *\n(.*?)^ *``` *$", re.MULTILINE | re.DOTALL)
ARROW = re.compile(r"^ *(\[\*\]|\w+) *--> *(\[\*\]|\w+) *(?::.*)?$", re.MULTILINE)


def drawn_moves(page: str, title: str) -> Moves:
    """The arrows of the drawing under a heading, but for those from and to nowhere."""
    bodies = [section["body"] for section in SECTION.finditer(page) if section["title"] == title]
    assert len(bodies) == 1, f"the page needs one section '## {title}'"
    drawings = DRAWING.findall(bodies[0])
    assert len(drawings) == 1, f"'## {title}' needs one state diagram"
    return {(start, end) for start, end in ARROW.findall(drawings[0]) if "[*]" not in (start, end)}


def moves_of(table: dict[T, frozenset[T]]) -> Moves:
    return {(start.value, end.value) for start, ends in table.items() for end in ends}


@pytest.mark.parametrize(
    ("title", "moves"),
    [
        ("Sessions", moves_of(SESSION_MOVES)),
        ("Approvals", moves_of(APPROVAL_MOVES)),
        ("Runs", moves_of(RUN_MOVES)),
        ("Turns", moves_of(TURN_MOVES)),
        ("Inbox items", moves_of(ITEM_MOVES)),
    ],
)
def test_the_page_draws_exactly_the_moves_of_the_table(title: str, moves: Moves) -> None:
    assert drawn_moves(LIFECYCLE.read_text(encoding="utf-8"), title) == moves


def test_a_drawing_is_read_arrow_by_arrow() -> None:
    page = """# Life

## Sessions

Words with an arrow --> that is none.

```mermaid
stateDiagram-v2
    direction LR
    [*] --> created
    created --> active : first message
    active-->suspended
    suspended --> [*]
    %% created --> nowhere is a comment
    state "done" as completed
```

## Approvals

```mermaid
stateDiagram-v2
    pending --> approved
```
"""
    assert drawn_moves(page, "Sessions") == {("created", "active"), ("active", "suspended")}
    assert drawn_moves(page, "Approvals") == {("pending", "approved")}


def test_a_missing_drawing_is_noticed() -> None:
    with pytest.raises(AssertionError, match="needs one section"):
        drawn_moves("# Life\n", "Sessions")
    with pytest.raises(AssertionError, match="needs one state diagram"):
        drawn_moves("## Sessions\n\nno drawing\n", "Sessions")


def test_every_state_has_its_row() -> None:
    assert set(SESSION_MOVES) == set(State)
    assert set(APPROVAL_MOVES) == set(ApprovalState)
    assert set(RUN_MOVES) == set(RunState)
    assert set(TURN_MOVES) == set(TurnState)
    assert set(ITEM_MOVES) == set(ItemState)


def test_final_states_have_no_transitions() -> None:
    assert {state for state, ends in RUN_MOVES.items() if not ends} == SETTLED
    assert {state for state, ends in TURN_MOVES.items() if not ends} == ENDED
    assert {state for state, ends in ITEM_MOVES.items() if not ends} == {ItemState.CONSUMED}
    assert set(ItemState) - {ItemState.CONSUMED, ItemState.DEAD_LETTER} == OPEN_ITEMS


def test_final_states_lead_nowhere_and_open_ones_to_every_end() -> None:
    assert set(State) == FINAL_STATES | OPEN_STATES
    assert all(not SESSION_MOVES[state] for state in FINAL_STATES)
    assert all(SESSION_MOVES[state] >= FINAL_STATES for state in OPEN_STATES)


def test_nothing_ever_becomes_created_again() -> None:
    assert State.CREATED not in {end for ends in SESSION_MOVES.values() for end in ends}


def test_only_a_pending_approval_moves() -> None:
    assert moves_of(APPROVAL_MOVES) == {
        ("pending", end.value) for end in ApprovalState if end is not ApprovalState.PENDING
    }


@pytest.mark.parametrize("start", State)
@pytest.mark.parametrize("end", State)
def test_illegal_transition_is_refused_and_names_the_legal_ones(start: State, end: State) -> None:
    head = a_head(start)
    if end is start:
        assert head._moved(end) is head
    elif end in SESSION_MOVES[start]:
        assert head._moved(end).state is end
    else:
        with pytest.raises(IllegalMove) as refused:
            head._moved(end)
        assert refused.value.facts == {
            "current": start.value,
            "wanted": end.value,
            "allowed": sorted(state.value for state in SESSION_MOVES[start]),
        }
