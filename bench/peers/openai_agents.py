"""OpenAI Agents SDK: `SQLiteSession`, one object for each session on a shared file."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from agents import SQLiteSession

from bench.contender import Contender, NotOffered
from bench.material import Message


class OpenAIAgents(Contender):
    awaits: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = folder / "openai.db"
        self.sessions: list[SQLiteSession] = []

    def create(self, *, agent: str = "agent-00", name: str | None = None, parent: Any = None) -> Any:
        raise NotOffered("a session is first written with its first message")

    def begin(self) -> SQLiteSession:
        self.sessions.append(SQLiteSession(str(uuid.uuid4()), self.path))
        return self.sessions[-1]

    async def append(self, session: SQLiteSession, messages: Sequence[Message]) -> None:
        await session.add_items(list(messages))

    async def last(self, session: SQLiteSession, count: int) -> Any:
        return await session.get_items(limit=count)

    async def fill(self, session: SQLiteSession, messages: Sequence[Message]) -> None:
        await session.add_items(list(messages))

    async def stored(self, session: SQLiteSession) -> int:
        return len(await session.get_items())

    def close(self) -> None:
        for session in self.sessions:
            session.close()
        super().close()
