"""Calls of tools that need an approval: asked here, answered here, and the run goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents", reason="the OpenAI Agents SDK is not installed; ./dev kits openai-agents has it")

from agents import Agent, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

import moorage
from moorage.adapters import openai_agents
from moorage.adapters.openai_agents import MoorageSession
from moorage.core.errors import ApprovalClosed, StoreUnavailable

done: list[str] = []


@function_tool(needs_approval=True)
def deploy(stage: str) -> str:
    """Deploy to a stage."""
    done.append(stage)
    return f"deployed to {stage}"


def an_agent(*answers: Any) -> tuple[Any, ScriptedModel]:
    """An agent whose model says this, one after the other."""
    model = ScriptedModel([[answer] for answer in answers])
    return Agent(name="helper", model=model, tools=[deploy]), model


CALLS = (
    function_call("deploy", {"stage": "prod"}, call_id="c1"),
    function_call("deploy", {"stage": "dr"}, call_id="c2"),
)


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


async def test_answer_lets_the_run_go_on_with_another_object(url: str) -> None:
    agent, _ = an_agent(CALLS[0])
    async with moorage.connect(url) as moor, MoorageSession("s", moor) as session:
        result = await Runner.run(agent, "Deploy!", session=session)
        [asked] = await session.ask_approvals(result)
        again = await session.ask_approvals(result)

        assert [one.approval_id for one in again] == [asked.approval_id]
        assert asked.plan == {"tool": "deploy", "arguments": {"stage": "prod"}, "call_id": "c1"}
        assert [one.approval_id for one in await moor.approvals("s")] == [asked.approval_id]
        assert (await moor.get("s")).status == "waiting"
        assert await session.answered(agent) is None
        await moor.approve(asked.approval_id)
        agent, model = an_agent(assistant_message("Done."))
        other = MoorageSession("s", moor)
        state = await other.answered(agent)
        assert state is not None
        result = await Runner.run(agent, state, session=other)

        assert (result.final_output, done) == ("Done.", ["prod"])
        assert "deployed to prod" in str(model.calls[0].input)
        assert await session.answered(agent) is None


async def test_rejection_reaches_the_model_with_its_note(tmp_path: Path) -> None:
    agent, model = an_agent(CALLS[0], assistant_message("I did not."))
    async with moorage.connect(f"sqlite:///{tmp_path / 'a.db'}") as moor, MoorageSession("s", moor) as session:
        [asked] = await session.ask_approvals(await Runner.run(agent, "Deploy!", session=session))
        await moor.reject(asked.approval_id, note="not on a Friday")
        await Runner.run(agent, await session.answered(agent), session=session)

    assert done == []
    assert "not on a Friday" in str(model.calls[-1].input)


async def test_run_waits_for_all_answers(tmp_path: Path) -> None:
    model = ScriptedModel([list(CALLS), [assistant_message("Half.")]])
    agent = Agent(name="helper", model=model, tools=[deploy])
    async with moorage.connect(f"sqlite:///{tmp_path / 'a.db'}") as moor, MoorageSession("s", moor) as session:
        first, second = await session.ask_approvals(await Runner.run(agent, "Deploy!", session=session))
        await moor.approve(first.approval_id)
        assert await session.answered(agent) is None
        await moor.reject(second.approval_id)
        result = await Runner.run(agent, await session.answered(agent), session=session)

    assert (result.final_output, done) == ("Half.", ["prod"])


async def test_question_that_the_caller_answers_is_withdrawn(url: str) -> None:
    model = ScriptedModel([list(CALLS), [assistant_message("Done.")]])
    agent = Agent(name="helper", model=model, tools=[deploy])
    async with moorage.connect(url) as moor, MoorageSession("s", moor) as session:
        result = await Runner.run(agent, "Deploy!", session=session)
        first, second = await session.ask_approvals(result)
        state = result.to_state()
        state.approve(result.interruptions[0])
        result = await Runner.run(agent, state, session=MoorageSession("s", moor))

        assert (await moor.approval(first.approval_id)).state == "withdrawn"
        assert [one.approval_id for one in await session.ask_approvals(result)] == [second.approval_id]
        assert [one.approval_id for one in await moor.approvals("s")] == [second.approval_id]
        state = result.to_state()
        state.reject(result.interruptions[0])
        result = await Runner.run(agent, state, session=session)

        assert (result.final_output, done) == ("Done.", ["prod"])
        assert await moor.approvals("s") == []
        assert await session.answered(agent) is None
        assert (await moor.get("s")).status != "waiting"


async def test_question_is_asked_by_another_process_if_the_first_one_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*_: Any) -> Any:
        raise StoreUnavailable("the connection is gone")

    agent, _ = an_agent(CALLS[0])
    async with moorage.connect(f"sqlite:///{tmp_path / 'a.db'}") as moor, MoorageSession("s", moor) as session:
        result = await Runner.run(agent, "Deploy!", session=session)
        with monkeypatch.context() as patched:
            patched.setattr(openai_agents, "ask_once", die)
            with pytest.raises(StoreUnavailable):
                await session.ask_approvals(result)
        agent, _ = an_agent(assistant_message("Done."))
        other = MoorageSession("s", moor)

        assert await other.answered(agent) is None
        [asked] = await moor.approvals("s")
        await moor.approve(asked.approval_id)
        result = await Runner.run(agent, await other.answered(agent), session=other)
    assert (result.final_output, done) == ("Done.", ["prod"])


async def test_question_is_not_asked_again_days_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that makes a repeated request harmless is kept for a day; a run may wait longer."""
    agent = Agent(name="helper", model=ScriptedModel([list(CALLS)]), tools=[deploy])
    async with moorage.connect(f"sqlite:///{tmp_path / 'a.db'}") as moor, MoorageSession("s", moor) as session:
        result = await Runner.run(agent, "Deploy!", session=session)
        first, second = await session.ask_approvals(result)
        monkeypatch.delattr(openai_agents, "ask_once")
        assert await session.ask_approvals(result) == [first, second]
        state = result.to_state()
        state.approve(result.interruptions[0])
        result = await Runner.run(agent, state, session=session)
        assert await session.ask_approvals(result) == [second]


async def test_session_that_is_not_there_has_no_answers(tmp_path: Path) -> None:
    async with MoorageSession("s", f"sqlite:///{tmp_path / 'a.db'}") as session:
        assert await session.answered(an_agent()[0]) is None


async def test_session_that_was_closed_meanwhile_is_told(tmp_path: Path) -> None:
    agent, _ = an_agent(CALLS[0])
    async with moorage.connect(f"sqlite:///{tmp_path / 'a.db'}") as moor, MoorageSession("s", moor) as session:
        await session.ask_approvals(await Runner.run(agent, "Deploy!", session=session))
        await moor.finalize("s", "abandoned")
        with pytest.raises(ApprovalClosed):
            await session.answered(agent)
