"""Delegations: records of each decision to delegate work, and whether earlier work was resumed.

They are stored apart from the sessions: most name none, and they are counted long after
their session is deleted.
"""

from __future__ import annotations

from datetime import datetime
from zlib import crc32

from msgspec import Struct

from moorage.core.brief import brief
from moorage.core.codec import canonical
from moorage.core.query import check_any_text, check_instant


@brief("agent_name", "resumed", "reason", "at", "task_id", "session_id")
class Delegation(Struct, frozen=True, kw_only=True, gc=False):
    """Work to be delegated to an agent, and the decision about it."""

    delegation_id: str  # recorded once, however often it is reported
    at: datetime
    resumed: bool  # whether earlier work was resumed
    reason: str  # of the verdict
    agent_name: str | None = None
    task_id: str | None = None
    project_dir: str | None = None
    session_id: str | None = None  # the session judged, resumed or created for it
    host_session_id: str | None = None  # the delegating session


class Span(Struct, frozen=True, kw_only=True):
    """The range to count: agent, task, start and end."""

    agent: str | None = None
    task_id: str | None = None
    created_after: datetime | None = None  # at that instant or later
    created_before: datetime | None = None  # earlier than that

    def __post_init__(self) -> None:
        check_any_text("agent", self.agent)
        check_any_text("task_id", self.task_id)
        check_instant("created_after", self.created_after)
        check_instant("created_before", self.created_before)

    def fingerprint(self, what: str) -> int:
        """Return the fingerprint that binds cursors to a list over this span."""
        return crc32(canonical([what, self]))

    def has(self, at: datetime, agent: str | None, task: str | None) -> bool:
        """Return whether something of that time, agent and task is to be counted."""
        return (
            (self.agent is None or self.agent == agent)
            and (self.task_id is None or self.task_id == task)
            and (self.created_after is None or at >= self.created_after)
            and (self.created_before is None or at < self.created_before)
        )
