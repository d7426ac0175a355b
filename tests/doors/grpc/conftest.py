"""A home of its own for every test, so that agents, leases and stores are nobody else's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.doors.grpc.serving import Served, serving


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
async def served(home: Path) -> AsyncIterator[Served]:
    async with serving(f"sqlite:///{home}/store.db") as server:
        yield server
