"""Several processes write one session, and processes die while they write: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

pytest.importorskip("agents", reason="the OpenAI Agents SDK is not installed; ./dev kits openai-agents has it")

from moorage.adapters.openai_agents import MoorageSession
from tests.kits.races import check_killed_amid_pairs, check_race_of_pairs, killed, race

pytestmark = pytest.mark.timeout(300)  # four processes import a framework at once

TURNS = 25


def add(url: str, name: str) -> Iterator[str]:
    """Add turns of two items."""
    session = MoorageSession("s", url)
    for number in range(TURNS):
        items = [{"role": "user", "content": f"{name}-{number}-{half}"} for half in "ab"]
        asyncio.run(session.add_items(items))
        yield items[1]["content"]


def add_and_pop(url: str, name: str) -> Iterator[str]:
    """Add an item, pop any item, and yield both."""
    session = MoorageSession("s", url)
    for number in range(TURNS):
        asyncio.run(session.add_items([{"role": "user", "content": f"{name}-{number}"}]))
        yield f"+{name}-{number}"
        popped = asyncio.run(session.pop_item())
        assert popped is not None
        yield f"-{popped['content']}"


def clear(url: str, name: str) -> Iterator[str]:
    """Add many items, and clear them, for ever."""
    session = MoorageSession("s", url)
    while True:
        asyncio.run(session.add_items([{"role": "user", "content": str(number)} for number in range(300)]))
        yield "added"
        asyncio.run(session.clear_session())
        yield "cleared"


def contents(url: str) -> list[str]:
    """Return what the session holds."""
    return [item["content"] for item in asyncio.run(MoorageSession("s", url).get_items())]


def test_four_writers_lose_nothing(process_url: str) -> None:
    check_race_of_pairs(add, process_url, contents, TURNS)


def test_every_item_is_popped_once(process_url: str) -> None:
    said = [line for lines in race(add_and_pop, process_url) for line in lines]
    added, popped = ([line[1:] for line in said if line[0] == sign] for sign in "+-")

    assert max(Counter(popped).values()) == 1
    assert set(contents(process_url)) == set(added) - set(popped)


def test_killed_writer_leaves_whole_turns(process_url: str) -> None:
    check_killed_amid_pairs(add, process_url, contents)


def test_killed_clear_leaves_all_or_nothing(process_url: str) -> None:
    killed(clear, process_url, 3)

    assert len(contents(process_url)) in (0, 300)


def test_killed_pop_takes_at_most_one_item(process_url: str) -> None:
    said = killed(add_and_pop, process_url, 3)

    assert len(contents(process_url)) in (0, 1)
    assert said
