"""At a terminal: tables, questions, friendly lines, and a hold that stays with the person."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.doors.cli.running import Cli, Terminal, a_terminal, contents


def test_list_is_a_table(cli: Cli, plan: str, terminal: Terminal) -> None:
    done = terminal.run("list")
    head, row = done.out.splitlines()
    assert head.split() == ["session", "status", "phase", "agent", "name", "updated"]
    assert row.split()[:5] == [plan, "idle", "initializing", "architect", "plan-prod"]
    assert row.rstrip().endswith("ago")


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (36, ["session"]),
        (60, ["session", "status", "updated"]),
        (80, ["session", "status", "phase", "updated"]),
        (100, ["session", "status", "phase", "agent", "name", "updated"]),
    ],
)
def test_a_narrow_terminal_shows_fewer_columns_each_row_in_one_piece(
    cli: Cli, plan: str, columns: int, shown: list[str]
) -> None:
    cli("suspend", plan)
    with a_terminal(columns) as narrow:
        head, row = narrow.run("list").out.splitlines()
    assert head.split() == shown
    assert row.split()[0] == plan
    assert "updated" not in shown or row.rstrip().endswith("ago")


def test_a_long_agent_and_name_are_folded_where_there_is_room(cli: Cli) -> None:
    session_id = cli("create", "--agent", "a" * 60, "--name", "n" * 60).id
    with a_terminal(140) as wide:
        head, row, *_ = wide.run("list").out.splitlines()
    assert head.split() == ["session", "status", "phase", "agent", "name", "updated"]
    assert row.split()[0] == session_id


def test_an_approval_can_be_copied_in_a_narrow_terminal(cli: Cli, plan: str) -> None:
    asked = cli("request-approval", plan, "Apply to production?", "--option", "staging-first").id
    with a_terminal(80) as narrow:
        head, row, *_ = narrow.run("approvals").out.splitlines()
    assert head.split() == ["approval", "state", "question"]
    assert row.split() == [asked, "pending", "Apply", "to", "production?"]


def test_a_table_shows_fifty_and_says_that_there_are_more(cli: Cli, terminal: Terminal) -> None:
    for _ in range(51):
        cli("create")
    out = terminal.run("list").out
    assert len([line for line in out.splitlines() if "initializing" in line]) == 50
    assert "There are more" in out
    assert (
        len([line for line in terminal.run("list", "--limit", "60").out.splitlines() if "initializing" in line]) == 51
    )


def test_create_says_what_to_do_next(terminal: Terminal) -> None:
    out = terminal.run("create", "--name", "plan-prod").out
    assert out.startswith("Created session ")
    assert "(plan-prod). Next: moorage send " in out


def test_json_is_still_one_document(cli: Cli, plan: str, terminal: Terminal) -> None:
    assert terminal.run("list", "--json").json["items"][0]["session_id"] == plan


def test_delete_shows_what_would_go_and_asks(cli: Cli, plan: str, terminal: Terminal, database: Path) -> None:
    before = contents(database)
    no = terminal.run("delete", "plan-prod", answer="n\n", when="[y/N]")
    assert no.code == 1
    assert plan in no.out
    assert "Delete 1 session with 2 messages" in no.out
    assert "Nothing was deleted." in no.out
    assert contents(database) == before

    yes = terminal.run("delete", "plan-prod", answer="y\n", when="[y/N]")
    assert yes.code == 0
    assert cli("get", plan).code == 3


@pytest.mark.parametrize("option", ["--yes", "--dry-run"])
def test_delete_does_not_ask_when_told_so(cli: Cli, plan: str, terminal: Terminal, option: str) -> None:
    done = terminal.run("delete", "plan-prod", option)
    assert done.code == 0
    assert "[y/N]" not in done.out


def test_ctrl_d_at_the_question_deletes_nothing(cli: Cli, plan: str, terminal: Terminal) -> None:
    assert terminal.run("delete", "plan-prod", answer="\x04", when="[y/N]").code == 130
    assert cli("get", plan).code == 0


def test_the_same_person_at_the_same_terminal_keeps_the_hold(cli: Cli, plan: str, terminal: Terminal) -> None:
    first = terminal.run("resume", plan, "--json").json["hold"]
    assert first["holder"].endswith(f":{terminal.name}")
    again = terminal.run("resume", plan, "--json").json["hold"]
    assert again["holder"] == first["holder"]
    assert again["token"] != first["token"]
    assert terminal.run("should-resume", plan, "--json").json["criteria"]["held_by"]["ok"] is True
    with a_terminal() as other:
        refused = other.run("resume", plan)
        assert refused.code == 4
        assert first["holder"] in refused.out
        assert other.run("should-resume", plan, "--json").json["criteria"]["held_by"]["ok"] is False


@pytest.mark.parametrize(
    "asking",
    [
        "attach mix",
        "run echo-agent --session mix",
        "run echo-agent hi --session mix",
        "agent resume mix",
    ],
)
def test_asking_at_the_terminal_that_holds_the_session_hands_it_over(terminal: Terminal, cli: Cli, asking: str) -> None:
    terminal.run("create", "--agent", "echo-agent", "--name", "mix")
    assert terminal.run("resume", "mix", "--json").json["hold"]
    done = terminal.run(*asking.split(), answer="\x04", when="You: ")
    assert (done.code, "You: " in done.out or "Echo Agent Response: hi" in done.out) == (0, True), done.out
    assert cli("get", "mix", "--json").json["hold"] is None


def test_command_that_reads_from_a_pipe_at_the_terminal_is_the_same_holder(cli: Cli, terminal: Terminal) -> None:
    terminal.run("create", "--agent", "echo-agent", "--name", "mix")
    terminal.run("resume", "mix")
    command = [sys.executable, "-m", "moorage", "send", "mix", "-"]
    assert subprocess.run(command, input=b"hi", stderr=terminal.follower, check=False).returncode == 0
    assert cli("get", "mix", "--json").json["hold"] is None


def test_resume_suggests_the_next_command(cli: Cli, plan: str, terminal: Terminal) -> None:
    cli("suspend", plan)
    assert f"Next: moorage resume {plan}" in terminal.run("resume").out


def test_log_is_for_reading(cli: Cli, plan: str, terminal: Terminal) -> None:
    cli("send", plan, "two\nlines \x1b[31m")
    out = terminal.run("log", plan).out
    assert "user: two\n      lines " in out
    assert "\x1b" not in out


def test_cleanup_and_import_work_with_progress(cli: Cli, plan: str, terminal: Terminal) -> None:
    cli("export", plan, "-o", "plan.jsonl")
    assert "Imported 1 sessions, 3 entries" in terminal.run("import", "plan.jsonl", "--url", "sqlite:///copy.db").out
    assert "Would delete 1 sessions." in terminal.run("cleanup", "--hours", "0", "--dry-run").out


@pytest.mark.parametrize(
    "line",
    ["approvals", "search change", "children {plan}", "checkpoint list {plan}", "get {plan}", "doctor", "migrate"],
)
def test_other_commands_show_themselves(cli: Cli, plan: str, terminal: Terminal, line: str) -> None:
    cli("create", "--parent", plan)
    cli("checkpoint", "save", plan, "{}")
    cli("request-approval", plan, "really?")
    done = terminal.run(*line.format(plan=plan).split())
    assert done.code == 0
    assert plan in done.out or line in ("doctor", "migrate", "children {plan}", "checkpoint list {plan}")
