"""Real agents under real supervisors, for tests: begin one, wait for what it says, and see that nothing is left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moorage.agents.interface import AgentEvent, Job, Limits
from moorage.core.agent import definition_of
from moorage.launcher import processes
from moorage.launcher.handles import TurnFolder

PATIENCE = 30.0  # seconds that anything may take on a busy machine


def job(table: dict[str, Any], **facts: Any) -> Job:
    """A job for an agent that a table describes; a command, unless it says otherwise."""
    agent = definition_of({"name": "tested", "kind": "command", **table})
    facts = {"limits": Limits.of(agent), "prompt": "hello", **facts}
    return Job(agent=agent, session_id="session-1", turn_id="session-1:t1", epoch=1, **facts)


def shell(script: str, **table: Any) -> dict[str, Any]:
    """A definition that runs a shell script."""
    return {"command": ["sh", "-c", script], **table}


def python(source: str, **table: Any) -> dict[str, Any]:
    """A definition that runs a piece of Python."""
    return {"command": [sys.executable, "-c", source], **table}


class Running:
    """One supervisor at work."""

    def __init__(self, folder: TurnFolder, process: subprocess.Popen[bytes]) -> None:
        self.folder, self.process = folder, process

    def events(self) -> list[AgentEvent]:
        return self.folder.events()[0]

    def wait(self) -> list[AgentEvent]:
        """Everything the agent said, now that it is over."""
        assert self.process.wait(PATIENCE) == 0, self.log()
        return self.events()

    def result(self) -> AgentEvent:
        """How it ended."""
        *before, last = self.wait()
        assert last["type"] == "result"
        assert [event for event in before if event["type"] == "result"] == []
        return last

    def until(self, is_there: Callable[[AgentEvent], bool], within: float = PATIENCE) -> AgentEvent:
        """The first event of a kind, as soon as it is there."""
        wait_for(lambda: any(is_there(event) for event in self.events()), within)
        return next(event for event in self.events() if is_there(event))

    def heard(self, text: str) -> None:
        """Wait until the agent has said something."""
        wait_for(lambda: text in "".join(event["text"] for event in self.events() if event["type"] == "chunk"))

    def agent_pid(self) -> int:
        wait_for(lambda: (pids := self.folder.pids()) is not None and pids.agent is not None)
        pids = self.folder.pids()
        assert pids is not None
        assert pids.agent is not None
        return pids.agent.pid

    def errors(self) -> str:
        """The end of the agent's standard error."""
        return (Path(self.folder.path) / "stderr").read_text()

    def renew(self, at: float | None = None) -> None:
        """Report, as its launcher does, that the lease was renewed at `at`."""
        self.folder.send({"type": "renewed", "at": processes.clock() if at is None else at})

    def log(self) -> str:
        return (Path(self.folder.path) / "supervisor.log").read_text()


class Turns:
    """All supervisors of one test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[Running] = []

    def begin(self, table: dict[str, Any], *, tied: bool = False, **facts: Any) -> Running:
        """Start an agent."""
        folder = self.prepare(table, **facts)
        running = Running(folder, folder.start(tied=tied))
        self._running.append(running)
        return running

    def prepare(self, table: dict[str, Any], **facts: Any) -> TurnFolder:
        """A folder with a job in it."""
        folder = TurnFolder(str(self._folder / f"turn-{len(list(self._folder.glob('turn-*')))}"))
        folder.prepare(job(table, **{"cwd": str(self._folder), **facts}))
        return folder

    def close(self) -> None:
        """End what a test left running, then look whether anything of it is still there."""
        for running in self._running:
            if running.process.poll() is None:
                running.process.kill()
            running.process.wait()
            running.folder.end_leftovers()
        left = [pid for folder in self._folder.glob("turn-*") for pid in survivors(TurnFolder(str(folder)))]
        assert left == []
        assert zombies() == []


def survivors(folder: TurnFolder) -> list[int]:
    """Processes of an agent that still run."""
    pids = folder.pids()
    if pids is None or pids.mark is None:
        return []
    own = [] if pids.agent is None else [pids.agent]
    return [*processes.marked(pids.mark), *(who.pid for who in (pids.supervisor, *own) if who.is_alive)]


def zombies() -> list[int]:
    """Return children of this process that have not been reaped."""
    return [pid for pid in processes.children() if not processes.is_alive(pid, None)]


def wait_for(is_so: Callable[[], object], within: float = PATIENCE) -> None:
    """Wait until something is so; fail if it does not come to be."""
    until = time.monotonic() + within
    while not is_so():
        assert time.monotonic() < until, "it did not come to be"
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    """Whether a process is no more."""
    return not processes.is_alive(pid, None)


def read_pids(path: Path, count: int = 1) -> list[int]:
    """Process ids that an agent has written into a file, a line each, once all are there."""
    wait_for(lambda: path.exists() and len(path.read_text().split()) >= count)
    return [int(word) for word in path.read_text().split()]


def launcher_script(folder: TurnFolder, *, tied: bool) -> subprocess.Popen[str]:
    """A launcher in a process of its own, which starts the supervisor and then does nothing more."""
    source = (
        "import sys, time\n"
        "from moorage.launcher.handles import TurnFolder\n"
        f"process = TurnFolder({folder.path!r}).start(tied={tied})\n"
        "print(process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    return subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True, env=os.environ.copy())
