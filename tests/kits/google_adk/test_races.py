"""Several processes write one session, and processes die while they write: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("google.adk", reason="Google ADK is not installed; ./dev kits google-adk has it")

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions

from moorage.adapters.adk import MoorageSessionService
from tests.kits.races import killed, race

pytestmark = pytest.mark.timeout(300)  # four processes import a framework at once

HERE: dict[str, Any] = {"app_name": "shop", "user_id": "anna", "session_id": "s"}
EVENTS = 15


async def say(service: MoorageSessionService, name: str) -> None:
    """Append an event that changes all kinds of state; after a conflict, read again."""
    with suppress(AlreadyExistsError):
        await service.create_session(**HERE)
    while True:
        session = await service.get_session(**HERE)
        assert session is not None
        delta = {name: 1, f"user:{name}": 1, f"app:{name}": 1}
        try:
            await service.append_event(session, Event(author=name, actions=EventActions(state_delta=delta)))
        except StaleSessionError:
            continue
        return


def append(url: str, name: str) -> Iterator[str]:
    """Append events."""
    service = MoorageSessionService(url)
    for number in range(EVENTS):
        asyncio.run(say(service, f"{name}-{number}"))
        yield f"{name}-{number}"


def delete(url: str, name: str) -> Iterator[str]:
    """Append and delete, for ever."""
    service = MoorageSessionService(url)
    while True:
        asyncio.run(say(service, "one"))
        yield "appended"
        asyncio.run(service.delete_session(**HERE))
        yield "deleted"


def found(url: str) -> Any:
    """Return the session."""
    return asyncio.run(MoorageSessionService(url).get_session(**HERE))


def test_four_writers_lose_nothing(process_url: str) -> None:
    said = [name for names in race(append, process_url) for name in names]
    session = found(process_url)

    assert sorted(event.author for event in session.events) == sorted(said)
    assert len(said) == 4 * EVENTS
    assert session.state == {prefix + name: 1 for name in said for prefix in ("", "user:", "app:")}


def test_killed_writer_leaves_events_with_all_their_state(process_url: str) -> None:
    said = killed(append, process_url, 3)
    session = found(process_url)
    authors = [event.author for event in session.events]

    assert authors[: len(said)] == said
    assert session.state == {prefix + name: 1 for name in authors for prefix in ("", "user:", "app:")}


def test_killed_deletion_leaves_all_or_nothing(process_url: str) -> None:
    killed(delete, process_url, 3)
    session = found(process_url)

    assert session is None or len(session.events) in (0, 1)
