"""Events of an agent that the rules refuse: kept as problems, counted, and no end of the turn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage.agents.interface import Commands, Emit, Job
from moorage.core.entry import Problem
from moorage.core.session import MAX_METADATA_BYTES
from moorage.core.turn import Launcher
from moorage.launcher.drivers.base import KEPT_PROBLEMS
from tests.launcher.stage import Stage, on


@pytest.fixture(params=["memory", "sqlite", "http"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'moorage.db'}"
    async with on(url, tmp_path, over_http=request.param == "http") as made:
        yield made


async def test_refused_events_are_problems_with_their_lines(stage: Stage) -> None:
    async def misspeaking(stage: Stage, job: Job, emit: Emit, commands: Commands) -> str:
        await emit({"type": "phase", "phase": "plannign", "line": 1})
        await emit({"type": "phase", "phase": "completed", "line": 2})
        await emit({"type": "metadata", "metadata": {"x": "x" * MAX_METADATA_BYTES}, "line": 3})
        await emit({"type": "message", "role": "boss", "content": "hi", "line": 4})
        await emit({"type": "approval", "id": "1", "question": "?", "expires_in": -1, "wait": True, "line": 5})
        answer = await commands.get()
        assert (answer["type"], answer["decision"]) == ("decision", "withdrawn")
        return "fine"

    stage.plays("misspeaking", misspeaking)
    async with stage.launcher():
        asked = await stage.ask("misspeaking")
        run = await stage.settled(asked.run)
    assert (run.state.value, run.result, run.problems) == ("completed", "fine", 5)
    found = [entry.data or {} for entry in await stage.log(run.session_id, "problem")]
    places = [(each["line"], each["field"]) for each in found]
    assert places == [(1, "phase"), (2, "phase"), (3, "metadata"), (4, "role"), (5, "expires_in")]
    assert found[0]["expected"].startswith("one of initializing, ")
    assert found[2]["expected"] == f"at most {MAX_METADATA_BYTES:,} bytes"
    assert len(found[2]["text"]) == 201


async def test_flood_of_refused_events_is_counted_and_the_first_are_kept(stage: Stage) -> None:
    async def flooding(stage: Stage, job: Job, emit: Emit, commands: Commands) -> str:
        for line in range(1, 201):
            await emit({"type": "phase", "phase": "plannign", "line": line})
        return "fine"

    stage.plays("flooding", flooding)
    async with stage.launcher():
        run = await stage.settled((await stage.ask("flooding")).run)
    assert run.problems == 200
    assert len(await stage.log(run.session_id, "problem")) == KEPT_PROBLEMS


async def test_problem_reported_twice_is_kept_once(stage: Stage) -> None:
    problem = Problem(line=7, field="role", expected="one of user, assistant", text="{}")

    async def waiting(stage: Stage, job: Job, emit: Emit, commands: Commands) -> str:
        await emit({"type": "problem", "line": 7, "field": "role", "expected": problem.expected, "text": "{}"})
        turn = await stage.deps.store.find_turn(job.owner, job.turn_id)

        async def kept() -> bool:
            return bool(await stage.log(job.session_id, "problem"))

        await stage.until(kept)
        now = stage.deps.clock.now()
        launcher = Launcher(launcher_id=str(turn.launcher_id), name="again", registered_at=now, seen_at=now)
        dispatcher = stage.dispatcher(launcher)
        await dispatcher.misspoken(job.owner, turn, problem)
        if close := getattr(dispatcher, "close", None):
            await close()
        return "fine"

    stage.plays("waiting", waiting)
    async with stage.launcher():
        run = await stage.settled((await stage.ask("waiting")).run)
    assert run.problems == len(await stage.log(run.session_id, "problem")) == 1
