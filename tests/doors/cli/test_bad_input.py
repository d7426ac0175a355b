"""Wrong input is refused: a clear line, a stable code, an exit code, and nothing changed."""

import os
import resource
from pathlib import Path

import apsw
import pytest

from tests.doors.cli.running import Cli, Done, Unchanged, contents, run


def refused(done: Done, code: str, exit_code: int) -> None:
    assert (done.json["code"], done.code) == (code, exit_code)
    assert done.json["detail"]
    assert done.err.startswith("moorage: ")
    assert "Traceback" not in done.err


CASES = [
    ("create --session-id ../../evil", "invalid_id", 2),
    ("create --session-id .hidden", "invalid_id", 2),
    (f"create --session-id {'x' * 129}", "invalid_id", 2),
    ("create --name ../../evil", "invalid_name", 2),
    ("create --parent no-such-parent", "parent_not_found", 3),
    ("create --parent ../../evil", "parent_not_found", 3),
    ("create --name plan-prod", "name_taken", 4),
    ("create --ttl -1", "invalid_ttl", 2),
    ("create --ttl 0", "invalid_ttl", 2),
    ("create --ttl soon", "invalid_ttl", 2),
    ("create --ttl inf", "invalid_ttl", 2),
    ("create --metadata [1]", "invalid_metadata", 2),
    ("create --metadata null", "invalid_metadata", 2),
    ("create --metadata {", "invalid_json", 2),
    ('create --metadata {"a":NaN}', "invalid_json", 2),
    ('create --metadata {"a":-Infinity}', "invalid_json", 2),
    ("create --metadata @no-such-file.json", "invalid_metadata", 2),
    ("get ../../evil", "session_not_found", 3),
    ("get no-such-session", "session_not_found", 3),
    ("update plan-prod --phase dreaming", "unknown_phase", 2),
    ("update plan-prod --phase completed", "final_phase", 2),
    ("update plan-prod --phase planning --expected-version 99", "version_conflict", 4),
    ("update plan-prod --phase planning --token stale", "hold_lost", 4),
    ("suspend plan-prod --expected-version 99", "version_conflict", 4),
    ("suspend plan-prod --checkpoint 3", "invalid_checkpoint", 2),
    ("suspend plan-prod --checkpoint {'step':3}", "invalid_json", 2),
    ("finalize plan-prod done", "invalid_outcome", 2),
    ("finalize plan-prod completed --expected-version 99", "version_conflict", 4),
    ("context set plan-prod key value --ttl -1", "invalid_ttl", 2),
    ("context set plan-prod key value --expected-version 7", "version_conflict", 4),
    ("checkpoint save plan-prod []", "invalid_checkpoint", 2),
    ("checkpoint save plan-prod NaN", "invalid_json", 2),
    ("request-approval plan-prod why? --expires -1", "invalid_expires_in", 2),
    ("request-approval plan-prod why? --plan NaN", "invalid_json", 2),
    ("approve ../../evil", "approval_not_found", 3),
    ("delete ../../evil", "session_not_found", 3),
    ("fork plan-prod --at 0", "invalid_at", 2),
    ("list --state sleeping", "invalid_state", 2),
    ("list --sort sideways", "invalid_sort", 2),
    ("list --created-after yesterday", "invalid_created_after", 2),
    ("list --cursor nonsense", "invalid_cursor", 2),
    ("list --parent no-such-session", "session_not_found", 3),
    ("cleanup --state sleeping", "invalid_states", 2),
    ("audit --since yesterday", "invalid_since", 2),
    ("audit --cursor nonsense", "invalid_cursor", 2),
    ("list --url nonsense", "unsupported", 2),
    ("list --url ftp://example", "unsupported", 2),
    ("list --url sqlite://moorage.db", "invalid_url", 2),
    ("list --url sqlite:///no/such/folder/x.db", "store_unavailable", 5),
]


@pytest.mark.parametrize(("line", "code", "exit_code"), CASES, ids=[case[0][:60] for case in CASES])
def test_it_is_refused_and_nothing_changes(
    cli: Cli, unchanged: Unchanged, line: str, code: str, exit_code: int
) -> None:
    refused(cli(*line.split(), "--json"), code, exit_code)
    unchanged.check()


CHANGES = [
    "update {plan} --phase planning",
    "send {plan} hello",
    "suspend {plan}",
    "resume {plan}",
    "release {plan}",
    "finalize {plan} failed",
    "checkpoint save {plan} {{}}",
    "context set {plan} key value",
    "context delete {plan} key",
    "request-approval {plan} why?",
    "create --parent {plan}",
]


@pytest.mark.parametrize("line", CHANGES)
def test_a_final_session_takes_no_changes(cli: Cli, plan: str, database: Path, line: str) -> None:
    cli("finalize", plan, "completed")
    before = contents(database)
    code = "outcome_conflict" if line.startswith("finalize") else "session_closed"
    done = cli(*line.format(plan=plan).split(), "--json")
    refused(done, code, 4)
    assert "fork" in done.err
    assert contents(database) == before


def test_a_cursor_of_another_query_is_refused(cli: Cli, unchanged: Unchanged) -> None:
    cli("create", "--url", "sqlite:///other.db")
    cli("create", "--url", "sqlite:///other.db")
    cursor = cli("list", "--json", "--limit", "1", "--url", "sqlite:///other.db").json["next"]
    assert cursor
    refused(cli("list", "--state", "active", "--cursor", cursor, "--json"), "invalid_cursor", 2)
    unchanged.check()


def test_metadata_of_65_kib_is_refused(cli: Cli, unchanged: Unchanged) -> None:
    Path("metadata.json").write_text('{"notes": "' + "x" * 65 * 1024 + '"}')
    refused(cli("update", "plan-prod", "--metadata", "@metadata.json", "--json"), "metadata_too_large", 2)
    refused(cli("create", "--metadata", "@metadata.json", "--json"), "metadata_too_large", 2)
    unchanged.check()


def test_a_message_of_2_mib_is_refused(unchanged: Unchanged) -> None:
    refused(run("send", "plan-prod", "-", "--json", stdin=b"x" * 2 * 1024 * 1024), "message_too_large", 2)
    unchanged.check()


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_invalid_utf8_on_stdin_is_refused(unchanged: Unchanged, role: str) -> None:
    done = run("send", "plan-prod", "-", "--role", role, "--json", stdin=b"gr\xfcn")
    refused(done, "invalid_json", 2)
    assert "byte 2 is not valid UTF-8" in done.err
    unchanged.check()


def test_invalid_utf8_in_a_file_is_refused(cli: Cli, unchanged: Unchanged) -> None:
    Path("checkpoint.json").write_bytes(b'{"colour": "gr\xfcn"}')
    refused(cli("suspend", "plan-prod", "--checkpoint", "@checkpoint.json", "--json"), "invalid_json", 2)
    unchanged.check()


@pytest.mark.parametrize("args", [["send", "plan-prod"], ["get"], ["should-resume"], ["list", "--agent"], ["search"]])
def test_invalid_utf8_on_the_command_line_is_refused(unchanged: Unchanged, args: list[str]) -> None:
    refused(run(*args, b"gr\xfcn", "--json"), "invalid_argument", 2)
    unchanged.check()


def test_control_characters_in_a_label_are_refused(cli: Cli, unchanged: Unchanged) -> None:
    refused(cli("create", "--agent", "a\tb", "--json"), "invalid_agent_name", 2)
    unchanged.check()


def test_a_bottomless_value_is_refused(cli: Cli, unchanged: Unchanged) -> None:
    for depth in (100, 100_000):
        deep = '{"a":' * depth + "1" + "}" * depth
        Path("deep.json").write_text(deep)
        refused(cli("update", "plan-prod", "--metadata", "@deep.json", "--json"), "invalid_json", 2)
    unchanged.check()


# The store --------------------------------------------------------------------------------------


def test_a_database_of_a_newer_release_is_left_alone(unchanged: Unchanged, database: Path) -> None:
    db = apsw.Connection(str(database))
    db.execute("PRAGMA user_version = 999")
    db.close()
    for line in ("list", "create", "should-resume plan-prod", "migrate"):
        refused(run(*line.split(), "--json"), "store_too_new", 5)
    unchanged.check()


def test_a_database_of_another_program_is_left_alone(cli: Cli) -> None:
    db = apsw.Connection("other.db")
    db.execute("CREATE TABLE recipes (name)")
    db.close()
    before = contents(Path("other.db"))
    refused(cli("create", "--url", "sqlite:///other.db", "--json"), "store_unavailable", 5)
    assert contents(Path("other.db")) == before


def test_a_truncated_file_is_left_alone(plan: str, database: Path) -> None:
    db = apsw.Connection(str(database))
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    db.close()
    half = database.read_bytes()[: database.stat().st_size // 2]
    database.write_bytes(half)
    for line in ("list", "create", "should-resume plan-prod"):
        done = run(*line.split(), "--json")
        refused(done, "store_corrupt", 5)
        assert "doctor --quarantine" in done.err
    assert database.read_bytes() == half


@pytest.mark.skipif(os.geteuid() == 0, reason="for root no folder is read-only, so there is nothing to refuse")
def test_a_read_only_folder_is_refused(unchanged: Unchanged, home: Path, database: Path) -> None:
    before = database.read_bytes()
    for path in home.iterdir():
        path.chmod(0o400)
    home.chmod(0o500)
    try:
        refused(run("send", "plan-prod", "hello", "--json"), "store_read_only", 5)
        refused(run("create", "--json", "--url", f"sqlite:///{home}/new.db"), "store_read_only", 5)
    finally:
        home.chmod(0o700)
        for path in home.iterdir():
            path.chmod(0o600)
    assert database.read_bytes() == before


def test_a_file_that_cannot_grow_any_more_keeps_what_it_has(unchanged: Unchanged, database: Path) -> None:
    largest = sum(path.stat().st_size for path in database.parent.iterdir())

    def leave_no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))

    done = run("send", "plan-prod", "-", "--json", stdin=b"x" * 1024 * 1024, before=leave_no_room)
    refused(done, "store_unavailable", 5)
    unchanged.check()
