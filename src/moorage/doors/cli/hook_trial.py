"""Try hooks: each gets a sample of its event as the host would send it, but works on a temporary store.

As with the host, a shell runs the command in the project's folder, with the event on standard input and the time limit
of the settings. Unlike with the host, data and configuration are in a temporary folder, so that the user's are not
touched.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from importlib.resources import files
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from moorage import config
from moorage.core.codec import NOT_JSON, decode, encode, encode_text
from moorage.doors.cli.settings_text import Hook

_KEPT_OUT = ("AGENT_", "MOORAGE_")  # variables that would point a hook at the user's own sessions


class Trial(msgspec.Struct, frozen=True):
    """The result of one hook; `problem` is None if it is correct."""

    event: str
    command: str
    exit_code: int | None
    milliseconds: int
    answer: Any
    stderr: str
    problem: str | None

    @property
    def ok(self) -> bool:
        """Return whether the result is correct."""
        return self.problem is None

    def to_json(self) -> dict[str, Any]:
        """Return the trial as JSON."""
        return {"ok": self.ok, **msgspec.structs.asdict(self)}


def samples(cwd: str) -> dict[str, dict[str, Any]]:
    """Return one event of each kind by its name, in the order in which a host working in `cwd` sends them.

    They have every field of recorded events: one session that delegates once.
    """
    text = (files("moorage.doors.hooks") / "samples.json").read_text(encoding="utf-8")
    events: dict[str, dict[str, Any]] = decode(text.replace("CWD", encode_text(cwd)[1:-1]))
    return events


def try_hooks(hooks: Iterable[Hook], cwd: str) -> Iterator[Trial]:
    """Try the hooks one after another, in the order of their events."""
    events = samples(cwd)
    order = list(events)
    with TemporaryDirectory(prefix="moorage-hooks-") as home:
        for hook in sorted(hooks, key=lambda hook: order.index(hook.event) if hook.event in order else len(order)):
            yield _try(hook, events.get(hook.event), cwd, home)


def _try(hook: Hook, event: dict[str, Any] | None, cwd: str, home: str) -> Trial:
    url = config.sqlite_url(os.path.join(home, config.FILE_NAME))
    command = _on_store(hook.command, url)
    if event is None:
        return Trial(hook.event, command, None, 0, None, "", "there is no sample of this event")
    started = time.monotonic()
    code, out, err = _run(command, encode(event), cwd, _environment(cwd, home, url), hook.timeout)
    spent = round((time.monotonic() - started) * 1000)
    answer, trouble = _read(out)
    said = err.decode(errors="replace").strip()
    return Trial(hook.event, command, code, spent, answer, said, _problem(code, said, hook.timeout) or trouble)


def _on_store(command: str, url: str) -> str:
    """Return the command with the URL of another store."""
    words = shlex.split(command)
    return shlex.join([words[0], "--url", url]) if "--url" in words else command


def _environment(cwd: str, home: str, url: str) -> dict[str, str]:
    others = {name: value for name, value in os.environ.items() if not name.startswith(_KEPT_OUT)}
    return others | {"CLAUDE_PROJECT_DIR": cwd, "MOORAGE_HOME": home, "MOORAGE_URL": url}


def _run(
    command: str, stdin: bytes, cwd: str, environment: dict[str, str], timeout: float
) -> tuple[int | None, bytes, bytes]:
    """Run a command in a shell; return its exit code, None if it did not end in time, and its output."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, shell=True, cwd=cwd, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
    )
    with process:
        try:
            out, err = process.communicate(stdin, timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the process group: the shell and its children
            return None, b"", b""
    return process.returncode, out, err


def _problem(code: int | None, said: str, timeout: float) -> str | None:
    if code is None:
        return f"it did not end within {timeout:g} s"
    last = said.rpartition("\n")[2]  # of a traceback, the line with the exception
    return (f"exit code {code}: {last}" if last else f"exit code {code}") if code else last or None


def _read(out: bytes) -> tuple[Any, str | None]:
    """Return the answer and its problem: it has to be an object, or empty."""
    if not out.strip():
        return None, None
    try:
        answer = decode(out)
    except NOT_JSON:
        return out.decode(errors="replace"), "the answer is not JSON"
    return answer, None if isinstance(answer, dict) else "the answer is not an object"
