"""Fixtures of launchers and supervisors. Tests of a supervisor end with a look for what it left behind."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.launcher.stage import Stage, on
from tests.launcher.turns import Turns


@pytest.fixture
def turns(tmp_path: Path) -> Iterator[Turns]:
    turns = Turns(tmp_path)
    yield turns
    turns.close()


@pytest.fixture(params=["memory", "sqlite", "http", "postgresql", "valkey"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    """A launcher on each kind of store, and one at a server."""
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")
    elif request.param == "valkey":
        url = request.getfixturevalue("valkey").url()
    else:
        url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'moorage.db'}"
    async with on(url, tmp_path, over_http=request.param == "http") as made:
        yield made
