"""Sessions and state of Google ADK's own services for SQLite and PostgreSQL, moved in."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.adk", reason="Google ADK is not installed; ./dev kits google-adk has it")

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from moorage.adapters.adk import MoorageSessionService
from moorage.adapters.adk_moving import move_in
from moorage.adapters.moving import is_postgres
from moorage.core.errors import InvalidField
from tests.kits.moving import for_sqlalchemy, moved

HERE: dict[str, Any] = {"app_name": "shop", "user_id": "anna"}


@asynccontextmanager
async def opened(source: str) -> AsyncIterator[Any]:
    """Open ADK's own service."""
    if not is_postgres(source):
        yield SqliteSessionService(source)
        return
    pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed; ./dev kits google-adk has it")
    from google.adk.sessions import DatabaseSessionService

    async with DatabaseSessionService(for_sqlalchemy(source)) as service:
        yield service


@pytest.fixture
async def theirs(source: str) -> str:
    async with opened(source) as service:
        for name in ("a", "b c"):
            session = await service.create_session(**HERE, session_id=name, state={"app:x": 1, "mine": name})
            for number in range(5):
                content = types.Content(parts=[types.Part(text=f"e{number}")])
                actions = EventActions(state_delta={"n": number, "user:u": number})
                await service.append_event(session, Event(author="user", content=content, actions=actions))
    return source


async def test_sessions_and_state_come_in_whole_and_once(theirs: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ours.db'}"
    assert [moved(url, "adk", theirs, *options)["entries"] for options in (["--dry-run"], [])] == [10, 10]
    assert moved(url, "adk", theirs)["already_there"] == ["shop::anna::a", "shop::anna::b:20c"]
    async with MoorageSessionService(url) as ours, opened(theirs) as service:
        for name in ("a", "b c"):
            there = await service.get_session(**HERE, session_id=name)
            here = await ours.get_session(**HERE, session_id=name)

            assert there is not None
            assert here is not None
            assert here.model_dump() == there.model_dump()
            await ours.append_event(here, Event(author="user"))


def test_database_of_an_older_adk_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "old.db") as db:
        for table in ("sessions", "events", "app_states", "user_states"):
            db.execute(f"CREATE TABLE {table} (id TEXT)")
    with pytest.raises(InvalidField, match="adk migrate session"):
        move_in("memory://", str(tmp_path / "old.db"))
