"""create, get, list, update, finalize, fork."""

import re
from pathlib import Path

import pytest

from tests.doors.cli.running import Cli

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\n")


# create -----------------------------------------------------------------------------------------


def test_create_prints_the_id_alone_when_piped(cli: Cli) -> None:
    done = cli("create", "--agent", "architect")
    assert (done.code, done.err) == (0, "")
    assert UUID.fullmatch(done.out)


def test_create_keeps_all_it_is_told(cli: Cli, tmp_path: Path) -> None:
    parent = cli("create", "--name", "the-parent").id
    args = ["create", "--agent", "architect", "--purpose", "approval_workflow", "--name", "plan-prod"]
    args += ["--session-id", "S-1", "--parent", "the-parent", "--task-id", "T001", "--project-dir", str(tmp_path)]
    session = cli(*args, "--metadata", '{"workspace": "prod"}', "--ttl", "30m", "--json").json
    assert session["session_id"] == "S-1"
    assert session["session_name"] == "plan-prod"
    assert (session["agent_name"], session["purpose"]) == ("architect", "approval_workflow")
    assert (session["parent_session_id"], session["parent_session_name"]) == (parent, "the-parent")
    assert (session["task_id"], session["project_dir"]) == ("T001", str(tmp_path))
    assert session["metadata"] == {"workspace": "prod"}
    assert session["expires_at"] is not None
    assert session["interface"] == "cli"
    assert cli("get", "S-1", "--json").json == session


def test_project_dir_is_made_absolute(cli: Cli) -> None:
    assert cli("create", "--project-dir", ".", "--json").json["project_dir"] == str(Path.cwd())
    assert len(cli("list", "--project-dir", ".").lines) == 1


def test_metadata_may_come_from_a_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text('{"from": "a file"}')
    session = cli("create", "--metadata", f"@{tmp_path / 'metadata.json'}", "--json").json
    assert session["metadata"] == {"from": "a file"}


def test_inside_an_agent_the_parent_comes_from_the_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = cli("create", "--name", "boss").id
    monkeypatch.setenv("AGENT_SESSION_NAME", "boss")
    assert cli("create", "--json").json["parent_session_id"] == parent
    assert cli("create", "--no-parent", "--json").json["parent_session_id"] is None


def test_unfilled_variable_is_one_line_on_stderr(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SESSION_ID", "${AGENT_SESSION_ID}")
    done = cli("create", "--json")
    assert done.code == 0
    assert done.json["parent_session_id"] is None
    assert done.err.startswith("moorage: warning: AGENT_SESSION_ID still reads")
    assert done.err.count("\n") == 1


def test_a_parent_may_be_named_by_a_prefix(cli: Cli) -> None:
    cli("create", "--session-id", "architect-1")
    assert cli("create", "--parent", "arch", "--json").json["parent_session_id"] == "architect-1"


def test_parent_and_no_parent_exclude_each_other(cli: Cli) -> None:
    assert cli("create", "--parent", "x", "--no-parent").code == 2


def test_a_secret_in_the_metadata_is_not_kept_and_said_so(cli: Cli) -> None:
    done = cli("create", "--metadata", '{"password": "hunter2"}', "--json")
    assert done.json["metadata"] == {"password": "[redacted]"}
    assert "moorage: warning: " in done.err
    assert "password" in done.err


# get --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["get", "show"])
def test_get_finds_by_id_name_and_prefix(cli: Cli, plan: str, name: str) -> None:
    by_id, by_name, by_prefix = (cli(name, ref, "--json").json for ref in (plan, "plan-prod", plan[:8]))
    assert by_id == by_name == by_prefix
    assert by_id["session_id"] == plan


def test_get_shows_facts_to_people(cli: Cli, plan: str) -> None:
    lines = cli("get", plan).lines
    assert lines[0].split() == ["session_id", plan]
    assert any(line.split() == ["agent_name", "architect"] for line in lines)


def test_an_ambiguous_prefix_lists_the_candidates(cli: Cli) -> None:
    for number in (1, 2):
        cli("create", "--session-id", f"build-{number}")
    done = cli("get", "buil", "--json")
    assert done.code == 2
    assert done.json["code"] == "ambiguous_reference"
    assert done.json["candidates"] == ["build-1", "build-2"]
    assert done.err == "moorage: 'buil' fits 2 sessions: build-1, build-2; give more characters\n"


@pytest.mark.parametrize(("count", "fits"), [(10, "10 sessions:"), (11, "10 sessions or more:")])
def test_an_ambiguous_prefix_says_whether_there_are_more_than_it_lists(cli: Cli, count: int, fits: str) -> None:
    for number in range(count):
        cli("create", "--session-id", f"build-{number:02}")
    done = cli("get", "buil", "--json")
    assert f"'buil' fits {fits} build-00, " in done.err
    assert len(done.json["candidates"]) == 10


def test_a_prefix_of_three_characters_is_not_enough(cli: Cli) -> None:
    cli("create", "--session-id", "build-1")
    assert cli("get", "bui").code == 3


# list -------------------------------------------------------------------------------------------


def test_list_is_one_tab_separated_line_for_each_newest_first(cli: Cli, plan: str) -> None:
    other = cli("create").id
    first, second = (line.split("\t") for line in cli("list").lines)
    assert first[:5] == [other, "created", "initializing", "-", "-"]
    assert second[:5] == [plan, "idle", "initializing", "architect", "plan-prod"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT.*Z", second[5])


def test_list_piped_follows_every_page(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorage.core.query.PAGE", 2)
    ids = [cli("create").id for _ in range(5)]
    assert [line.split("\t")[0] for line in cli("list", "--sort", "created").lines] == ids
    assert [item["session_id"] for item in cli("--json", "list", "--sort", "created").json["items"]] == ids
    assert len(cli("list", "--limit", "3").lines) == 3


def test_list_as_json_goes_on_from_its_cursor(cli: Cli) -> None:
    ids = [cli("create").id for _ in range(3)]
    first = cli("list", "--json", "--limit", "2", "--sort", "created").json
    rest = cli("list", "--json", "--sort", "created", "--cursor", first["next"]).json
    assert [item["session_id"] for item in first["items"] + rest["items"]] == ids
    assert rest["next"] is None


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--agent", "architect"], True),
        (["--agent", "reviewer"], False),
        (["--state", "active"], True),
        (["--state", "suspended"], False),
        (["--active-only"], True),
        (["--status", "idle"], True),
        (["--status", "waiting"], False),
        (["--phase", "initializing"], True),
        (["--phase", "planning"], False),
        (["--task-id", "T001"], True),
        (["--task-id", "T002"], False),
        (["--root", "plan-prod"], True),
        (["--parent", "plan-prod"], False),
        (["--name-prefix", "plan-"], True),
        (["--name-prefix", "prod"], False),
        (["--metadata-key", "no-such-key"], False),
        (["--created-after", "2020-01-01"], True),
        (["--created-before", "2020-01-01T00:00:00Z"], False),
        (["--updated-after", "2020-01-01T00:00:00+02:00"], True),
        (["--updated-before", "2020-01-01"], False),
    ],
    ids=lambda value: value if isinstance(value, bool) else " ".join(value),
)
def test_list_filters(cli: Cli, plan: str, options: list[str], found: bool) -> None:
    done = cli("list", *options)
    assert (done.code, bool(done.lines)) == (0, found)


def test_list_filters_by_the_value_of_a_metadata_key(cli: Cli) -> None:
    cli("create", "--metadata", '{"tier": 1}')
    assert len(cli("list", "--metadata-key", "tier", "--metadata-value", "1").lines) == 1
    assert cli("list", "--metadata-key", "tier", "--metadata-value", "2").lines == []
    broken = cli("list", "--metadata-key", "tier", "--metadata-value", "{2")
    assert (broken.code, "in quotes" in broken.err, "--text" in broken.err) == (2, True, False)


def test_list_filters_by_labels_that_create_and_update_gave(cli: Cli) -> None:
    made = cli("create", "--label", "prod", "--label", "urgent").lines[0]
    assert cli("--json", "get", made).json["labels"] == ["prod", "urgent"]
    assert len(cli("list", "--label", "urgent").lines) == 1
    cli("update", made, "--label", "test")
    assert cli("list", "--label", "urgent").lines == []
    assert len(cli("list", "--label", "test").lines) == 1


def test_active_only_leaves_out_what_is_final(cli: Cli, plan: str) -> None:
    cli("finalize", plan, "completed")
    assert cli("list", "--active-only").lines == []
    assert len(cli("list").lines) == 1


def test_an_empty_list_is_no_error(cli: Cli) -> None:
    assert cli("list").out == ""
    assert cli("--json", "list").json == {"items": [], "next": None}


# update and finalize ----------------------------------------------------------------------------


def test_update_changes_phase_metadata_and_errors_at_once(cli: Cli, plan: str) -> None:
    args = ["--phase", "planning", "--metadata", '{"plan_file": "plan.json"}', "--error", "init failed"]
    session = cli("update", "plan-prod", *args, "--json").json
    assert (session["phase"], session["resume_ready"]) == ("planning", True)
    assert session["metadata"] == {"plan_file": "plan.json"}
    assert (session["error_count"], session["last_error"]) == (1, "init failed")


def test_update_sets_readiness(cli: Cli, plan: str) -> None:
    assert cli("update", plan, "--phase", "planning", "--no-resume-ready", "--json").json["resume_ready"] is False
    assert cli("update", plan, "--resume-ready", "--json").json["resume_ready"] is True


def test_update_of_nothing_is_a_mistake(cli: Cli, plan: str) -> None:
    done = cli("update", plan)
    assert done.code == 2
    assert "say what to change" in done.err


def test_update_piped_prints_the_session_as_list_does(cli: Cli, plan: str) -> None:
    assert cli("update", plan, "--phase", "planning").out == cli("list").out


def test_finalize_closes_with_a_summary_and_twice_is_harmless(cli: Cli, plan: str) -> None:
    closed = cli("finalize", plan, "completed", "--summary", "Applied", "--json").json
    assert (closed["state"], closed["phase"], closed["summary"]) == ("completed", "completed", "Applied")
    assert cli("finalize", plan, "completed", "--json").json == closed
    assert cli("finalize", plan, "failed").code == 4


# fork -------------------------------------------------------------------------------------------


def test_fork_goes_on_from_an_entry(cli: Cli, plan: str) -> None:
    copy = cli("fork", "plan-prod", "--at", "2", "--name", "plan-b").id
    session = cli("get", "plan-b", "--json").json
    assert (session["session_id"], session["forked_from"], session["last_entry"]) == (copy, plan, 3)
    assert [line.split("\t")[2] for line in cli("log", copy).lines] == ["created", "message", "forked"]


def test_fork_at_an_entry_there_is_not(cli: Cli, plan: str) -> None:
    done = cli("fork", plan, "--at", "99", "--json")
    assert (done.code, done.json["code"]) == (3, "entry_not_found")
