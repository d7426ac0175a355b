"""Agents inside the launcher cannot break it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from moorage.agents import inside
from moorage.agents.interface import Commands, Emit, Job, Limits, completed
from tests.agents.jobs import Doing, job_of

OPENAI = {"kind": "openai", "base_url": "http://localhost:1", "model": "m"}
Behaviour = Callable[[Emit, Commands], Awaitable[None]]


class Behaving:
    """An agent that does one thing."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour

    async def run(self, job: Job, emit: Emit, commands: Commands) -> None:
        await self._behaviour(emit, commands)


@pytest.fixture
def doing(monkeypatch: pytest.MonkeyPatch) -> Any:
    def begin(behaviour: Behaviour, **limits: float) -> Doing:
        monkeypatch.setattr(inside, "agent_inside", lambda *_: Behaving(behaviour))
        return Doing(job_of(OPENAI, limits=Limits(**limits)))  # type: ignore[arg-type]  # times only

    return begin


async def test_nothing_counts_after_the_result(doing: Any) -> None:
    async def talkative(emit: Emit, _: Commands) -> None:
        await emit(completed("first"))
        await emit({"type": "message", "role": "assistant", "content": "late"})
        await emit(completed("second"))

    assert (await doing(talkative).result())["text"] == "first"


async def test_exception_fails_the_turn_and_keeps_earlier_output(doing: Any) -> None:
    async def failing(emit: Emit, _: Commands) -> None:
        await emit({"type": "chunk", "text": "so far"})
        raise ValueError("no luck")

    result = await doing(failing).result()
    assert (result["outcome"], result["error"], result["text"]) == ("failed", "ValueError: no luck", "so far")


async def test_who_leaves_without_a_result_gave_no_answer(doing: Any) -> None:
    async def silent(*_: Any) -> None:
        return

    assert (await doing(silent).result())["reason"] == "no_answer"


async def test_stop_ends_the_agent_and_keeps_its_output(doing: Any) -> None:
    ended = asyncio.Event()

    async def endless(emit: Emit, _: Commands) -> None:
        await emit({"type": "chunk", "text": "so far"})
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    running = doing(endless)
    await running.until("chunk")
    running.commands.put_nowait({"type": "renewed"})
    running.commands.put_nowait({"type": "stop"})
    result = await running.result()
    assert (result["outcome"], result["reason"], result["text"]) == ("stopped", "stopped", "so far")
    assert ended.is_set()


async def test_time_is_limited(doing: Any) -> None:
    async def busy(emit: Emit, _: Commands) -> None:
        while True:
            await emit({"type": "chunk", "text": "."})
            await asyncio.sleep(0.01)

    assert (await doing(busy, timeout=0.3, idle_timeout=5).result())["reason"] == "timed_out"


async def test_silence_is_limited(doing: Any) -> None:
    async def quiet(emit: Emit, _: Commands) -> None:
        for _number in range(5):
            await emit({"type": "chunk", "text": "."})
            await asyncio.sleep(0.1)
        await asyncio.sleep(600)

    result = await doing(quiet, idle_timeout=0.4, timeout=60).result()
    assert (result["reason"], result["text"]) == ("idle_timeout", ".....")


async def test_waiting_for_a_person_takes_no_time(doing: Any) -> None:
    async def asking(emit: Emit, commands: Commands) -> None:
        await emit({"type": "approval", "id": "q", "question": "Shall I?", "wait": True})
        answer = await commands.get()
        await emit(completed(answer["decision"]))

    running = doing(asking, timeout=0.3, idle_timeout=0.3)
    await running.until("approval")
    done, _ = await asyncio.wait({running.task}, timeout=1)
    assert not done
    running.commands.put_nowait({"type": "decision", "id": "q", "decision": "approve"})
    assert (await running.result())["text"] == "approve"


async def test_being_cancelled_ends_the_agent_too(doing: Any) -> None:
    ended = asyncio.Event()

    async def endless(emit: Emit, _: Commands) -> None:
        await emit({"type": "chunk", "text": "here"})
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    running = doing(endless)
    await running.until("chunk")
    running.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running.task
    assert ended.is_set()


async def test_a_kind_that_cannot_be_run_here_is_told() -> None:
    result = await Doing(job_of({"kind": "acp", "command": ["nobody"]})).result()
    assert (result["outcome"], "kind acp" in result["error"]) == ("failed", True)
