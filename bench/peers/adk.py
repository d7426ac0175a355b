"""Google ADK: its two session services, SQLAlchemy over aiosqlite and aiosqlite alone.

A turn is two events, appended one after the other: there is no call that takes both.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from google.adk.events import Event
from google.adk.sessions import DatabaseSessionService, Session
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from bench.contender import Contender
from bench.material import Message
from bench.peers.rows import Row, copy_rows, count_rows

APP, USER = "bench", "local"


class _Adk(Contender):
    """The shared part of both services: one interface and one `events` table."""

    awaits: ClassVar[bool] = True
    service: BaseSessionService

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = folder / "adk.db"

    async def create(self, *, agent: str = "agent-00", name: str | None = None, parent: Any = None) -> Session:
        return await self.service.create_session(app_name=APP, user_id=USER, state={"workspace": "prod"})

    async def append(self, session: Session, messages: Sequence[Message]) -> None:
        for message in messages:
            await self.service.append_event(session, _event(message))

    async def last(self, session: Session, count: int) -> list[Event]:
        recent = GetSessionConfig(num_recent_events=count)
        found = await self.service.get_session(app_name=APP, user_id=USER, session_id=session.id, config=recent)
        return found.events if found else []

    async def fill(self, session: Session, messages: Sequence[Message]) -> None:
        await self.append(session, messages[:2])
        copy_rows(self.path, "events", session.id, lambda pattern: _older(pattern, len(messages) // 2 - 1))

    async def stored(self, session: Session) -> int:
        return count_rows(self.path, "events", session.id)


class AdkDatabase(_Adk):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.service = DatabaseSessionService(f"sqlite+aiosqlite:///{self.path}")

    def close(self) -> None:
        self.runner.run(self.service.close())
        super().close()


class AdkSqlite(_Adk):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.service = SqliteSessionService(str(self.path))


def _event(message: Message) -> Event:
    user = message["role"] == "user"
    content = types.Content(role="user" if user else "model", parts=[types.Part(text=message["content"])])
    return Event(author="user" if user else "agent", invocation_id="bench", content=content)


def _older(pattern: list[Row], turns: int) -> Iterable[Row]:
    """Copies of a turn, each a millisecond further back: the newest stay newest."""
    for place in range(1, turns + 1):
        for row in pattern:
            fresh = str(uuid.uuid4())
            data = row["event_data"].replace(row["id"], fresh)
            yield {**row, "id": fresh, "timestamp": _back(row["timestamp"], place), "event_data": data}


def _back(moment: float | str, milliseconds: int) -> float | str:
    if isinstance(moment, str):
        earlier = datetime.fromisoformat(moment) - timedelta(milliseconds=milliseconds)
        return earlier.strftime("%Y-%m-%d %H:%M:%S.%f")
    return moment - milliseconds / 1_000
