"""At a terminal: tables, questions, friendly lines, and a hold that stays with the person."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from moorage import sync
from moorage.config import user
from moorage.doors.cli.wording import short_ids
from tests.doors.cli.agent_files import FAILING, define
from tests.doors.cli.running import Cli, Terminal, a_terminal, contents

COLUMNS = ["NAME", "SESSION", "STATUS", "PHASE", "AGENT", "UPDATED"]


def test_list_is_a_table_with_names_before_short_ids(cli: Cli, plan: str, terminal: Terminal) -> None:
    head, row = terminal.run("list").out.splitlines()
    assert head.split() == COLUMNS
    assert row.split()[:5] == ["plan-prod", plan[:13], "idle", "initializing", "architect"]
    assert row.endswith(("ago", "now"))


@pytest.mark.parametrize("command", ["show", "log", "tree", "children"])
def test_commands_take_the_id_that_a_list_shows(cli: Cli, terminal: Terminal, command: str) -> None:
    ids = [cli("create").id for _ in range(3)]
    shown = [row.split()[1] for row in terminal.run("list").out.splitlines()[1:]]
    assert [cli("show", id, "--json").json["session_id"] for id in shown] == ids[::-1]
    assert {cli(command, id).code for id in shown} == {0}


def test_ids_that_begin_alike_are_shown_as_far_as_they_differ() -> None:
    first, second = "0199a3f2-7c1e-7a55-9d0e-3b1f2a4c5d6e", "0199a3f2-7c1e-7a66-9d0e-3b1f2a4c5d6e"
    assert short_ids([first, second]) == {first: "0199a3f2-7c1e-7a5", second: "0199a3f2-7c1e-7a6"}
    assert short_ids([first, "build-42"]) == {first: "0199a3f2-7c1e", "build-42": "build-42"}


@pytest.mark.parametrize(
    ("columns", "hidden"), [(120, ""), (80, ""), (60, "Not shown: phase"), (40, "Not shown: phase, agent, updated")]
)
def test_narrow_terminal_marks_what_it_leaves_out(cli: Cli, plan: str, columns: int, hidden: str) -> None:
    cli("create", "--name", "n" * 60, "--agent", "a" * 60)
    with a_terminal(columns) as narrow:
        lines = narrow.run("list").out.splitlines()
    assert max(map(len, lines[:3])) <= columns
    assert plan[:13] in lines[2].split()
    assert "…" in lines[1]
    assert " ".join(lines[3:]).startswith(hidden)
    assert bool(hidden) is bool(lines[3:])


def test_wide_shows_everything_whole(cli: Cli) -> None:
    session_id = cli("create", "--agent", "a" * 60, "--name", "n" * 60).id
    with a_terminal(80) as narrow:
        head, row = narrow.run("list", "--wide").out.splitlines()
    assert head.split() == COLUMNS
    assert row.split()[:2] == ["n" * 60, session_id]
    assert "a" * 60 in row


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("list", "No sessions. Create one: moorage create --agent NAME"),
        ("list --agent nobody", "No sessions that fit."),
        ("runs", "No runs."),
        ("approvals", "No open approvals."),
        ("approvals --all", "No approvals."),
        ("resume", "No session can be picked up."),
        ("inbox", "No items in the inbox."),
        ("launchers", "No launchers."),
        ("keys list", "No keys."),
        ("search nothing", "Nothing found."),
        ("audit", "Nothing was deleted."),
    ],
)
def test_empty_list_says_so(terminal: Terminal, line: str, told: str) -> None:
    assert terminal.run(*line.split()).out.startswith(told)


def test_hints_repeat_the_url(terminal: Terminal) -> None:
    url = "sqlite:///elsewhere.db"
    created = terminal.run("create", "--name", "plan-prod", "--url", url).out
    assert created.endswith(f"Next: moorage send plan-prod TEXT --url {url}\n")
    assert f"All of them: moorage list --url {url}" in terminal.run("list", "--url", url, "--agent", "x").out


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
    assert out.endswith("Next: moorage send plan-prod TEXT\n")


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


def test_person_at_the_same_terminal_keeps_the_hold(cli: Cli, plan: str, terminal: Terminal) -> None:
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
    assert "Next: moorage resume plan-prod" in terminal.run("resume").out


def test_log_is_for_reading(cli: Cli, plan: str, terminal: Terminal) -> None:
    cli("send", plan, "two\nlines \x1b[31m")
    call = {"type": "tool_call", "id": "1", "name": "plan", "input": {"workspace": "prod"}}
    with sync.connect() as moor:
        moor.append(plan, {"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]})
        moor.append(plan, {"role": "tool", "content": [{"type": "tool_result", "call_id": "1", "output": "2 to add"}]})
    cli("update", plan, "--phase", "planning", "--metadata", '{"file": "plan.json"}')
    day, *lines = terminal.run("log", plan).out.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d UTC", day)
    shown = [re.sub(r"\d\d:\d\d:\d\d", "TIME", line) for line in lines]
    assert shown[3:] == [
        "   4  TIME  user       two",
        "                           lines \\x1b[31m",
        "   5  TIME  assistant  I look.",
        '                           → plan(workspace="prod")',
        "   6  TIME  tool       ← 2 to add",
        f"   7  TIME  phase      initializing → planning by {user()}",
        '   8  TIME  metadata   set file = "plan.json"',
    ]


def test_watch_is_for_reading(cli: Cli, plan: str, terminal: Terminal) -> None:
    lines = terminal.run("watch", "--once").out.splitlines()
    assert re.fullmatch(r"plan-prod +\d\d:\d\d:\d\d  user       Plan the change", lines[2])


def test_show_is_sentences_and_groups(cli: Cli, plan: str, terminal: Terminal) -> None:
    cli("request-approval", plan, "Apply?", "--expires", "7d")
    out = terminal.run("show", "plan-prod").out
    assert out.startswith("plan-prod is waiting, in phase approval.\nIt asks: Apply? (asked ")
    assert "expires in 6d 23h" in out
    assert f"\nSession\n  Id           {plan}\n  Agent        architect\n" in out
    assert "_" not in out


def test_stop_and_delete_say_what_they_did_in_one_line(cli: Cli, plan: str, terminal: Terminal) -> None:
    assert terminal.run("stop", "plan-prod").out == "Nothing was running in plan-prod.\n"
    assert terminal.run("delete", "plan-prod", "--yes").out == "Deleted plan-prod: 1 session with 2 messages.\n"


def test_stop_counts_the_runs(cli: Cli, terminal: Terminal) -> None:
    cli("run", "echo-agent", "hi", "--name", "first", "--mode", "async_poll")
    assert terminal.run("stop", "first").out == "Stopped 1 run in first.\n"


def test_show_of_a_failed_run_has_its_error_and_the_whole_command(cli: Cli, home: Path) -> None:
    define(home, FAILING)
    cli("run", "failing", "hello", "--name", "first" + "x" * 30)
    with a_terminal(80) as narrow:
        head, told, command, *_ = narrow.run("show", "first" + "x" * 30).out.splitlines()
    assert head == f"first{'x' * 30} has a failed run, in phase initializing."
    assert told.startswith("Its last run failed ")
    assert ": it ended with exit status" in told
    assert command == f"Retry it: moorage retry first{'x' * 30}"


def test_doctor_shows_words_on_a_terminal(plan: str, terminal: Terminal) -> None:
    lines = terminal.run("doctor").out.splitlines()
    assert [line.split("  ")[0] for line in lines if line.startswith(("Open", "open_"))] == ["Open sessions"]


def test_runs_show_the_prompt(cli: Cli, terminal: Terminal) -> None:
    cli("run", "echo-agent", "say\nhello", "--name", "first")
    head, row = terminal.run("runs").out.splitlines()
    assert head.split() == ["AGENT", "PROMPT", "RUN", "STATE", "SESSION", "ASKED"]
    assert row.split()[:3] == ["echo-agent", "say", "hello"]
    run_id = row.split()[3]
    assert terminal.run("result", run_id).out == "Echo Agent Response: say\nhello\n"


def test_cleanup_and_import_work_with_progress(cli: Cli, plan: str, terminal: Terminal) -> None:
    cli("export", plan, "-o", "plan.jsonl")
    assert "Imported 1 session, 3 entries" in terminal.run("import", "plan.jsonl", "--url", "sqlite:///copy.db").out
    assert "Would delete 1 session." in terminal.run("cleanup", "--hours", "0", "--dry-run").out


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
    named = plan[:13] in done.out or "plan-prod" in done.out
    assert named or line in ("doctor", "migrate", "children {plan}", "checkpoint list {plan}")
