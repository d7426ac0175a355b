"""Places where files are broken on purpose."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def outside_any_session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No agent's environment, and a home of its own; workers inherit both."""
    for name in ("AGENT_SESSION_ID", "AGENT_SESSION_NAME", "MOORAGE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MOORAGE_HOME", str(tmp_path / "home"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a database may be."""
    return tmp_path / "moorage.db"


@pytest.fixture
def url(path: Path) -> str:
    """How to connect to it."""
    return f"sqlite:///{path}"


@pytest.fixture
def is_root() -> bool:
    """Whether permissions mean nothing to this process."""
    return os.geteuid() == 0
