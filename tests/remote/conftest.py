"""A server for these tests, and nothing of the caller's environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.remote.server import Doors

OURS = ("AGENT_SESSION_ID", "AGENT_SESSION_NAME", "AGENT_RUN_ID", "MOORAGE_URL", "MOORAGE_KEY", "MOORAGE_TOKEN")


@pytest.fixture(scope="session")
def doors() -> Iterator[Doors]:
    opened = Doors()
    yield opened
    opened.close()


@pytest.fixture
def address(doors: Doors, tmp_path: Path) -> Iterator[str]:
    """The URL of a server with an empty store."""
    opened = doors.open(f"sqlite:///{tmp_path / 'served.db'}")
    yield opened
    doors.shut(opened)


@pytest.fixture(autouse=True)
def outside_any_session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in OURS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MOORAGE_HOME", str(tmp_path / "home"))
