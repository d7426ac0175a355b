"""Launchers, supervisors and agents as processes, and what becomes of a turn when one of them is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moorage import sync
from moorage.core.errors import StoreUnavailable
from moorage.core.run import Run
from moorage.launcher.loop import alone_in

PATIENCE = 60.0
LEASE, LOST_AFTER, PATIENT = "0.6s", "3s", "60s"
AGENT = """\
import os, sys, time
prompt = sys.stdin.read()
with open({journal!r}, "a") as journal:
    journal.write(f"{{os.getpid()}}\\n")
while not os.path.exists({signal_file!r}):
    time.sleep(0.02)
print("did " + prompt)
"""


ASKER = """\
import json, sys
sys.stdin.readline()
answers = []
for question in ("First?", "Second?"):
    print(json.dumps({"type": "approval", "id": "1", "question": question}), flush=True)
    answers.append(json.loads(sys.stdin.readline()))
print(json.dumps({"type": "result", "text": " ".join(answer["decision"] for answer in answers)}))
"""


class Works:
    """A home with one slow agent, which ends when it is told to."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.journal, self.go = home / "journal", home / "go"
        (home / "agents").mkdir(parents=True)
        (home / "slow.py").write_text(AGENT.format(journal=str(self.journal), signal_file=str(self.go)))
        self.define("slow", "slow.py")
        self.moor = sync.connect()

    def define(self, name: str, script: str, *, protocol: str = "text") -> None:
        """An agent that is a script in this home."""
        (self.home / "agents" / f"{name}.toml").write_text(
            f'[agent]\nname = "{name}"\nkind = "command"\nprotocol = "{protocol}"\n'
            f'command = ["{sys.executable}", "{self.home / script}"]\n'
        )

    @property
    def agents(self) -> list[int]:
        """The process ids of all agents that were ever started."""
        return [int(line) for line in self.journal.read_text().split()] if self.journal.exists() else []

    @contextmanager
    def launcher(self, name: str = "one", lost_after: str = LOST_AFTER) -> Iterator[subprocess.Popen[bytes]]:
        """A launcher as a process; killed in the end if it still runs."""
        command = [sys.executable, "-m", "moorage", "launcher", "--name", name, "--lease", LEASE]
        process = subprocess.Popen([*command, "--lost-after", lost_after], stderr=subprocess.DEVNULL)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    def question(self, wanted: str) -> str:
        """The id of what is asked, as soon as it is that."""
        until(lambda: wanted in [approval.question for approval in self.moor.approvals()])
        return str(self.moor.approvals()[0].approval_id)

    def ask(self, agent: str = "slow") -> Run:
        """Ask an agent, and leave it at that."""
        done = subprocess.run(
            [sys.executable, "-m", "moorage", "run", agent, "it", "--mode", "async_poll"],
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        )
        run: Run = self.moor.get_run(done.stdout.strip())
        return run

    def result(self, run: Run) -> Run:
        """The run, settled."""
        over: Run = self.moor.result(run.run_id, wait=PATIENCE)
        assert over.is_settled, over
        return over


@pytest.fixture
def works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Works]:
    for name in ("AGENT_SESSION_ID", "AGENT_SESSION_NAME", "AGENT_RUN_ID", "MOORAGE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MOORAGE_HOME", str(tmp_path / "home"))
    made = Works(tmp_path / "home")
    yield made
    made.moor.close()
    for pid in made.agents:
        assert not is_alive(pid), f"agent {pid} was left behind"


def until(holds: Callable[[], bool]) -> None:
    """Until this holds; looked at often."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_one_launcher_works_in_one_folder(tmp_path: Path) -> None:
    folder = str(tmp_path / "launcher")
    for _ in range(2):  # and when it is gone, the next
        with alone_in(folder), pytest.raises(StoreUnavailable, match="--name"), alone_in(folder):
            pass


def test_launcher_takes_runs_asked_before_it_started(works: Works) -> None:
    run = works.ask()
    works.go.touch()
    with works.launcher(lost_after=PATIENT):
        assert works.result(run).result == "did it"
    assert len(works.agents) == 1


def test_an_agent_outlives_its_launcher_and_is_adopted(works: Works) -> None:
    run = works.ask()
    with works.launcher(lost_after=PATIENT) as first:
        until(lambda: len(works.agents) == 1)
        first.kill()
        first.wait()
        with works.launcher(lost_after=PATIENT):
            until(lambda: works.moor.get(run.session_id).epoch == 2)
            works.go.touch()
            assert works.result(run).result == "did it"
    assert len(works.agents) == 1
    kinds = [entry.kind for entry in works.moor.log(run.session_id)]
    assert (kinds.count("turn_started"), kinds.count("run_settled")) == (1, 1)


def test_an_answer_that_was_passed_on_is_not_one_to_the_next_question(works: Works) -> None:
    """A launcher that comes back reads all questions again, and an agent may call each of them the same."""
    (works.home / "asker.py").write_text(ASKER)
    works.define("asker", "asker.py", protocol="jsonl")
    with works.launcher(lost_after=PATIENT) as first:
        run = works.ask("asker")
        works.moor.approve(works.question("First?"))
        second = works.question("Second?")
        first.kill()
        first.wait()
    with works.launcher(lost_after=PATIENT):
        until(lambda: works.moor.get(run.session_id).epoch == 2)
        assert works.moor.approvals()[0].approval_id == second
        works.moor.reject(second)
        assert works.result(run).result == "approve reject"


def test_a_launcher_asked_to_end_leaves_its_agents_to_its_next_life(works: Works) -> None:
    run = works.ask()
    with works.launcher(lost_after=PATIENT) as first:
        until(lambda: len(works.agents) == 1)
        first.terminate()
        works.go.touch()
        first.wait(PATIENCE)
    with works.launcher(lost_after=PATIENT):
        assert works.result(run).result == "did it"
    assert len(works.agents) == 1


def test_a_launcher_told_once_or_twice_to_end_leaves_its_agents_at_work(works: Works) -> None:
    run = works.ask()
    with works.launcher(lost_after=PATIENT) as first:
        until(lambda: len(works.agents) == 1)
        told = time.monotonic()
        first.terminate()
        first.terminate()
        assert first.wait(PATIENCE) == 0
        assert time.monotonic() - told < 10
    assert is_alive(works.agents[0])
    with works.launcher(lost_after=PATIENT):
        until(lambda: works.moor.get(run.session_id).epoch == 2)
        works.go.touch()
        assert works.result(run).result == "did it"
    assert len(works.agents) == 1


def test_an_agent_whose_launcher_never_comes_back_ends_and_another_turn_goes_on(works: Works) -> None:
    run = works.ask()
    with works.launcher("one") as first:
        until(lambda: len(works.agents) == 1)
        first.kill()
        first.wait()
        until(lambda: not is_alive(works.agents[0]))
        with works.launcher("two"):
            until(lambda: len(works.agents) == 2)
            works.go.touch()
            assert "cut off" in str(works.result(run).result)
    kinds = [(entry.kind, (entry.data or {}).get("outcome")) for entry in works.moor.log(run.session_id)]
    assert ("turn_ended", "lost") in kinds
    assert kinds.count(("run_settled", "completed")) == 1


def test_a_launcher_that_wakes_up_late_is_refused(works: Works) -> None:
    run = works.ask()
    with works.launcher("one") as first:
        until(lambda: len(works.agents) == 1)
        first.send_signal(signal.SIGSTOP)
        with works.launcher("two"):
            until(lambda: len(works.agents) == 2)
            assert not is_alive(works.agents[0])
            works.go.touch()
            works.result(run)
            first.send_signal(signal.SIGCONT)
            other = works.ask()
            works.result(other)
    said = [entry.text for entry in works.moor.messages(run.session_id) if entry.role == "assistant"]
    assert len(said) == 1


@pytest.mark.parametrize("victim", ["agent", "supervisor"])
def test_an_agent_or_supervisor_that_is_killed_costs_a_turn_not_the_run(works: Works, victim: str) -> None:
    run = works.ask()
    with works.launcher(lost_after=PATIENT):
        until(lambda: len(works.agents) == 1)
        agent = works.agents[0]
        os.kill(agent if victim == "agent" else parent_of(agent), signal.SIGKILL)
        until(lambda: len(works.agents) == 2)
        works.go.touch()
        assert works.result(run).state.value == "completed"
    assert not is_alive(agent)
    outcomes = [(entry.data or {}).get("outcome") for entry in works.moor.log(run.session_id, kinds=["turn_ended"])]
    assert outcomes == ["failed", "completed"]


def test_agents_of_a_one_off_run_die_with_it(works: Works) -> None:
    process = subprocess.Popen([sys.executable, "-m", "moorage", "run", "slow", "it"], stdout=subprocess.DEVNULL)
    until(lambda: len(works.agents) == 1)
    process.kill()
    process.wait()
    until(lambda: not is_alive(works.agents[0]))


def test_a_run_that_is_stopped_ends_its_agent(works: Works) -> None:
    run = works.ask()
    with works.launcher(lost_after=PATIENT):
        until(lambda: len(works.agents) == 1)
        works.moor.stop_run(run.run_id)
        assert works.result(run).state.value == "stopped"
        until(lambda: not is_alive(works.agents[0]))
