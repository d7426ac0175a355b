"""A launcher inside the caller's process, when it is closed: no agent is left, and no two work for one session."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moorage import config
from moorage.core.agent import AgentDefinition, AgentKind
from moorage.core.run import Run
from moorage.core.turn import LOST_AFTER
from moorage.launcher.embedded import Embedded
from moorage.launcher.handles import TurnFolder
from moorage.launcher.turn_files import locked
from moorage.service import runs
from moorage.service.presence import SEEN_GONE, clear_up
from moorage.testing.faults import PATIENCE
from tests.doors.http.process import starting
from tests.launcher.stage import Stage, on
from tests.launcher.test_processes import is_alive

# Takes its workspace for itself, and a while to tidy up when it is told to end.
TIDY = """\
import fcntl, os, signal, sys, time
home = {home!r}
with open(home + "/workspace", "a+") as workspace:
    try:
        fcntl.flock(workspace, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        open(home + "/overlap", "w").close()

    def tidy_up(*_):
        time.sleep(1)
        sys.exit(1)

    signal.signal(signal.SIGTERM, tidy_up)
    if "cut off" in sys.stdin.read():
        print("done at last")
    else:
        with open(home + "/pid", "w") as file:
            file.write(f"{{os.getpid()}}\\n")
        time.sleep(60)
"""


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    script = tmp_path / "tidy.py"
    script.write_text(TIDY.format(home=str(tmp_path)))
    async with on(f"sqlite:///{tmp_path / 'moorage.db'}", tmp_path) as made:
        made.definitions["tidy"] = AgentDefinition(
            name="tidy", kind=AgentKind.COMMAND, command=(sys.executable, str(script))
        )
        yield made


async def at_work(stage: Stage) -> tuple[Run, int]:
    """A run whose agent is at work, and its process id."""
    asked = await stage.ask("tidy")
    pid = stage.folder / "pid"
    async with asyncio.timeout(30):
        while not (pid.exists() and pid.read_text().endswith("\n")):  # noqa: ASYNC110  # a process tells by a file
            await asyncio.sleep(0.02)
    return asked.run, int(pid.read_text())


@pytest.mark.parametrize("how", ["in a hurry", "cancelled"])
async def test_an_agent_has_ended_before_its_turn_is_given_to_another(stage: Stage, how: str) -> None:
    first = await Embedded(stage.deps, lambda: stage.definitions).__aenter__()
    run, pid = await at_work(stage)
    async with Embedded(stage.deps, lambda: stage.definitions):
        closing = asyncio.create_task(first.close(drain=how == "cancelled"))
        await asyncio.sleep(0)
        if how == "cancelled":  # as Ctrl-C does to a command that waits for agents
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
        else:
            await closing
        assert not is_alive(pid)
        assert (await runs.wait_for_run(stage.deps, stage.caller, run.run_id, timeout=30)).result == "done at last"
    assert not (stage.folder / "overlap").exists(), "two agents at once in one workspace"


async def test_a_launcher_that_is_closed_waits_for_agents_that_end_soon(stage: Stage) -> None:
    async with Embedded(stage.deps, lambda: stage.definitions) as launcher:
        run, pid = await at_work(stage)
        assert launcher.at_work == {run.session_id}
        await runs.stop_run(stage.deps, stage.caller, run.run_id)
    assert not is_alive(pid)
    assert (await runs.get_run(stage.deps, stage.caller, run.run_id)).state.value == "stopped"


# Remains of killed processes ----------------------------------------------------------------------

HOLDS_A_FOLDER = """\
import asyncio, sys
from moorage import config
from moorage.launcher.embedded import Embedded

async def main():
    async with Embedded(config.open_deps("memory://", threaded=True), dict):
        print("ready", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private temporary folder, for this process and for those that it starts."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


@contextmanager
def a_launcher() -> Iterator[subprocess.Popen[str]]:
    """A process with a launcher inside."""
    with subprocess.Popen([sys.executable, "-c", HOLDS_A_FOLDER], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def seen_long_ago(temporary: Path) -> None:
    """Have it that launchers were seen to be gone so long ago that their turns are lost without proof."""
    at = time.time() - LOST_AFTER.total_seconds()
    for mark in temporary.glob(f"*/{SEEN_GONE}"):
        os.utime(mark, (at, at))


def folders(temporary: Path) -> set[Path]:
    return set(temporary.glob("moorage-turns-*"))


@pytest.mark.parametrize("by", ["launcher", "server"])
async def test_folders_of_killed_launchers_go_and_those_of_living_ones_stay(
    tmp_path: Path, temporary: Path, by: str
) -> None:
    with a_launcher():
        living = folders(temporary)
        with a_launcher() as killed:
            left = folders(temporary) - living
            killed.kill()
            killed.wait(PATIENCE)
            clear_up()
            assert folders(temporary) == living | left, "it is proof that its turns are lost"
            seen_long_ago(temporary)
            if by == "server":
                with starting(tmp_path) as begin:
                    assert begin("--no-launcher", "--no-grpc").url
            else:
                async with Embedded(config.open_deps("memory://", threaded=True), dict):
                    assert len(folders(temporary)) == 2
            assert folders(temporary) == living
    assert len(living) == len(left) == 1


def test_folder_stays_while_a_supervisor_in_it_lives(temporary: Path) -> None:
    with a_launcher() as killed:
        (left,) = folders(temporary)
    assert killed.returncode is not None
    turn = TurnFolder(str(left / "turns" / "turn"))
    Path(turn.path).mkdir(parents=True)
    lock = locked(str(Path(turn.path) / "lock"))
    assert lock is not None
    clear_up()
    assert folders(temporary) == {left}
    os.close(lock)
    clear_up()
    seen_long_ago(temporary)
    clear_up()
    assert folders(temporary) == set()
