"""cleanup, from a terminal and from cron; migrate, doctor."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from moorage import sync
from moorage.ports import Sweep
from moorage.stores.sqlite import connection
from moorage.stores.sqlite.store import SqliteStore
from tests.doors.cli.conftest import SOURCE
from tests.doors.cli.running import PATIENCE, Cli, Done, Terminal, contents
from tests.doors.cli.test_start_up import loaded_by


def make_old(database: Path, hours: int = 48) -> None:
    db = apsw.Connection(str(database))
    db.execute(f"UPDATE sessions SET last_activity_at = last_activity_at - {hours} * 3600 * 1000000")
    db.close()


# cleanup ----------------------------------------------------------------------------------------


def test_cleanup_previews_then_deletes_what_is_old(cli: Cli, plan: str, database: Path) -> None:
    assert cli("cleanup", "--hours", "24").lines == []
    make_old(database)
    preview = cli("cleanup", "--hours", "24", "--dry-run")
    assert preview.lines == [f"{plan}\tactive\tarchitect\tplan-prod\tretention\t2d\t1d\thours"]
    assert cli("get", plan).code == 0
    assert cli("cleanup", "--json").json["session_ids"] == [plan]
    assert cli("get", plan).code == 3


def test_cleanup_can_be_limited_to_states(cli: Cli, plan: str, database: Path) -> None:
    make_old(database)
    assert cli("cleanup", "--hours", "1", "--state", "completed", "--state", "failed").lines == []
    assert len(cli("cleanup", "--hours", "1", "--state", "active").lines) == 1


@pytest.mark.parametrize("hours", ["-1", "nan"])
def test_cleanup_of_impossible_hours_is_refused(cli: Cli, plan: str, hours: str) -> None:
    done = cli("cleanup", "--hours", hours, "--json")
    assert (done.code, done.json["code"]) == (2, "invalid_hours")


POLICY = """
[retention]
age = "90m"
[retention.ages]
completed = "7d"
suspended = "never"
"""


def configure(home: Path, text: str = POLICY) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(text, encoding="utf-8")


def test_cleanup_goes_by_the_policy_and_says_which_limit_applied(cli: Cli, home: Path, database: Path) -> None:
    configure(home)
    for name in ("open-one", "done-one", "idle-one"):
        cli("create", "--session-id", name)
    cli("finalize", "done-one", "completed")
    cli("suspend", "idle-one")
    make_old(database)
    assert cli("cleanup", "--dry-run").lines == ["open-one\tcreated\t-\t-\tretention\t2d\t90m\tretention.age"]
    make_old(database, 24 * 6)
    assert cli("cleanup").lines == [
        "open-one\tcreated\t-\t-\tretention\t8d\t90m\tretention.age",
        "done-one\tcompleted\t-\t-\tretention\t8d\t7d\tretention.ages.completed",
    ]
    (gone,) = cli("cleanup", "--hours", "1", "--json").json["sessions"]
    assert (gone["session_id"], gone["limit_seconds"], gone["limit_from"]) == ("idle-one", 3600.0, "hours")


def test_expired_session_is_reported_as_expired(cli: Cli, database: Path) -> None:
    cli("create", "--session-id", "brief", "--ttl", "7d")
    db = apsw.Connection(str(database))
    db.execute("UPDATE sessions SET expires_at = created_at")
    db.close()
    assert cli("cleanup", "--dry-run").lines == ["brief\tcreated\t-\t-\texpired\t0s\t-\tttl"]


def test_on_a_terminal_the_limits_have_columns(cli: Cli, plan: str, database: Path, terminal: Terminal) -> None:
    make_old(database)
    shown = terminal.run("cleanup", "--dry-run").out
    assert re.search(r"WHY +IDLE +LIMIT +SET BY", shown)
    assert re.search(r"retention +2d +1d +retention\.age", shown)


def test_a_policy_that_is_wrong_stops_cleanup_and_names_the_setting(cli: Cli, plan: str, home: Path) -> None:
    configure(home, "[retention.ages]\ncompleted = 'a week'\n")
    done = cli("cleanup")
    assert (done.code, done.out) == (2, "")
    assert "retention.ages.completed is 'a week'" in done.err


# cleanup from cron ------------------------------------------------------------------------------


def from_cron(*args: str, **env: str) -> subprocess.Popen[bytes]:
    """Start `moorage ARGS` as cron would: hardly any environment, no terminal, nothing to read, another folder."""
    return subprocess.Popen(
        ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in env.items()),
         sys.executable, "-m", "moorage", *args],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/", start_new_session=True,
    )  # fmt: skip


def ended(process: subprocess.Popen[bytes]) -> Done:
    out, err = process.communicate(timeout=PATIENCE)
    return Done(process.returncode, out.decode(), err.decode())


@pytest.fixture
def crontab(home: Path) -> dict[str, str]:
    """The environment that a crontab's own lines and cron itself give."""
    return {"MOORAGE_HOME": str(home), "LOGNAME": "night-shift", "PATH": "/usr/bin:/bin", "PYTHONPATH": str(SOURCE)}


def test_from_cron_nothing_to_do_is_silence(cli: Cli, plan: str, crontab: dict[str, str]) -> None:
    assert ended(from_cron("cleanup", **crontab)) == Done(0, "", "")


def test_from_cron_what_went_is_printed_once_and_audited(
    cli: Cli, plan: str, database: Path, crontab: dict[str, str]
) -> None:
    make_old(database)
    done = ended(from_cron("cleanup", **crontab))
    assert (done.code, done.err) == (0, "")
    assert done.lines == [f"{plan}\tactive\tarchitect\tplan-prod\tretention\t2d\t1d\tretention.age"]
    assert ended(from_cron("cleanup", **crontab)) == Done(0, "", "")
    (tombstone,) = cli("audit", "--json").json["items"]
    assert (tombstone["session_id"], tombstone["deleted_by"], tombstone["reason"]) == (plan, "night-shift", "retention")


def test_from_cron_without_any_environment_it_uses_the_usual_folder(tmp_path: Path) -> None:
    bare = {"HOME": str(tmp_path), "PYTHONPATH": str(SOURCE)}
    assert ended(from_cron("cleanup", **bare)) == Done(0, "", "")
    assert (tmp_path / ".local/share/moorage/moorage.db").exists()
    done = ended(from_cron("--json", "cleanup", **bare))
    assert done.json == {"removed": 0, "session_ids": [], "sessions": [], "dry_run": False}


def test_two_cleanups_at_once_share_the_work(cli: Cli, database: Path, crontab: dict[str, str]) -> None:
    cli("migrate")
    with sync.connect(f"sqlite:///{database}") as moor:
        for number in range(300):
            moor.create(session_id=f"s-{number}", parent=None if number % 3 == 0 else f"s-{number - number % 3}")
    make_old(database)
    both = [ended(process) for process in [from_cron("cleanup", **crontab) for _ in range(2)]]
    assert [(done.code, done.err) for done in both] == [(0, ""), (0, "")]
    gone = [line.split("\t")[0] for done in both for line in done.lines]
    assert len(gone) == len(set(gone)) == 300
    assert len(cli("audit").lines) == 300
    assert cli("doctor", "--json").json["problems"] == []


def test_it_loads_neither_the_sweeper_nor_an_event_loop(cli: Cli, plan: str) -> None:
    loaded = loaded_by("cleanup")
    assert "moorage.service.retention" in loaded
    assert loaded & {"asyncio", "logging", "rich", "moorage.service.sweeper"} == set()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process waits for a lock."""
    monkeypatch.setattr(connection._Patience, "__call__", lambda self, tries: False)


def lock(database: Path) -> apsw.Connection:
    db = apsw.Connection(str(database))
    db.execute("BEGIN IMMEDIATE")
    return db


@pytest.mark.usefixtures("impatient")
def test_a_store_that_stays_locked_is_one_line_and_exit_5(cli: Cli, plan: str, database: Path) -> None:
    make_old(database)
    other = lock(database)
    done = cli("cleanup")
    assert (done.code, done.out) == (5, "")
    assert len(done.err.splitlines()) == 1
    assert done.err.startswith("moorage: ")
    assert cli("cleanup", "--json").json["code"] == "store_busy"
    other.close()
    assert len(cli("cleanup").lines) == 1


@pytest.mark.usefixtures("impatient")
def test_deletions_before_a_failure_are_printed(cli: Cli, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("migrate")
    with sync.connect(f"sqlite:///{database}") as moor:
        for number in range(60):
            moor.create(session_id=f"s-{number}")
    make_old(database)
    others: list[apsw.Connection] = []
    whole = SqliteStore.sweep

    async def locked_after_the_first(self: SqliteStore, *args: Any, **options: Any) -> Sweep:
        if args[-1].position:
            others.append(lock(database))
        return await whole(self, *args, **options)

    monkeypatch.setattr(SqliteStore, "sweep", locked_after_the_first)
    done = cli("cleanup")
    assert done.code == 5
    assert "before this failed, 50 sessions were deleted; `moorage audit` lists what was deleted" in done.err
    others[0].close()
    assert len(cli("audit").lines) == 50


# migrate ----------------------------------------------------------------------------------------


def test_migrate_tells_what_it_did(cli: Cli, database: Path) -> None:
    preview = cli("migrate", "--dry-run", "--json").json
    assert (preview["schema_before"], preview["missing"][0]) == (0, 1)
    assert not database.exists()
    done = cli("migrate", "--json").json
    assert done["applied"] == preview["missing"]
    assert done["schema"] == preview["missing"][-1]
    again = cli("migrate", "--json").json
    assert (again["schema_before"], again["applied"]) == (done["schema"], [])


def test_migrate_needs_a_file(cli: Cli) -> None:
    done = cli("migrate", "--url", "memory://", "--json")
    assert (done.code, done.json["code"]) == (2, "unsupported")


# doctor -----------------------------------------------------------------------------------------


def cut_short(database: Path) -> None:
    db = apsw.Connection(str(database))
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    db.close()
    data = database.read_bytes()
    database.write_bytes(data[: len(data) // 2])


def test_doctor_finds_everything_in_order(cli: Cli, plan: str, database: Path) -> None:
    done = cli("doctor", "--json")
    assert done.code == 0
    found = done.json
    assert found["url"].startswith("sqlite:///")
    assert found["file"] == str(database)
    assert found["bytes"] >= database.stat().st_size
    assert (found["sessions"], found["entries"], found["journal_mode"]) == (1, 3, "wal")
    assert found["sqlite"] == apsw.sqlite_lib_version()
    assert (found["problems"], found["ok"], found["quarantined"]) == ([], True, None)
    assert "Everything is in order." in cli("doctor").out


def test_doctor_creates_nothing(cli: Cli, home: Path) -> None:
    done = cli("doctor", "--json")
    assert (done.code, done.json["exists"]) == (0, False)
    assert not home.exists()


def test_doctor_looks_at_memory_too(cli: Cli) -> None:
    found = cli("doctor", "--url", "memory://", "--json").json
    waiting = {"spooled_events": 0, "refused_events": 0}
    assert found == {"url": "memory://", "problems": [], "notes": [], "ok": True, "quarantined": None, **waiting}


def test_doctor_says_what_is_wrong(cli: Cli, plan: str, database: Path) -> None:
    db = apsw.Connection(str(database))
    db.execute("UPDATE sessions SET last_entry = 7")
    db.close()
    done = cli("doctor", "--json")
    assert done.code == 1
    assert plan in done.json["problems"][0]
    assert f"moorage: session {plan}" in cli("doctor").err


def test_damaged_file_is_moved_only_on_request(cli: Cli, plan: str, database: Path) -> None:
    cut_short(database)
    before = database.read_bytes()
    done = cli("doctor")
    assert done.code == 1
    assert "doctor --quarantine" in done.err
    assert database.read_bytes() == before

    aside = cli("doctor", "--quarantine", "--json")
    assert aside.code == 0
    moved = Path(aside.json["quarantined"])
    assert moved.read_bytes() == before
    assert re.fullmatch(r"moorage\.db\.corrupt-\d{8}-\d{6}", moved.name)
    assert not database.exists()
    assert cli("create").code == 0


def test_files_of_a_database_move_together_without_overwriting(cli: Cli, plan: str, database: Path) -> None:
    for _ in range(2):
        database.write_bytes(b"no database at all" * 100)
        Path(f"{database}-wal").write_bytes(b"its log")
        assert cli("doctor", "--quarantine").code == 0
    moved = sorted(path.name for path in database.parent.iterdir() if ".corrupt-" in path.name)
    assert len([name for name in moved if name.endswith("-wal")]) == 2
    assert len([name for name in moved if not name.endswith(("-wal", "-shm"))]) == 2


def test_intact_file_is_never_moved(cli: Cli, plan: str, database: Path) -> None:
    before = contents(database)
    done = cli("doctor", "--quarantine")
    assert done.code == 0
    assert "not damaged" in done.out
    assert contents(database) == before


def test_a_database_of_a_newer_release_is_a_problem_but_no_damage(cli: Cli, plan: str, database: Path) -> None:
    db = apsw.Connection(str(database))
    db.execute("PRAGMA user_version = 999")
    db.close()
    done = cli("doctor", "--quarantine", "--json")
    assert (done.code, done.json["quarantined"], done.json["schema"]) == (1, None, 999)
    assert "newer release" in done.json["problems"][0]
