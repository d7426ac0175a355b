"""Reads of many sessions in one job: a statement for each costs little beside the way to a thread and back."""

from __future__ import annotations

from collections.abc import Callable

from moorage.core.approval import Approval
from moorage.core.entry import Kind
from moorage.core.errors import NotFound, SessionCorrupt
from moorage.core.query import Page, SessionQuery
from moorage.core.session import Session
from moorage.ports import Tail
from moorage.stores.sql import approvals, history
from moorage.stores.sqlite import find
from moorage.stores.sqlite.access import T
from moorage.stores.sqlite.connection import Connection
from moorage.stores.sqlite.driven import Driven, drive


def find_many(db: Connection, owner: str, queries: list[SessionQuery]) -> list[Page[Session]]:
    """A page for each query."""
    return [find.find(db, owner, query) for query in queries]


def tails(db: Connection, owner: str, session_ids: list[str], limit: int, pins: int, before: int | None) -> list[Tail]:
    """The end of each conversation, or what is before a number."""

    def one(session_id: str) -> Tail:
        if before is None:
            return drive(history.tail(Driven(db), owner, session_id, limit, pins, False))
        return Tail(
            [], drive(history.log(Driven(db), owner, session_id, 0, before, limit, (Kind.MESSAGE.value,), True))
        )

    return [_or_else(Tail([], []), one, session_id) for session_id in session_ids]


def approvals_of(
    db: Connection, owner: str, session_ids: list[str], pending_only: bool, limit: int
) -> list[list[Approval]]:
    """The approvals of each, oldest first."""

    def one(session_id: str) -> list[Approval]:
        return drive(approvals.approvals(Driven(db), owner, session_id, pending_only, limit))

    return [_or_else([], one, session_id) for session_id in session_ids]


def _or_else(nothing: T, read: Callable[[str], T], session_id: str) -> T:
    """What is read of one; one that is gone or damaged hides no other."""
    try:
        return read(session_id)
    except (NotFound, SessionCorrupt):
        return nothing
