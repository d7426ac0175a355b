"""`AgentSessionManager`: operations on sessions, with the names of an earlier plan."""

from __future__ import annotations

from typing import Any

from moorage.api import Moorage
from moorage.core.entry import Entry
from moorage.core.errors import NotFound
from moorage.core.session import Session
from moorage.executor import AgentExecutor


class AgentSessionManager:
    """Sessions of one connection. Every session has a task id; history, checkpoints and context outlive processes."""

    def __init__(self, moor: Moorage) -> None:
        self.moor = moor

    async def create_session(
        self, agent_name: str, task_id: str | None = None, metadata: dict[str, Any] | None = None, **birth: Any
    ) -> Session:
        """Create a session. `birth` holds further arguments of `Moorage.create`: name, session_id, parent …"""
        return await self.moor.create(agent_name, task_id=task_id, metadata=metadata, **birth)

    async def get_session(self, session_id: str) -> Session | None:
        """Return the session, or None if there is no such session."""
        try:
            return await self.moor.get(session_id)
        except NotFound:
            return None

    async def list_sessions(
        self, state: str | None = None, agent_name: str | None = None, limit: int = 50
    ) -> list[Session]:
        """Return sessions, newest first."""
        return (await self.moor.list(state=state, agent=agent_name, limit=limit)).items

    async def add_message(self, session_id: str, role: str, content: Any) -> Entry:
        """Append to the history; this starts no run."""
        return (await self.moor.append(session_id, [{"role": role, "content": content}]))[0]

    async def get_history(self, session_id: str, last: int | None = None) -> list[Entry]:
        """Return the messages, only the last ones if a number is given."""
        return (await self.moor.messages(session_id, last=last)).items

    async def suspend_session(
        self, session_id: str, checkpoint: dict[str, Any] | None = None, reason: str | None = None
    ) -> Session:
        """Pause a session, with a checkpoint for its continuation."""
        return await self.moor.suspend(session_id, checkpoint=checkpoint, reason=reason)

    async def resume_session(self, session_id: str) -> Session:
        """Resume a session; an active one is unchanged. Raises SessionNotFound, SessionClosed."""
        found = await self.moor.get(session_id)
        return await AgentExecutor(self.moor).session(None, found.session_id)

    async def complete_session(self, session_id: str, summary: str | None = None) -> Session:
        """Close a session whose work is done."""
        return await self.moor.finalize(session_id, "completed", summary=summary)

    async def fail_session(self, session_id: str, summary: str | None = None) -> Session:
        """Close a session whose work failed."""
        return await self.moor.finalize(session_id, "failed", summary=summary)
