"""Every test of a supervisor ends with a look for what it left behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launcher.turns import Turns


@pytest.fixture
def turns(tmp_path: Path) -> Iterator[Turns]:
    turns = Turns(tmp_path)
    yield turns
    turns.close()
