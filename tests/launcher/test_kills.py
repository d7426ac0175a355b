"""kill -9 at every step of a turn: of the launcher, of a process that embeds one, of the supervisor, of the agent.

An agent works for a parent that wants to be called back. One of the processes around it is killed at a known step;
then a launcher comes (back), and the work must end as the rules say, be told to the parent exactly once, and leave
no process behind. Agents tell by a file where they are, and wait at a pipe; a launcher is killed in the middle of
its own work by a program that runs the real one and ends itself at the given step.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from moorage import config, sync
from moorage.core.run import Run
from moorage.launcher import processes
from moorage.service.inline import drive
from moorage.testing.faults import write_lock
from moorage.testing.history import problems_in
from tests.launcher.test_processes import PATIENCE, is_alive, parent_of, until

LEASE, LOST_AFTER, PATIENT = "0.6s", "3s", "60s"
VICTIM = """\
import fcntl, json, os, subprocess, sys
home, step = {home!r}, {step!r}
json.loads(sys.stdin.readline())
workspace = open(home + "/workspace", "a+")
try:
    fcntl.flock(workspace, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    open(home + "/overlap", "w").close()
with open(home + "/victims", "a+") as journal:
    journal.write(f"{{os.getpid()}}\\n")
    journal.seek(0)
    is_first = len(journal.read().split()) == 1


def tell(**event):
    print(json.dumps(event), flush=True)


def arrive(here):
    if is_first and here == step:
        open(home + "/reached", "w").close()
        open(home + "/authorizer").read()


arrive("silent")
tell(type="phase", phase="planning")
tell(type="message", content="working")
tell(type="error", error="a small one")
tell(type="checkpoint", checkpoint={{"step": 1}})
tell(type="phase", phase="executing")
arrive("talking")
if step == "asking":
    tell(type="approval", id="1", question="Apply?", wait=True)
    while json.loads(sys.stdin.readline())["type"] != "decision":
        continue
if step == "delegating":
    ask = [sys.executable, "-m", "moorage", "run", "child", "it", "--mode", "sync"]
    subprocess.run(ask, check=True, stdout=subprocess.DEVNULL)
tell(type="result", text="done")
arrive("done")
"""
CHILD = """\
import os, sys, time
sys.stdin.read()
with open({home!r} + "/children", "a") as journal:
    journal.write(f"{{os.getpid()}}\\n")
while not os.path.exists({home!r} + "/go"):
    time.sleep(0.02)
print("did it")
"""
MORTAL = """\
import asyncio, os, sys
from datetime import timedelta
from moorage import config
from moorage.doors.cli.main import main
from moorage.launcher.embedded import Embedded
from moorage.service.turns import TurnDispatcher


def dies(moment, name):
    real = getattr(TurnDispatcher, name)

    async def fatal(dispatcher, owner, turn, *rest):
        is_it = turn.agent_name == "victim"
        if is_it and moment == "before":
            os.kill(os.getpid(), 9)
        answer = await real(dispatcher, owner, turn, *rest)
        if is_it:
            os.kill(os.getpid(), 9)
        return answer

    setattr(TurnDispatcher, name, fatal)


async def embed(lease, lost_after):
    deps = config.open_deps(threaded=True)
    limits = {"lease": timedelta(seconds=lease), "lost_after": timedelta(seconds=lost_after)}
    async with Embedded(deps, config.agents, environment=config.agent_environment(None), **limits):
        await asyncio.Event().wait()


who, point = sys.argv[1:3]
if point:
    dies(*point.split())
if who == "embedding":
    asyncio.run(embed(0.6, 3))
else:
    sys.argv[1:] = ["launcher", *sys.argv[3:]]
    sys.exit(main())
"""
# Where a launcher ends itself; at the other steps it is killed from outside.
POINTS = {"claimed": "before started", "reporting": "before finish", "reported": "after finish"}


class Scene:
    """A home with a victim that works for a parent."""

    def __init__(self, home: Path, step: str) -> None:
        self.home, self.step = home, step
        (home / "agents").mkdir(parents=True)
        os.mkfifo(home / "authorizer")
        for name, code, protocol in (("victim", VICTIM, "jsonl"), ("child", CHILD, "text")):
            script = home / f"{name}.py"
            script.write_text(code.format(home=str(home), step=step))
            (home / "agents" / f"{name}.toml").write_text(
                f'[agent]\nname = "{name}"\nkind = "command"\nprotocol = "{protocol}"\n'
                f'command = ["{sys.executable}", "{script}"]\n'
            )
        self.moor = sync.connect()

    def pids(self, journal: str = "victims") -> list[int]:
        """The process ids of all agents of a kind that were ever started."""
        path = self.home / journal
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    @contextmanager
    def launcher(
        self, who: str = "launcher", *, lost_after: str = PATIENT, point: str | None = None
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A launcher, maybe one that ends itself at some point."""
        options = ["--name", "one", "--lease", LEASE, "--lost-after", lost_after]
        if point is None:
            point = POINTS.get(self.step, "") if who in ("launcher", "embedding") else ""
        command = [sys.executable, "-c", MORTAL, who, point, *options]
        with running(subprocess.Popen(command, stderr=subprocess.DEVNULL)) as process:
            yield process

    @contextmanager
    def successor(self) -> Iterator[None]:
        """A launcher that comes back under the same name, and is not killed."""
        options = ["--name", "one", "--lease", LEASE, "--lost-after", PATIENT]
        command = [sys.executable, "-m", "moorage", "launcher", *options]
        with running(subprocess.Popen(command, stderr=subprocess.DEVNULL)):
            yield

    def ask(self) -> list[Run]:
        """A parent that has done its work once, and the victim's run, of which it wants to hear."""
        parent = self.moor.run("echo-agent", "parent", mode="async_poll").run
        assert self.moor.result(parent.run_id, wait=PATIENCE).is_settled
        return [parent, self.moor.run("victim", "it", mode="async_callback", parent=parent.session_id).run]

    def is_there(self, session_id: str) -> bool:
        """Whether the victim is at the step, and its launcher knows all that it has said so far."""
        if self.step == "asking":
            return bool(self.moor.approvals())
        if self.step == "delegating":
            return bool(self.pids("children"))
        if self.step == "talking" and self.moor.get(session_id).phase.value != "executing":
            return False
        return (self.home / "reached").exists()

    def go_on(self) -> None:
        """Let waiting agents go on."""
        (self.home / "go").touch()
        with suppress(OSError):  # no agent waits there
            os.close(os.open(self.home / "authorizer", os.O_WRONLY | os.O_NONBLOCK))

    def is_over(self) -> bool:
        """Whether nothing is left to do; questions are answered meanwhile."""
        for approval in self.moor.approvals():
            self.moor.approve(approval.approval_id)
        return not self.moor.runs(open_only=True).items and not self.moor.inbox().items

    def processes(self) -> list[int]:
        """Return the processes started in this home that still run."""
        mark = f"MOORAGE_HOME={self.home}".encode()
        return [pid for pid in processes.process_ids() if mark in processes._environment(pid) and is_alive(pid)]


@contextmanager
def running(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> Iterator[Scene]:
    for name in ("AGENT_SESSION_ID", "AGENT_SESSION_NAME", "AGENT_RUN_ID", "MOORAGE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MOORAGE_HOME", str(tmp_path / "home"))
    made = Scene(tmp_path / "home", step)
    yield made
    made.moor.close()
    for pid in made.processes():
        os.kill(pid, signal.SIGKILL)  # only if the test has failed already


CELLS = [
    ("launcher", "claimed", ["completed"]),  # given out again as it was
    *((("launcher", step, ["completed"])) for step in ("silent", "talking", "asking", "delegating")),  # adopted
    ("launcher", "reporting", ["completed"]),  # adopted, with its result
    ("launcher", "reported", ["completed"]),  # over
    ("embedding", "claimed", ["completed"]),
    *((("embedding", step, ["lost", "completed"])) for step in ("silent", "talking", "asking", "delegating")),
    ("embedding", "reporting", ["lost", "completed"]),
    ("embedding", "reported", ["completed"]),
    *((("supervisor", step, ["failed", "completed"])) for step in ("silent", "talking", "asking", "delegating")),
    ("supervisor", "done", ["failed", "completed"]),  # before its claim and after its end there is none
    *((("agent", step, ["failed", "completed"])) for step in ("silent", "talking", "asking", "delegating")),
    ("agent", "done", ["completed"]),  # it has given its answer
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("who", "step", "ends"), CELLS, ids=[f"{who}-{step}" for who, step, _ in CELLS])
def test_turn_survives_kill_9_of_any_process_at_any_step(scene: Scene, who: str, step: str, ends: list[str]) -> None:
    with scene.launcher(who, lost_after=LOST_AFTER if who == "embedding" else PATIENT) as first:
        asked = scene.ask()
        session_id = asked[1].session_id
        if step in POINTS:
            first.wait(PATIENCE)
        else:
            until(lambda: scene.is_there(session_id))
            strike(who, first.pid, scene)
        if who in ("launcher", "embedding"):
            assert first.wait(PATIENCE) == -signal.SIGKILL
            with scene.successor():
                see_through(scene, session_id, ends, is_adopted=who == "launcher" and step not in POINTS)
        else:
            see_through(scene, session_id, ends)
            assert first.poll() is None
    check_story(scene, asked, ends)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("step", ["talking"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_launcher_killed_while_it_adopts_costs_no_turn(scene: Scene, moment: str) -> None:
    with scene.launcher() as first:
        asked = scene.ask()
        session_id = asked[1].session_id
        until(lambda: scene.is_there(session_id))
        strike("launcher", first.pid, scene)
        first.wait(PATIENCE)
    with scene.launcher(point=f"{moment} adopt") as second:
        assert second.wait(PATIENCE) == -signal.SIGKILL
    with scene.successor():
        until(lambda: scene.moor.get(session_id).epoch == (2 if moment == "before" else 3))
        scene.go_on()
        until(scene.is_over)
    check_story(scene, asked, ["completed"])


@pytest.mark.timeout(120)
@pytest.mark.parametrize("step", ["talking"])
def test_a_store_that_is_away_for_a_while_costs_no_turn(scene: Scene) -> None:
    """The store is unavailable for longer than the lease; the agent ends meanwhile, and its result arrives."""
    with scene.launcher("launcher", point=""):
        asked = scene.ask()
        session_id = asked[1].session_id
        until(lambda: scene.is_there(session_id))
        [agent] = scene.pids()
        with write_lock(config.sqlite_path(config.pick_url())) as locker:
            scene.go_on()
            until(lambda: not is_alive(agent))
            until(lambda: is_unresponsive(scene, session_id))
            assert not scene.moor.get_run(asked[1].run_id).is_settled
            locker.say("let go")
        until(scene.is_over)
    check_story(scene, asked, ["completed"])


def is_unresponsive(scene: Scene, session_id: str) -> bool:
    store = config.open_store(config.pick_url(), threaded=False)
    try:
        turn = drive(store.find_turn("local", f"{session_id}:t1"))
        return turn.is_unresponsive(datetime.now(UTC))
    finally:
        drive(store.close())


def strike(who: str, launcher: int, scene: Scene) -> None:
    """Kill one of them."""
    if who in ("agent", "supervisor"):
        agent = scene.pids()[0]
        os.kill(agent if who == "agent" else parent_of(agent), signal.SIGKILL)
    else:
        os.kill(launcher, signal.SIGKILL)  # its agent may have ended by now


def see_through(scene: Scene, session_id: str, ends: list[str], *, is_adopted: bool = False) -> None:
    """Let all go on, once the next launcher has adopted the turn or it is given up; until nothing is left."""
    if is_adopted:
        until(lambda: scene.moor.get(session_id).epoch == 2)
    if len(ends) > 1:
        until(lambda: len(scene.moor.log(session_id, kinds=["turn_ended"])) > 0)
    scene.go_on()
    until(scene.is_over)


def check_story(scene: Scene, asked: list[Run], ends: list[str]) -> None:
    """It ended as the rules say, was told once, and no process is left."""
    parent, run = (scene.moor.get_run(each.run_id) for each in asked)
    log = scene.moor.log(run.session_id, limit=500)
    assert (run.state.value, run.result) == ("completed", "done")
    assert [(entry.data or {})["outcome"] for entry in log if entry.kind == "turn_ended"] == ends
    assert [entry.kind for entry in scene.moor.log(parent.session_id, limit=500)].count("callback") == 1
    agents = len(scene.pids())
    assert agents == len(ends)
    check_said_once(scene, Counter(entry.kind for entry in log), Counter(ends), agents)
    assert not (scene.home / "overlap").exists(), "two agents at once in one workspace"
    store = config.open_store(config.pick_url(), threaded=False)
    try:
        assert drive(problems_in(store, "local", [each.run_id for each in asked])) == []
    finally:
        drive(store.close())
    until(lambda: not scene.processes())  # the supervisor of an agent that was reported may take a moment to leave


def check_said_once(scene: Scene, kinds: Counter[str], ends: Counter[str], agents: int) -> None:
    """Check that the log has each agent's output once, and each question of a run once."""
    if ends["failed"] + ends["lost"] == 0:
        assert (kinds["checkpoint"], kinds["error"], kinds["message"]) == (1, 1, 3)
        assert kinds["phase"] == (4 if scene.step == "asking" else 2)
    if scene.step == "asking":
        assert (kinds["approval_requested"], kinds["approval_withdrawn"]) == (1, 0)
        assert kinds["approval_replayed"] == agents - 1
    if scene.step == "delegating":
        children = [run for run in scene.moor.runs().items if run.agent_name == "child"]
        assert len(children) == agents, "a child for each"
