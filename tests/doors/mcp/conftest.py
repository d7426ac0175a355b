"""A home of its own for every test, and a server on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.doors.mcp.serving import Served, serving


@pytest.fixture
async def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    monkeypatch.setenv("MOORAGE_HOME", str(tmp_path))
    async with serving(tmp_path) as server:
        yield server
