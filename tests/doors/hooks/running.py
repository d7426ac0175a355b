"""The hook under test: a process of its own, with real standard input.

A machine that is busy with other things makes a hook late, and a hook that is late puts its event off, as it should.
So `hook` gives it all the time it needs, for tests of what it does; where something holds it up, `hurried` has it give
up as it really does. How long one took leaves out what it spent waiting for a processor.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import moorage

PATIENCE = 60.0  # seconds for anything that should take one, on a machine busy with other things
IN_TIME = 4.0  # seconds that a hook may take at worst: its own ceiling is 2, the rest is for a busy machine
UNHURRIED = f"""
from runpy import run_module
from moorage.doors.hooks import main
main.CEILING = {PATIENCE / 2}
run_module("moorage.doors.hooks", run_name="__main__")
"""
HOST, PROMPT, AGENT_TYPE = "11111111-2222-4333-8444-555555555555", "p-1", "general-purpose"
CALM = {"PYTHONDONTWRITEBYTECODE": "1"}
_SOURCES = str(Path(moorage.__file__).parents[1])

Json = dict[str, Any]


@dataclass(frozen=True)
class Told:
    """The output of a hook."""

    code: int
    out: str
    err: str
    seconds: float = 0.0

    @property
    def json(self) -> Any:
        """The one line of JSON on standard output; fails if there is anything else."""
        assert (self.out[-1:], self.out.count("\n")) == ("\n", 1), self
        return json.loads(self.out)

    @property
    def complaints(self) -> list[str]:
        """The lines on standard error."""
        return self.err.splitlines()

    @property
    def answer(self) -> Any:
        """Return its stdout; stderr must be empty."""
        assert (self.code, self.err) == (0, "")
        return self.json


def command(*args: str, first: str = "", hurry: bool = True) -> list[str]:
    """The hook's command line; `first` is code that its process runs before anything else, to break something."""
    if not first:
        start = ["-m", "moorage.doors.hooks"] if hurry else ["-c", UNHURRIED]
        return [sys.executable, *start, *args]
    return [sys.executable, "-c", f"{first}\nfrom moorage.doors.hooks.main import main\nmain()", *args]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's, with the Moorage that this test uses."""
    path = os.pathsep.join(filter(None, (_SOURCES, os.environ.get("PYTHONPATH"))))
    return {**os.environ, **CALM, "PYTHONPATH": path, **(extra or {})}


def encoded(event: Json | bytes) -> bytes:
    """An event as it is sent."""
    return event if isinstance(event, bytes) else json.dumps(event).encode()


class Watched(subprocess.Popen[bytes]):
    """A process that is known, at its end, to have been kept waiting for a processor for so many seconds."""

    kept_waiting = 0.0

    def wait(self, timeout: float | None = None) -> int:
        with suppress(OSError):  # not Linux, or over for long
            self.kept_waiting = int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[1]) / 1e9
        return super().wait(timeout)


class Running:
    """A hook that has its event and works on it."""

    def __init__(
        self,
        event: Json | bytes,
        *args: str,
        env: Mapping[str, str] | None = None,
        first: str = "",
        before: Callable[[], None] | None = None,
        hurry: bool = True,
        **popen: Any,
    ) -> None:
        self._began = time.monotonic()
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **popen}
        called = command(*args, first=first, hurry=hurry)
        self.process = Watched(called, env=environment(env), preexec_fn=before, **options)
        self._event: bytes | None = encoded(event)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def send(self) -> None:
        """Give it its event and close its standard input; `done` does so too."""
        assert self.process.stdin is not None
        event, self._event = self._event, None
        if event is not None:
            self.process.stdin.write(event)
            self.process.stdin.close()
            self.process.stdin = None

    def done(self, within: float = PATIENCE) -> Told:
        """Its end."""
        event, self._event = self._event, None
        out, err = self.process.communicate(event if self.process.stdin else None, timeout=within)
        seconds = time.monotonic() - self._began - self.process.kept_waiting
        said, complained = ((part or b"").decode(errors="backslashreplace") for part in (out, err))
        return Told(self.process.returncode, said, complained, seconds)

    def kill(self) -> Told:
        """End it as `kill -9` does, if it has not ended by itself; what it had said until then."""
        self.process.send_signal(signal.SIGKILL)
        return self.done()


def hook(event: Json | bytes, *args: str, **environment: str) -> Told:
    """Run `moorage-hook ARGS` with an event on its standard input, and with time."""
    return ended(Running(event, *args, env=environment, hurry=False))


def hurried(event: Json | bytes, *args: str, **environment: str) -> Told:
    """The same with no more time than a hook has: for one that something holds up."""
    return ended(Running(event, *args, env=environment))


def ended(running: Running) -> Told:
    """The end of a hook, which is not left behind whatever happens."""
    try:
        return running.done()
    finally:
        if running.process.poll() is None:
            running.kill()


# Events, shaped like recorded ones --------------------------------------------------------------


def event(name: str, **fields: Any) -> Json:
    """An event of Claude Code."""
    return {
        "session_id": HOST,
        "transcript_path": f"/srv/.transcripts/{HOST}.jsonl",
        "cwd": "/work",
        "prompt_id": PROMPT,
        "hook_event_name": name,
        **fields,
    }


def pre_tool_use(call: str = "toolu_1", **fields: Any) -> Json:
    """The host is about to delegate."""
    asked = {"description": "Look", "prompt": "Look into it", "subagent_type": AGENT_TYPE}
    return event("PreToolUse", **{"tool_name": "Agent", "tool_input": asked, "tool_use_id": call, **fields})


def post_tool_use(agent_id: str, call: str = "toolu_1", **fields: Any) -> Json:
    """It has delegated, to an agent that works in the background."""
    launched = {"isAsync": True, "status": "async_launched", "agentId": agent_id}
    return pre_tool_use(call, **{"hook_event_name": "PostToolUse", "tool_response": launched, **fields})


def subagent_start(agent_id: str, **fields: Any) -> Json:
    """A sub-agent begins."""
    return event("SubagentStart", **{"agent_id": agent_id, "agent_type": AGENT_TYPE, **fields})


def subagent_stop(agent_id: str, said: str = "Two causes found.", **fields: Any) -> Json:
    """A sub-agent has said its last."""
    told = {"agent_id": agent_id, "agent_type": AGENT_TYPE, "last_assistant_message": said, "stop_hook_active": False}
    return event("SubagentStop", **{**told, "agent_transcript_path": f"/srv/agent-{agent_id}.jsonl", **fields})


EVENTS: dict[str, Json] = {
    "SessionStart": event("SessionStart", source="startup"),
    "UserPromptSubmit": event("UserPromptSubmit", prompt="Why does the pod restart?"),
    "PreToolUse": pre_tool_use(),
    "PostToolUse": post_tool_use("a0000000000000001"),
    "SubagentStart": subagent_start("a0000000000000001"),
    "SubagentStop": subagent_stop("a0000000000000001"),
    "Stop": event("Stop", last_assistant_message="Done.", stop_hook_active=False),
    "StopFailure": event("StopFailure", error="rate_limit", error_details="429"),
    "PreCompact": event("PreCompact", trigger="manual", custom_instructions="keep the causes"),
    "SessionEnd": event("SessionEnd", reason="other"),
}
"""One of each kind."""

PLAIN: dict[str, Json] = {
    "pre-delegate": {"agent_name": "architect", "task_id": "T001", "task_description": "Plan", "metadata": {}},
    "subagent-stop": {"agent": "architect", "task_id": "T001", "exit_code": 0, "output": "Planned."},
}
"""One for each command."""

CALLS: dict[str, tuple[Json, tuple[str, ...]]] = {
    **{name: (each, ()) for name, each in EVENTS.items()},
    **{name: (each, (name,)) for name, each in PLAIN.items()},
}
"""Every way to call the hook: its event and its arguments."""

PRE_DELEGATE_KEYS = {"should_resume", "reason", "agent_id", "resume_metadata", "original_context"}
SUBAGENT_STOP_KEYS = {"finalized", "outcome", "reason", "agent_id", "task_id", "agent", "duration_seconds"}


def assert_safe(name: str, done: Told, *, lines: int = 1) -> None:
    """A safe answer in the shape that the caller expects, one line of complaint, exit code 0, in time."""
    assert done.code == 0, done
    assert len(done.complaints) == lines, done
    assert done.seconds < IN_TIME, done
    if name == "pre-delegate":
        assert done.json.keys() == PRE_DELEGATE_KEYS
        assert done.json["should_resume"] is False
    elif name == "subagent-stop":
        assert done.json.keys() == SUBAGENT_STOP_KEYS
        assert done.json["finalized"] is False
    else:
        assert done.json == {}


def spooled(home: Path, ending: str = ".json") -> list[Path]:
    """Return the waiting files of the spool, oldest first, or those that were moved aside."""
    return sorted((home / "spool").glob(f"*{ending}"), key=lambda path: path.name.split("-")[1])
