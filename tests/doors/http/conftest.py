"""A server on either store, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from tests.contract.files import new_file
from tests.doors.http.process import Process, starting
from tests.doors.http.server import Served, serving


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of its own."""
    return f"sqlite:///{new_file(tmp_path)}" if request.param == "sqlite" else f"memory://{tmp_path}"


@pytest.fixture
async def served(url: str) -> AsyncIterator[Served]:
    async with serving(url) as server:
        yield server


@pytest.fixture
async def http(served: Served) -> AsyncIterator[httpx2.AsyncClient]:
    async with served.client() as client:
        yield client


@pytest.fixture(autouse=True)
def outside_any_session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No agent's environment, and a home of its own."""
    for name in ("AGENT_SESSION_ID", "AGENT_SESSION_NAME", "AGENT_RUN_ID", "MOORAGE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MOORAGE_HOME", str(tmp_path / "home"))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts servers on one home, ended after the test."""
    with starting(tmp_path) as begin:
        yield begin
