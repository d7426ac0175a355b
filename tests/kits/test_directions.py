"""A session begun in one framework goes on in another, each with its own runner and a scripted model."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents", reason="the OpenAI Agents SDK is not installed; the environment of ./dev has it")
pytest.importorskip("claude_agent_sdk", reason="the Claude Agent SDK is not installed; the environment of ./dev has it")
pytest.importorskip("langgraph", reason="LangGraph is not installed; the environment of ./dev has it")
pytest.importorskip("pydantic_ai", reason="Pydantic AI is not installed; the environment of ./dev has it")

from agents import Agent as OpenAIAgent
from agents import Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call
from claude_agent_sdk import ClaudeAgentOptions, query
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from moorage import sync
from moorage.adapters import TARGETS, convert
from moorage.adapters.claude_agent_sdk import MoorageSessionStore
from moorage.adapters.continuing import FRAMEWORKS, continue_in
from moorage.adapters.langgraph import MoorageSaver
from moorage.adapters.openai_agents import MoorageSession
from moorage.adapters.pydantic_ai import MoorageConversationStore
from moorage.core.errors import IdTaken, InvalidField
from tests.adapters.test_convert import CONVERSATION
from tests.contract.choice import IS_ALL
from tests.kits.claude_agent_sdk import scripted
from tests.kits.pages import check_page

PROMPT, QUESTION, NEXT = "Be brief.", "How is Genoa?", "And now?"


def weather(city: str) -> str:
    """Tell the weather."""
    return "sunny"


# Runners: each asks the agent of a framework one question and returns all that its model has heard ----


async def in_openai(url: str, name: str, question: str, folder: Path) -> str:
    answers = [[function_call("weather", {"city": "Genoa"}, call_id="c1")]] if question == QUESTION else []
    model = ScriptedModel([*answers, [assistant_message("Sunny.")]])
    agent = OpenAIAgent(name="helper", model=model, tools=[function_tool(weather)])
    begun: Any = [{"role": "system", "content": PROMPT}, {"role": "user", "content": question}]
    async with MoorageSession(name, url) as session:
        await Runner.run(agent, begun if question == QUESTION else question, session=session)
    return str(model.calls[0].input)


async def in_langgraph(url: str, name: str, question: str, folder: Path) -> str:
    heard = []

    def answer(state: MessagesState) -> Any:
        heard.append(str(state["messages"]))
        said = AIMessage("Sunny.")
        if question != QUESTION:
            return {"messages": [said]}
        call: Any = {"type": "tool_call", "id": "c1", "name": "weather", "args": {"city": "Genoa"}}
        return {"messages": [AIMessage("", tool_calls=[call]), ToolMessage("sunny", tool_call_id="c1"), said]}

    async with MoorageSaver(url) as saver:
        graph = StateGraph(MessagesState).add_node(answer).add_edge(START, "answer").compile(checkpointer=saver)
        begun = [("system", PROMPT), ("user", question)] if question == QUESTION else [("user", question)]
        await graph.ainvoke({"messages": begun}, {"configurable": {"thread_id": name}})
    return heard[0]


async def in_claude(url: str, name: str, question: str, folder: Path) -> str:
    async with MoorageSessionStore(url) as store:
        resumed = None if question == QUESTION else name
        options = ClaudeAgentOptions(
            session_store=store, resume=resumed, cwd=folder, cli_path=scripted.install(folder), system_prompt=PROMPT
        )
        return str([message async for message in query(prompt=question, options=options)])


async def in_pydantic_ai(url: str, name: str, question: str, folder: Path) -> str:
    heard = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        heard.append(str(messages))
        if question == QUESTION and len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("weather", {"city": "Genoa"}, tool_call_id="c1")])
        return ModelResponse(parts=[TextPart("Sunny.")])

    agent = PydanticAgent(FunctionModel(model), system_prompt=PROMPT, tools=[weather])
    async with MoorageConversationStore(url) as store:
        conversation = await store.load(name) or Conversation(conversation_id=name)
        await store.save(await agent.run(question, conversation=conversation))
    return heard[0]


Ask = Callable[[str, str, str, Path], Coroutine[Any, Any, str]]
ASK: dict[str, Ask] = {
    "openai-agents": in_openai,
    "langgraph": in_langgraph,
    "claude": in_claude,
    "pydantic-ai": in_pydantic_ai,
}
DIRECTIONS = [(begun, to) for begun in TARGETS for to in TARGETS if begun != to]
COMMANDED = TARGETS if IS_ALL else ("claude",)  # each loads a framework for seconds


@pytest.fixture(autouse=True)
def own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLAUDE_AGENT_SDK_SKIP_VERSION_CHECK", "1")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("begun", "to"), DIRECTIONS, ids=lambda name: name)
def test_conversation_goes_on_elsewhere(begun: str, to: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    asyncio.run(ASK[begun](url, "begun", QUESTION, tmp_path))
    with sync.connect(url) as moor:
        [session] = moor.list().items
        before = moor.messages(session.session_id).items
    done = asyncio.run(continue_in(url, session.session_id, to))
    heard = asyncio.run(ASK[to](url, done.framework_id, NEXT, tmp_path))

    said = [QUESTION, "c1", "weather", "Genoa", "sunny", "Sunny.", *([] if begun == "claude" else [PROMPT])]
    assert [word for word in said if word not in heard] == []
    assert done.left_out == []
    assert done.system_prompt == (PROMPT if to == "claude" and begun != "claude" else None)
    with sync.connect(url) as moor:
        assert moor.messages(session.session_id).items == before
        assert moor.get(done.session_id).metadata["continues"] == session.session_id
        assert _said(moor, done.session_id) == [
            *(line for line in _said(moor, session.session_id) if to != "claude" or not line.startswith("system")),
            f"user {NEXT}",
            *_said(moor, done.session_id)[-1:],
        ]


def _said(moor: sync.Moorage, session_id: str) -> list[str]:
    """Return the messages, with calls and results by their ids."""
    said = []
    for entry in moor.messages(session_id).items:
        parts = entry.content if isinstance(entry.content, list) else [{"type": "text", "text": entry.content}]
        said += [
            f"{entry.role} {part.get('text') or part.get('id') or part.get('call_id')}"
            for part in parts
            if part["type"] in ("text", "tool_call", "tool_result") and part.get("text") != ""
        ]
    return said


# The command ------------------------------------------------------------------------------------------


@pytest.fixture
def begun(tmp_path: Path) -> str:
    """The URL of a store with a session that no framework has begun."""
    url = f"sqlite:///{tmp_path / 'a.db'}"
    with sync.connect(url) as moor:
        moor.create("helper", session_id="begun")
        moor.append("begun", CONVERSATION)
    return url


def command(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = [sys.executable, "-m", "moorage", "--url", url, "continue", *arguments]
    return subprocess.run(done, capture_output=True, text=True, check=False, env=dict(os.environ))


@pytest.mark.parametrize("to", COMMANDED)
def test_command_prints_the_id_to_go_on_with(to: str, begun: str, tmp_path: Path) -> None:
    done = command(begun, "begun", "--in", to, "--folder", str(tmp_path))

    assert done.returncode == 0, done.stderr
    assert ("pass the system prompt yourself: Be brief." in done.stderr) is (to == "claude")
    assert "Sunny." in asyncio.run(ASK[to](begun, done.stdout.strip(), NEXT, tmp_path))


@pytest.mark.parametrize("to", COMMANDED)
def test_dry_run_writes_nothing(to: str, begun: str) -> None:
    done = command(begun, "begun", "--in", to, "--dry-run", "--json")

    assert done.returncode == 0, done.stderr
    assert '"continues":"begun"' in done.stdout
    with sync.connect(begun) as moor:
        assert len(moor.list().items) == 1


def test_command_tells_what_is_left_out(begun: str) -> None:
    with sync.connect(begun) as moor:
        moor.append("begun", [{"role": "user", "content": [{"type": "image", "url": "https://example.org/a.png"}]}])
    done = command(begun, "begun", "--in", "openai-agents")

    assert done.returncode == 0
    assert "left out: entry 7: image" in done.stderr


async def test_taken_ids_and_empty_sessions_are_refused(begun: str) -> None:
    with sync.connect(begun) as moor:
        moor.create("helper", session_id="empty")
    with pytest.raises(IdTaken):
        await continue_in(begun, "begun", "openai-agents", framework_id="begun")
    with pytest.raises(InvalidField, match="no messages"):
        await continue_in(begun, "empty", "openai-agents")
    with pytest.raises(InvalidField, match="UUID"):
        await continue_in(begun, "begun", "claude", framework_id="mine")
    with pytest.raises(InvalidField, match="openai-agents, langgraph, claude, pydantic-ai"):
        await continue_in(begun, "begun", "basic")


def test_examples_of_the_page_run(tmp_path: Path) -> None:
    check_page("continue", tmp_path)


def test_all_targets_can_be_written() -> None:
    assert tuple(FRAMEWORKS) == tuple(convert.TARGETS) == TARGETS
