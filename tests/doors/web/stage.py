"""A server as people run it, with agents of several tempers: for tests in a browser, and for pictures."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from moorage.testing.faults import PATIENCE
from tests import debian

T = TypeVar("T")
LOOK = 0.05  # seconds between two looks
CHROMIUM = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage"
).split()

CAREFUL = """
from moorage.agents.python import Turn

PLAN = {"change": "prod-cluster", "steps": ["drain node-3", "upgrade to 1.31", "run smoke tests"], "risk": "low"}


def careful(turn: Turn) -> str:
    turn.phase("planning")
    turn.say("I have a plan. It touches **one** node.")
    answer = turn.ask("Apply the plan to prod-cluster?", plan=PLAN, options=["canary"], expires_in=3600)
    turn.phase("executing")
    return f"Done, as you said: {answer.decision}"


def slow(turn: Turn) -> str:
    import time

    turn.phase("executing")
    turn.say("This takes a while.")
    time.sleep(600)
    return "at last"


def waits(turn: Turn) -> str:
    import os
    import time

    turn.chunk("Once upon ")
    turn.chunk("a **time**")
    while not os.path.exists(os.path.join(os.environ["MOORAGE_HOME"], turn.prompt)):
        time.sleep(0.02)
    return "Once upon a **time**, there was an end."


def talker(turn: Turn) -> str:
    import time

    turn.phase("investigating")
    for step in range(1, 4):
        turn.say(f"Step {step} of 3")
        time.sleep(0.15)
    return "All three steps are done."


def broken(turn: Turn) -> str:
    raise RuntimeError("the disk is full")


def flaky(turn: Turn) -> str:
    import os

    if not os.path.exists(os.path.join(os.environ["MOORAGE_HOME"], turn.prompt)):
        raise RuntimeError("the disk is full")
    return "There is room again."


def parent(turn: Turn) -> str:
    import subprocess
    import sys

    if turn.items[0]["kind"] == "callback":
        return "The child is done."
    command = [sys.executable, "-m", "moorage", "run", "waits", turn.prompt, "--mode", "async_callback", "--json"]
    subprocess.run(command, check=True, capture_output=True)
    return "I wait for the child."


def hasty(turn: Turn) -> str:
    turn.phase("plannign")
    return "Done in a hurry."
"""


class Stage:
    """A server at work, its address, and REST."""

    def __init__(self, folder: Path, *arguments: str, store: str | None = None) -> None:
        self.folder, self.store = folder, store or f"sqlite:///{folder / 'moorage.db'}"
        write_agents(folder / "home" / "agents")
        self._arguments, self.port = arguments, 0
        self._http = httpx2.Client(timeout=PATIENCE)
        self.start()

    def start(self) -> None:
        """Start it, on the port it had before if it had one."""
        log = self.folder / f"log-{time.monotonic_ns()}.txt"
        environment = {**os.environ, "MOORAGE_HOME": str(self.folder / "home")}
        for name in ("AGENT_SESSION_ID", "AGENT_SESSION_NAME", "AGENT_RUN_ID", "MOORAGE_URL", "MOORAGE_TOKEN"):
            environment.pop(name, None)
        command = [
            sys.executable,
            "-m",
            "moorage",
            "serve",
            "--no-grpc",
            "--port",
            str(self.port),
            "--store",
            self.store,
        ]
        with log.open("wb") as out:
            self.process = subprocess.Popen([*command, *self._arguments], stdout=out, stderr=out, env=environment)
        found = until(lambda: re.search(r" at (http://[^\"\s]+)", log.read_text()), said=log.read_text)
        self.url = str(found[1])
        self.port = int(self.url.rpartition(":")[2])
        until(lambda: _answers(self.url))

    def stop(self) -> None:
        """End it in good order."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE)

    def close(self) -> None:
        """End it at once."""
        self._http.close()
        self.process.kill()
        self.process.wait(PATIENCE)

    def ask(self, verb: str, path: str, body: Any = None, **options: Any) -> Any:
        """REST; what is refused fails the test."""
        answer = self._http.request(verb, f"{self.url}{path}", json=body, **options)
        assert answer.is_success, f"{verb} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def create(self, **fields: Any) -> str:
        """A session; its id."""
        return str(self.ask("POST", "/sessions", fields)["session_id"])

    def run(self, agent: str, prompt: str, **fields: Any) -> Any:
        """Ask an agent for something."""
        return self.ask("POST", "/runs", {"agent_name": agent, "prompt": prompt, **fields})

    def until_status(self, session_id: str, status: str) -> Any:
        """The session, once it has come to that."""

        def look() -> Any:
            session = self.ask("GET", f"/sessions/{session_id}")
            return session if session["status"] == status else None

        return until(look)


@contextmanager
def staged(folder: Path, *arguments: str, store: str | None = None) -> Iterator[Stage]:
    """A server, ended afterwards."""
    stage = Stage(folder, *arguments, store=store)
    try:
        yield stage
    finally:
        stage.close()


def write_agents(folder: Path) -> None:
    """Agents that ask, take long, talk much, and fail."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tempers.py").write_text(CAREFUL)
    for name, told in (
        ("careful", "Plans a change and asks before it applies it"),
        ("slow", "Takes ten minutes for everything"),
        ("waits", "Begins to speak, and goes on when it is told to"),
        ("talker", "Says what it does, step by step"),
        ("broken", "Fails, whatever it is asked"),
        ("flaky", "Fails until there is room on the disk"),
        ("parent", "Starts a child and waits for it"),
        ("hasty", "Misspells its phase"),
    ):
        text = f'[agent]\nname = "{name}"\ndescription = "{told}"\nkind = "python"\nfunction = "tempers:{name}"\n'
        (folder / f"{name}.toml").write_text(text)


def until(look: Callable[[], T | None], *, said: Callable[[], str] = str) -> T:
    """What there is to see, once it is there."""
    deadline = time.monotonic() + PATIENCE
    while not (seen := look()):
        assert time.monotonic() < deadline, f"it never came: {said()}"
        time.sleep(LOOK)
    return seen


class NoChromium(Exception):
    """There is none, and none can be had here: why, and what to do."""


def find_chromium() -> str:
    """Where Chromium is; installed first, where that is possible. Raises NoChromium."""
    if named := os.environ.get("MOORAGE_TEST_CHROMIUM"):
        return named
    found = _on_path()
    if found is None:
        problem = debian.install("chromium")
        found = _on_path()
    if found is None:
        todo = "install it (apt-get install chromium) or name one in MOORAGE_TEST_CHROMIUM"
        raise NoChromium(f"there is no Chromium ({', '.join(CHROMIUM)}) on PATH, and {problem}: {todo}")
    return found


def _on_path() -> str | None:
    return next(filter(None, map(shutil.which, CHROMIUM)), None)


def _answers(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/readyz").is_success
    except httpx2.TransportError:
        return False
