"""request-approval, approvals, approve, reject."""

from pathlib import Path

import pytest

from tests.doors.cli.running import Cli, Terminal


@pytest.fixture
def asked(cli: Cli, plan: str) -> str:
    return cli("request-approval", plan, "Apply?", "--plan", '{"add": 2}', "--expires", "7d").id


def test_pending_approvals_are_listed(cli: Cli, plan: str, asked: str) -> None:
    (row,) = (line.split("\t") for line in cli("approvals").lines)
    assert [*row[:3], row[4]] == [asked, plan, "pending", "Apply?"]
    item = cli("approvals", "--session", "plan-prod", "--json").json["items"][0]
    assert (item["approval_id"], item["plan"]) == (asked, {"add": 2})
    assert item["expires_at"] is not None
    assert cli("get", plan, "--json").json["status"] == "waiting"


def test_the_plan_may_come_from_a_file(cli: Cli, plan: str) -> None:
    Path("plan.json").write_text("[1, 2]")
    assert cli("request-approval", plan, "Apply?", "--plan", "@plan.json", "--json").json["plan"] == [1, 2]


@pytest.mark.parametrize(("command", "state"), [("approve", "approved"), ("reject", "rejected")])
def test_an_answer_by_the_approvals_id(cli: Cli, plan: str, asked: str, command: str, state: str) -> None:
    answer = cli(command, asked, "--note", "because", "--json").json
    assert (answer["state"], answer["note"], answer["session_id"]) == (state, "because", plan)
    assert cli("get", plan, "--json").json["status"] == "idle"
    assert cli("approvals").lines == []
    assert cli("approvals", "--all").lines[0].split("\t")[2] == state


@pytest.mark.parametrize("ref", ["plan-prod", "prefix"])
def test_an_answer_by_the_session_that_waits_for_one(cli: Cli, plan: str, asked: str, ref: str) -> None:
    assert cli("approve", plan[:10] if ref == "prefix" else ref).lines == [f"{asked}\t{plan}\tapproved"]


def test_a_session_that_waits_for_two_is_ambiguous(cli: Cli, plan: str, asked: str) -> None:
    other = cli("request-approval", plan, "And this?").id
    done = cli("approve", "plan-prod", "--json")
    assert (done.code, done.json["code"]) == (2, "ambiguous_reference")
    assert done.json["candidates"] == [asked, other]
    assert done.err == f"moorage: session plan-prod waits for 2 answers; name one of: {asked}, {other}\n"


@pytest.mark.parametrize("command", ["approve", "reject"])
def test_a_session_that_waits_for_nothing(cli: Cli, plan: str, command: str) -> None:
    done = cli(command, "plan-prod", "--json")
    assert (done.code, done.json["code"]) == (3, "approval_not_found")
    decided = "`moorage approvals --session plan-prod --all` lists the decided ones"
    assert done.err == f"moorage: session plan-prod has no open approval; {decided}\n"


def test_neither_an_approval_nor_a_session(cli: Cli, plan: str) -> None:
    done = cli("approve", "no-such-thing", "--json")
    assert (done.code, done.json["code"]) == (3, "approval_not_found")
    assert "there is no approval 'no-such-thing'" in done.err


def test_one_of_the_options(cli: Cli, plan: str) -> None:
    cli("request-approval", plan, "Which way?", "--option", "left", "--option", "right")
    refused = cli("approve", plan, "--option", "up", "--json")
    assert (refused.code, refused.json["code"]) == (2, "invalid_decision")
    answer = cli("approve", plan, "--option", "left", "--json").json
    assert (answer["state"], answer["decision"]) == ("answered", "left")


def test_an_answer_is_single_use(cli: Cli, asked: str) -> None:
    assert cli("approve", asked).code == 0
    assert cli("approve", asked).code == 0
    done = cli("reject", asked, "--json")
    assert (done.code, done.json["code"]) == (4, "already_decided")


def test_another_plan_than_the_one_looked_at_is_not_approved(cli: Cli, asked: str) -> None:
    plan_hash = cli("approvals", "--json").json["items"][0]["plan_hash"]
    refused = cli("approve", asked, "--plan-hash", "0" * 64, "--json")
    assert (refused.code, refused.json["code"]) == (2, "invalid_plan_hash")
    assert cli("approve", asked, "--plan-hash", plan_hash).code == 0


# At a terminal ------------------------------------------------------------------------------------


def test_list_at_a_terminal_has_agent_age_and_expiry(asked: str, terminal: Terminal) -> None:
    head, row, hint = terminal.run("approvals").out.splitlines()
    assert head.split() == ["QUESTION", "APPROVAL", "SESSION", "AGENT", "ASKED", "EXPIRES"]
    assert row.split()[:4] == ["Apply?", asked[:13], "plan-prod", "architect"]
    assert row.endswith("in 6d 23h")
    assert hint == f"Look at one: moorage approvals show {asked[:13]}"


def test_decided_approvals_get_no_proposal(cli: Cli, asked: str, terminal: Terminal) -> None:
    cli("approve", asked)
    head, row = terminal.run("approvals", "--all").out.splitlines()
    assert (head.split()[4], "approved" in row) == ("STATE", True)


def test_show_has_the_plan_and_what_changed_in_it(cli: Cli, plan: str, asked: str, terminal: Terminal) -> None:
    cli("reject", asked, "--note", "three")
    again = cli("request-approval", plan, "Apply again?", "--plan", '{"add": 3}').id
    out = terminal.run("approvals", "show", "plan-prod").out
    assert out.startswith("Apply again?\nAsked ")
    assert '\nPlan\n  {\n    "add": 3\n  }\n' in out
    assert f"\nDifference from the plan of {asked[:13]}, rejected " in out
    assert '\n  -  "add": 2\n  +  "add": 3\n' in out
    assert f"Approve: moorage approve {again[:13]}\n" in out


def test_show_as_a_document_has_the_earlier_plan(cli: Cli, plan: str, asked: str) -> None:
    assert cli("approvals", "show", asked, "--json").json["earlier_plan"] is None
    cli("reject", asked)
    again = cli("request-approval", plan, "Apply again?", "--plan", '{"add": 3}').id
    shown = cli("approvals", "show", again, "--json").json
    assert (shown["plan"], shown["earlier_plan"]["plan"]) == ({"add": 3}, {"add": 2})


def test_show_of_the_same_plan_says_so(cli: Cli, plan: str, asked: str, terminal: Terminal) -> None:
    cli("reject", asked)
    again = cli("request-approval", plan, "And now?", "--plan", '{"add": 2}').id
    assert f"The same as the plan of {asked[:13]}, rejected" in terminal.run("approvals", "show", again).out


@pytest.mark.parametrize("command", ["approve", "reject", "approvals show"])
def test_approval_is_named_by_the_beginning_of_its_id(cli: Cli, asked: str, command: str) -> None:
    assert cli(*command.split(), asked[:13]).code == 0


def test_approve_without_an_option_lists_the_options(cli: Cli, plan: str) -> None:
    cli("request-approval", plan, "Which way?", "--option", "staging first", "--option", "all")
    done = cli("approve", "plan-prod", "--json")
    assert (done.code, done.json["code"]) == (2, "usage")
    assert "choose one of: --option 'staging first', --option all" in done.err
    assert cli("approvals").lines != []


@pytest.mark.parametrize("answer", ["2", "all", "3\nal\nall"])
def test_approve_at_a_terminal_asks_which_option(cli: Cli, plan: str, terminal: Terminal, answer: str) -> None:
    cli("request-approval", plan, "Which way?", "--option", "staging", "--option", "all")
    out = terminal.run("approve", "plan-prod", answer=f"{answer}\n", when="Which one?").out
    assert out.endswith("Answered 'all': Which way? Session plan-prod.\n")
