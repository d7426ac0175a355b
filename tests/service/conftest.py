"""Two stores, one service: every test here runs in memory, on a file, and over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from moorage.service.deps import Settings
from moorage.testing.builders import FakeClock
from tests.contract.files import new_file
from tests.remote.server import Doors
from tests.service.doors import Place, Served, ServedTimed, Timed, timed_on


@pytest.fixture(scope="session")
def doors() -> Iterator[Doors]:
    """One server for all tests."""
    opened = Doors()
    yield opened
    opened.close()


@pytest.fixture(params=["memory", "sqlite", "http"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Somewhere that several callers can connect to."""
    url = f"memory://{tmp_path}" if request.param == "memory" else f"sqlite:///{new_file(tmp_path)}"
    with ExitStack() as connections:
        if request.param == "http":
            doors: Doors = request.getfixturevalue("doors")
            address = doors.open(url)
            connections.callback(doors.shut, address)
            yield Served(address, connections)
        else:
            yield Place(url, connections)


@pytest.fixture(params=["model", "sqlite", "http"])
def timed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Timed]:
    """The same with a clock that stands still until the test moves it."""
    with ExitStack() as connections:
        if request.param == "http":
            doors: Doors = request.getfixturevalue("doors")
            yield ServedTimed(new_file(tmp_path), doors, Settings(), FakeClock(), connections)
        else:
            yield timed_on(request.param, tmp_path, connections)


@pytest.fixture(params=["model", "sqlite"])
def timed_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Timed]:
    """The same without a server in between, for what only servers themselves do."""
    with ExitStack() as connections:
        yield timed_on(request.param, tmp_path, connections)


@pytest.fixture(autouse=True)
def outside_any_session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No agent's environment, and a home of its own."""
    for name in ("AGENT_SESSION_ID", "AGENT_SESSION_NAME", "MOORAGE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MOORAGE_HOME", str(tmp_path / "home"))
