"""A home of its own for each test, and nothing of the caller's environment."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage import sync

OURS = ("AGENT_", "MOORAGE_", "_MOORAGE_", "XDG_", "CLAUDE", "PYTHONWARNINGS")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for data; the current folder is another one."""
    for name in list(os.environ):
        if name.startswith(OURS):
            monkeypatch.delenv(name)
    folder, workplace = tmp_path / "home", tmp_path / "workplace"
    workplace.mkdir()
    monkeypatch.setenv("MOORAGE_HOME", str(folder))
    monkeypatch.chdir(workplace)
    return folder


@pytest.fixture
def database(home: Path) -> Path:
    """The file that hooks use."""
    return home / "moorage.db"


@pytest.fixture
def url(database: Path) -> str:
    """The same as a URL."""
    return f"sqlite:///{database}"


@pytest.fixture
def moor(url: str, home: Path) -> Iterator[sync.Moorage]:
    """The store that hooks use."""
    home.mkdir(exist_ok=True)
    with sync.connect(url) as moor:
        yield moor
