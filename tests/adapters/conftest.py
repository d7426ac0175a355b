"""Every store that an adapter may stand on, and nothing of the caller's environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.remote.conftest import OURS
from tests.remote.server import Doors

STORES = ("memory", "sqlite", "postgres", "http")


@pytest.fixture(scope="session")
def doors() -> Iterator[Doors]:
    opened = Doors()
    yield opened
    opened.close()


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store, one of each kind."""
    file = f"sqlite:///{tmp_path / 'adapters.db'}"
    if request.param == "http":
        doors: Doors = request.getfixturevalue("doors")
        opened = doors.open(file)
        yield opened
        doors.shut(opened)
    elif request.param == "postgres":
        yield request.getfixturevalue("postgres_url")
    else:
        yield file if request.param == "sqlite" else f"memory://{tmp_path}"


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in OURS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MOORAGE_HOME", str(tmp_path / "home"))
