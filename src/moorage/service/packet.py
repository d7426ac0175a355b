"""The answer to `resume`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from moorage.core.brief import brief
from moorage.core.entry import Entry
from moorage.core.inbox import Item
from moorage.core.session import Hold, Session


@brief("session", "hold", "checkpoint", "context", "messages", "inbox")
class ResumePacket(Struct, frozen=True, kw_only=True):
    """All that is needed to resume a session."""

    session: Session
    hold: Hold | None  # None: its agent continues, and the caller does not drive it
    checkpoint: dict[str, Any] | None
    context: dict[str, Any]
    messages: list[Entry]
    inbox: list[Item]  # the items for its next turn


if TYPE_CHECKING:

    class HeldPacket(ResumePacket, frozen=True, kw_only=True):
        """The packet of a caller that drives the session: it always has the hold."""

        hold: Hold

else:
    HeldPacket = ResumePacket
