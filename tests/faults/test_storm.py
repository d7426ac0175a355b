"""A storm over servers on one SQLite file: see tests/fleet/storm.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fleet.storm import LENGTH, rage


@pytest.mark.timeout(300 * LENGTH)
def test_nothing_is_lost_and_nothing_done_twice_in_a_storm(tmp_path: Path) -> None:
    assert rage(lambda _: f"sqlite:///{tmp_path / 'moorage.db'}", None, tmp_path) == []
