"""The stores that every kit runs on, and nothing of the caller's environment.

The suite runs them on SQLite and through a server, and on SQLite where processes race, because each process loads a
framework. `./dev kits` runs them on every store, as MOORAGE_TEST_ALL=1 does: adapters use the interface of stores, and
the contract is what tests stores.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.testing.redis import RedisServer
from tests.adapters.conftest import doors, own_environment
from tests.contract.choice import IS_ALL
from tests.remote.server import Doors

STORES = ("memory", "sqlite", "postgres", "redis", "http") if IS_ALL else ("sqlite", "http")
RACING = "langgraph"  # the framework whose processes race and are killed in each run of the suite
FOR_PROCESSES = ("sqlite", "postgres", "redis") if IS_ALL else ("sqlite",)

__all__ = ["doors", "own_environment"]


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store, one of each kind."""
    yield from _empty(request, tmp_path)


@pytest.fixture(params=FOR_PROCESSES)
def process_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store for several processes, one of each kind."""
    if not IS_ALL and request.path.parent.name != RACING:
        pytest.skip("each process would load the framework: ./dev kits runs it")
    yield from _empty(request, tmp_path)


@pytest.fixture(params=STORES, scope="module")
def shared_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a store for all tests of a module, one of each kind."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _empty(request, Path(folder))


@pytest.fixture(params=("sqlite", "postgres"))
def source(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A file of SQLite, and the URL of a PostgreSQL database, for a framework to write what is to be moved in."""
    return str(tmp_path / "theirs.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url"))


def _empty(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    if request.param == "postgres":
        with request.getfixturevalue("postgres").database() as url:
            yield url
    elif request.param == "redis":
        server: RedisServer = request.getfixturevalue("valkey")
        server.ask("FLUSHALL")
        yield server.url()
    elif request.param == "http":
        doors: Doors = request.getfixturevalue("doors")
        url = doors.open(f"sqlite:///{folder / 'kit.db'}")
        yield url
        doors.shut(url)
    else:
        yield f"sqlite:///{folder / 'kit.db'}" if request.param == "sqlite" else f"memory://{folder}"
