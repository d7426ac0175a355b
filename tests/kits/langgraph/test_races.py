"""Several processes write one thread, and processes die while they write: nothing acknowledged is lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="LangGraph is not installed; ./dev kits langgraph has it")

from langchain_core.messages import BaseMessage

from moorage.adapters.langgraph import MoorageSaver, MoorageStore
from tests.kits.langgraph.threads import Thread, config_of, some_messages
from tests.kits.races import killed, race

pytestmark = pytest.mark.timeout(300)  # four processes import a framework at once

STEPS, LONG = 15, 40


def put(url: str, name: str) -> Iterator[str]:
    """Put checkpoints with a growing list of messages, each with a pending write of its number."""
    with MoorageSaver(url) as saver:
        thread = Thread(saver)
        for number in range(STEPS):
            messages = some_messages(LONG + number)
            checkpoint = thread.put({"source": "loop", "step": number}, messages=messages, writer=f"{name}-{number}")
            saver.put_writes(thread.config, [("answer", number), ("writer", name)], f"task-{name}")
            yield checkpoint


def grow_and_prune(url: str, name: str) -> Iterator[str]:
    """Put two checkpoints and prune the first of them, for ever."""
    with MoorageSaver(url) as saver:
        thread = Thread(saver)
        number = 0
        while True:
            for _ in range(2):
                number += 1
                last = thread.put(messages=some_messages(LONG + number))
            yield last
            saver.prune(["t"])
            yield "pruned"


def copy_and_delete(url: str, name: str) -> Iterator[str]:
    """Copy a thread and delete the copy, for ever."""
    with MoorageSaver(url) as saver:
        Thread(saver).put(messages=some_messages(LONG))
        while True:
            saver.copy_thread("t", "copy")
            yield "copied"
            saver.delete_thread("copy")
            yield "deleted"


def delete_runs(url: str, name: str) -> Iterator[str]:
    """Put two runs and delete one of them, for ever."""
    with MoorageSaver(url) as saver:
        thread = Thread(saver)
        while True:
            thread.put({"run_id": "kept"}, messages=some_messages(LONG))
            thread.put({"run_id": "gone"}, messages=some_messages(LONG + 1))
            yield "put"
            saver.delete_for_runs(["gone"])
            yield "deleted"


def remember(url: str, name: str) -> Iterator[str]:
    """Put two items together, for ever."""
    with MoorageStore(url) as store:
        number = 0
        while True:
            number += 1
            store.batch([_put("one", number), _put("two", number)])
            yield str(number)


def _put(key: str, number: int) -> Any:
    from langgraph.store.base import PutOp

    return PutOp(("numbers",), key, {"number": number})


def checkpoints(url: str, thread: str = "t") -> dict[str, Any]:
    """Return all checkpoints of a thread by their ids; every one of them can be loaded."""
    with MoorageSaver(url) as saver:
        return {it.checkpoint["id"]: it for it in saver.list(config_of(thread))}


def is_whole(it: Any) -> bool:
    """Return whether a checkpoint has its messages, from the first to the last."""
    messages: list[BaseMessage] = it.checkpoint["channel_values"]["messages"]
    return len(messages) >= LONG and [each.id for each in messages] == [f"m{n}" for n in range(len(messages))]


def test_four_writers_lose_nothing(process_url: str) -> None:
    acknowledged = race(put, process_url)
    found = checkpoints(process_url)

    assert {checkpoint for said in acknowledged for checkpoint in said} == set(found)
    assert len(found) == 4 * STEPS
    assert all(is_whole(it) for it in found.values())
    for number, said in enumerate(acknowledged):
        steps = [found[checkpoint] for checkpoint in said]
        assert [it.checkpoint["channel_values"]["writer"] for it in steps] == [f"w{number}-{n}" for n in range(STEPS)]
        assert [it.pending_writes[0][2] for it in steps] == list(range(STEPS))


def test_killed_writer_leaves_whole_checkpoints(process_url: str) -> None:
    said = killed(put, process_url, 5)
    found = checkpoints(process_url)

    assert set(said) <= set(found)
    assert all(is_whole(it) and len(it.pending_writes) in (0, 2) for it in found.values())


def test_killed_pruning_leaves_what_can_be_loaded(process_url: str) -> None:
    said = killed(grow_and_prune, process_url, 3)
    found = checkpoints(process_url)

    assert [one for one in said if one != "pruned"][-1] in found
    assert all(is_whole(it) for it in found.values())


def test_killed_copy_and_deletion_leave_the_source(process_url: str) -> None:
    for after in (2, 3):
        killed(copy_and_delete, process_url, after)
        copied = checkpoints(process_url, "copy")

        assert all(is_whole(it) for it in copied.values())
    assert all(is_whole(it) for it in checkpoints(process_url).values())


def test_killed_deletion_of_a_run_keeps_the_others(process_url: str) -> None:
    killed(delete_runs, process_url, 3)
    found = checkpoints(process_url)

    assert sum(it.metadata["run_id"] == "kept" for it in found.values()) >= 2
    assert all(is_whole(it) for it in found.values())


def test_killed_batch_leaves_all_of_its_items(process_url: str) -> None:
    said = killed(remember, process_url, 3)
    with MoorageStore(process_url) as store:
        numbers = {item.value["number"] for item in store.search(("numbers",))}

    assert len(numbers) == 1
    assert numbers.pop() >= int(said[-1])
