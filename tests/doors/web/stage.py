"""A server with agents of several kinds of behaviour: for tests in a browser, and for screenshots."""

from __future__ import annotations

import json
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
# The first needs a third of the processor time of the others: it draws no windows of its own.
CHROMIUM = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
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

# A program of the JSON Lines protocol that does everything a trace shows: tools, a child, an approval, tokens and cost.
RELEASER = """
import json
import os
import subprocess
import sys
import time

turn = json.loads(sys.stdin.readline())


def emit(**event):
    print(json.dumps(event), flush=True)


def tool(name, seconds, result, **arguments):
    call = {"type": "tool_call", "id": f"{turn['turn_id']}-{name}", "name": name, "input": arguments}
    emit(type="message", content=[call])
    time.sleep(seconds)
    answer = {"type": "tool_result", "call_id": call["id"], "content": result}
    emit(type="message", role="tool", content=[answer])


def done(text):
    emit(type="result", text=text, metadata={"cost_usd": 0.0421})
    sys.exit()


if turn["items"][0]["kind"] == "callback":
    emit(type="usage", input_tokens=900, output_tokens=140)
    done("The notes are published, the translation is checked.")
emit(type="phase", phase="investigating")
emit(type="message", content="I read the changes first.")
tool("git_log", 0.2, "42 commits", since="v1.4")
tool("read_issues", 0.1, "7 issues closed", milestone="1.5")
child = ["run", "talker", "Check the translation", "--mode", "async_callback", "--json"]
subprocess.run([sys.executable, "-m", "moorage", *child], check=True, capture_output=True)
emit(type="usage", input_tokens=5200, output_tokens=810)
emit(type="approval", id="notes", question="Publish the release notes?", plan={"version": "1.5"}, wait=True)
answer = json.loads(sys.stdin.readline())
emit(type="phase", phase="executing")
tool("publish", 0.2, "published", version="1.5")
done(f"Published: {answer['decision']}. I wait for the translation.")
"""


class Stage:
    """A running server, its address, and REST."""

    def __init__(self, folder: Path, *arguments: str, store: str | None = None) -> None:
        self.folder, self.store = folder, store or f"sqlite:///{folder / 'moorage.db'}"
        write_agents(folder / "home" / "agents")
        self._arguments, self.port = arguments, 0
        self._http = httpx2.Client(timeout=PATIENCE)
        self.start()

    def start(self) -> None:
        """Start the server, on its former port if it had one."""
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
        """End the server gracefully."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE)

    def close(self) -> None:
        """Kill the server."""
        self._http.close()
        self.process.kill()
        self.process.wait(PATIENCE)

    def ask(self, verb: str, path: str, body: Any = None, **options: Any) -> Any:
        """Send a request; a refusal fails the test."""
        answer = self._http.request(verb, f"{self.url}{path}", json=body, **options)
        assert answer.is_success, f"{verb} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def create(self, **fields: Any) -> str:
        """Create a session; return its id."""
        return str(self.ask("POST", "/sessions", fields)["session_id"])

    def run(self, agent: str, prompt: str, **fields: Any) -> Any:
        """Ask an agent for a run."""
        return self.ask("POST", "/runs", {"agent_name": agent, "prompt": prompt, **fields})

    def until_status(self, session_id: str, status: str) -> Any:
        """Return the session once it has that status."""

        def look() -> Any:
            session = self.ask("GET", f"/sessions/{session_id}")
            return session if session["status"] == status else None

        return until(look)


@contextmanager
def staged(folder: Path, *arguments: str, store: str | None = None) -> Iterator[Stage]:
    """Run a server until the block ends."""
    stage = Stage(folder, *arguments, store=store)
    try:
        yield stage
    finally:
        stage.close()


def write_agents(folder: Path) -> None:
    """Write agents that ask, take long, report steps, and fail."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tempers.py").write_text(CAREFUL)
    (folder / "releaser.py").write_text(RELEASER)
    command = json.dumps([sys.executable, str(folder / "releaser.py")])
    text = '[agent]\nname = "releaser"\ndescription = "Writes release notes and asks before it publishes them"\n'
    (folder / "releaser.toml").write_text(f'{text}kind = "command"\nprotocol = "jsonl"\ncommand = {command}\n')
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
    """Return the first value of `look` that is true; wait for it."""
    deadline = time.monotonic() + PATIENCE
    while not (seen := look()):
        assert time.monotonic() < deadline, f"timed out: {said()}"
        time.sleep(LOOK)
    return seen


class NoChromium(Exception):
    """There is no Chromium and it cannot be installed; the message has the reason and the way out."""


def find_chromium() -> str:
    """Return the path of Chromium; install it first where that is possible. Raises NoChromium."""
    if named := os.environ.get("MOORAGE_TEST_CHROMIUM"):
        return named
    found = _on_path()
    if found is None:
        problem = debian.install(CHROMIUM[0])
        found = _on_path()
    if found is None:
        todo = "install it (apt-get install chromium-headless-shell) or name one in MOORAGE_TEST_CHROMIUM"
        raise NoChromium(f"there is no Chromium ({', '.join(CHROMIUM)}) on PATH, and {problem}: {todo}")
    return found


def _on_path() -> str | None:
    return next(filter(None, map(shutil.which, CHROMIUM)), None)


def _answers(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/readyz").is_success
    except httpx2.TransportError:
        return False
