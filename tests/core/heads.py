"""Heads for the rules to work on, without any store."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from moorage.core.family import FamilyLimits, born
from moorage.core.session import FINAL_STATES, Birth, Session, State
from moorage.testing.builders import NOON, a_stamp, after, new_session


def a_head(state: State = State.CREATED, at: datetime = NOON, **fields: Any) -> Session:
    """A session in that state, as the rules would have left it."""
    head = born(new_session("s-1"), Birth(), a_stamp(at), FamilyLimits()).session
    if state is State.ACTIVE:
        head = replace(head, state=State.ACTIVE)
    elif state is State.SUSPENDED:
        head = head.suspend(a_stamp(at)).session
    elif state in FINAL_STATES:
        head = head.finalize(state.value, a_stamp(at)).session
    return replace(head, **fields) if fields else head


def a_held_head(holder: str = "ann", token: str = "secret", at: datetime = NOON) -> Session:
    """Return a session that is held since `at`."""
    return a_head(State.ACTIVE).resume(holder, token, a_stamp(at)).session


LATER = after(60)
