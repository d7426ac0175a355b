"""Several processes write one session, and processes die while they write: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest

pytest.importorskip("agent_framework", reason="the Agent Framework is not installed; ./dev kits agent-framework has it")

from agent_framework import AgentSession, Message, WorkflowCheckpoint

from moorage.adapters.agent_framework import MoorageCheckpointStorage, MoorageHistoryProvider, MoorageSessionStore
from tests.kits.races import check_killed_amid_pairs, check_race_of_pairs, killed

pytestmark = pytest.mark.timeout(300)  # four processes import a framework at once

TURNS = 15


def save(url: str, name: str) -> Iterator[str]:
    """Save turns of two messages."""
    history = MoorageHistoryProvider(url)
    for number in range(TURNS):
        texts = [f"{name}-{number}-{half}" for half in "ab"]
        asyncio.run(history.save_messages("s", [Message("user", [text]) for text in texts]))
        yield texts[1]


def snapshot(url: str, name: str) -> Iterator[str]:
    """Store a session and delete it, for ever."""
    store = MoorageSessionStore(url)
    for number in count():
        session = AgentSession(session_id="s")
        session.state.update(one=number, two=number)
        asyncio.run(store.set("s", session))
        yield "set"
        asyncio.run(store.delete("s"))
        yield "deleted"


def checkpoint(url: str, name: str) -> Iterator[str]:
    """Save a checkpoint twice, then delete the one before, for ever."""
    storage = MoorageCheckpointStorage(url)
    for number in count():
        saved = WorkflowCheckpoint(workflow_name="w", graph_signature_hash="h", checkpoint_id=f"{name}-{number}")
        asyncio.run(storage.save(saved))
        saved.iteration_count += 1
        asyncio.run(storage.save(saved))
        yield f"{name}-{number}"
        asyncio.run(storage.delete(f"{name}-{number - 1}"))


def texts(url: str) -> list[str]:
    """Return what the session holds."""
    return [message.text for message in asyncio.run(MoorageHistoryProvider(url).get_messages("s"))]


def test_four_writers_lose_nothing(process_url: str) -> None:
    check_race_of_pairs(save, process_url, texts, TURNS)


def test_killed_writer_leaves_whole_turns(process_url: str) -> None:
    check_killed_amid_pairs(save, process_url, texts)


def test_killed_snapshot_is_whole_or_absent(process_url: str) -> None:
    killed(snapshot, process_url, 4)
    found = asyncio.run(MoorageSessionStore(process_url).get("s"))

    assert found is None or found.state["one"] == found.state["two"]


def test_killed_checkpoint_is_listed_and_can_be_loaded(process_url: str) -> None:
    said = killed(checkpoint, process_url, 3)
    storage = MoorageCheckpointStorage(process_url)
    listed = [one.checkpoint_id for one in asyncio.run(storage.list_checkpoints(workflow_name="w"))]

    assert said[-1] in listed
    assert len(listed) <= 3
    assert [asyncio.run(storage.load(name)).checkpoint_id for name in listed] == listed
