"""Steps of the clock while an agent works, with real processes: no turn is lost, no agent is started twice.

tests/fleet/clock.py sets the clocks.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

import moorage
from moorage.core.errors import StoreError
from moorage.testing.postgres import PostgresServer
from tests.fleet.clock import Faketime, NoFaketime
from tests.launcher.serving import free_port
from tests.launcher.test_processes import PATIENCE

AGENT = """\
import os, sys
sys.stdin.read()
with open({home!r} + "/journal", "a") as journal:
    journal.write(f"{{os.getpid()}}\\n")
open({home!r} + "/go").read()  # a pipe: libfaketime lets sleepers oversleep
print("done")
"""
STEPS = ("+20m", "+0", "+2h", "+0")  # one after the other: 20 minutes and two hours, forward and back
LOOKS = 1.0  # seconds in which every judge of leases looks several times


class Scene:
    """A home with an agent that works until it is told to end."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / "agents").mkdir()
        os.mkfifo(home / "go")
        (home / "slow.py").write_text(AGENT.format(home=str(home)))
        (home / "agents" / "slow.toml").write_text(
            f'[agent]\nname = "slow"\nkind = "command"\ncommand = ["{sys.executable}", "{home / "slow.py"}"]\n'
            "timeout = 600\nidle_timeout = 600\n"
        )

    @property
    def started(self) -> int:
        """How often the agent was started."""
        journal = self.home / "journal"
        return len(journal.read_text().split()) if journal.exists() else 0

    @asynccontextmanager
    async def process(self, *command: str, **env: str) -> AsyncIterator[None]:
        """A command of Moorage that runs as long as the block."""
        running = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "moorage", *command, env={**os.environ, **env}, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                running.terminate()
            await asyncio.wait_for(running.wait(), PATIENCE)

    async def completes_once(self, moor: moorage.Moorage, faketime: Faketime, *steps: str, slept: float = 0) -> None:
        """A run during which the clock steps ends well, in one turn."""
        run = await asked_for(moor)
        async with asyncio.timeout(PATIENCE):
            while not self.started:  # noqa: ASYNC110  # a process tells by a file
                await asyncio.sleep(0.02)
        for step in steps:
            faketime.set(step, slept=slept)
            await asyncio.sleep(LOOKS)  # that nothing happens is what is tested
            assert (self.started, (await moor.result(run)).turns) == (1, 1), step
        await asyncio.to_thread((self.home / "go").write_text, "go")
        over = await moor.result(run, wait=PATIENCE)
        assert (over.state.value, over.result, over.turns) == ("completed", "done", 1)
        assert self.started == 1


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("MOORAGE_HOME", str(tmp_path))
    return Scene(tmp_path)


@pytest.fixture
def faketime(tmp_path_factory: pytest.TempPathFactory) -> Faketime:
    return clock_in(tmp_path_factory.mktemp("clock"))


def clock_in(folder: Path) -> Faketime:
    try:
        return Faketime(folder)
    except NoFaketime as missing:
        pytest.skip(str(missing))


@pytest.fixture
def faked_postgres(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Faketime]]:
    """A database whose clock is set by a file that its user can read."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="moor-clock-", dir="/tmp") as folder:
        clock = clock_in(Path(folder))
        with monkeypatch.context() as inherited:
            for name, value in clock.env.items():
                inherited.setenv(name, value)
            server = PostgresServer()
        with server, server.database() as url:
            yield url, clock


async def asked_for(moor: moorage.Moorage) -> str:
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(StoreError):
                return (await moor.run("slow", "go", mode="async_poll")).run.run_id
            await asyncio.sleep(0.1)


def serve(port: int, store: str, *more: str) -> tuple[str, ...]:
    return ("serve", "--host", "127.0.0.1", "--port", str(port), "--no-grpc", "--store", store, *more)


@pytest.mark.timeout(180)
async def test_clock_of_a_server_and_its_own_launcher_steps(scene: Scene, faketime: Faketime) -> None:
    port = free_port()
    server = scene.process(*serve(port, f"sqlite:///{scene.home / 'db'}"), **faketime.env)
    async with server, moorage.connect(f"http://127.0.0.1:{port}") as moor:
        await scene.completes_once(moor, faketime, *STEPS)


@pytest.mark.timeout(180)
@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system does not tell how long it slept")
async def test_machine_that_sleeps_costs_no_turn(scene: Scene, faketime: Faketime) -> None:
    port = free_port()
    server = scene.process(*serve(port, f"sqlite:///{scene.home / 'db'}"), **faketime.env)
    async with server, moorage.connect(f"http://127.0.0.1:{port}") as moor:
        await scene.completes_once(moor, faketime, "+2h", slept=7200)


@pytest.mark.timeout(180)
async def test_clock_of_a_server_steps_and_that_of_its_launcher_does_not(scene: Scene, faketime: Faketime) -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    server = scene.process(*serve(port, f"sqlite:///{scene.home / 'db'}", "--no-launcher"), **faketime.env)
    async with server, scene.process("--url", address, "launcher"), moorage.connect(address) as moor:
        await scene.completes_once(moor, faketime, *STEPS)


@pytest.mark.timeout(180)
async def test_command_started_after_a_clock_step_expires_no_lease(scene: Scene, faketime: Faketime) -> None:
    url = f"sqlite:///{scene.home / 'db'}"
    async with moorage.connect(url) as moor:  # its own launcher takes the turn
        run = await asked_for(moor)
        async with asyncio.timeout(PATIENCE):
            while not scene.started:  # noqa: ASYNC110  # a process tells by a file
                await asyncio.sleep(0.02)
        for step in ("+20m", "+20m", "+2h", "+2h", "-2h"):
            faketime.set(step)
            command = (sys.executable, "-m", "moorage", "--url", url, "run", "echo-agent", "hello")
            other = await asyncio.create_subprocess_exec(
                *command, env={**os.environ, **faketime.env}, stdout=asyncio.subprocess.DEVNULL
            )
            assert await asyncio.wait_for(other.wait(), PATIENCE) == 0
        await asyncio.to_thread((scene.home / "go").write_text, "go")
        over = await moor.result(run, wait=PATIENCE)
        assert (over.state.value, over.turns, scene.started) == ("completed", 1, 1)


@pytest.mark.timeout(240)
async def test_clock_of_the_database_steps(scene: Scene, faked_postgres: tuple[str, Faketime]) -> None:
    url, clock = faked_postgres
    port = free_port()
    async with scene.process(*serve(port, url)), moorage.connect(f"http://127.0.0.1:{port}") as moor:
        await scene.completes_once(moor, clock, *STEPS)
