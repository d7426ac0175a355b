"""cleanup, migrate, doctor."""

import re
from pathlib import Path

import apsw
import pytest

from tests.doors.cli.running import Cli, contents


def make_old(database: Path) -> None:
    db = apsw.Connection(str(database))
    db.execute("UPDATE sessions SET last_activity_at = last_activity_at - 48 * 3600 * 1000000")
    db.close()


# cleanup ----------------------------------------------------------------------------------------


def test_cleanup_previews_then_deletes_what_is_old(cli: Cli, plan: str, database: Path) -> None:
    assert cli("cleanup", "--hours", "24").lines == []
    make_old(database)
    preview = cli("cleanup", "--hours", "24", "--dry-run")
    assert preview.lines == [f"{plan}\tactive\tarchitect\tplan-prod\tretention"]
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
    assert (found["problems"], found["ok"], found["set_aside"]) == ([], True, None)
    assert "Everything is in order." in cli("doctor").out


def test_doctor_creates_nothing(cli: Cli, home: Path) -> None:
    done = cli("doctor", "--json")
    assert (done.code, done.json["exists"]) == (0, False)
    assert not home.exists()


def test_doctor_looks_at_memory_too(cli: Cli) -> None:
    found = cli("doctor", "--url", "memory://", "--json").json
    assert found == {"url": "memory://", "problems": [], "ok": True, "set_aside": None}


def test_doctor_says_what_is_wrong(cli: Cli, plan: str, database: Path) -> None:
    db = apsw.Connection(str(database))
    db.execute("UPDATE sessions SET last_entry = 7")
    db.close()
    done = cli("doctor", "--json")
    assert done.code == 1
    assert plan in done.json["problems"][0]
    assert f"holdfast: session {plan}" in cli("doctor").err


def test_a_damaged_file_is_set_aside_only_when_asked(cli: Cli, plan: str, database: Path) -> None:
    cut_short(database)
    before = database.read_bytes()
    done = cli("doctor")
    assert done.code == 1
    assert "doctor --set-aside" in done.err
    assert database.read_bytes() == before

    aside = cli("doctor", "--set-aside", "--json")
    assert aside.code == 0
    moved = Path(aside.json["set_aside"])
    assert moved.read_bytes() == before
    assert re.fullmatch(r"holdfast\.db\.corrupt-\d{8}-\d{6}", moved.name)
    assert not database.exists()
    assert cli("create").code == 0


def test_what_belongs_to_the_file_goes_with_it_and_nothing_is_overwritten(cli: Cli, plan: str, database: Path) -> None:
    for _ in range(2):
        database.write_bytes(b"no database at all" * 100)
        Path(f"{database}-wal").write_bytes(b"its log")
        assert cli("doctor", "--set-aside").code == 0
    moved = sorted(path.name for path in database.parent.iterdir() if ".corrupt-" in path.name)
    assert len([name for name in moved if name.endswith("-wal")]) == 2
    assert len([name for name in moved if not name.endswith(("-wal", "-shm"))]) == 2


def test_a_whole_file_is_never_set_aside(cli: Cli, plan: str, database: Path) -> None:
    before = contents(database)
    done = cli("doctor", "--set-aside")
    assert done.code == 0
    assert "not damaged" in done.out
    assert contents(database) == before


def test_a_database_of_a_newer_release_is_a_problem_but_no_damage(cli: Cli, plan: str, database: Path) -> None:
    db = apsw.Connection(str(database))
    db.execute("PRAGMA user_version = 999")
    db.close()
    done = cli("doctor", "--set-aside", "--json")
    assert (done.code, done.json["set_aside"], done.json["schema"]) == (1, None, 999)
    assert "newer release" in done.json["problems"][0]
