"""suspend, resume, release, should-resume, checkpoint."""

from pathlib import Path

import pytest

from tests.doors.cli.running import Cli


def test_suspend_keeps_checkpoint_and_reason(cli: Cli, plan: str) -> None:
    session = cli("suspend", "plan-prod", "--checkpoint", '{"step": 3}', "--reason", "lunch", "--json").json
    assert session["state"] == "suspended"
    assert cli("checkpoint", "show", plan, "--json").json["checkpoint"] == {"step": 3}
    assert "lunch" in cli("log", plan, "--last", "1").out


def test_a_checkpoint_may_come_from_a_file_or_stdin(cli: Cli, plan: str) -> None:
    Path("checkpoint.json").write_text('{"step": "ä"}', encoding="utf-8")
    assert cli("suspend", plan, "--checkpoint", "@checkpoint.json").code == 0
    assert cli("checkpoint", "show", plan).out == '{"step":"ä"}\n'
    assert cli("suspend", plan, "--checkpoint", "@-", stdin=b'{"step": 4}').code == 0
    assert cli("checkpoint", "show", plan).out == '{"step":4}\n'


def test_resume_gives_hold_checkpoint_context_and_messages(cli: Cli, plan: str) -> None:
    cli("context", "set", plan, "region", "eu")
    cli("suspend", plan, "--checkpoint", '{"step": 3}')
    packet = cli("resume", "plan-prod", "--holder", "me", "--json").json
    assert packet["session"]["state"] == "active"
    assert packet["hold"]["holder"] == "me"
    assert packet["hold"]["token"]
    assert packet["checkpoint"] == {"step": 3}
    assert packet["context"] == {"region": "eu"}
    assert [message["content"] for message in packet["messages"]] == ["Plan the change", "Two to add"]


def test_resume_tells_people_the_same(cli: Cli, plan: str) -> None:
    cli("suspend", plan, "--checkpoint", '{"step": 3}')
    out = cli("resume", plan).out
    for word in ("token", "until", '{"step":3}', "Plan the change", "Two to add"):
        assert word in out


def test_another_process_is_kept_away_until_release(cli: Cli, plan: str) -> None:
    token = cli("resume", plan, "--json").json["hold"]["token"]
    refused = cli("resume", plan, "--json")
    assert (refused.code, refused.json["code"]) == (4, "held_by_another")
    assert f"until {refused.json['until'][:19]}Z; wait, or release it" in refused.err
    assert cli("release", plan, "--token", "another").code == 4
    assert cli("release", plan, "--token", token).code == 0
    assert cli("resume", plan).code == 0


def test_same_holder_resuming_again_gets_a_new_token(cli: Cli, plan: str) -> None:
    first, second = (cli("resume", plan, "--holder", "me", "--json").json["hold"] for _ in range(2))
    assert first["holder"] == second["holder"]
    assert cli("send", plan, "late", "--token", first["token"], "--json").json["code"] == "hold_lost"
    assert cli("send", plan, "in time", "--token", second["token"]).code == 0


def test_commands_of_a_script_are_one_holder_by_the_name_it_gives(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    session_id = cli("create", "--agent", "echo-agent").id
    cli("resume", session_id)
    refused = cli("send", session_id, "hi")
    assert (refused.code, "share a hold if MOORAGE_HOLDER names it" in refused.err) == (4, True)
    cli("release", session_id)
    monkeypatch.setenv("MOORAGE_HOLDER", "nightly")
    hold = cli("resume", session_id, "--json").json["hold"]
    assert hold["holder"].endswith("nightly")
    assert cli("resume", session_id, "--json").json["hold"]["holder"] == hold["holder"]
    monkeypatch.setenv("MOORAGE_HOLDER", "weekly")
    refused = cli("send", session_id, "hi")
    assert (refused.code, "MOORAGE_HOLDER" in refused.err) == (4, False)
    monkeypatch.setenv("MOORAGE_HOLDER", "nightly")
    assert cli("send", session_id, "hi").code == 0
    assert cli("get", session_id, "--json").json["hold"] is None
    monkeypatch.setenv("MOORAGE_HOLDER", "a\tb")
    assert cli("resume", session_id).code == 2


def test_agent_resume_lets_the_agent_go_on_without_a_hold(cli: Cli, plan: str) -> None:
    cli("suspend", plan)
    resumed = cli("agent", "resume", plan, "--json").json
    assert (resumed["hold"], resumed["session"]["state"]) == (None, "active")
    assert cli("agent", "resume", plan, "--json").json["session"]["version"] == resumed["session"]["version"]
    assert cli("resume", plan, "--holder", "me").code == 0
    refused = cli("agent", "resume", plan, "--json")
    assert (refused.code, refused.json["code"]) == (4, "held_by_another")


def test_writing_with_the_token_is_allowed_and_with_another_refused(cli: Cli, plan: str) -> None:
    token = cli("resume", plan, "--json").json["hold"]["token"]
    for command in (
        ["update", plan, "--phase", "planning"],
        ["send", plan, "go on"],
        ["checkpoint", "save", plan, "{}"],
    ):
        assert cli(*command, "--token", token).code == 0
        refused = cli(*command, "--token", "another", "--json")
        assert (refused.code, refused.json["code"]) == (4, "hold_lost")


def test_resume_without_a_session_suggests_what_to_pick_up(cli: Cli, plan: str) -> None:
    assert cli("resume").out == ""
    cli("suspend", plan)
    done = cli("resume")
    assert done.out.split("\t")[0] == plan
    assert "Next: moorage resume plan-prod" in done.err
    assert [item["session_id"] for item in cli("resume", "--json").json["items"]] == [plan]


# should-resume ----------------------------------------------------------------------------------


def test_should_resume_says_yes_with_0_and_no_with_1(cli: Cli, plan: str) -> None:
    no = cli("should-resume", "plan-prod", "--holder", "me")
    assert (no.code, no.out) == (1, f"no\tphase_not_resumable\t{plan}\n")
    cli("update", plan, "--phase", "planning")
    yes = cli("should-resume", plan[:8], "--holder", "me")
    assert (yes.code, yes.out) == (0, f"yes\tsession_resumable\t{plan}\n")


def test_should_resume_shows_every_criterion(cli: Cli, plan: str) -> None:
    verdict = cli("--json", "should-resume", plan).json
    assert verdict["decision"] is False
    assert verdict["reason"] == "phase_not_resumable"
    assert list(verdict["criteria"]) == [
        *("exists", "whole", "open", "phase", "resume_ready", "idle_seconds", "error_count", "held_by")
    ]


def test_a_session_that_is_not_there_is_a_no(cli: Cli) -> None:
    done = cli("should-resume", "no-such-session", "--json")
    assert (done.code, done.json["reason"]) == (1, "session_not_found")


@pytest.mark.parametrize(("task", "code"), [("T001", 0), ("T002", 1)])
def test_should_resume_looks_for_the_newest_of_an_agent_and_task(cli: Cli, plan: str, task: str, code: int) -> None:
    cli("update", plan, "--phase", "planning")
    assert cli("should-resume", "--agent", "architect", "--task-id", task).code == code


# checkpoint -------------------------------------------------------------------------------------


def test_checkpoints_are_saved_shown_and_listed(cli: Cli, plan: str) -> None:
    first = cli("checkpoint", "save", plan, '{"step": 1}').id
    second = cli("checkpoint", "save", plan, '{"step": 2}').id
    assert cli("checkpoint", "show", plan).out == '{"step":2}\n'
    assert cli("checkpoint", "show", plan, first).out == '{"step":1}\n'
    assert [line.split("\t")[0] for line in cli("checkpoint", "list", plan).lines] == [second, first]
    assert [item["number"] for item in cli("checkpoint", "list", plan, "--json").json["items"]] == [
        int(second),
        int(first),
    ]


@pytest.mark.parametrize("at_once", [2, 3, 5, 1000])
def test_all_checkpoints_are_listed_unless_there_is_a_limit(
    cli: Cli, plan: str, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("moorage.core.query.PAGE", at_once)
    saved = [cli("checkpoint", "save", plan, "{}").id for _ in range(5)][::-1]
    for limit, expected in (([], saved), (["--limit", "1"], saved[:1]), (["--limit", "4"], saved[:4])):
        assert [line.split("\t")[0] for line in cli("checkpoint", "list", plan, *limit).lines] == expected


def test_a_checkpoint_there_is_not(cli: Cli, plan: str) -> None:
    assert cli("checkpoint", "show", plan).code == 3


# agent ------------------------------------------------------------------------------------------


def test_the_names_of_agent_frameworks_do_the_same(cli: Cli, plan: str) -> None:
    assert cli("agent", "list-sessions").out == cli("list").out
    assert cli("agent", "show-session", plan, "--json").json == cli("get", plan, "--json").json
    assert cli("agent", "suspend", plan).code == 0
    assert cli("agent", "resume", plan, "--json").json["session"]["session_id"] == plan
    assert cli("agent", "cleanup", "--dry-run", "--json").json["removed"] == 0
