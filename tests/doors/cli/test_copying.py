"""migrate --from --to: a whole store into another one, checked, resumable, refused when it would lose something."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import moorage.sync
from moorage.config import open_store
from moorage.service.copying import CHUNK
from moorage.service.leases import note_beat
from moorage.stores.sqlite.store import SqliteStore
from moorage.testing.builders import NOON, OWNER, drive, said
from moorage.testing.contract.dump import a_full_store, everything
from moorage.testing.faults import Worker
from tests.doors.cli.running import Cli


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A store with something of everything in it, and a turn that runs."""
    path = tmp_path / "source.db"
    store = SqliteStore.open(path)
    drive(a_full_store(store))
    drive(store.close())
    return f"sqlite:///{path}"


@pytest.fixture
def target(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'target.db'}"


def all_of(url: str) -> object:
    store = open_store(url, threaded=False)
    try:
        return drive(everything(store))
    finally:
        drive(store.close())


def test_everything_is_copied_and_compared(cli: Cli, source: str, target: str) -> None:
    before = all_of(source)
    counted = cli("migrate", "--from", source, "--to", target, "--dry-run", "--json").json["to_copy"]
    assert not Path(target.removeprefix("sqlite:///")).exists()

    done = cli("migrate", "--from", source, "--to", target, "--force", "--json").json

    assert all_of(target) == before == all_of(source)
    assert done["copied"]["session"] == counted["session"] == 10
    assert len(done["digest"]) == 64
    assert not done["went_on"]


def test_it_says_so_in_words(cli: Cli, source: str, target: str) -> None:
    lines = cli("migrate", "--from", source, "--to", target, "--force").lines
    assert any(line.split() == ["copied.session", "10"] for line in lines)


def test_running_turns_are_named_and_nothing_is_copied(cli: Cli, source: str, target: str) -> None:
    done = cli("migrate", "--from", source, "--to", target, "--json")
    assert (done.code, done.json["code"]) == (4, "store_in_use")
    assert "p-1" in done.json["detail"]


def test_a_store_that_a_server_uses_is_refused(cli: Cli, plan: str, database: Path, target: str) -> None:
    from moorage.config import SystemClock

    store = SqliteStore.open(database)
    drive(note_beat(store, "server-1", SystemClock().now()))
    drive(store.close())
    done = cli("migrate", "--from", f"sqlite:///{database}", "--to", target, "--json")
    assert (done.code, done.json["code"]) == (4, "store_in_use")


def test_a_target_with_something_in_it_is_left_alone(cli: Cli, source: str, plan: str, database: Path) -> None:
    done = cli("migrate", "--from", source, "--to", f"sqlite:///{database}", "--force", "--json")
    assert (done.code, done.json["code"]) == (4, "store_not_empty")
    assert len(cli("list").lines) == 1


def test_a_copy_of_another_store_is_not_gone_on_with(cli: Cli, source: str, target: str) -> None:
    store = open_store(target, threaded=False)
    drive(store.load([], json.dumps({"source": "sqlite:////somewhere/else.db", "kind": "session", "cursor": None})))
    drive(store.close())
    done = cli("migrate", "--from", source, "--to", target, "--force", "--json")
    assert (done.code, done.json["code"]) == (4, "store_not_empty")
    assert "/somewhere/else.db" in done.json["detail"]


@pytest.mark.parametrize("flags", [("--from", "sqlite:///a.db"), ("--to", "sqlite:///a.db")])
def test_one_without_the_other_is_a_mistake(cli: Cli, flags: tuple[str, str]) -> None:
    assert cli("migrate", *flags).code == 2


@pytest.mark.parametrize("url", ["memory://", "http://127.0.0.1:1", "sqlite:///missing.db"])
def test_memory_store_and_missing_file_are_refused(cli: Cli, url: str, target: str) -> None:
    assert cli("migrate", "--from", url, "--to", target).code == 2
    assert not Path("missing.db").exists()


def test_a_store_is_not_copied_into_itself(cli: Cli, plan: str, database: Path) -> None:
    url = f"sqlite:///{database}"
    same = database.parent / ".." / database.parent.name / database.name
    assert cli("migrate", "--from", url, "--to", f"sqlite:///{same}").code == 2
    assert len(cli("list", "--url", url).lines) == 1


# Cut off ----------------------------------------------------------------------------------------

COPIER = """
import os, signal, sys
from moorage.doors.cli.app import run
from moorage.stores.sqlite.store import SqliteStore
real, left = SqliteStore.load, int(sys.argv[3])

async def load(self, records, mark):
    global left
    await real(self, records, mark)
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

SqliteStore.load = load
sys.exit(run(["migrate", "--from", sys.argv[1], "--to", sys.argv[2], "--force"]))
"""


@pytest.mark.parametrize("commits", [1, 2, 4, 7, 12])
def test_a_copy_that_was_killed_goes_on(cli: Cli, source: str, target: str, commits: int) -> None:
    with moorage.sync.connect(source) as moor:  # several commits for one kind
        long = moor.create(agent="talker", session_id="long")
        for _ in range(3):
            moor.append(long.id, [{"role": "user", "content": f"line {n}"} for n in range(CHUNK)])
    with Worker(COPIER, source, target, commits) as copier:
        os.waitid(os.P_PID, copier.pid, os.WEXITED | os.WNOWAIT)

    done = cli("migrate", "--from", source, "--to", target, "--force", "--json").json

    assert done["went_on"]
    assert all_of(target) == all_of(source)


def test_a_source_that_changed_meanwhile_is_noticed(cli: Cli, source: str, target: str) -> None:
    with Worker(COPIER, source, target, 4) as copier:
        os.waitid(os.P_PID, copier.pid, os.WEXITED | os.WNOWAIT)
    store = open_store(source, threaded=False)
    from moorage.testing.builders import a_stamp

    drive(store.append(OWNER, "s-1", said("late"), a_stamp(NOON)))
    drive(store.close())

    done = cli("migrate", "--from", source, "--to", target, "--force", "--json")
    assert (done.code, done.json["code"]) == (4, "copy_differs")
    assert done.json["kind"] == "session"
