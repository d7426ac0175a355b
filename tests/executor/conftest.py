"""A connection in memory, on a file and on a server, each with a launcher."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import moorage
from moorage.api import Moorage
from tests.remote.conftest import OURS
from tests.remote.server import Doors


@pytest.fixture(scope="session")
def doors() -> Iterator[Doors]:
    opened = Doors()
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where agents are defined."""
    for name in OURS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MOORAGE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(params=["memory", "sqlite", "http"])
def url(request: pytest.FixtureRequest, tmp_path: Path, home: Path) -> Iterator[str]:
    if request.param == "memory":
        yield f"memory://{tmp_path}"
    elif request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'moorage.db'}"
    else:
        doors: Doors = request.getfixturevalue("doors")
        address = doors.open(f"sqlite:///{tmp_path / 'served.db'}")
        doors.launching(address)
        yield address
        doors.shut(address)


@pytest.fixture
async def moor(url: str) -> AsyncIterator[Moorage]:
    async with moorage.connect(url) as connected:
        yield connected
