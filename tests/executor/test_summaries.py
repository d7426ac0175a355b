"""Compaction by an agent: it sums up what no summary stands for yet, bite by bite, on a store and on a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moorage import sync
from moorage.api import Moorage
from moorage.core.errors import AgentNotFound, InvalidField, SessionClosed, SummaryFailed
from moorage.summaries import summed_up
from tests.doors.cli.agent_files import FAILING, define

COUNTING = """
[agent]
name = "counting"
kind = "command"
command = ["python3", "-c", '''
import json, sys
lines = [json.loads(line) for line in sys.stdin.read().splitlines()[1:]]
before = [line["summary"] for line in lines if "summary" in line]
said = [line["content"] for line in lines if "role" in line]
print(f"{before} + {len(said)}, from {said[0]!r} to {said[-1]!r}")
''']
"""


@pytest.fixture(autouse=True)
def agents(home: Path) -> None:
    define(home, COUNTING, FAILING)


async def summaries(moor: Moorage, ref: str) -> list[tuple[str, int]]:
    entries = await moor.log(ref, kinds=("summary",))
    return [(entry.data["summary"], entry.data["upto"]) for entry in entries if entry.data]


async def test_agent_writes_a_summary_and_windows_begin_with_it(moor: Moorage) -> None:
    await moor.create(session_id="long", task_id="T001")
    await moor.append("long", [f"word {number}" for number in range(5)])
    entry = await moor.compact("long", agent="counting")
    assert entry.data == {"summary": "[] + 5, from 'word 0' to 'word 4'", "upto": 6}
    await moor.append("long", "and then")
    assert [message.text for message in await moor.messages("long", last=50)] == [entry.data["summary"], "and then"]
    [child] = (await moor.children("long")).items
    assert (child.agent_name, child.purpose, child.state, child.task_id) == (
        "counting",
        "summary",
        "completed",
        "T001",
    )


async def test_next_summary_gets_the_last_one_and_new_messages(moor: Moorage) -> None:
    await moor.create(session_id="long")
    await moor.append("long", ["a", "b"])
    await moor.compact("long", agent="counting", upto=2)
    await moor.compact("long", agent="counting")
    first = "[] + 1, from 'a' to 'a'"
    assert await summaries(moor, "long") == [(first, 2), (f"{[first]} + 1, from 'b' to 'b'", 3)]
    with pytest.raises(InvalidField, match="nothing new to sum up"):
        await moor.compact("long", agent="counting", upto=3)


async def test_a_long_history_is_taken_in_bites_that_part_no_call_from_its_result(moor: Moorage) -> None:
    await moor.create(session_id="long")
    call: dict[str, Any] = {"type": "tool_call", "id": "c", "name": "look", "input": {}}
    result: dict[str, Any] = {"type": "tool_result", "call_id": "c", "output": "x" * 100}
    await moor.append("long", ["x" * 60, "y" * 60])
    await moor.append("long", [{"role": "assistant", "content": [call]}, {"role": "tool", "content": [result]}])
    await moor.append("long", "last")
    last = await summed_up(moor, "long", "counting", bite=150)
    assert [upto for _, upto in await summaries(moor, "long")] == [3, 5, 6]
    assert last.data is not None
    assert last.data["upto"] == 6
    assert (await moor.get("long")).pending_approvals == 0


async def test_an_agent_that_fails_leaves_everything_as_it_was(moor: Moorage) -> None:
    await moor.create(session_id="long")
    await moor.append("long", "hello")
    with pytest.raises(SummaryFailed, match="failing gave no summary"):
        await moor.compact("long", agent="failing")
    with pytest.raises(AgentNotFound):
        await moor.compact("long", agent="nobody")
    with pytest.raises(InvalidField, match="give one of the two"):
        await moor.compact("long", "both", agent="counting")
    with pytest.raises(InvalidField, match="give one of the two"):
        await moor.compact("long")
    assert await summaries(moor, "long") == []
    await moor.finalize("long")
    with pytest.raises(SessionClosed):
        await moor.compact("long", agent="counting")


def test_it_works_without_an_event_loop(tmp_path: Path) -> None:
    with sync.connect(f"sqlite:///{tmp_path / 'own.db'}") as moor:
        moor.create(session_id="long")
        moor.append("long", "hello")
        assert moor.compact("long", "by hand", upto=1).data == {"summary": "by hand", "upto": 1}
        entry = moor.compact("long", agent="counting")
        assert entry.data == {"summary": "['by hand'] + 1, from 'hello' to 'hello'", "upto": 2}
