"""A server to be attacked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.doors.web.stage import Stage


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory.mktemp("attacked"), "--no-launcher")
    yield stage
    stage.close()
