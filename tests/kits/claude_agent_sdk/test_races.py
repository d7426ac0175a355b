"""Several processes write one session, and processes die while they write: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

pytest.importorskip("claude_agent_sdk", reason="the Claude Agent SDK is not installed; ./dev kits claude-agent-sdk")

from moorage.adapters.claude_agent_sdk import MoorageSessionStore
from tests.kits.races import check_killed_amid_pairs, check_race_of_pairs, killed

pytestmark = pytest.mark.timeout(300)  # four processes import a framework at once

KEY = {"project_key": "p", "session_id": "s"}
SUB = {**KEY, "subpath": "subagents/agent-1"}
BATCHES = 25


def append(url: str, name: str) -> Iterator[str]:
    """Append batches of two lines."""
    store = MoorageSessionStore(url)
    for number in range(BATCHES):
        lines = [{"type": "x", "uuid": f"{name}-{number}-{half}", "customTitle": name} for half in "ab"]
        asyncio.run(store.append(KEY, lines))
        yield lines[1]["uuid"]


def delete(url: str, name: str) -> Iterator[str]:
    """Append to a transcript and delete it, for ever."""
    return append_and_delete(url, KEY)


def delete_subagent(url: str, name: str) -> Iterator[str]:
    """Append to the transcript of a subagent and delete it, for ever."""
    return append_and_delete(url, SUB)


def append_and_delete(url: str, key: dict[str, str]) -> Iterator[str]:
    store = MoorageSessionStore(url)
    while True:
        asyncio.run(store.append(key, [{"type": "x", "n": number} for number in range(50)]))
        yield "appended"
        asyncio.run(store.delete(key))
        yield "deleted"


def uuids(url: str) -> list[str]:
    """Return what the transcript holds."""
    return [entry.get("uuid", "") for entry in asyncio.run(MoorageSessionStore(url).load(KEY)) or []]


def test_four_writers_lose_nothing(process_url: str) -> None:
    check_race_of_pairs(append, process_url, uuids, BATCHES)


def test_killed_writer_leaves_whole_batches(process_url: str) -> None:
    check_killed_amid_pairs(append, process_url, uuids)


def test_killed_deletion_leaves_all_or_nothing(process_url: str) -> None:
    killed(delete, process_url, 3)

    assert len(uuids(process_url)) in (0, 50)


def test_killed_deletion_of_a_subagent_leaves_all_or_nothing(process_url: str) -> None:
    killed(delete_subagent, process_url, 3)
    store = MoorageSessionStore(process_url)
    lines = asyncio.run(store.load(SUB)) or []

    assert len(lines) in (0, 50)
    assert asyncio.run(store.list_subkeys(KEY)) == ([SUB["subpath"]] if lines else [])
