"""run, runs, result, stop, inbox, launcher, launchers, resume with a prompt."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from moorage.core.status import Because, Reason
from moorage.doors.cli.waiting import why_yet
from tests.doors.cli.agent_files import ASKING, BROKEN, ERRAND, FAILING, MISSPEAKING, SLOW, define
from tests.doors.cli.running import Cli, Terminal, run
from tests.doors.cli.talking import CTRL_C, a_talk

PATIENCE = 30.0
MOORAGE = f"{shlex.quote(sys.executable)} -m moorage"
MODES = ("sync", "ASYNC_POLL", "Async_Callback")


def until(holds: Callable[[], Any]) -> Any:
    """Return the value of the condition, once it has one."""
    end = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.05)
    return found


@contextmanager
def a_launcher(*args: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", "moorage", "launcher", *args], stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill() if sys.exc_info()[0] else process.terminate()
        process.wait(PATIENCE)


def parent_agent(name: str, script: str) -> str:
    return f'[agent]\nname = "{name}"\nkind = "command"\ncommand = ["sh", "-c", {json.dumps(script)}]\n'


# run --------------------------------------------------------------------------------------------


def test_run_prints_the_answer_and_keeps_the_session(cli: Cli) -> None:
    done = cli("run", "echo-agent", "hello", "--name", "greeting", "--purpose", "trying", "--task-id", "T1")
    assert (done.code, done.out, done.err) == (0, "Echo Agent Response: hello\n", "")
    session = cli("get", "greeting", "--json").json
    assert (session["agent_name"], session["purpose"], session["task_id"]) == ("echo-agent", "trying", "T1")
    assert (session["state"], session["status"], session["parent_session_id"]) == ("active", "idle", None)


def test_run_on_a_terminal_prints_messages_on_lines_of_their_own(cli: Cli, home: Path, terminal: Terminal) -> None:
    lines = [
        {"type": "message", "content": "I look."},
        *({"type": "chunk", "text": part} for part in ("I fou", "nd it.")),
    ]
    lines += [{"type": "message", "content": "I found it."}, {"type": "result", "text": "Done."}]
    script = "\n".join(f"echo {shlex.quote(json.dumps(line))}" for line in lines)
    define(home, parent_agent("talker", script).replace('"command"\n', '"command"\nprotocol = "jsonl"\n'))
    assert terminal.run("run", "talker", "look").out.startswith("I look.\nI found it.\nDone.\n")
    assert cli("run", "talker", "look").out == "Done.\n"


def test_run_as_a_document(cli: Cli) -> None:
    reply = cli("run", "echo-agent", "hello", "--metadata", '{"a": 1}', "--json").json
    assert (reply["status"], reply["result"]) == ("completed", "Echo Agent Response: hello")
    assert reply["session"]["metadata"] == {"a": 1}
    assert reply["run"]["mode"] == "sync"


def test_run_reads_the_prompt_from_standard_input(cli: Cli) -> None:
    assert cli("run", "echo-agent", "-", stdin=b"from a pipe\n").out == "Echo Agent Response: from a pipe\n"


def test_run_in_a_session_remembers(cli: Cli) -> None:
    session_id = cli("run", "echo-agent", "one", "--json").json["session"]["session_id"]
    assert "Remembered: one" in cli("run", "echo-agent", "/recall", "--session", session_id).out


def test_any_agent_is_asked_in_any_session(cli: Cli) -> None:
    session_id = cli("create", "--agent", "hello-world").id
    answer = cli("run", "echo-agent", "hi", "--session", session_id, "--json").json
    assert (answer["result"], answer["session"]["agent_name"]) == ("Echo Agent Response: hi", "hello-world")
    assert answer["run"]["agent_name"] == "echo-agent"
    assert cli("run", "hello-world", "hi", "--session", session_id).out.startswith("Hello again!")


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["run", "nobody", "hi"], 3),
        (["run", "echo-agent"], 2),
        (["run", "echo-agent", "hi", "--mode", "later"], 2),
        (["run", "echo-agent", "hi", "--join", "some"], 2),
        (["run", "echo-agent", "hi", "--parent", "nothing"], 3),
        (["run", "echo-agent", "hi", "--no-session", "--session", "x"], 2),
        (["run", "echo-agent", "hi", "--no-session", "--mode", "async_poll"], 2),
        (["result", "nothing"], 3),
        (["stop"], 2),
        (["stop", "--run", "nothing"], 3),
        (["inbox", "--send-again", "nothing"], 3),
        (["runs", "--state", "odd"], 2),
    ],
)
def test_invalid_run_is_refused_and_changes_nothing(cli: Cli, args: list[str], code: int) -> None:
    assert cli(*args).code == code
    assert cli("list").out == cli("runs").out == ""


def test_a_run_that_fails_is_exit_code_1_and_says_why(cli: Cli, home: Path) -> None:
    define(home, FAILING)
    done = cli("run", "failing", "hi")
    assert (done.code, done.out) == (1, "")
    assert "out of luck" in done.err
    assert cli("run", "failing", "hi", "--json").json["run"]["state"] == "failed"


def test_run_prints_what_its_agent_said_wrongly(cli: Cli, home: Path) -> None:
    define(home, MISSPEAKING)
    done = cli("run", "misspeaking", "hi", "--name", "wrong")
    assert (done.code, done.out) == (0, "fine\n")
    assert done.err.splitlines() == [
        "moorage: problem in line 1, field content[0].call_id: expected a text, in a part of type tool_result; "
        'got {"type": "message", "role": "tool", "content": [{"type": "tool_result"}]}',
        "moorage: problem in line 2, field phase: expected one of initializing, investigating, planning, approval, "
        'executing, validating; got {"type":"phase","phase":"plannign"}',
        *[f"moorage: problem in line {n}: expected a JSON object; got oh no" for n in range(3, 22)],
        "moorage: 11 more problems",
    ]
    assert cli("runs", "--json").json["items"][0]["problems"] == 32
    assert len(cli("log", "wrong", "--kind", "problem").out.splitlines()) == 21
    assert "plannign" in cli("watch", "wrong", "--once").out


def test_problems_of_earlier_runs_are_not_printed_again(cli: Cli, home: Path) -> None:
    define(home, MISSPEAKING)
    session_id = cli("run", "misspeaking", "hi", "--json").json["session"]["session_id"]
    done = cli("run", "misspeaking", "quietly", "--session", session_id)
    assert (done.out, done.err) == ("fine\n", "")


def test_callback_without_a_parent_is_told(cli: Cli) -> None:
    done = cli("run", "echo-agent", "hi", "--mode", "async_callback")
    assert (done.code, "no session is called back" in done.err) == (0, True)
    parent = cli("create").id
    assert "called back" not in cli("run", "echo-agent", "hi", "--mode", "async_callback", "--parent", parent).err


@pytest.mark.parametrize("mode", MODES)
def test_modes_are_understood_in_any_case(cli: Cli, mode: str) -> None:
    reply = cli("run", "echo-agent", "hi", "--mode", mode, "--json").json
    assert reply["run"]["mode"] == mode.lower()
    assert reply["status"] == ("completed" if mode == "sync" else "queued")


def test_asking_twice_with_one_key_asks_once(cli: Cli) -> None:
    first, again = (cli("run", "echo-agent", "hi", "--idempotency-key", "k1", "--json").json for _ in range(2))
    assert first["run"] == again["run"]
    assert len(cli("list").lines) == 1


def test_without_a_session_nothing_is_kept(cli: Cli, home: Path) -> None:
    assert cli("run", "echo-agent", "hi", "--no-session").out == "Echo Agent Response: hi\n"
    answer = cli("run", "echo-agent", "hi", "--no-session", "--json").json
    assert (answer["status"], answer["result"]) == ("completed", "Echo Agent Response: hi")
    assert [answer[name] for name in ("session_id", "run_id", "run", "session")] == ["", None, None, None]
    assert not (home / "moorage.db").exists()


def test_without_a_session_works_inside_an_agent_too(home: Path) -> None:
    inside = {"AGENT_SESSION_ID": "some-session", "AGENT_RUN_ID": "some-run"}
    done = run("run", "echo-agent", "hi", "--no-session", env=inside)
    assert (done.code, done.out) == (0, "Echo Agent Response: hi\n")


def test_a_run_that_takes_too_long_is_stopped(cli: Cli, home: Path) -> None:
    define(home, SLOW)
    reply = cli("run", "slow", "hi", "--timeout", "1", "--json")
    assert (reply.code, reply.json["status"]) == (1, "stopped")


@pytest.mark.parametrize("is_stopping", [False, True])
def test_ctrl_c_suspends_with_the_run_open_and_stops_it_only_if_told_to(
    cli: Cli, home: Path, is_stopping: bool
) -> None:
    define(home, SLOW)
    with a_talk("run", "slow", "hi", "--name", "left", *(["--stop-on-exit"] if is_stopping else [])) as talk:
        talk.wait_for("started")
        talk.type(CTRL_C)
        talk.wait_for("Session suspended: ")
        talk.wait_for("To come back: moorage attach ")
        assert talk.end() == 130
    assert cli("get", "left", "--json").json["state"] == "suspended"
    [found] = cli("runs", "--json").json["items"]
    assert found["state"] == ("stopped" if is_stopping else "queued")


def test_ctrl_c_leaves_open_runs_to_the_next_launcher(cli: Cli, home: Path) -> None:
    define(home, ERRAND)
    define(home, parent_agent("sender", "moorage run errand a --mode async_poll"))
    with a_talk("run", "sender", "go") as talk:
        talk.wait_for("Waiting for 1 other agent of this run")
        pid = int(until(lambda: (home / "errand").exists() and (home / "errand").read_text()))
        started = time.monotonic()
        talk.type(CTRL_C)
        talk.end()
        assert time.monotonic() - started < 12
    assert not _lives(pid)
    [errand] = cli("runs", "--agent", "errand", "--json").json["items"]
    assert errand["state"] == "queued"
    with a_launcher():
        assert cli("result", errand["run_id"], "--wait", "20").out == "went at last\n"


def test_a_terminal_says_that_the_run_completed_and_how_to_go_on(terminal: Terminal) -> None:
    shown = terminal.run("run", "echo-agent", "hello", "--name", "mine").out
    assert shown.endswith("\nRun completed. Go on with: moorage attach mine\n")


def test_a_terminal_shows_the_answer_once(terminal: Terminal, home: Path) -> None:
    define(home, parent_agent("two-lines", "echo one; sleep 0.3; echo two"))
    out = terminal.run("run", "two-lines", "hi").out
    assert out.startswith("one\ntwo\nRun ")
    assert terminal.run("run", "echo-agent", "hi").out.count("Echo Agent Response") == 1


def test_run_leaves_other_families_work_alone(cli: Cli, home: Path) -> None:
    define(home, SLOW)
    other = cli("run", "slow", "hi", "--mode", "async_poll", "--json").json["run"]
    assert cli("run", "echo-agent", "hi").code == 0
    assert cli("result", other["run_id"], "--json").json["state"] == "queued"
    assert cli("log", other["session_id"], "--kind", "turn_started").out == ""


def test_session_that_waits_for_an_approval_is_not_waited_for(cli: Cli) -> None:
    session_id = cli("run", "echo-agent", "one", "--json").json["session"]["session_id"]
    approval = cli("request-approval", session_id, "Really?").id
    for asking in (["run", "echo-agent", "two", "--session", session_id], ["resume", session_id, "two"]):
        done = cli(*asking)
        assert (done.code, done.out, f"moorage approvals show {approval}" in done.err) == (1, "", True)
        told = cli(*asking, "--json")
        assert (told.code, told.json["status"]) == (1, "queued")
        because = told.json["run"]["because"]
        assert (because["reason"], because["approval_id"]) == ("waiting_for_approval", approval)
    newest, *_ = cli("runs", "--session", session_id).lines
    assert newest.split("\t")[1::4] == ["queued", "waiting_for_approval"]
    later = cli("run", "echo-agent", "two", "--session", session_id, "--mode", "async_poll")
    assert cli("result", later.id, "--json").json["state"] == "queued"
    assert f"moorage approvals show {approval}" in later.err


def test_result_says_after_a_moment_why_it_waits(cli: Cli) -> None:
    run_id = cli("run", "echo-agent", "hi", "--mode", "async_poll").id
    waited = cli("result", run_id, "--wait", "1.1")
    told = "The run waits for a launcher, and none is running that takes it."
    assert (waited.code, waited.err.count(told)) == (1, 2), "when the wait begins to be one, and at its end"


@pytest.mark.parametrize("launches", [True, False])
def test_command_that_is_the_launcher_does_not_ask_for_one(launches: bool) -> None:
    told = why_yet(Because(reason=Reason.NO_LAUNCHER), "s-1", launches=launches)
    assert (told is None) is launches
    held = why_yet(Because(reason=Reason.HELD, by="ann"), "s-1", launches=launches)
    assert held is not None
    assert "ann" in held


def test_person_who_asks_wakes_a_suspended_session(cli: Cli) -> None:
    session_id = cli("run", "echo-agent", "one", "--json").json["session"]["session_id"]
    cli("suspend", session_id)
    assert cli("run", "echo-agent", "two", "--session", session_id).out == "Echo Agent Response: two\n"


def test_an_approval_that_a_run_waits_for_is_told(cli: Cli, home: Path) -> None:
    define(home, ASKING)
    with a_talk("run", "asking", "do it", "--name", "asked") as talk:
        talk.wait_for("It asks a person: Apply it?")
        until(lambda: cli("get", "asked", "--json").json["status"] == "waiting")
        assert cli("approve", "asked").code == 0
        talk.wait_for("You said approve")
        assert talk.end() == 0


def test_the_other_name_of_run(cli: Cli) -> None:
    assert cli("agent", "run", "echo-agent", "hi").out == "Echo Agent Response: hi\n"


# resume SESSION PROMPT --------------------------------------------------------------------------


def test_resume_with_a_prompt_goes_on_with_the_agent(cli: Cli) -> None:
    session_id = cli("run", "echo-agent", "one", "--json").json["session"]["session_id"]
    cli("suspend", session_id)
    done = cli("resume", session_id, "/recall")
    assert (done.code, "Remembered: one" in done.out) == (0, True)
    session = cli("get", session_id, "--json").json
    assert (session["state"], session["hold"]) == ("active", None)
    assert cli("resume", session_id, "-", stdin=b"hi\n").out == "Echo Agent Response: hi\n"


def test_resume_with_a_prompt_needs_an_agent_and_a_free_session(cli: Cli, plan: str) -> None:
    cli("suspend", plan)
    assert cli("resume", plan, "go on").code == 3
    assert cli("get", plan, "--json").json["state"] == "suspended"
    session_id = cli("create", "--agent", "echo-agent").id
    cli("resume", session_id, "--holder", "somebody")
    assert cli("resume", session_id, "go on").code == 4
    cli("finalize", session_id, "completed")
    assert cli("resume", session_id, "go on").code == 4
    assert cli("runs").out == ""


# runs, result, stop -----------------------------------------------------------------------------


def test_runs_are_listed_newest_first_and_filtered(cli: Cli) -> None:
    old = cli("run", "echo-agent", "a", "--json").json["run"]
    new = cli("run", "hello-world", "b", "--mode", "async_poll", "--json").json["run"]
    ids = [old["run_id"], new["run_id"]]
    assert [line.split("\t")[:3] for line in cli("runs").lines] == [
        [ids[1], "queued", "hello-world"],
        [ids[0], "completed", "echo-agent"],
    ]
    for args, wanted in (
        (["--open"], ids[1]),
        (["--state", "completed"], ids[0]),
        (["--agent", "hello-world"], ids[1]),
        (["--session", old["session_id"]], ids[0]),
        (["--limit", "1"], ids[1]),
    ):
        assert [line.split("\t")[0] for line in cli("runs", *args).lines] == [wanted]
    page = cli("runs", "--limit", "1", "--json").json
    assert cli("runs", "--limit", "1", "--cursor", page["next"], "--json").json["items"][0]["run_id"] == ids[0]


def test_result_tells_what_it_came_to_by_id_and_prefix(cli: Cli, home: Path) -> None:
    define(home, FAILING)
    good = cli("run", "echo-agent", "a", "--json").json["run"]["run_id"]
    assert cli("result", good).out == "Echo Agent Response: a\n"
    assert cli("result", good[:-2], "--json").json["run_id"] == good
    bad = cli("run", "failing", "a", "--json").json["run"]["run_id"]
    told = cli("result", bad)
    assert (told.code, told.out, "out of luck" in told.err) == (1, "", True)
    assert cli("result", good[:4]).code == 2  # it fits both


def test_a_result_that_was_cut_says_where_the_rest_is(cli: Cli, home: Path) -> None:
    define(home, parent_agent("talker", "head -c 300000 /dev/zero | tr '\\0' x"))
    assert "only the beginning" in cli("run", "talker", "a").err
    asked = cli("run", "talker", "a", "--json").json["run"]
    done = cli("result", asked["run_id"])
    assert len(done.out) < 300_000
    assert f"moorage log {asked['session_id']} --kind message" in done.err
    said = cli("log", asked["session_id"], "--kind", "message", "--json").json["items"][-1]["content"]
    assert said == "x" * 300_000


def test_a_result_that_is_not_there_yet_is_a_no_and_names_the_way(cli: Cli) -> None:
    asked = cli("run", "echo-agent", "a", "--mode", "async_poll")
    done = cli("result", asked.id)
    assert (done.code, done.out) == (1, "")
    assert "moorage launcher" in done.err
    started = time.monotonic()
    assert cli("result", asked.id, "--wait", "0.3").code == 1
    assert time.monotonic() - started >= 0.3


def test_result_waits_for_as_long_as_it_takes(cli: Cli) -> None:
    asked = cli("run", "echo-agent", "a", "--mode", "async_poll").id
    waiting = subprocess.Popen([sys.executable, "-m", "moorage", "result", asked, "--wait"], stdout=subprocess.PIPE)
    with a_launcher():
        out, _ = waiting.communicate(timeout=PATIENCE)
    assert (waiting.returncode, out) == (0, b"Echo Agent Response: a\n")


def test_stop_ends_what_waits_at_once(cli: Cli) -> None:
    asked = cli("run", "echo-agent", "a", "--mode", "async_poll", "--json").json["run"]
    assert cli("stop", asked["session_id"]).out == f"{asked['session_id']}\n"
    assert cli("result", asked["run_id"], "--json").json["state"] == "stopped"
    refused = cli("stop", "--run", asked["run_id"], "--json")
    assert (refused.code, refused.json["code"]) == (4, "run_settled")


def test_stop_ends_what_runs_soon_and_children_show_it_running(cli: Cli, home: Path) -> None:
    define(home, SLOW)
    root = cli("create", "--agent", "planner").id
    with a_launcher():
        asked = cli("run", "slow", "a", "--mode", "async_poll", "--parent", root, "--json").json["run"]
        until(lambda: cli("children", root).out.split("\t")[1:2] == ["running"])
        assert "[running, " in cli("tree", root).out
        assert cli("delete", root).code == 4
        started = time.monotonic()
        assert cli("stop", root).lines == [asked["session_id"]]
        assert cli("result", asked["run_id"], "--wait", "20", "--json").json["state"] == "stopped"
        assert time.monotonic() - started < 8  # it does not wait for the next renewal
        assert cli("children", root).out.split("\t")[1] == "idle"


def test_delete_with_force_takes_a_tree_at_work_and_its_agent_ends(cli: Cli, home: Path) -> None:
    define(home, parent_agent("noted", f"echo $$ > '{home}/pid'; sleep 60"))
    with a_launcher():
        root = cli("run", "noted", "a", "--mode", "async_poll", "--json").json["session"]["session_id"]
        pid = int(until(lambda: (home / "pid").exists() and (home / "pid").read_text()))
        assert cli("delete", root, "--yes", "--json").json["code"] == "session_running"
        gone = cli("delete", root, "--yes", "--force")
        assert (gone.out, gone.err) == (f"{root}\n", "")
        assert not _lives(pid)
    assert cli("get", root).code == 3


def test_delete_with_force_names_agents_that_may_still_run(cli: Cli, home: Path) -> None:
    define(home, parent_agent("noted", f"echo $$ > '{home}/pid'; sleep 60"))
    with a_launcher() as launcher:
        root = cli("run", "noted", "a", "--mode", "async_poll", "--json").json["session"]["session_id"]
        until(lambda: (home / "pid").exists() and (home / "pid").read_text())
        launcher.send_signal(signal.SIGSTOP)
        gone = cli("delete", root, "--yes", "--force")
        launcher.send_signal(signal.SIGCONT)
    assert gone.out == f"{root}\n"
    assert f"no launcher confirms that their agents have ended: {root}" in gone.err


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# Families ---------------------------------------------------------------------------------------


def test_a_run_inside_an_agent_becomes_a_child_by_itself(cli: Cli, home: Path) -> None:
    define(home, parent_agent("planner", f'{MOORAGE} run echo-agent "from $AGENT_SESSION_NAME"'))
    reply = cli("run", "planner", "go", "--name", "plan")
    assert (reply.code, reply.out) == (0, "Echo Agent Response: from plan\n")
    plan = cli("get", "plan", "--json").json
    [child] = cli("children", "plan", "--json").json["items"]
    assert (child["parent_session_id"], child["parent_session_name"]) == (plan["session_id"], "plan")
    assert plan["parent_session_id"] is None
    assert [line.split("\t")[0] for line in cli("runs", "--parent", "plan").lines]


def test_a_callback_comes_back_with_its_correlation(cli: Cli, home: Path) -> None:
    ask = f"{MOORAGE} run echo-agent hi --mode async_callback --join all --correlation colour-7 > /dev/null"
    script = f'read -r line || true; case "$line" in *Callbacks*) echo "heard: "; cat;; *) {ask}; echo asked;; esac'
    define(home, parent_agent("planner", script))
    done = cli("run", "planner", "go", "--name", "plan")
    assert done.code == 0, done.err
    callback = json.loads(done.out.splitlines()[-1])
    assert callback["correlation"] == "colour-7"
    assert callback["result"] == "Echo Agent Response: hi"
    kinds = [entry["kind"] for entry in cli("log", "plan", "--json").json["items"]]
    assert kinds.count("callback") == 1
    assert kinds.count("turn_started") == 2


# inbox ------------------------------------------------------------------------------------------


def test_inbox_lists_waiting_items_and_dead_letters(cli: Cli, home: Path) -> None:
    define(home, FAILING)
    waiting = cli("run", "echo-agent", "hi", "--mode", "async_poll", "--json").json["session"]["session_id"]
    [row] = [line.split("\t") for line in cli("inbox", waiting).lines]
    assert row[1:4] == ["waiting", "message", waiting]
    assert cli("inbox", "--dead-letters").out == ""

    failed = cli("run", "failing", "keep this", "--json").json["session"]["session_id"]
    [item] = cli("inbox", "--dead-letters", "--json").json["items"]
    assert (item["session_id"], item["body"]["content"]) == (failed, "keep this")
    assert cli("inbox", "--send-again", item["item_id"]).out == f"{item['item_id']}\twaiting\n"
    assert cli("inbox", "--dead-letters").out == ""
    assert cli("inbox", failed, "--json").json["items"][0]["given"] == 0


def test_dead_letter_is_sent_again_by_the_id_that_a_terminal_shows(cli: Cli, home: Path, terminal: Terminal) -> None:
    define(home, FAILING)
    cli("run", "failing", "keep this", "--name", "first")
    head, row, hint = terminal.run("inbox", "--dead-letters").out.splitlines()
    assert head.split() == ["CONTENT", "ITEM", "SESSION", "TURNS", "SINCE"]
    content, item, session, *_ = re.split("  +", row)
    assert (content, len(item), session) == ("keep this", len("message:0199a3f2-7c1e"), "first")
    assert hint == f"Send one again: moorage inbox --send-again {item}"
    assert terminal.run("inbox", "--send-again", item).out == "Sent again: it waits for the next turn of first.\n"


def test_beginning_of_several_dead_letters_is_refused(cli: Cli, home: Path) -> None:
    define(home, FAILING)
    for prompt in ("one", "two"):
        cli("run", "failing", prompt)
    done = cli("inbox", "--send-again", "message:", "--json")
    assert (done.json["code"], len(done.json["candidates"])) == ("ambiguous_reference", 2)


def test_inbox_of_a_terminal_shows_callbacks_and_decisions_as_sentences(
    cli: Cli, home: Path, terminal: Terminal
) -> None:
    define(home, FAILING)
    cli("create", "--name", "by-hand")
    cli("run", "failing", "look", "--parent", "by-hand", "--mode", "async_callback", "--json")
    with a_launcher("--name", "build-box"):
        until(lambda: cli("inbox", "by-hand").lines)
    _, row = terminal.run("inbox", "by-hand").out.splitlines()
    assert row.startswith("failing in ")


# launcher ---------------------------------------------------------------------------------------


def test_a_launcher_takes_turns_until_sigterm(cli: Cli) -> None:
    asked = cli("run", "echo-agent", "hi", "--mode", "async_poll").id
    with a_launcher("--name", "build-box", "--slots", "3") as launcher:
        assert cli("result", asked, "--wait", "20").out == "Echo Agent Response: hi\n"
        [known] = cli("launchers", "--json").json["items"]
        assert (known["name"], known["slots"], known["pid"]) == ("build-box", 3, launcher.pid)
        assert "build-box" in cli("launchers").out
        launcher.send_signal(signal.SIGTERM)
        assert launcher.wait(PATIENCE) == 0
    assert cli("launchers").out == ""


def test_two_launchers_of_one_name_are_refused(cli: Cli) -> None:
    with a_launcher("--name", "one"):
        until(lambda: cli("launchers").out)
        assert run("launcher", "--name", "one").code == 5


@pytest.mark.parametrize("args", [["--slots", "0"], ["--lease", "soon"], ["--name", "../x"]])
def test_a_launcher_that_is_told_nonsense_does_not_start(args: list[str]) -> None:
    assert run("launcher", *args).code == 2


@pytest.mark.parametrize(
    "line", ["run broken hello", "run broken hello --session s-1", "resume s-1 hello", "send s-1 hello"]
)
def test_an_agent_whose_file_is_wrong_is_told_with_its_line(cli: Cli, home: Path, line: str) -> None:
    cli("create", "--agent", "broken", "--session-id", "s-1")
    define(home, BROKEN)
    refused = cli("--json", *line.split())
    assert (refused.code, refused.json["code"], refused.json["line"]) == (2, "invalid_definition", 4)
    assert refused.json["file"] == str(home / "agents" / "broken.toml")
    assert [entry["kind"] for entry in cli("--json", "log", "s-1").json["items"]] == ["created"]
    assert cli("runs").lines == []


def test_a_session_whose_agents_file_is_wrong_can_be_resumed_by_hand(cli: Cli, home: Path, terminal: Terminal) -> None:
    cli("create", "--agent", "broken", "--session-id", "s-1")
    define(home, BROKEN)
    resumed = terminal.run("resume", "s-1")
    assert (resumed.code, "To give it back" in resumed.out, "broken --session" in resumed.out) == (0, True, False)
