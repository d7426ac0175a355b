"""The database file is removed or replaced while a process has it open."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import httpx2
import pytest

from moorage import sync
from moorage.core.errors import StoreReplaced
from moorage.testing.faults import PATIENCE
from tests.doors.web.stage import Stage, until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "moorage.db"


def moved(path: Path, to: Path) -> None:
    for end in ("", "-wal", "-shm"):
        if (file := path.with_name(path.name + end)).exists():
            file.rename(to.with_name(to.name + end))


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_writes_to_a_file_that_is_gone_are_refused(path: Path, how: str) -> None:
    with sync.connect(f"sqlite:///{path}") as moor:
        moor.create(session_id="s")
        moved(path, path.with_name("aside.db"))
        if how == "replaced":
            with sync.connect(f"sqlite:///{path}") as other:
                other.create(session_id="other")
        for write in (lambda: moor.append("s", "lost?"), lambda: moor.create(session_id="t")):
            with pytest.raises(StoreReplaced):
                write()
        if how == "replaced":
            for end in ("", "-wal", "-shm"):
                path.with_name(path.name + end).unlink(missing_ok=True)
        moved(path.with_name("aside.db"), path)
        assert [entry.number for entry in moor.append("s", "kept")] == [2]
    with sync.connect(f"sqlite:///{path}") as again:
        assert [entry.text for entry in again.messages("s").items] == ["kept"]
        assert len(again.list().items) == 1


def test_relative_path_is_found_after_a_change_of_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with sync.connect("sqlite:///moorage.db") as moor:
        moor.create(session_id="s")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        moor.append("s", "kept")


def test_server_acknowledges_nothing_while_its_file_is_gone(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "--no-launcher")
    try:
        path = tmp_path / "moorage.db"
        session = stage.create()
        stage.ask("POST", f"/sessions/{session}/messages", {"content": "before", "run": False})
        moved(path, path.with_name("aside.db"))
        with httpx2.Client(base_url=stage.url, timeout=PATIENCE) as http:
            answer = http.post(f"/sessions/{session}/messages", json={"content": "lost?", "run": False})
            assert (answer.status_code, answer.json()["code"]) == (503, "store_replaced")
            ready = http.get("/readyz")
            assert (ready.status_code, ready.json()["code"]) == (503, "store_replaced")
            moved(path.with_name("aside.db"), path)
            assert until(lambda: http.get("/readyz").status_code == 200)
        stage.ask("POST", f"/sessions/{session}/messages", {"content": "after", "run": False})
        texts = [each["content"] for each in stage.ask("GET", f"/sessions/{session}/messages")["items"]]
        assert texts == ["before", "after"]
    finally:
        stage.close()


def test_new_database_is_readable_by_its_owner_alone(path: Path) -> None:
    before = os.umask(0o022)
    try:
        with sync.connect(f"sqlite:///{path}") as moor:
            moor.create(session_id="s")
            files = [each for each in path.parent.iterdir() if each.name.startswith(path.name)]
            assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
            assert len(files) == 3  # with its log
    finally:
        os.umask(before)


def test_mode_of_an_existing_database_is_left_alone(path: Path) -> None:
    with sync.connect(f"sqlite:///{path}") as moor:
        moor.create(session_id="s")
    path.chmod(0o660)
    with sync.connect(f"sqlite:///{path}") as moor:
        moor.append("s", "shared")
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
