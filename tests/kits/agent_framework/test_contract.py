"""Contracts of the Microsoft Agent Framework, modelled on its own tests, over its storages in memory and ours."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agent_framework", reason="Agent Framework is not installed; ./dev kits agent-framework has it")

from agent_framework import (
    AgentSession,
    Content,
    InMemoryCheckpointStorage,
    Message,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
)

from moorage import sync
from moorage.adapters.agent_framework import (
    MoorageCheckpointStorage,
    MoorageHistoryProvider,
    MoorageSessionStore,
)
from moorage.core.errors import InvalidJson


@dataclass
class Order:
    number: int


ORDER = f"{Order.__module__}:{Order.__qualname__}"


def a_checkpoint(name: str = "w", **fields: Any) -> WorkflowCheckpoint:
    return WorkflowCheckpoint(workflow_name=name, graph_signature_hash="h", **fields)


@pytest.fixture(params=["theirs", "ours"])
async def storage(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Any]:
    if request.param == "theirs":
        yield InMemoryCheckpointStorage()
        return
    async with MoorageCheckpointStorage(url, allowed_checkpoint_types=[ORDER]) as opened:
        yield opened


# Checkpoints -----------------------------------------------------------------------------------------


async def test_checkpoint_comes_back_equal_and_as_a_copy(storage: Any) -> None:
    state = {"order": Order(7), "list": [1, {"a": None}], "text": "ü"}
    checkpoint = a_checkpoint(state=state, metadata={"step": 1}, iteration_count=3, previous_checkpoint_id="p")
    assert await storage.save(checkpoint) == checkpoint.checkpoint_id
    loaded = await storage.load(checkpoint.checkpoint_id)
    assert loaded == checkpoint
    loaded.state["text"] = "changed"
    assert (await storage.load(checkpoint.checkpoint_id)).state["text"] == "ü"


async def test_unknown_checkpoint_is_an_error(storage: Any) -> None:
    with pytest.raises(WorkflowCheckpointException, match="No checkpoint found with ID nothing"):
        await storage.load("nothing")
    assert await storage.delete("nothing") is False


async def test_checkpoints_are_listed_by_workflow(storage: Any) -> None:
    saved = [await storage.save(a_checkpoint()) for _ in range(5)]
    other = await storage.save(a_checkpoint("w2"))
    assert await storage.list_checkpoint_ids(workflow_name="w") == saved
    assert [it.checkpoint_id for it in await storage.list_checkpoints(workflow_name="w")] == saved
    assert await storage.list_checkpoint_ids(workflow_name="w2") == [other]
    assert await storage.list_checkpoints(workflow_name="none") == []


async def test_latest_is_the_newest_by_time(storage: Any) -> None:
    assert await storage.get_latest(workflow_name="w") is None
    times = ["2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00.500000+00:00", "2026-01-01T01:00:00.2+02:00"]
    for number, time in enumerate(times):
        await storage.save(a_checkpoint(checkpoint_id=f"c{number}", timestamp=time))
    assert (await storage.get_latest(workflow_name="w")).checkpoint_id == "c1"


async def test_deleted_checkpoint_is_gone(storage: Any) -> None:
    first, second = [await storage.save(a_checkpoint()) for _ in range(2)]
    assert await storage.delete(second) is True
    assert await storage.delete(second) is False
    assert await storage.list_checkpoint_ids(workflow_name="w") == [first]
    assert (await storage.get_latest(workflow_name="w")).checkpoint_id == first


async def test_saving_again_replaces(storage: Any) -> None:
    checkpoint = a_checkpoint(checkpoint_id="c")
    await storage.save(checkpoint)
    await storage.save(a_checkpoint("moved", checkpoint_id="c", state={"new": 1}))
    assert (await storage.load("c")).state == {"new": 1}
    assert await storage.list_checkpoint_ids(workflow_name="w") == []
    assert await storage.list_checkpoint_ids(workflow_name="moved") == ["c"]


@pytest.mark.parametrize("name", ["../../evil", "a/b", "ü", "\ud800", "x" * 2000])
async def test_names_and_ids_may_be_anything(storage: Any, name: str) -> None:
    await storage.save(a_checkpoint(name, checkpoint_id=name))
    assert await storage.list_checkpoint_ids(workflow_name=name) == [name]
    assert (await storage.load(name)).workflow_name == name


async def test_checkpoint_that_could_not_be_restored_is_refused(url: str) -> None:
    async with MoorageCheckpointStorage(url) as storage:
        with pytest.raises(WorkflowCheckpointException):
            await storage.save(a_checkpoint(state={"order": Order(7)}))
        assert await storage.list_checkpoint_ids(workflow_name="w") == []


async def test_large_checkpoint_comes_back(url: str) -> None:
    async with MoorageCheckpointStorage(url) as storage:
        saved = await storage.save(a_checkpoint(state={"large": "x" * (3 << 20)}))
        assert len((await storage.load(saved)).state["large"]) == 3 << 20


# History ---------------------------------------------------------------------------------------------


async def test_history_comes_back(url: str) -> None:
    said = [
        Message("user", ["hello"], message_id="m1"),
        Message("assistant", [Content.from_function_call("c1", "weather", arguments={"city": "Rome"})]),
        Message("tool", [Content.from_function_result("c1", result="sunny")]),
        Message("assistant", ["It is sunny"], author_name="bot", additional_properties={"a": 1}),
    ]
    async with MoorageHistoryProvider(url) as history:
        assert await history.get_messages("s") == []
        await history.save_messages("s", said[:1])
        await history.save_messages("s", said[1:])
        assert [it.to_dict() for it in await history.get_messages("s")] == [it.to_dict() for it in said]
        assert await history.get_messages("other") == []
        await history.save_messages(None, said[:1])
        assert len(await history.get_messages(None)) == 1


async def test_replayed_transcript_is_stored_once(url: str) -> None:
    async with MoorageHistoryProvider(url) as history:
        said = [Message("user", [f"m{number}"], message_id=f"m{number}") for number in range(4)]
        await history.save_messages("s", said[:2])
        await history.save_messages("s", said)
        await history.save_messages("s", said[2:])
        await history.save_messages("s", [])
        assert [it.text for it in await history.get_messages("s")] == ["m0", "m1", "m2", "m3"]


def test_log_tells_the_conversation(tmp_path: Path) -> None:
    file = f"sqlite:///{tmp_path / 'history.db'}"

    async def talk() -> None:
        async with MoorageHistoryProvider(file) as history:
            call = Content.from_function_call("c1", "weather", arguments='{"city": "Rome"}')
            await history.save_messages("s", [Message("user", ["hello"]), Message("assistant", [call])])

    asyncio.run(talk())
    with sync.connect(file) as moor:
        entries = moor.messages("s").items
    assert [(it.role, it.text) for it in entries] == [("user", "hello"), ("assistant", "")]
    called: Any = entries[1].content
    assert called[0] == {"type": "tool_call", "id": "c1", "name": "weather", "input": {"city": "Rome"}}


async def texts(url: str) -> list[str]:
    async with MoorageHistoryProvider(url) as history:
        return [it.text for it in await history.get_messages("s")]


WRITER = """
import asyncio, sys
from agent_framework import Message
from moorage.adapters.agent_framework import MoorageHistoryProvider

async def main(url, name, count):
    async with MoorageHistoryProvider(url) as history:
        for number in range(count):
            await history.save_messages("s", [Message("user", [f"{name} {number}"], message_id=f"{name}-{number}")])

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@pytest.mark.timeout(180)
def test_four_processes_lose_nothing_of_one_session(url: str) -> None:
    if url.startswith("memory"):
        pytest.skip("a store in memory belongs to one process")
    root, count = Path(__file__).parents[3], 15
    commands = [[sys.executable, "-c", WRITER, url, f"w{number}", str(count)] for number in range(4)]
    writers = [subprocess.Popen(it, cwd=root) for it in commands]
    assert [it.wait(150) for it in writers] == [0] * 4
    found = asyncio.run(texts(url))
    assert sorted(found) == sorted(f"w{number} {turn}" for number in range(4) for turn in range(count))
    for number in range(4):
        own = [it for it in found if it.startswith(f"w{number} ")]
        assert own == [f"w{number} {turn}" for turn in range(count)]


# Sessions --------------------------------------------------------------------------------------------


async def test_session_comes_back_as_a_copy(url: str) -> None:
    async with MoorageSessionStore(url) as store:
        assert await store.get("k") is None
        session = AgentSession(session_id="s", service_session_id="remote")
        session.state["messages"] = [Message("user", ["hello"])]
        await store.set("k", session)
        found = await store.get("k")
        assert found is not None
        assert (found.session_id, found.service_session_id) == ("s", "remote")
        assert found.state["messages"][0].text == "hello"
        await store.delete("k")
        await store.delete("k")
        await store.delete("never")
        assert await store.get("k") is None


async def test_empty_id_is_refused(url: str) -> None:
    async with MoorageSessionStore(url) as store:
        for call in (store.get(""), store.set("", AgentSession()), store.delete("")):
            with pytest.raises(ValueError, match="non-empty"):
                await call


async def test_state_that_is_not_json_is_refused(url: str) -> None:
    async with MoorageSessionStore(url) as store:
        session = AgentSession()
        session.state["bad"] = object()
        with pytest.warns(RuntimeWarning, match="unsupported type"), pytest.raises(InvalidJson):
            await store.set("k", session)
        assert await store.get("k") is None
