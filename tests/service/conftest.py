"""Two stores, one service: every test here runs in memory and on a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.service.doors import Place, Timed, timed_on


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Somewhere that several callers can connect to."""
    url = f"sqlite:///{tmp_path / 'holdfast.db'}" if request.param == "sqlite" else f"memory://{tmp_path}"
    with ExitStack() as connections:
        yield Place(url, connections)


@pytest.fixture(params=["memory", "sqlite"])
def timed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Timed]:
    """The same with a clock that stands still until the test moves it."""
    with ExitStack() as connections:
        yield timed_on(request.param, tmp_path, connections)


@pytest.fixture(autouse=True)
def nobody_started_us(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No agent's environment, and a home of its own."""
    for name in ("AGENT_SESSION_ID", "AGENT_SESSION_NAME", "HOLDFAST_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
