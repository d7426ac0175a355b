"""The contract of MoorageSaver beyond LangGraph's own suite."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="langgraph-checkpoint is not installed")

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver

import moorage
from moorage import sync
from moorage.adapters.langgraph import MoorageSaver
from moorage.core.errors import InvalidField, StoreUnavailable, TooLarge
from tests.kits.langgraph.threads import Thread, config_of, some_messages


@pytest.fixture
def file(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'threads.db'}"


@pytest.fixture
def saver(file: str) -> Iterator[MoorageSaver]:
    with MoorageSaver(file) as opened:
        yield opened


def stored(file: str, thread: str = "t") -> dict[str, int]:
    """Keys and sizes of the values of a thread."""
    with sync.connect(file) as moor:
        page = moor.records.list(thread, "langgraph.value", limit=1000)
        return {record.key: record.size for record in page.items}


def sizes_of_checkpoints(file: str, thread: str = "t") -> list[int]:
    """Sizes of the checkpoints of a thread, oldest first."""
    with sync.connect(file) as moor:
        return [record.size for record in moor.records.list(thread, "langgraph.checkpoint").items]


# Every store -----------------------------------------------------------------------------------------


async def test_both_ways_of_calling_see_the_same(url: str) -> None:
    async with MoorageSaver(url) as saver:
        thread = Thread(saver)
        await thread.aput(messages=some_messages(20))
        await saver.aput_writes(thread.config, [("a", 1), ("b", 2)], "task")

        found = await asyncio.to_thread(saver.get_tuple, config_of())
        again = await saver.aget_tuple(config_of())

        assert found is not None
        assert again is not None
        assert found == again
        assert found.pending_writes == [("task", "a", 1), ("task", "b", 2)]
        assert [each.config for each in saver.list(None)] == [thread.config]
        assert [each.config async for each in saver.alist(config_of())] == [thread.config]


async def test_pruning_keeps_what_the_newest_checkpoint_shares(url: str) -> None:
    async with MoorageSaver(url) as saver:
        thread, messages = Thread(saver), some_messages(20)
        for count in (10, 12, 20):
            await thread.aput(messages=messages[:count])
        await saver.aprune(["t"])

        found = [each async for each in saver.alist(config_of())]
        assert [each.checkpoint["channel_values"]["messages"] for each in found] == [messages]
        await thread.aput(messages=[*messages, HumanMessage("more", id="more")])
        loaded = await saver.aget_tuple(config_of())
        assert loaded is not None
        assert len(loaded.checkpoint["channel_values"]["messages"]) == 21


async def test_deleted_thread_can_be_used_again(url: str) -> None:
    async with MoorageSaver(url) as saver:
        await Thread(saver).aput(messages=some_messages(3))
        await saver.adelete_thread("t")
        assert await saver.aget_tuple(config_of()) is None
        await Thread(saver).aput(messages=some_messages(1))
        loaded = await saver.aget_tuple(config_of())
        assert loaded is not None
        assert len(loaded.checkpoint["channel_values"]["messages"]) == 1


@pytest.mark.parametrize("thread_id", ["../../evil", "", "ü/ö ", "x" * 500, "a:b::c", "g2:t", 7])
async def test_thread_ids_may_be_anything(url: str, thread_id: Any) -> None:
    async with MoorageSaver(url) as saver:
        await Thread(saver, thread_id).aput(messages=some_messages(2))
        await Thread(saver, "other").aput(messages=some_messages(1))

        loaded = await saver.aget_tuple(config_of(thread_id))
        assert loaded is not None
        assert len(loaded.checkpoint["channel_values"]["messages"]) == 2


# Writes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 12])
async def test_fork_goes_on_as_a_thread_of_its_own(url: str, count: int) -> None:
    async with moorage.connect(url) as moor:
        saver, messages = MoorageSaver(moor), some_messages(10 + count)
        await Thread(saver).aput(messages=messages[:count])
        await moor.fork("t", session_id="f")
        found = await saver.aget_tuple(config_of("f"))
        assert found is not None
        fork = Thread(saver, "f")
        fork.config = found.config
        for more in (1, 10):  # past the longest list that is stored as one value
            await fork.aput(messages=messages[: count + more])
        await fork.aput(messages=messages[-3:])

        texts = [message.content for message in messages]
        assert [entry.text for entry in (await moor.messages("f")).items] == texts
        assert [entry.text for entry in (await moor.messages("t")).items] == texts[:count]
        threads = [each.config["configurable"]["thread_id"] async for each in saver.alist(None)]
        assert sorted(threads) == ["f", "f", "f", "f", "t"]


def test_long_list_costs_what_was_added(saver: MoorageSaver, file: str) -> None:
    thread, messages = Thread(saver), some_messages(2000)
    thread.put(messages=messages)
    before = stored(file)
    for number in range(3):
        messages = [*messages, HumanMessage(f"new {number}", id=f"new{number}")]
        thread.put(messages=messages)
    added = {key: size for key, size in stored(file).items() if key not in before}

    assert len(added) == 3
    assert sum(added.values()) < 3 * 500
    assert thread.values()["messages"] == messages


def test_unchanged_value_is_written_at_most_twice(saver: MoorageSaver, file: str) -> None:
    thread = Thread(saver)
    kept: dict[str, Any] = {"facts": "x" * 1000, "few": "y" * 100}
    thread.put(step=0, **kept)
    first = sizes_of_checkpoints(file)
    thread.put(step=1, unchanged=kept)
    shared = stored(file)
    for step in range(2, 5):
        thread.put(step=step, unchanged=kept)

    assert [size > 1000 for size in [*first, *sizes_of_checkpoints(file)[1:]]] == [True, False, False, False, False]
    assert stored(file) == shared
    assert len([size for size in shared.values() if size > 1000]) == 1
    with MoorageSaver(file, key="another channel") as other:
        found = [each.checkpoint["channel_values"] for each in other.list(config_of())]
    assert found == [{"step": step, **kept} for step in (4, 3, 2, 1, 0)]


def test_loaded_list_costs_what_was_added(saver: MoorageSaver, file: str) -> None:
    Thread(saver).put(messages=some_messages(500))
    before = stored(file)
    with MoorageSaver(file) as other:
        found = other.get_tuple(config_of())
        assert found is not None
        thread = Thread(other)
        thread.config, messages = found.config, found.checkpoint["channel_values"]["messages"]
        thread.put(messages=[*messages, *some_messages(2, start=500)])

        assert len(stored(file)) == len(before) + 1
        assert thread.values()["messages"] == some_messages(502)


@pytest.mark.parametrize(
    "change",
    [
        lambda it: it[5:],
        lambda it: [*it[:7], *it[9:]],
        lambda it: [*it[:7], AIMessage("another", id="m7"), *it[8:]],
        lambda it: it[::-1],
        lambda it: it[:9],
        lambda it: it[:2],
        lambda it: [],
        lambda it: [*it, *it],
        lambda it: [*it[:3], {"plain": [1]}, *it[3:]],
    ],
)
def test_changed_list_comes_back_as_it_was(saver: MoorageSaver, change: Any) -> None:
    thread = Thread(saver)
    lists = [some_messages(20)]
    thread.put(messages=lists[0])
    for _ in range(3):
        lists.append(change(lists[-1]))
        thread.put(messages=lists[-1])

    kept = [each.checkpoint["channel_values"]["messages"] for each in saver.list(config_of())]
    assert kept == lists[::-1]


def test_message_changed_in_place_is_stored_anew(saver: MoorageSaver) -> None:
    thread, messages = Thread(saver), some_messages(20)
    thread.put(messages=messages)
    messages[3].content = "changed"
    messages[4].additional_kwargs["new"] = 1
    thread.put(messages=messages)

    newest, first = (each.checkpoint["channel_values"]["messages"] for each in saver.list(config_of()))
    assert newest == messages
    assert first == some_messages(20)


def test_message_changed_after_a_second_load_is_stored_anew(saver: MoorageSaver) -> None:
    thread = Thread(saver)
    thread.put(messages=some_messages(20))
    thread.values()
    messages = thread.values()["messages"]
    messages[3].content = "changed"
    thread.put(messages=messages)
    assert thread.values()["messages"] == messages
    assert messages != some_messages(20)


def test_load_after_a_put_copies_no_message_again(saver: MoorageSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    thread = Thread(saver)
    thread.put(messages=some_messages(20))
    copied: list[Any] = []
    monkeypatch.setattr("moorage.adapters.langgraph.lists.held_by", copied.append)
    assert thread.values()["messages"] == some_messages(20)
    assert copied == []


def test_message_loaded_again_is_as_another_process_loads_it(saver: MoorageSaver, file: str) -> None:
    call: Any = {"type": "tool_call", "id": "c", "name": "weather", "args": {"cities": ["Genoa", {"n": 1.5}]}}
    messages = [
        SystemMessage("Be brief.", id="s"),
        HumanMessage([{"type": "text", "text": "And here?"}], id="h", name="anna"),
        AIMessage("", tool_calls=[call], id="a", response_metadata={"model": "m", "none": None}),
        ToolMessage("sunny", tool_call_id="c", artifact={"raw": b"\x00"}, status="error", id="t"),
        *some_messages(6),
        *(ToolMessage("x", tool_call_id="c", artifact={"unseen": {1}}, id=f"u{number}") for number in range(8)),
    ]
    thread = Thread(saver)
    thread.put(messages=messages[:10], plain=[{"deep": [1, "a", None]}] * 9)
    thread.put(messages=messages, plain=[{"deep": [1, "a", None]}] * 9)
    first, again = thread.values(), thread.values()
    with MoorageSaver(file, owner="local", key="another channel") as other:
        fresh = other.get_tuple(thread.config)
    assert fresh is not None
    wanted = fresh.checkpoint["channel_values"]

    assert first == again == wanted
    for one, two in zip(again["messages"], wanted["messages"], strict=True):
        assert repr(one) == repr(two)
        assert type(one) is type(two)
        assert one.model_fields_set == two.model_fields_set
        assert one.model_dump() == two.model_dump()
    assert not {id(one) for one in first["messages"]} & {id(two) for two in again["messages"]}


def test_change_of_a_loaded_value_is_not_in_the_next_one(saver: MoorageSaver) -> None:
    thread = Thread(saver)
    thread.put(messages=some_messages(20), plain=[{"deep": [number]} for number in range(20)])
    for _ in range(3):
        values = thread.values()
        assert (values["messages"][3].content, values["plain"][3]) == ("message 3", {"deep": [3]})
        values["messages"][3].content = "changed"
        values["messages"][4].additional_kwargs["new"] = 1
        values["messages"][5].added = 1
        del values["messages"][6].content
        values["plain"][3]["deep"].append(1)
        again = thread.values()["messages"]
        assert again[4].additional_kwargs == {}
        assert again[5].model_extra == {}
        assert again == some_messages(20)


def test_thread_that_another_process_pruned_goes_on(saver: MoorageSaver, file: str) -> None:
    thread, messages = Thread(saver), some_messages(20)
    thread.put(messages=messages[:10])
    thread.put(messages=messages)
    thread.values()
    with MoorageSaver(file, key="another channel") as other:
        other.prune(["t"])
        assert thread.values()["messages"] == messages
        thread.put(messages=[*messages, HumanMessage("more", id="more")])
        found = [each.checkpoint["channel_values"]["messages"] for each in other.list(config_of())]

    assert [len(each) for each in found] == [21, 20]
    assert found[0] == thread.values()["messages"]


def test_object_that_could_change_unseen_is_stored_anew(saver: MoorageSaver) -> None:
    thread = Thread(saver)
    items: list[Any] = [ToolMessage("x", tool_call_id="c", artifact={"set": {1}}, id=f"t{n}") for n in range(10)]
    thread.put(items=items)
    items[0].artifact["set"].add(2)
    thread.put(items=items)
    assert thread.values()["items"][0].artifact == {"set": {1, 2}}


def test_many_small_appends_stay_few_segments(saver: MoorageSaver) -> None:
    thread, messages = Thread(saver), some_messages(10)
    for number in range(300):
        messages = [*messages, HumanMessage("x", id=f"x{number}")]
        thread.put(messages=messages)
    known = saver._threads.known.find(("t", ""))
    assert known is not None
    assert len(known.lists["messages"].slices) <= 48
    assert thread.values()["messages"] == messages


def test_unchanged_channel_is_not_written_again(saver: MoorageSaver, file: str) -> None:
    thread = Thread(saver)
    thread.put(big="x" * 100_000, small=1)
    before = stored(file)
    versions = dict(thread.versions)
    from langgraph.checkpoint.base import empty_checkpoint

    checkpoint = empty_checkpoint()
    small = saver.get_next_version(versions["small"], None)
    checkpoint["channel_values"] = {"big": "x" * 100_000, "small": 2}
    checkpoint["channel_versions"] = {**versions, "small": small}
    saver.put(thread.config, checkpoint, {}, {"small": small})

    assert stored(file).keys() == before.keys()
    found = saver.get_tuple(config_of())
    assert found is not None
    assert found.checkpoint["channel_values"] == {"big": "x" * 100_000, "small": 2}


def test_value_beyond_the_limit_is_refused_and_nothing_is_written(saver: MoorageSaver) -> None:
    thread = Thread(saver)
    first = thread.put(value="small")
    with pytest.raises(TooLarge):
        thread.put(value="x" * (65 << 20))
    found = saver.get_tuple(config_of())
    assert found is not None
    assert found.checkpoint["id"] == first


# The log ---------------------------------------------------------------------------------------------


def test_messages_are_in_the_log_once(saver: MoorageSaver, file: str) -> None:
    thread = Thread(saver)
    call = {"name": "weather", "args": {"city": "Rome"}, "id": "c1", "type": "tool_call"}
    messages: list[Any] = [
        SystemMessage("be kind", id="s"),
        HumanMessage("hello", id="h"),
        AIMessage("", tool_calls=[call], id="a"),
        ToolMessage("sunny", tool_call_id="c1", id="r"),
    ]
    thread.put(messages=messages[:2])
    thread.put(messages=messages)
    with MoorageSaver(file) as other:  # it knows nothing of the thread
        Thread(other).put(messages=messages)
    with sync.connect(file) as moor:
        entries = moor.messages("t").items
        session = moor.get("t")
    assert [entry.role for entry in entries] == ["system", "user", "assistant", "tool"]
    called: Any = entries[2].content
    assert [part.get("name") for part in called] == ["weather"]
    assert (session.interface, session.metadata["framework"]) == ("langgraph", "langgraph")


def test_projection_can_be_off(file: str) -> None:
    with MoorageSaver(file, projection=False) as saver:
        Thread(saver).put(messages=some_messages(20))
    with sync.connect(file) as moor:
        assert moor.messages("t").items == []


def test_thread_of_an_existing_session_is_listed(saver: MoorageSaver, file: str) -> None:
    with sync.connect(file) as moor:
        moor.create(session_id="t", agent="planner")
    Thread(saver).put(messages=some_messages(3))
    saver.copy_thread("t", "copy")

    assert {it.config["configurable"]["thread_id"] for it in saver.list(None)} == {"t", "copy"}


def test_checkpoint_stored_again_replaces_the_former(saver: MoorageSaver) -> None:
    thread = Thread(saver)
    thread.put(messages=some_messages(20))
    config, checkpoint, *rest = thread._arguments(None, {"messages": some_messages(30)})
    for count in (30, 25):
        saver.put(config, {**checkpoint, "channel_values": {"messages": some_messages(count)}}, *rest)
    thread.put(messages=some_messages(26))

    assert [len(it.checkpoint["channel_values"]["messages"]) for it in saver.list(config_of())] == [26, 25, 20]


def test_other_owner_sees_nothing(file: str, saver: MoorageSaver) -> None:
    Thread(saver).put(messages=some_messages(3))
    with MoorageSaver(file, owner="other") as other:
        assert other.get_tuple(config_of()) is None
        assert list(other.list(None)) == []
        other.delete_thread("t")
    assert saver.get_tuple(config_of()) is not None


def test_closed_saver_refuses(file: str) -> None:
    saver = MoorageSaver(file)
    copy = saver.with_allowlist([("some", "module")])
    saver.close()
    for closed in (saver, copy):
        with pytest.raises(StoreUnavailable, match="is closed"):
            closed.get_tuple(config_of())


def test_unknown_strategy_is_refused(saver: MoorageSaver) -> None:
    with pytest.raises(InvalidField, match="keep_latest"):
        saver.prune(["t"], strategy="some")


def test_config_without_a_thread_is_refused(saver: MoorageSaver) -> None:
    with pytest.raises(InvalidField, match="configurable is missing"):
        saver.get_tuple({})
    with pytest.raises(InvalidField, match="thread_id is missing"):
        saver.get_tuple({"configurable": {}})
    with pytest.raises(InvalidField, match="checkpoint_id is missing"):
        saver.put_writes({"configurable": {"thread_id": "t"}}, [("a", 1)], "task")


# Several processes -----------------------------------------------------------------------------------

WRITER = """
import sys
from langchain_core.messages import HumanMessage
from moorage.adapters.langgraph import MoorageSaver
from tests.kits.langgraph.threads import Thread

url, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with MoorageSaver(url) as saver:
    thread, messages = Thread(saver), []
    for number in range(count):
        messages = [*messages, HumanMessage(f"{name} {number}", id=f"{name}-{number}")]
        put = thread.put({"writer": name}, messages=messages)
        saver.put_writes(thread.config, [("done", number)], name)
        print(put, flush=True)
"""


def start_writer(url: str, name: str, count: int) -> subprocess.Popen[str]:
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", WRITER, url, name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root, env={**os.environ, "PYTHONPATH": "."})


@pytest.mark.timeout(180)
def test_four_processes_lose_nothing_of_one_thread(url: str) -> None:
    if url.startswith("memory"):
        pytest.skip("a store in memory belongs to one process")
    count = 12
    writers = [start_writer(url, f"w{number}", count) for number in range(4)]
    put = {each.communicate(timeout=150)[0] for each in writers}
    assert [each.returncode for each in writers] == [0] * 4
    acknowledged = {line for text in put for line in text.split()}

    with MoorageSaver(url) as saver:
        found = {each.checkpoint["id"]: each for each in saver.list(config_of())}
        assert len(acknowledged) == 4 * count
        assert acknowledged <= found.keys()
        for each in found.values():
            names = {message.id.split("-")[0] for message in each.checkpoint["channel_values"]["messages"]}
            assert names == {each.metadata["writer"]}
            assert each.pending_writes is not None
            assert len(each.pending_writes) == 1
            parent = each.parent_config
            assert parent is None or parent["configurable"]["checkpoint_id"] in found


@pytest.mark.timeout(180)
def test_killed_writer_leaves_whole_checkpoints(file: str) -> None:
    acknowledged: list[str] = []
    for round_ in range(3):
        writer = start_writer(file, f"k{round_}", 1000)
        assert writer.stdout is not None
        lines = [writer.stdout.readline().strip() for _ in range(7 + 9 * round_)]
        writer.send_signal(signal.SIGKILL)
        rest = writer.communicate(timeout=60)[0].split("\n")
        acknowledged += [*lines, *(line for line in rest if len(line) == len(lines[0]))]
    with MoorageSaver(file) as saver:
        found = {each.checkpoint["id"]: each for each in saver.list(config_of())}
        assert set(acknowledged) <= found.keys()
        for each in found.values():
            assert len(each.checkpoint["channel_values"]["messages"]) >= 1


async def test_two_savers_and_a_pruner_never_lose_values(file: str) -> None:
    async with MoorageSaver(file) as one, MoorageSaver(file) as pruner:
        thread, messages = Thread(one), some_messages(20)
        stop = asyncio.Event()

        async def prune() -> None:
            while not stop.is_set():
                await pruner.aprune(["t"])

        pruning = asyncio.create_task(prune())
        for number in range(40):
            messages = [*messages[number % 3 :], HumanMessage("x", id=f"x{number}")]
            await thread.aput(messages=messages)
            loaded = await pruner.aget_tuple(config_of())
            assert loaded is not None
            assert loaded.checkpoint["channel_values"]["messages"] == messages
        stop.set()
        await pruning


def test_is_a_checkpointer(saver: MoorageSaver) -> None:
    assert isinstance(saver, BaseCheckpointSaver)
    versions = [saver.get_next_version(None, None)]
    for _ in range(20):
        versions.append(saver.get_next_version(versions[-1], None))
    assert versions == sorted(set(versions))


def test_versions_go_on_after_those_of_other_savers(saver: MoorageSaver) -> None:
    before = "00000000000000000000000000000009.0.5123"
    assert saver.get_next_version(before, None) > before
    number: Any = 3
    assert saver.get_next_version(number, None) > saver.get_next_version("2", None)
