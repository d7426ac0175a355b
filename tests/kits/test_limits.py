"""Bad input and limits of every adapter: a clear error, and nothing half written."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("agents", reason="the OpenAI Agents SDK is not installed; the environment of ./dev has it")
pytest.importorskip("agent_framework", reason="the Agent Framework is not installed; the environment of ./dev has it")
pytest.importorskip("claude_agent_sdk", reason="the Claude Agent SDK is not installed; the environment of ./dev has it")
pytest.importorskip("google.adk", reason="Google ADK is not installed; the environment of ./dev has it")
pytest.importorskip("langgraph", reason="LangGraph is not installed; the environment of ./dev has it")
pytest.importorskip("pydantic_ai", reason="Pydantic AI is not installed; the environment of ./dev has it")
pytest.importorskip("strands", reason="Strands is not installed; the environment of ./dev has it")

from agent_framework import AgentSession
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from langchain_core.messages import HumanMessage
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelRequest, UserPromptPart
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionType

from moorage import sync
from moorage.adapters.adk import MoorageSessionService
from moorage.adapters.agent_framework import MoorageSessionStore as Snapshots
from moorage.adapters.claude_agent_sdk import MoorageSessionStore
from moorage.adapters.foreign_ids import parts_of
from moorage.adapters.langgraph import MoorageSaver
from moorage.adapters.openai_agents import MoorageSession
from moorage.adapters.pydantic_ai import MoorageConversationStore
from moorage.adapters.strands import MoorageSessionRepository
from moorage.core.errors import Forbidden, InvalidJson, TooLarge, Unauthorized
from tests.kits.langgraph.threads import Thread, config_of
from tests.remote.server import Doors

ODD = ["a b", "../../etc/passwd", "ünï/çødé", "x:20", "g2:a", "line\nbreak", "::", "a" * 200, "'; DROP TABLE"]
HUGE = "x" * 100_000_000

Write = Callable[[Any, str, Any], Coroutine[Any, Any, None]]
Read = Callable[[Any, str], Coroutine[Any, Any, Any]]


class Kit(NamedTuple):
    """An adapter: how it is opened, how a value is stored in the session of a name, and how it is read."""

    opened: Callable[..., Any]
    write: Write
    read: Read


# Adapters -------------------------------------------------------------------------------------------


def of_a_name(url: str, **settings: Any) -> Callable[[str], MoorageSession]:
    return lambda name: MoorageSession(name, url, **settings)


async def add_item(session: Any, name: str, value: Any) -> None:
    await session(name).add_items([{"role": "user", "content": value}])


async def items(session: Any, name: str) -> Any:
    return [item["content"] for item in await session(name).get_items()]


async def append_line(store: Any, name: str, value: Any) -> None:
    await store.append({"project_key": "p", "session_id": name}, [{"type": "x", "value": value}])


async def lines(store: Any, name: str) -> Any:
    return [line["value"] for line in await store.load({"project_key": "p", "session_id": name}) or []]


async def append_event(service: Any, name: str, value: Any) -> None:
    at = {"app_name": "shop", "user_id": "anna", "session_id": name}
    try:
        session = await service.create_session(**at)
    except AlreadyExistsError:
        session = await service.get_session(**at)
    event = Event(author="user", actions=EventActions(state_delta={"value": value}))
    await service.append_event(session, event)


async def event_values(service: Any, name: str) -> Any:
    session = await service.get_session(app_name="shop", user_id="anna", session_id=name)
    return [] if session is None else [event.actions.state_delta["value"] for event in session.events]


async def save_conversation(store: Any, name: str, value: Any) -> None:
    conversation = await store.load(name) or Conversation(conversation_id=name)
    conversation.messages.append(ModelRequest(parts=[UserPromptPart(content=value)]))
    await store.save(conversation)


async def prompts(store: Any, name: str) -> Any:
    conversation = await store.load(name)
    return [] if conversation is None else [one.parts[0].content for one in conversation.messages]


async def put_agent(repository: Any, name: str, value: Any) -> None:
    def put() -> None:
        with suppress(SessionException):
            repository.create_session(Session(session_id=name, session_type=SessionType.AGENT))
        agent = SessionAgent(agent_id="a", state={"value": value}, conversation_manager_state={})
        repository.create_agent(name, agent)

    await asyncio.to_thread(put)


async def agents(repository: Any, name: str) -> Any:
    agent = await asyncio.to_thread(repository.read_agent, name, "a")
    return [] if agent is None else [agent.state["value"]]


async def put_snapshot(store: Any, name: str, value: Any) -> None:
    session = AgentSession(session_id=name)
    session.state["value"] = value
    await store.set(name, session)


async def snapshots(store: Any, name: str) -> Any:
    session = await store.get(name)
    return [] if session is None else [session.state["value"]]


async def put_checkpoint(saver: Any, name: str, value: Any) -> None:
    await Thread(saver, name).aput(messages=[HumanMessage("Hello", id="m")], value=value)


async def checkpoints(saver: Any, name: str) -> Any:
    return [it.checkpoint["channel_values"]["value"] async for it in saver.alist(config_of(name))]


KITS = {
    "openai-agents": Kit(of_a_name, add_item, items),
    "claude-agent-sdk": Kit(MoorageSessionStore, append_line, lines),
    "google-adk": Kit(MoorageSessionService, append_event, event_values),
    "pydantic-ai": Kit(MoorageConversationStore, save_conversation, prompts),
    "strands": Kit(MoorageSessionRepository, put_agent, agents),
    "agent-framework": Kit(Snapshots, put_snapshot, snapshots),
    "langgraph": Kit(MoorageSaver, put_checkpoint, checkpoints),
}


@pytest.fixture(params=KITS)
def kit(request: pytest.FixtureRequest) -> Kit:
    return KITS[request.param]


@pytest.fixture
def file(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'kit.db'}"


# Rules ----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:AgentSession state value")  # the framework tells so, too
@pytest.mark.parametrize("name", [name for name in KITS if name != "langgraph"])  # a graph's state may be anything
async def test_value_that_is_no_json_is_refused_and_nothing_is_written(name: str, file: str) -> None:
    kit = KITS[name]
    opened = kit.opened(file)
    with pytest.raises((InvalidJson, ValueError)) as refused:
        await kit.write(opened, "s", object())

    assert "object" in str(refused.value)
    assert await kit.read(opened, "s") == []


async def test_value_of_100_megabytes_is_refused_and_nothing_is_written(kit: Kit, file: str) -> None:
    opened = kit.opened(file)
    with pytest.raises(TooLarge, match="67,108,864"):
        await kit.write(opened, "s", HUGE)
    assert await kit.read(opened, "s") == []
    await kit.write(opened, "s", "small")
    assert await kit.read(opened, "s") == ["small"]


async def test_any_id_will_do_and_can_be_read_back(kit: Kit, file: str) -> None:
    opened = kit.opened(file)
    for name in ODD:
        await kit.write(opened, name, name)

    assert [await kit.read(opened, name) for name in ODD] == [[name] for name in ODD]
    with sync.connect(file) as moor:
        known = [parts_of(session.metadata["framework_id"])[-1] for session in moor.list().items]
    assert sorted(known) == sorted(ODD)


async def test_session_of_another_owner_is_unknown(kit: Kit, file: str) -> None:
    await kit.write(kit.opened(file), "s", "mine")
    other = kit.opened(file, owner="other")

    assert await kit.read(other, "s") == []
    await kit.write(other, "s", "theirs")
    assert await kit.read(kit.opened(file), "s") == ["mine"]


async def test_key_opens_what_its_owner_has_on_a_server(kit: Kit, file: str, doors: Doors) -> None:
    with sync.connect(file) as moor:
        hers, his = (moor.create_key(owner=owner).text for owner in ("anna", "ben"))
        reader = moor.create_key(owner="anna", scopes=("read",)).text
    url = doors.open(file, guarded=True)
    try:
        await kit.write(kit.opened(url, key=hers), "s", "private")
        assert await kit.read(kit.opened(url, key=his), "s") == []
        assert await kit.read(kit.opened(url, key=reader), "s") == ["private"]
        for key, refusal in ((reader, Forbidden), (None, Unauthorized)):
            with pytest.raises(refusal):
                await kit.write(kit.opened(url, key=key), "s", "changed")
        assert await kit.read(kit.opened(url, key=hers), "s") == ["private"]
    finally:
        doors.shut(url)


async def test_cancelled_write_is_done_or_not_done(kit: Kit, file: str) -> None:
    opened = kit.opened(file)
    await kit.write(opened, "s", "first")
    for turns in range(12):  # cancelled a little later each time
        task = asyncio.ensure_future(kit.write(opened, f"s{turns}", "second"))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        found = await kit.read(opened, f"s{turns}")
        again = await kit.read(kit.opened(file), f"s{turns}")
        assert {len(found), len(again)} <= {0, 1}
        assert again == ["second"] or found == again == []  # a thread may still finish the write, never undo it
    assert await kit.read(opened, "s") == ["first"]


OLD = """
from importlib import metadata
real = metadata.version
metadata.version = lambda package: "0.0.9" if package == {package!r} else real(package)
import moorage.adapters.{module}
"""
PACKAGES = {
    "openai_agents": "openai-agents",
    "claude_agent_sdk": "claude-agent-sdk",
    "adk": "google-adk",
    "pydantic_ai": "pydantic-ai-slim",
    "strands": "strands-agents",
    "agent_framework": "agent-framework-core",
    "langgraph": "langgraph-checkpoint",
}


@pytest.mark.parametrize("module", PACKAGES)
def test_framework_older_than_the_floor_is_told_before_it_is_imported(module: str) -> None:
    script = OLD.format(package=PACKAGES[module], module=module)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert f"{PACKAGES[module]} 0.0.9 is too old" in done.stderr.splitlines()[-1]
    assert "pip install" in done.stderr.splitlines()[-1]


def test_missing_framework_is_told_with_the_command_to_run() -> None:
    script = "import sys; sys.modules['agents'] = None\n" + OLD.replace('"0.0.9"', "real('nothing-of-this-name')")
    script = script.format(package="openai-agents", module="openai_agents")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert "openai-agents is not installed; run: pip install 'moorage[openai-agents]'" in done.stderr.splitlines()[-1]
