"""A chat on a terminal without a server: whatever ends it, the session is suspended and nothing is lost."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doors.cli.agent_files import ASKING, BOSS, CHOOSING, ERRAND, MISSPEAKING, RESUMING, SLOW, define
from tests.doors.cli.running import Cli
from tests.doors.cli.talking import CTRL_C, CTRL_D, Talk, a_talk
from tests.doors.cli.test_runs import a_launcher
from tests.executor.processes import until


def started(talk: Talk) -> str:
    """The id of the session it tells of."""
    talk.wait_for("Session created: ")
    return talk.wait_for("\n").strip()


def messages(cli: Cli, session_id: str) -> list[tuple[str, str]]:
    entries = cli("log", session_id, "--kind", "message", "--json").json["items"]
    return [(entry["role"], entry["content"]) for entry in entries]


def test_a_chat_answers_remembers_and_is_kept(cli: Cli) -> None:
    with a_talk("run", "echo-agent", "--name", "talk") as talk:
        session_id = started(talk)
        talk.say("hello")
        assert talk.wait_for("Agent: Echo Agent Response: hello\n")
        talk.say("//recall")
        assert talk.wait_for("Remembered: hello\n")
        talk.say("/quit")
        talk.wait_for(f"Session suspended: {session_id}")
        assert talk.end() == 0
    assert talk.shown.count("Agent: ") == 2
    session = cli("get", "talk", "--json").json
    assert (session["session_id"], session["state"], session["agent_name"]) == (session_id, "suspended", "echo-agent")
    assert [role for role, _ in messages(cli, session_id)] == ["user", "assistant"] * 2


@pytest.mark.parametrize("command", ["run echo-agent --session", "agent resume", "attach"])
def test_a_chat_that_was_left_goes_on(cli: Cli, command: str) -> None:
    with a_talk("run", "echo-agent") as talk:
        session_id = started(talk)
        talk.say("first")
        talk.say("/suspend")
        assert talk.end() == 0
    with a_talk(*command.split(), session_id) as talk:
        talk.wait_for(f"Session resumed: {session_id}")
        talk.say("//recall")
        talk.wait_for("Remembered: first\n")
        talk.say("/quit")
        assert talk.end() == 0
    assert [run["state"] for run in cli("runs", "--session", session_id, "--json").json["items"]] == ["completed"] * 2


@pytest.mark.parametrize("key", [CTRL_C, CTRL_D])
def test_ctrl_c_and_ctrl_d_at_the_prompt_suspend(cli: Cli, key: str) -> None:
    with a_talk("run", "echo-agent") as talk:
        session_id = started(talk)
        talk.say("hello")
        talk.wait_for("Agent: ")
        talk.wait_for("You: ")
        talk.type(key)
        talk.wait_for(f"Session suspended: {session_id}")
        assert talk.end() == 0
    assert cli("get", session_id, "--json").json["state"] == "suspended"
    assert messages(cli, session_id)[-1] == ("assistant", "Echo Agent Response: hello")


def left_in_the_middle(cli: Cli, home: Path, leave: Callable[[Talk], None]) -> str:
    """A chat that was left while the agent was at work; its session, suspended, with its run open."""
    define(home, RESUMING)
    with a_talk("run", "resuming") as talk:
        session_id = started(talk)
        talk.say("take your time")
        talk.wait_for("Agent: started")
        leave(talk)
    assert cli("get", session_id, "--json").json["state"] == "suspended"
    [run] = cli("runs", "--session", session_id, "--json").json["items"]
    assert run["state"] == "queued"
    return session_id


def pressing(key: str) -> Callable[[Talk], None]:
    def press(talk: Talk) -> None:
        talk.type(key)
        talk.wait_for("Session suspended: ")
        talk.wait_for("To come back: moorage attach ")
        assert talk.end() == 0

    return press


def hanging_up(talk: Talk) -> None:
    talk.hang_up()


@pytest.mark.parametrize("command", ["attach", "run resuming --session"])
@pytest.mark.parametrize("leave", [pressing(CTRL_C), pressing(CTRL_D), pressing("/quit\n"), hanging_up])
def test_leaving_in_the_middle_gives_the_turn_back_and_coming_back_goes_on(
    cli: Cli, home: Path, leave: Callable[[Talk], None], command: str
) -> None:
    session_id = left_in_the_middle(cli, home, leave)
    with a_talk(*command.split(), session_id) as talk:
        talk.wait_for(f"Session resumed: {session_id}\n")
        talk.wait_for("You: take your time\n")
        talk.wait_for("Agent: went on\n")
        talk.say("/quit")
        assert talk.end() == 0
    [run] = cli("runs", "--session", session_id, "--json").json["items"]
    assert (run["state"], run["result"]) == ("completed", "went on")


def test_chat_says_that_the_agent_died_and_a_new_turn_goes_on(cli: Cli, home: Path) -> None:
    define(home, RESUMING.replace("echo started;", "echo started; kill -9 $$;"))
    with a_talk("run", "resuming") as talk:
        started(talk)
        talk.say("take your time")
        talk.wait_for("Agent: started\n")
        assert "SIGKILL" in talk.wait_for("A new turn goes on.\n")
        talk.wait_for("Agent: went on\n")
        talk.say("/quit")
        assert talk.end() == 0
    assert talk.shown.count("A new turn goes on.") == 1


def test_chat_shows_what_the_agent_says_wrongly(home: Path) -> None:
    define(home, MISSPEAKING)
    with a_talk("run", "misspeaking") as talk:
        started(talk)
        talk.say("hi")
        talk.wait_for("moorage: problem in line 2, field phase: expected one of initializing")
        talk.wait_for("Agent: fine")
        talk.say("/quit")
        assert talk.end() == 0


def test_question_stays_open_after_leaving_a_chat(cli: Cli, home: Path) -> None:
    define(home, ASKING)
    with a_talk("run", "asking") as talk:
        session_id = started(talk)
        talk.say("do it")
        talk.wait_for("Question: Apply it?")
        talk.say("/quit")
        talk.wait_for(f"Session suspended: {session_id}")
        assert talk.end() == 0
    [waiting] = cli("approvals", "--session", session_id, "--json").json["items"]
    assert (waiting["question"], waiting["state"]) == ("Apply it?", "pending")
    with a_talk("attach", session_id) as talk:
        talk.wait_for("Question: Apply it?")
        talk.say("/approve looks fine")
        talk.wait_for("Approved: Apply it?")
        talk.wait_for("You said approve\n")
        talk.say("/quit")
        assert talk.end() == 0
    [decided] = cli("approvals", "--session", session_id, "--all", "--json").json["items"]
    assert (decided["state"], decided["note"]) == ("approved", "looks fine")


@pytest.mark.parametrize("words", [["/stop", "/quit"], None])
def test_stopping_ends_the_run(cli: Cli, home: Path, words: list[str] | None) -> None:
    define(home, SLOW)
    with a_talk("run", "slow", *([] if words else ["--stop-on-exit"])) as talk:
        session_id = started(talk)
        talk.say("take your time")
        talk.wait_for("Agent: started")
        if words:
            talk.type("/stop\n")
            talk.wait_for("the run is stopped")
            talk.say("/quit")
        else:
            talk.type(CTRL_C)
            talk.wait_for(f"Stopped: {session_id}")
        talk.wait_for(f"Session suspended: {session_id}")
        assert talk.end() == 0
    [run] = cli("runs", "--session", session_id, "--json").json["items"]
    assert (run["state"], run["result"].strip()) == ("stopped", "started")


def test_command_takes_its_own_turns_beside_other_launchers(cli: Cli, home: Path) -> None:
    define(home, SLOW)
    with a_launcher():
        until(lambda: cli("launchers").out, "the launcher")
        for number in range(3):
            for command in (f"run slow hi --name s{number}", f"attach s{number}"):
                with a_talk(*command.split()) as talk:
                    talk.wait_for("started")
                    talk.type(CTRL_C)
                    talk.wait_for("Session suspended: ")
                    talk.end()


def test_run_of_another_launcher_continues_after_leaving(cli: Cli, home: Path) -> None:
    define(home, SLOW)
    session_id = cli("create", "--agent", "slow").id
    run_id = cli("run", "slow", "begin", "--session", session_id, "--mode", "async_poll").id
    with a_launcher():
        until(lambda: cli("get", session_id, "--json").json["status"] == "running", "the turn")
        with a_talk("attach", session_id) as talk:
            talk.wait_for(f"Session attached: {session_id}")
            talk.type(CTRL_C)
            talk.wait_for("Another launcher works on it, so it goes on.")
            assert talk.end() == 0
        assert "suspended" not in talk.shown
        assert cli("--json", "result", run_id).json["state"] == "running"
        cli("stop", session_id)


def test_children_continue_after_leaving_a_chat(cli: Cli, home: Path) -> None:
    define(home, ERRAND)
    define(home, BOSS)
    with a_talk("run", "boss") as talk:
        session_id = started(talk)
        talk.say("send somebody")
        talk.wait_for("Agent: sent")
        pid = int(waited_for(home / "errand"))
        left = time.monotonic()
        talk.type(CTRL_C)
        talk.wait_for(f"Session suspended: {session_id}")
        assert talk.end() == 0
        assert time.monotonic() - left < 12
    assert not Path(f"/proc/{pid}").exists()
    with a_talk("run", "boss", "--session", session_id) as talk:
        talk.wait_for("It continues with your earlier request: send somebody")
        talk.wait_for("went at last")
        talk.say("/fork")
        talk.say("and here?")
        talk.wait_for("not yet")
        talk.say("/quit")
        assert talk.end() == 0
    assert {run["state"] for run in cli("runs", "--json").json["items"]} == {"completed"}


def waited_for(path: Path) -> str:
    """Return the text of a file, as soon as it has some."""
    deadline = time.monotonic() + 30
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.02)
    return path.read_text()


def test_hang_up_at_the_prompt_suspends(cli: Cli) -> None:
    with a_talk("run", "echo-agent") as talk:
        session_id = started(talk)
        talk.wait_for("You: ")
        talk.hang_up()
    assert cli("get", session_id, "--json").json["state"] == "suspended"


def test_sigterm_suspends(cli: Cli) -> None:
    with a_talk("run", "echo-agent") as talk:
        session_id = started(talk)
        talk.wait_for("You: ")
        talk.process.send_signal(signal.SIGTERM)
        talk.wait_for(f"Session suspended: {session_id}")
        assert talk.end() == 0
    assert cli("get", session_id, "--json").json["state"] == "suspended"


@pytest.mark.parametrize(("word", "decision"), [("/approve", "approve"), ("/reject", "reject")])
def test_a_question_of_the_agent_is_answered_in_the_chat(cli: Cli, home: Path, word: str, decision: str) -> None:
    define(home, ASKING)
    with a_talk("run", "asking") as talk:
        session_id = started(talk)
        talk.say("do it")
        talk.wait_for("Question: Apply it?")
        talk.say(word)
        talk.wait_for(f"You said {decision}\n")
        talk.say("/quit")
        assert talk.end() == 0
    [run] = cli("runs", "--session", session_id, "--json").json["items"]
    assert (run["state"], run["result"]) == ("completed", f"You said {decision}")


def test_question_with_options_shows_its_plan_and_takes_one_of_them(cli: Cli, home: Path) -> None:
    define(home, CHOOSING)
    with a_talk("run", "choosing") as talk:
        session_id = started(talk)
        talk.say("do it")
        talk.wait_for('Question: Which way?\n  {\n    "add": 2\n  }\n/approve OPTION (step by step, all) or /reject?')
        talk.say("/approve")
        talk.wait_for("choose one: /approve step by step, /approve all")
        talk.say("/approve step by step with care")
        talk.wait_for("Answered 'step by step': Which way?")
        talk.wait_for("done")
        talk.say("/quit")
        assert talk.end() == 0
    [approval] = cli("approvals", "--session", session_id, "--all", "--json").json["items"]
    assert (approval["decision"], approval["note"]) == ("step by step", "with care")


def test_run_shows_the_plan_of_a_question(cli: Cli, home: Path) -> None:
    define(home, CHOOSING)
    with a_talk("run", "choosing", "do it", "--name", "plan") as talk:
        talk.wait_for('It asks a person: Which way?\n  {\n    "add": 2\n  }\nOptions: step by step, all\n')
        until = time.monotonic() + 30
        while cli("approve", "plan", "--option", "all").code != 0:  # the question is told a moment before it is stored
            assert time.monotonic() < until
        talk.wait_for("done")
        assert talk.end() == 0


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("/suspned", "there is no command /suspned; did you mean /suspend?"),
        ("/aprove looks fine", "there is no command /aprove; did you mean /approve?"),
        ("/xyzzy", "there is no command /xyzzy; /help lists the commands."),
        ("/quit now", "/quit takes nothing after it"),
        ("/approve", "Nothing waits for an answer."),
        ("/stop", "No run is active."),
        ("/help", "/reject [note]   reject"),
    ],
)
def test_commands_are_known_and_others_are_refused_with_the_nearest(cli: Cli, typed: str, told: str) -> None:
    with a_talk("run", "echo-agent") as talk:
        session_id = started(talk)
        talk.say(typed)
        talk.wait_for(told)
        talk.say("/quit")
        assert talk.end() == 0
    assert messages(cli, session_id) == []


@pytest.mark.parametrize(
    ("typed", "said"), [("//xyzzy", "/xyzzy"), ("/recall", "/recall"), ("/etc/hosts is wrong", "/etc/hosts is wrong")]
)
def test_words_with_a_slash_can_be_said_to_the_agent(cli: Cli, typed: str, said: str) -> None:
    with a_talk("run", "echo-agent") as talk:
        session_id = started(talk)
        talk.say(typed)
        talk.wait_for("Agent: Echo Agent Response")
        talk.say("/quit")
        assert talk.end() == 0
    assert messages(cli, session_id)[0] == ("user", said)


def test_a_fork_goes_on_and_leaves_the_first_as_it_was(cli: Cli) -> None:
    with a_talk("run", "echo-agent") as talk:
        first = started(talk)
        talk.say("one")
        talk.say("/fork")
        assert talk.wait_for("Session forked: ").endswith("/fork\nSession forked: ")
        second = talk.wait_for("\n").strip()
        talk.say("//recall")
        talk.wait_for("Remembered: one\n")
        talk.say("/quit")
        assert talk.end() == 0
    assert "You: \n" not in talk.shown
    assert [content for role, content in messages(cli, first) if role == "user"] == ["one"]
    assert [content for role, content in messages(cli, second) if role == "user"] == ["one", "/recall"]
    assert {cli("get", each, "--json").json["state"] for each in (first, second)} == {"suspended"}


def test_a_chat_without_a_session_keeps_nothing(home: Path) -> None:
    with a_talk("run", "echo-agent", "--no-session") as talk:
        talk.say("hello")
        talk.wait_for("Agent: Echo Agent Response: hello")
        talk.say("/quit")
        assert talk.end() == 0
    assert "Session" not in talk.shown
    assert not (home / "moorage.db").exists()


def test_chat_with_an_unknown_agent_creates_nothing(cli: Cli) -> None:
    with a_talk("run", "nobody") as talk:
        assert talk.end() == 3
    assert "no agent 'nobody'" in talk.shown
    assert cli("list").out == ""


def test_session_held_by_another_is_refused(cli: Cli) -> None:
    session_id = cli("create", "--agent", "echo-agent").id
    cli("resume", session_id, "--holder", "somebody")
    with a_talk("run", "echo-agent", "--session", session_id) as talk:
        assert talk.end() == 4
    assert "held by somebody" in talk.shown
