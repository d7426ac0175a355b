"""Presence of launchers: the agents they start, and proof that a one-off launcher is gone."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from moorage import config
from moorage.core.agent import AgentDefinition, AgentKind
from moorage.core.ids import uuid7
from moorage.core.turn import Launcher
from moorage.launcher.handles import StarterByKind
from moorage.launcher.loop import Loop
from moorage.service import presence
from moorage.service.launchers import all_launchers
from moorage.service.presence import is_gone
from moorage.service.turns import TurnDispatcher

ID = uuid7(1, bytes(10))


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private temporary folder."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def lock() -> int:
    """The lock of a one-off launcher."""
    return presence.make(ID)[1]


def test_launcher_is_gone_once_its_lock_is_free(lock: int) -> None:
    assert not is_gone(ID)
    os.close(lock)
    assert is_gone(ID)


def test_launcher_whose_supervisor_lives_is_not_gone(lock: int, temporary: Path) -> None:
    turn = temporary / f"{presence.PREFIX}{ID}" / presence.TURNS / "turn"
    turn.mkdir(parents=True)
    held = os.open(turn / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)
    os.close(lock)
    assert not is_gone(ID)
    os.close(held)
    assert is_gone(ID)


def test_launcher_whose_agent_outlived_its_supervisor_is_not_gone(lock: int, temporary: Path) -> None:
    turn = temporary / f"{presence.PREFIX}{ID}" / presence.TURNS / "turn"
    turn.mkdir(parents=True)
    os.close(lock)
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as agent:
        (turn / "pid.json").write_text(json.dumps({"agent": {"pid": agent.pid, "pgid": agent.pid}}))
        assert not is_gone(ID)
        agent.kill()
    assert is_gone(ID)


@pytest.mark.parametrize("what", ["missing", "no lock", "a link", "another name"])
def test_unproven_exit_does_not_end_a_lease(what: str, temporary: Path) -> None:
    folder, elsewhere = temporary / f"{presence.PREFIX}{ID}", temporary / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "lock").touch()
    launcher_id = ID
    if what == "no lock":
        folder.mkdir()
    elif what == "a link":
        folder.symlink_to(elsewhere)
    elif what == "another name":
        launcher_id = "/../elsewhere"
        (temporary / presence.PREFIX).mkdir()
    assert not is_gone(launcher_id)


async def test_launcher_tells_of_agents_that_are_added_later(tmp_path: Path) -> None:
    deps = config.open_deps("memory://", threaded=True)
    known = {"one": AgentDefinition(name="one", kind=AgentKind.BUILTIN)}
    now = datetime.now(UTC)
    launcher = Launcher(launcher_id="l", name="l", registered_at=now, seen_at=now, slots=1, agents=("one",))
    starter = StarterByKind(str(tmp_path / "turns"))
    loop, stop = Loop(TurnDispatcher(deps), launcher, starter, lambda: known, beat_every=0.01), asyncio.Event()
    working = asyncio.create_task(loop.run(stop))

    async def told(*agents: str) -> None:
        async with asyncio.timeout(30):
            while True:
                seen = deps.store.pulse()
                if [each.agents for each in await all_launchers(deps.store)] == [agents]:
                    return
                await deps.store.wait(seen, 0.05)

    await told("one")
    known["two"] = AgentDefinition(name="two", kind=AgentKind.BUILTIN)
    await told("one", "two")
    stop.set()
    await working
    await deps.store.close()
