"""send, log, search, context."""

import pytest

from tests.doors.cli.running import Cli


def messages(cli: Cli, ref: str) -> list[tuple[str, str]]:
    entries = cli("--json", "log", ref, "--kind", "message").json["items"]
    return [(entry["role"], entry["content"]) for entry in entries]


def test_send_prints_the_number_of_its_entry(cli: Cli, plan: str) -> None:
    done = cli("send", plan, "Go on")
    assert (done.code, done.out) == (0, "4\n")
    assert messages(cli, plan)[-1] == ("user", "Go on")


def test_send_says_whether_it_asked_or_only_kept_the_message(cli: Cli) -> None:
    for agent in ("echo-agent", "somebody-elses"):
        cli("create", "--agent", agent, "--name", agent)
    asked, kept = cli("send", "echo-agent", "hi"), cli("send", "somebody-elses", "hi")
    assert "Asked for an answer. Next: moorage result " in asked.err
    assert "The run waits for a launcher, and none is running that takes it. Start one: moorage launcher" in asked.err
    assert kept.err == "Kept: no agent was asked for an answer.\n"
    asked, kept = (cli("send", agent, "hi", "--json") for agent in ("echo-agent", "somebody-elses"))
    assert (bool(asked.json["run_id"]), asked.json["because"]["reason"]) == (True, "no_launcher")
    assert (kept.json["run_id"], kept.json["because"]) == (None, None)
    assert (asked.err, kept.err) == ("", "")


@pytest.mark.parametrize("role", ["user", "assistant", "system", "tool"])
def test_send_in_every_role_answers_alike(cli: Cli, plan: str, role: str) -> None:
    reply = cli("send", plan, "words", "--role", role, "--json").json
    assert reply["session_id"] == plan
    assert (reply["message"]["number"], reply["message"]["role"]) == (4, role)
    assert reply["message"]["interface"] == "cli"


@pytest.mark.parametrize(
    ("given", "kept"), [(b"piped", "piped"), (b"two\nlines\n", "two\nlines"), (b"\r\n", ""), (b"gr\xc3\xbcn", "grün")]
)
def test_send_reads_stdin_without_the_line_end_that_closes_it(cli: Cli, plan: str, given: bytes, kept: str) -> None:
    assert cli("send", plan, "-", stdin=given).code == 0
    assert messages(cli, plan)[-1] == ("user", kept)


def test_a_client_key_makes_sending_twice_harmless(cli: Cli, plan: str) -> None:
    assert cli("send", plan, "once", "--client-key", "k1").out == cli("send", plan, "once", "--client-key", "k1").out
    assert len(messages(cli, plan)) == 3
    refused = cli("send", plan, "other", "--client-key", "k1", "--json")
    assert (refused.code, refused.json["code"]) == (4, "key_reused")


def test_an_unknown_role_is_refused(cli: Cli, plan: str) -> None:
    assert cli("send", plan, "x", "--role", "robot").code == 2


# log --------------------------------------------------------------------------------------------


def test_log_is_one_line_for_each_entry(cli: Cli, plan: str) -> None:
    cli("send", plan, "two\nlines\tand a tab")
    rows = [line.split("\t") for line in cli("log", plan).lines]
    assert [row[0] for row in rows] == ["1", "2", "3", "4"]
    assert rows[3][2:] == ["message", "user", "two lines and a tab"]


def test_log_can_be_narrowed(cli: Cli, plan: str) -> None:
    cli("update", plan, "--phase", "planning", "--error", "oops")
    kinds = [line.split("\t")[2] for line in cli("log", plan, "--kind", "phase", "--kind", "error").lines]
    assert kinds == ["phase", "error"]
    assert [line.split("\t")[0] for line in cli("log", plan, "--last", "2").lines] == ["4", "5"]
    assert [line.split("\t")[0] for line in cli("log", plan, "--after", "3").lines] == ["4", "5"]
    assert [entry["number"] for entry in cli("log", plan, "--last", "1", "--json").json["items"]] == [5]


def test_log_follows_every_page(cli: Cli, plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorage.core.query.PAGE", 2)
    cli("send", plan, "third")
    cli("send", plan, "fourth")
    assert [line.split("\t")[0] for line in cli("log", plan).lines] == ["1", "2", "3", "4", "5"]
    assert [line.split("\t")[0] for line in cli("log", plan, "--last", "3").lines] == ["3", "4", "5"]


def test_an_unknown_kind_is_refused(cli: Cli, plan: str) -> None:
    done = cli("log", plan, "--kind", "rumour", "--json")
    assert (done.code, done.json["code"]) == (2, "invalid_kinds")


def test_a_message_cannot_drive_the_terminal(cli: Cli, plan: str) -> None:
    cli("send", plan, "\x1b]0;owned\x07 and \x1b[31mred")
    out = cli("log", plan).out
    assert "\x1b" not in out
    assert r"\x1b[31mred" in out


# search -----------------------------------------------------------------------------------------


def test_search_finds_all_words(cli: Cli, plan: str) -> None:
    (row,) = (line.split("\t") for line in cli("search", "plan", "chan*").lines)
    assert row[:4] == [plan, "2", "message", "user"]
    assert cli("search", "plan", "elephant").lines == []
    assert cli("search", "plan", "--json").json["items"][0]["session_id"] == plan


# context ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("italian", "italian"),
        ("42", 42),
        ("true", True),
        ("null", None),
        ('{"cpu": 4}', {"cpu": 4}),
        ("not a number: 4", "not a number: 4"),
        ("", ""),
    ],
)
def test_a_context_value_is_json_if_it_is_that_else_text(cli: Cli, plan: str, value: str, kept: object) -> None:
    assert cli("context", "set", plan, "key", value).code == 0
    assert cli("context", "get", plan, "--json").json == {"key": kept}


def test_text_stays_text_on_demand(cli: Cli, plan: str) -> None:
    cli("context", "set", plan, "key", "42", "--text")
    assert cli("context", "get", plan, "key", "--json").json == "42"
    cli("context", "set", plan, "key", "{broken", "--text")
    assert cli("context", "get", plan, "key").out == "{broken\n"


@pytest.mark.parametrize("value", ["{broken", "[1, NaN]", "NaN", "-Infinity", '"open'])
def test_broken_json_is_refused(cli: Cli, plan: str, value: str) -> None:
    done = cli("context", "set", plan, "key", "--json", "--", value)
    assert (done.code, done.json["code"]) == (2, "invalid_json")
    assert "--text" in done.err
    assert cli("context", "get", plan).out == "{}\n"


def test_nothing_there_is_an_empty_object(cli: Cli, plan: str) -> None:
    assert cli("context", "get", plan).out == "{}\n"
    assert cli("context", "get", plan, "key", "--json").json == {}


def test_context_has_versions_and_expiry(cli: Cli, plan: str) -> None:
    written = cli("context", "set", plan, "lock", "me", "--ttl", "30m", "--expected-version", "0", "--json").json
    assert written["keys"] == ["lock"]
    item = cli("context", "get", plan, "lock", "--details", "--json").json
    assert (item["value"], item["version"]) == ("me", written["version"])
    assert item["expires_at"] > item["updated_at"]
    refused = cli("context", "set", plan, "lock", "you", "--expected-version", "0", "--json")
    assert (refused.code, refused.json["code"]) == (4, "version_conflict")


def test_context_forgets_a_key_or_everything_but_not_by_accident(cli: Cli, plan: str) -> None:
    cli("context", "set", plan, "a", "1")
    cli("context", "set", plan, "b", "2")
    assert cli("context", "delete", plan).code == 2
    assert cli("context", "delete", plan, "a", "--all").code == 2
    assert cli("context", "delete", plan, "a", "--json").json["keys"] == ["a"]
    assert cli("context", "get", plan).out == '{"b":2}\n'
    assert cli("context", "delete", plan, "--all").code == 0
    assert cli("context", "get", plan).out == "{}\n"


def test_a_secret_in_the_context_is_not_kept_and_said_so(cli: Cli, plan: str) -> None:
    done = cli("context", "set", plan, "api_key", "hunter2")
    assert "moorage: warning: " in done.err
    assert cli("context", "get", plan, "api_key").out == "[redacted]\n"


def test_send_with_no_wake_leaves_a_suspended_session_asleep(cli: Cli) -> None:
    session_id = cli("create", "--agent", "echo-agent").id
    cli("suspend", session_id)
    sent = cli("send", session_id, "later", "--no-wake")
    assert (sent.code, "because the session is suspended" in sent.err) == (0, True)
    assert cli("get", session_id, "--json").json["state"] == "suspended"
    cli("send", session_id, "now")
    assert cli("get", session_id, "--json").json["state"] == "active"
