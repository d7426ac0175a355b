"""kill -9 of an agent between an answer and its effect: the next turn is told, and no question is asked twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import moorage
from moorage import config
from moorage.core.approval import Approval
from moorage.core.errors import StoreError
from moorage.core.run import Run
from moorage.launcher.embedded import Embedded
from tests.launcher.serving import free_port
from tests.launcher.test_processes import PATIENCE

# Asks the same question several times, then waits at a pipe until it is killed; a turn that was cut off goes on.
ASKER = """\
import json, os, sys
home = {home!r}
turn = json.loads(sys.stdin.readline())
with open(home + "/turns", "a") as journal:
    journal.write(json.dumps({{"pid": os.getpid(), **turn}}) + "\\n")
answers = []


def ask(question, **more):
    asked = {{"type": "approval", "id": str(len(answers)), "question": question, "plan": {{"add": 2}}, **more}}
    print(json.dumps(asked), flush=True)
    answers.append(json.loads(sys.stdin.readline())["decision"])


for _ in range({questions}):
    ask("Apply?", **{more!r})
if not turn["cut_off"]:
    open(home + "/reached", "w").close()
    open(home + "/authorizer").read()
{then}
print(json.dumps({{"type": "result", "text": " ".join(answers)}}), flush=True)
"""
SERVE = ("serve", "--host", "127.0.0.1", "--no-grpc", "--port")


class Scene:
    """A home with one agent, a store, and a client."""

    def __init__(self, home: Path, url: str) -> None:
        self.home, self.url = home, url
        os.mkfifo(home / "authorizer")
        (home / "agents").mkdir()

    def define(self, questions: int = 1, then: str = "", **more: Any) -> None:
        """The agent asks so often before it waits; `then` is what it does after that."""
        script = ASKER.format(home=str(self.home), questions=questions, then=then, more=more)
        (self.home / "asker.py").write_text(script)
        (self.home / "agents" / "asker.toml").write_text(
            f'[agent]\nname = "asker"\nkind = "command"\nprotocol = "jsonl"\n'
            f'command = ["{sys.executable}", "{self.home / "asker.py"}"]\n'
        )

    @property
    def turns(self) -> list[dict[str, Any]]:
        """Return the input of each turn."""
        path = self.home / "turns"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    async def reached(self) -> None:
        """Until the agent has its answers and is about to do something."""
        async with asyncio.timeout(PATIENCE):
            while not (self.home / "reached").exists():  # noqa: ASYNC110  # a process tells by a file
                await asyncio.sleep(0.02)

    @asynccontextmanager
    async def launcher(self, kind: str) -> AsyncIterator[moorage.Moorage]:
        """A launcher of some kind at work, and a client of the same store."""
        if kind == "embedded":
            async with moorage.connect(self.url) as moor:
                deps = config.open_deps(self.url, threaded=True)
                async with Embedded(deps, config.agents, environment=config.agent_environment(None)):
                    yield moor
                await deps.store.close()
            return
        port = free_port()
        server = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "moorage", *SERVE, str(port), "--store", self.url, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            async with moorage.connect(f"http://127.0.0.1:{port}") as moor:
                yield moor
        finally:
            server.terminate()
            await asyncio.wait_for(server.wait(), PATIENCE)


@pytest.fixture(params=["sqlite", "postgres"])
def scene(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("MOORAGE_HOME", str(tmp_path))
    is_file = request.param == "sqlite"
    return Scene(tmp_path, f"sqlite:///{tmp_path / 'db'}" if is_file else request.getfixturevalue("postgres_url"))


launchers = pytest.mark.parametrize("launcher", ["embedded", "server"])


async def asked_for(moor: moorage.Moorage) -> Run:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return (await moor.run("asker", "go", mode="async_poll")).run
            except StoreError:
                await asyncio.sleep(0.1)


async def pending(moor: moorage.Moorage) -> Approval:
    """The question that waits, as soon as there is one."""
    async with asyncio.timeout(PATIENCE):
        while not (found := await moor.approvals()):  # noqa: ASYNC110  # asked as a person asks
            await asyncio.sleep(0.05)
    return found[0]


async def ended(moor: moorage.Moorage, run: Run) -> Run:
    over = await moor.result(run.run_id, wait=PATIENCE)
    assert over.is_settled, over
    return over


async def all_questions(moor: moorage.Moorage) -> list[str]:
    return [approval.state.value for approval in await moor.approvals(pending_only=False)]


@pytest.mark.timeout(180)
@launchers
async def test_agent_killed_after_its_answers_is_told_and_does_not_ask_again(scene: Scene, launcher: str) -> None:
    scene.define(questions=2)
    async with scene.launcher(launcher) as moor:
        run = await asked_for(moor)
        for decision in ("approve", "reject"):
            await moor.decide((await pending(moor)).approval_id, decision)
        await scene.reached()
        os.kill(scene.turns[0]["pid"], signal.SIGKILL)
        over = await ended(moor, run)

        assert (over.state.value, over.result, over.turns) == ("completed", "approve reject", 2)
        assert await all_questions(moor) == ["approved", "rejected"]
        kinds = [entry.kind for entry in await moor.log(run.session_id, limit=1000)]
        assert (kinds.count("approval_requested"), kinds.count("approval_replayed")) == (2, 2)
    told = scene.turns[1]
    assert told["cut_off"]
    assert [item["kind"] for item in told["items"]] == ["message", "decision", "decision"]
    assert [(item["question"], item["decision"]) for item in told["items"][1:]] == [
        ("Apply?", "approve"),
        ("Apply?", "reject"),
    ]
    assert "Your last turn was cut off" in told["prompt"]


@pytest.mark.timeout(180)
@launchers
async def test_agent_killed_while_it_waits_keeps_its_question(scene: Scene, launcher: str) -> None:
    scene.define()
    async with scene.launcher(launcher) as moor:
        run = await asked_for(moor)
        question = await pending(moor)
        os.kill(scene.turns[0]["pid"], signal.SIGKILL)
        async with asyncio.timeout(PATIENCE):
            while not (await moor.log(run.session_id, kinds=("turn_ended",))).items:  # noqa: ASYNC110  # likewise
                await asyncio.sleep(0.05)
        assert [each.approval_id for each in await moor.approvals()] == [question.approval_id]
        assert len(scene.turns) == 1
        await moor.approve(question.approval_id)
        over = await ended(moor, run)

        assert (over.result, over.turns) == ("approve", 2)
        assert await all_questions(moor) == ["approved"]
    assert [turn["cut_off"] for turn in scene.turns] == [False, True]


@pytest.mark.timeout(180)
async def test_answer_that_has_run_out_is_asked_for_again(scene: Scene) -> None:
    scene.define(expires_in=3)
    async with scene.launcher("embedded") as moor:
        run = await asked_for(moor)
        first = await pending(moor)
        await moor.approve(first.approval_id)
        await scene.reached()
        assert first.expires_at is not None
        left = (first.expires_at - config.SystemClock().now()).total_seconds()
        await asyncio.sleep(max(0.0, left) + 0.1)  # that time passes is what is tested
        os.kill(scene.turns[0]["pid"], signal.SIGKILL)
        second = await pending(moor)
        await moor.reject(second.approval_id)

        assert (await ended(moor, run)).result == "reject"
        assert await all_questions(moor) == ["approved", "rejected"]


@pytest.mark.timeout(180)
async def test_other_words_options_or_plan_are_another_question(scene: Scene) -> None:
    others = ('ask("Apply it?")', 'ask("Apply?", options=["a"])', 'ask("Apply?", plan=3)')
    scene.define(then="\n    ".join(('if turn["cut_off"]:', *others)))
    async with scene.launcher("embedded") as moor:
        run = await asked_for(moor)
        await moor.approve((await pending(moor)).approval_id)
        await scene.reached()
        os.kill(scene.turns[0]["pid"], signal.SIGKILL)
        for _ in range(3):
            await moor.reject((await pending(moor)).approval_id)

        assert (await ended(moor, run)).result == "approve reject reject reject"


@pytest.mark.timeout(180)
async def test_another_run_of_the_same_session_is_not_given_the_answer(scene: Scene) -> None:
    scene.define()
    async with scene.launcher("embedded") as moor:
        run = await asked_for(moor)
        await moor.approve((await pending(moor)).approval_id)
        await scene.reached()
        os.kill(scene.turns[0]["pid"], signal.SIGKILL)
        assert (await ended(moor, run)).result == "approve"
        (scene.home / "reached").unlink()
        other = (await moor.run("asker", "once more", session=run.session_id, mode="async_poll")).run
        await moor.approve((await pending(moor)).approval_id)
        await scene.reached()
        assert len(await all_questions(moor)) == 2
        await moor.stop(run.session_id)
        assert (await ended(moor, other)).state.value == "stopped"
