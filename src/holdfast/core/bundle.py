"""A bundle: one session with all that belongs to it, for export and import."""

from __future__ import annotations

from msgspec import Struct, field

from holdfast.core.approval import Approval
from holdfast.core.context import ContextItem
from holdfast.core.entry import Entry
from holdfast.core.session import Session


class Bundle(Struct, frozen=True, kw_only=True):
    """A whole session: head, log, context, approvals."""

    session: Session
    entries: list[Entry]
    context: dict[str, ContextItem] = field(default_factory=dict)
    approvals: list[Approval] = field(default_factory=list)
