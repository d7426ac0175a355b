"""Hooks: install them in Claude Code's settings, test and uninstall them, and deliver events of the spool.

A test gives each hook a sample of its event as the host would send it. As with the host, a shell runs the command in
the project's folder, with the event on standard input and the time limit of the settings. Unlike with the host, data
and configuration are in a temporary folder, so that the user's are not touched.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from tempfile import TemporaryDirectory
from typing import Any

import click
import msgspec

from moorage import config
from moorage.core.codec import NOT_JSON, decode, encode, encode_text
from moorage.core.errors import NotFound, Unsupported
from moorage.doors.cli import arguments, settings
from moorage.doors.cli.app import App, group
from moorage.doors.cli.edge import NO, UsageProblem
from moorage.doors.cli.output import complain, fields, hint, is_terminal, note, printable, say
from moorage.doors.cli.tables import show_rows
from moorage.doors.cli.wording import PROGRAM
from moorage.doors.hooks import spool, work
from moorage.doors.hooks.context import HookContext
from moorage.doors.hooks.spool import Spool
from moorage.service.inline import drive

DELEGATION = "Agent|Task"  # the tool that starts a sub-agent, and its former name
FOLLOW_UP = "SendMessage"  # to a sub-agent that has stopped: it continues
MATCHERS = {"PreToolUse": DELEGATION, "PostToolUse": f"{DELEGATION}|{FOLLOW_UP}"}
TIMEOUT = 5  # seconds
TIMEOUTS = {"SessionEnd": 2}  # the host leaves little time here; the script takes at most one second
DEFAULT_EVENTS = tuple(
    "SessionStart SessionEnd UserPromptSubmit PreToolUse PostToolUse SubagentStart SubagentStop Stop PreCompact".split()
)
EVENTS = (*DEFAULT_EVENTS, "StopFailure")  # an older client may refuse settings with an event it does not know
_KEPT_OUT = ("AGENT_", "MOORAGE_")  # variables that would point a hook at the user's own sessions


class HookScriptNotFound(NotFound):
    """The hook script is missing from its place in this installation."""


class HooksNotFound(NotFound):
    """A settings file has no hooks of Moorage."""


@group("hooks", "moorage hooks install", "moorage hooks test", "moorage hooks uninstall")
def hooks() -> None:
    """Store the sessions of Claude Code and its sub-agents."""


settings_options = arguments.all_of(
    arguments.flag("--project", "Use .claude/settings.json of this folder (the default)."),
    arguments.flag("--local", "Use .claude/settings.local.json of this folder."),
    arguments.flag("--user", "Use your own settings.json, for all folders."),
    click.option("--settings", "path", type=click.Path(), metavar="FILE", help="Use another settings file."),
)
dry_run_option = arguments.flag("--dry-run", "Show the change as a diff, and write nothing.")


# Install and uninstall --------------------------------------------------------------------------


@hooks.subcommand(
    "install",
    "moorage hooks install --dry-run",
    "moorage hooks install --local",
    "moorage hooks install --user --events SessionStart,SessionEnd,SubagentStart,SubagentStop",
    "moorage hooks install --url sqlite:///sessions.db",
)
@settings_options
@click.option(
    "--events", metavar="EVENT,…", help=f"Only these of {', '.join(EVENTS)}; without it, all but {EVENTS[-1]}."
)
@dry_run_option
def install(app: App, /, events: str | None, dry_run: bool, **places: Any) -> None:
    """Add the hooks to the settings of Claude Code. Repeating it changes nothing.

    Everything else in the file stays as it is, byte by byte. With --url, the hooks always use
    that store; without, the one of their environment.
    """
    if app.is_remote:
        raise Unsupported(f"hooks work on the store itself, not on a server; leave {app.full_url} out of it")
    file, command = _file(**places), _command(app.url)
    wanted = [settings.Hook(name, command, TIMEOUTS.get(name, TIMEOUT), MATCHERS.get(name)) for name in _events(events)]
    change = settings.SettingsEdit(file, lambda text: settings.installed(text, wanted))
    _make(app, change, "installed", [hook.event for hook in wanted], dry_run, command=command)
    if not app.as_json and not dry_run:
        _warn_if_off(file.path, change.after)
        note("Next: moorage hooks test. A session of the host that is open already may have to be started again.")


@hooks.subcommand(
    "uninstall", "moorage hooks uninstall --dry-run", "moorage hooks uninstall", "moorage hooks uninstall --user"
)
@settings_options
@dry_run_option
def uninstall(app: App, /, dry_run: bool, **places: Any) -> None:
    """Remove the hooks from the settings, and nothing else.

    A list or a file that is empty afterwards is removed, too.
    """
    change = settings.SettingsEdit(_file(**places), settings.uninstalled)
    _make(app, change, "uninstalled", [hook.event for hook in settings.hooks_of(change.before)], dry_run)


def _make(app: App, change: settings.SettingsEdit, done: str, events: list[str], dry_run: bool, **more: str) -> None:
    """Make a change, unless it is a dry run, and print it."""
    if not dry_run:
        change.make()
    told = {"file": change.file.path, "changed": change.changes, "events": events, **more, "diff": change.diff}
    app.show(told, lambda: _show(change, done, events, dry_run))


def _show(change: settings.SettingsEdit, done: str, events: Sequence[str], dry_run: bool) -> None:
    if dry_run:
        sys.stdout.write(printable(change.diff))
        if not change.changes:
            note("Nothing would change.")
    elif is_terminal() and not change.changes:
        say(f"Nothing to do in {change.file.path}.")
    elif is_terminal():
        say(f"{'Added to' if done == 'installed' else 'Removed from'} {change.file.path}: {', '.join(events)}.")
    else:
        say(fields(change.file.path, done if change.changes else "unchanged", ",".join(events)))


def _warn_if_off(path: str, text: str) -> None:
    if settings.are_switched_off(text):
        complain(f'warning: {path} says "disableAllHooks": true, so the host runs none of them')


# Which file, which events, which command --------------------------------------------------------


def _file(project: bool, local: bool, user: bool, path: str | None) -> settings.SettingsFile:
    if sum((project, local, user, path is not None)) > 1:
        raise UsageProblem("say which settings only once: --project, --local, --user or --settings FILE")
    if path is not None:
        return settings.SettingsFile(path, brings_folder=False)
    users = os.environ.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~/.claude")
    folder = users if user else ".claude"
    name = "settings.local.json" if local else "settings.json"
    return settings.SettingsFile(os.path.join(folder, name), brings_folder=True)


def _events(given: str | None) -> Sequence[str]:
    if given is None:
        return DEFAULT_EVENTS
    names = [name.strip() for name in given.split(",") if name.strip()]
    unknown = [name for name in names if name not in EVENTS]
    if unknown or not names:
        what = f"there is no event {', '.join(map(repr, unknown))}" if unknown else "--events names none"
        raise UsageProblem(f"{what}; known are {', '.join(EVENTS)}")
    return [event for event in EVENTS if event in names]


def _command(url: str | None) -> str:
    """Return the command that the host runs, quoted for its shell."""
    script = _script()
    if url is None:
        return shlex.join([script])
    scheme = url.partition("://")[0]
    if scheme != "sqlite":
        raise Unsupported(f"hooks cannot work on {scheme!r}; use sqlite:///FILE", url=scheme)
    path = os.path.abspath(config.sqlite_path(url))  # the host runs it in other folders, too
    return shlex.join([script, "--url", config.sqlite_url(path)])


def _script() -> str:
    """Return the script of this installation: a shim on PATH would start twice as slowly, or belong to another one."""
    folders = list(dict.fromkeys(_script_folders()))
    for folder in folders:
        path = os.path.join(folder, settings.SCRIPT)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    told = f"there is no {settings.SCRIPT} in {' or '.join(folders)}; install Moorage again, then repeat this"
    raise HookScriptNotFound(told, folders=folders)


def _script_folders() -> Iterator[str]:
    if os.path.basename(sys.argv[0]) == PROGRAM:  # this very script, whichever link started it
        yield os.path.dirname(os.path.realpath(sys.argv[0]))
    if sys.executable:
        yield os.path.dirname(os.path.abspath(sys.executable))
    yield sysconfig.get_path("scripts")


# Deliver ----------------------------------------------------------------------------------------


@hooks.subcommand("deliver", "moorage hooks deliver", "moorage hooks deliver --refused", "moorage --json hooks deliver")
@arguments.flag("--refused", "Also try refused events again, on this store.")
def deliver(app: App, refused: bool) -> int:
    """Store the events that hooks could not store.

    Prints how many were stored, still wait and were refused. Exit code 1 if one was refused or waits.
    """
    before, own = spool.contents(app.full_url), Spool(app.full_url, is_configured=app.url is None)
    put_back = own.put_back() if refused else 0
    _deliver(app.full_url, own)
    after = spool.contents(app.full_url)
    waiting, again = after.waiting - after.elsewhere, after.refused - before.refused + put_back
    stored = before.waiting - before.elsewhere + put_back - waiting - again
    done = {"stored": stored, "waiting": waiting, "refused": again}
    app.show(done, lambda: say(fields(*(f"{name} {count}" for name, count in done.items()))))
    return NO if waiting or again else 0


def _deliver(url: str, own: Spool) -> None:
    """Store the events that wait in the spool for this store, without a time limit."""
    if not own.has_something():
        return
    deps = config.open_deps(url, threaded=False)
    try:
        work.deliver(HookContext(deps, own), until=float("inf"))
    finally:
        drive(deps.store.close())


# Test -------------------------------------------------------------------------------------------


@hooks.subcommand("test", "moorage hooks test", "moorage hooks test --user", "moorage --json hooks test")
@settings_options
def test(app: App, /, **places: Any) -> int:
    """Try the installed command on a sample of each event.

    It runs as the host runs it, but on a temporary store. Exit code 1 if an event fails.
    """
    file = _file(**places)
    text = file.read()
    with settings.in_place(file, text):
        found, off = settings.hooks_of(text), settings.are_switched_off(text)
    if not found:
        raise HooksNotFound(f"{file.path} has no hooks of ours; `moorage hooks install` puts them in", file=file.path)
    trials = list(try_hooks(found, os.getcwd()))
    ok = all(trial.ok for trial in trials) and not off
    done = {"file": file.path, "ok": ok, "switched_off": off, "events": [trial.to_json() for trial in trials]}
    app.show(done, lambda: _show_trials(trials, file.path, text))
    return 0 if ok else NO


def _show_trials(trials: Sequence[Trial], path: str, text: str) -> None:
    show_rows(("event", "result", "exit", "ms", "answer"), [trial.row for trial in trials])
    if any(hook.command not in {trial.command for trial in trials} for hook in settings.hooks_of(text)):
        hint("The URL in the settings was not used: this was done on a temporary store.")
    _warn_if_off(path, text)


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
        return self.problem is None

    @property
    def row(self) -> tuple[object, ...]:
        answer = None if self.answer is None else encode_text(self.answer)
        state = "ok" if self.ok else "failed"
        return self.event, state, self.exit_code, self.milliseconds, self.problem or answer

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok, **msgspec.structs.asdict(self)}


def samples(cwd: str) -> dict[str, dict[str, Any]]:
    """Return one event of each kind by its name, in the order in which a host working in `cwd` sends them.

    They have every field of recorded events: one session that delegates once.
    """
    text = (files("moorage.doors.hooks") / "samples.json").read_text(encoding="utf-8")
    events: dict[str, dict[str, Any]] = decode(text.replace("CWD", encode_text(cwd)[1:-1]))
    return events


def try_hooks(hooks: Iterable[settings.Hook], cwd: str) -> Iterator[Trial]:
    """Try the hooks one after another, in the order of their events."""
    events = samples(cwd)
    order = list(events)
    with TemporaryDirectory(prefix="moorage-hooks-") as home:
        for hook in sorted(hooks, key=lambda hook: order.index(hook.event) if hook.event in order else len(order)):
            yield _try(hook, events.get(hook.event), cwd, home)


def _try(hook: settings.Hook, event: dict[str, Any] | None, cwd: str, home: str) -> Trial:
    url = config.sqlite_url(os.path.join(home, config.FILE_NAME))
    words = shlex.split(hook.command)
    command = shlex.join([words[0], "--url", url]) if "--url" in words else hook.command
    if event is None:
        return Trial(hook.event, command, None, 0, None, "", "there is no sample of this event")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_KEPT_OUT)}
    environment |= {"CLAUDE_PROJECT_DIR": cwd, "MOORAGE_HOME": home, "MOORAGE_URL": url}
    started = time.monotonic()
    code, out, err = _run(command, encode(event), cwd, environment, hook.timeout)
    spent = round((time.monotonic() - started) * 1000)
    answer, trouble = _read(out)
    said = err.decode(errors="replace").strip()
    return Trial(hook.event, command, code, spent, answer, said, _problem(code, said, hook.timeout) or trouble)


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
