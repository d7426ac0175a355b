"""Several processes write one session, and processes die while they write: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("strands", reason="Strands is not installed; ./dev kits strands has it")

from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

from moorage.adapters.strands import MoorageSessionRepository, MoorageStorage
from tests.kits.races import killed, race

pytestmark = pytest.mark.timeout(300)  # four processes import a framework at once

MESSAGES, SIZE = 20, 3_000_000


def create(url: str, name: str) -> Iterator[str]:
    """Add messages to one agent; if a number is taken, take the next."""
    repository, number = opened(url), 0
    for count in range(MESSAGES):
        message: Any = {"role": "user", "content": [{"text": f"{name}-{count}"}]}
        while True:
            try:
                repository.create_message("s", "a", SessionMessage(message=message, message_id=number))
            except SessionException:
                number += 1
                continue
            break
        yield f"{name}-{count}"


def update(url: str, name: str) -> Iterator[str]:
    """Replace the state of an agent, for ever."""
    repository, number = opened(url), 0
    while True:
        number += 1
        state = {"one": number, "two": number}
        repository.update_agent("s", SessionAgent(agent_id="a", state=state, conversation_manager_state={}))
        yield str(number)


def delete(url: str, name: str) -> Iterator[str]:
    """Make a session with a message, replace it, and delete all, for ever."""
    while True:
        repository = opened(url)
        message: Any = {"role": "user", "content": [{"text": "one"}]}
        repository.create_message("s", "a", SessionMessage(message=message, message_id=0))
        repository.update_message("s", "a", SessionMessage(message=message, message_id=0))
        yield "made"
        repository.delete_session("s")
        yield "deleted"


def store(url: str, name: str) -> Iterator[str]:
    """Write many bytes and delete them, for ever."""
    storage: Any = MoorageStorage(url)
    while True:
        asyncio.run(storage.write("file", b"x" * SIZE))
        yield "written"
        asyncio.run(storage.delete("file"))
        yield "deleted"


def opened(url: str) -> MoorageSessionRepository:
    """Return a repository with a session and an agent."""
    repository = MoorageSessionRepository(url)
    with suppress(SessionException):
        repository.create_session(Session(session_id="s", session_type=SessionType.AGENT))
    with suppress(SessionException):
        repository.create_agent("s", SessionAgent(agent_id="a", state={}, conversation_manager_state={}))
    return repository


def said(url: str) -> list[str]:
    """Return what the agent's messages say."""
    return [one.message["content"][0]["text"] for one in opened(url).list_messages("s", "a")]


def test_four_writers_lose_nothing(process_url: str) -> None:
    acknowledged = [text for texts in race(create, process_url) for text in texts]

    assert sorted(said(process_url)) == sorted(acknowledged)
    assert len(acknowledged) == 4 * MESSAGES


def test_killed_writer_leaves_what_was_acknowledged(process_url: str) -> None:
    acknowledged = killed(create, process_url, 3)

    assert said(process_url)[: len(acknowledged)] == acknowledged


def test_killed_update_leaves_a_whole_state(process_url: str) -> None:
    acknowledged = killed(update, process_url, 5)
    agent = opened(process_url).read_agent("s", "a")

    assert agent is not None
    assert agent.state["one"] == agent.state["two"] >= int(acknowledged[-1])


def test_killed_deletion_leaves_all_or_nothing(process_url: str) -> None:
    killed(delete, process_url, 3)
    repository = MoorageSessionRepository(process_url)

    assert repository.read_session("s") is None or said(process_url) in ([], ["one"])


def test_killed_storage_leaves_all_bytes_or_none(process_url: str) -> None:
    killed(store, process_url, 4)
    storage: Any = MoorageStorage(process_url)
    found = asyncio.run(storage.read("file"))

    assert found in (None, b"x" * SIZE)
