"""Leaving a session of a server is not stopping it: the run goes on, its question stays open, `attach` comes back."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.doors.cli.agent_files import ASKING, define
from tests.doors.cli.conftest import OURS, SOURCE
from tests.doors.cli.running import Cli
from tests.doors.cli.talking import CTRL_C, CTRL_D, Talk, a_talk
from tests.doors.cli.test_chat import started
from tests.executor.processes import served, until

GATED = """
[agent]
name = "gated"
kind = "command"
command = ["sh", "-c", '''
echo started
while [ ! -e "$MOORAGE_HOME/$AGENT_SESSION_ID" ]; do sleep 0.05; done
echo done
''']
"""
MOTHER = f"""
[agent]
name = "mother"
kind = "command"
command = ["sh", "-c", '''
test -e "$MOORAGE_HOME/asked" && exec echo done
touch "$MOORAGE_HOME/asked"
exec "{sys.executable}" -m moorage run child hi --mode async_callback
''']
"""
CHILD = GATED.replace('"gated"', '"child"').replace("$AGENT_SESSION_ID", "child")  # its latch has a name of its own
NARROW = GATED.replace('"gated"', '"narrow"\nmax_concurrent = 1').replace("$AGENT_SESSION_ID", "narrow")
Leaving = Callable[[Talk], None]


class Latch:
    """The file that keeps the agents of the server from ending."""

    def __init__(self, home: Path, url: str) -> None:
        self._home, self.url = home, url

    def open(self, name: str) -> None:
        """Let the agent of a session end, by its id; of some agents, all of them by the agent's name."""
        (self._home / name).touch()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Latch]:
    """One server for all: what each test leaves behind is in a session of its own."""
    folder = tmp_path_factory.mktemp("served")
    home = folder / "home"
    define(home, GATED, ASKING, MOTHER, CHILD, NARROW)
    with pytest.MonkeyPatch.context() as environment:
        for name in [name for name in os.environ if name.startswith(OURS)]:
            environment.delenv(name)
        environment.setenv("MOORAGE_HOME", str(home))
        environment.setenv("PYTHONPATH", str(SOURCE), prepend=os.pathsep)
        with served(folder, f"sqlite:///{folder / 'served.db'}") as url:
            yield Latch(home, url)


@pytest.fixture(autouse=True)
def latch(server: Latch, home: Path, monkeypatch: pytest.MonkeyPatch) -> Latch:
    monkeypatch.setenv("MOORAGE_URL", server.url)
    return server


@pytest.fixture
def name() -> str:
    """A session's name that no other test gives."""
    return f"left-{next(_numbers)}"


_numbers = count(1)


def by_ctrl_c(talk: Talk) -> None:
    began = time.monotonic()
    talk.type(CTRL_C)
    talk.wait_for("The agent goes on")
    talk.wait_for("Ctrl-C again within 2 seconds stops it. To come back: moorage attach ")
    talk.end()
    assert time.monotonic() - began > 1.9, "it lingers"


def by_typing(keys: str) -> Leaving:
    def leave(talk: Talk) -> None:
        talk.type(keys)
        talk.wait_for("The agent goes on")
        talk.wait_for(". To come back: moorage attach ")
        assert talk.end() == 0

    return leave


def by_hanging_up(talk: Talk) -> None:
    talk.hang_up()


def by_signal(number: signal.Signals) -> Leaving:
    def leave(talk: Talk) -> None:
        talk.process.send_signal(number)
        talk.end()

    return leave


FROM_CHAT = {
    "ctrl-c": by_ctrl_c,
    "ctrl-d": by_typing(CTRL_D),
    "quit": by_typing("/quit\n"),
    "hang-up": by_hanging_up,
    "sigterm": by_signal(signal.SIGTERM),
    "kill -9": by_signal(signal.SIGKILL),
}
FROM_RUN = {way: FROM_CHAT[way] for way in ("ctrl-c", "hang-up", "sigterm", "kill -9")}
WITH_A_QUESTION = {way: FROM_CHAT[way] for way in ("ctrl-c", "ctrl-d", "hang-up", "kill -9")}


def only(page: Any) -> Any:
    [item] = page["items"]
    return item


def is_at_work(cli: Cli, session_id: str) -> bool:
    return str(only(cli("runs", "--session", session_id, "--json").json)["state"]) == "running"


@pytest.mark.parametrize("leave", FROM_CHAT.values(), ids=FROM_CHAT.keys())
def test_run_goes_on_when_a_chat_is_left_and_attach_shows_its_answer(cli: Cli, latch: Latch, leave: Leaving) -> None:
    with a_talk("run", "gated") as talk:
        session_id = started(talk)
        talk.say("begin")
        talk.wait_for("Agent: started")
        leave(talk)
    assert "suspended" not in talk.shown
    assert is_at_work(cli, session_id)
    assert cli("get", session_id, "--json").json["state"] == "active"
    with a_talk("attach", session_id) as talk:
        talk.wait_for(f"Session attached: {session_id}\n")
        talk.wait_for("You: begin\n")
        talk.wait_for("Agent: started\n")
        latch.open(session_id)
        talk.wait_for("done\n")
        talk.say("/quit")
        talk.wait_for("The session stays open. To come back: moorage attach ")
        assert talk.end() == 0
    assert only(cli("runs", "--session", session_id, "--json").json)["state"] == "completed"


@pytest.mark.parametrize("leave", FROM_RUN.values(), ids=FROM_RUN.keys())
def test_run_goes_on_when_its_command_is_left(cli: Cli, latch: Latch, name: str, leave: Leaving) -> None:
    with a_talk("run", "gated", "begin", "--name", name) as talk:
        talk.wait_for("started")
        leave(talk)
    assert is_at_work(cli, name)
    run = only(cli("runs", "--session", name, "--json").json)
    latch.open(run["session_id"])
    assert cli("result", run["run_id"], "--wait", "60").out == "started\ndone\n"
    with a_talk("attach", name) as talk:  # the output since the last command left
        talk.wait_for("You: begin\nAgent: started\ndone\nYou: ")


@pytest.mark.parametrize("leave", WITH_A_QUESTION.values(), ids=WITH_A_QUESTION.keys())
def test_question_stays_open_when_a_chat_is_left_and_attach_answers_it(cli: Cli, leave: Leaving) -> None:
    with a_talk("run", "asking") as talk:
        session_id = started(talk)
        talk.say("do it")
        talk.wait_for("Question: Apply it?")
        talk.wait_for("You: ")
        leave(talk)
    assert only(cli("approvals", "--session", session_id, "--json").json)["state"] == "pending"
    assert is_at_work(cli, session_id)
    with a_talk("attach", session_id) as talk:
        talk.wait_for("Question: Apply it?")
        talk.say("/approve looks fine")
        talk.wait_for("Approved: Apply it?")
        talk.wait_for("Agent: You said approve\n")
        talk.say("/quit")
        assert talk.end() == 0
    decided = only(cli("approvals", "--session", session_id, "--all", "--json").json)
    assert (decided["state"], decided["note"]) == ("approved", "looks fine")


def test_chat_says_that_the_server_is_back_and_repeats_the_question(tmp_path: Path, home: Path) -> None:
    define(home, ASKING)
    store = f"sqlite:///{tmp_path / 'restarted.db'}"
    with ExitStack() as talks:
        with served(tmp_path, store) as url:
            stays, leaves = (talks.enter_context(a_talk("run", "asking", "--url", url)) for _ in range(2))
            for talk in (stays, leaves):
                talk.say("do it")
                talk.wait_for("/approve or /reject?")
                talk.wait_for("You: ")
        for talk in (stays, leaves):
            talk.wait_for(f"no answer from {url}")
        leaves.type(CTRL_C)
        leaves.wait_for("The server does not answer; once it is back, the session is as it was.")
        leaves.end()
        assert "Ctrl-C again" not in leaves.shown
        with served(tmp_path, store, port=int(url.rpartition(":")[2])):
            stays.wait_for("The server is back.\nQuestion: Apply it?")
            stays.say("/approve")
            stays.wait_for("Agent: You said approve\n")
            stays.say("/quit")
            stays.end()


def twice(talk: Talk) -> None:
    talk.type(CTRL_C)
    talk.wait_for("Ctrl-C again")
    talk.type(CTRL_C)
    talk.wait_for("Stopped: ")
    talk.end()


def by_command(talk: Talk) -> None:
    talk.type("/stop\n")
    talk.wait_for("the run is stopped")
    talk.say("/quit")
    assert talk.end() == 0


STOPPING = [([], twice), ([], by_command), (["--stop-on-exit"], by_signal(signal.SIGTERM))]


@pytest.mark.parametrize(("options", "stop"), STOPPING, ids=["twice", "/stop", "--stop-on-exit"])
def test_second_ctrl_c_stop_and_stop_on_exit_stop_the_run(cli: Cli, options: list[str], stop: Leaving) -> None:
    with a_talk("run", "gated", *options) as talk:
        session_id = started(talk)
        talk.say("begin")
        talk.wait_for("Agent: started")
        stop(talk)
    assert only(cli("runs", "--session", session_id, "--json").json)["state"] == "stopped"
    assert cli("get", session_id, "--json").json["state"] == "active"


@pytest.mark.parametrize("options", [[], ["--stop-on-exit"]])
def test_command_that_waits_for_an_answer_stops_it_likewise(cli: Cli, name: str, options: list[str]) -> None:
    with a_talk("run", "gated", "begin", "--name", name, *options) as talk:
        talk.wait_for("started")
        if options:
            talk.process.send_signal(signal.SIGTERM)
            talk.end()
        else:
            twice(talk)
    assert only(cli("runs", "--session", name, "--json").json)["state"] == "stopped"


@pytest.mark.parametrize("key", [CTRL_C, CTRL_D])
def test_leaving_with_nothing_at_work_leaves_the_session_open_at_once(cli: Cli, key: str) -> None:
    with a_talk("run", "echo-agent") as talk:
        session_id = started(talk)
        talk.say("hello")
        talk.wait_for("Agent: Echo Agent Response: hello\n")
        talk.wait_for("You: ")
        talk.type(key)
        talk.wait_for(f"The session stays open. To come back: moorage attach {session_id}\n")
        assert talk.end() == 0
    assert "suspended" not in talk.shown
    assert cli("get", session_id, "--json").json["state"] == "active"


def test_suspend_suspends_and_says_so_but_not_while_the_agent_is_at_work(cli: Cli, latch: Latch) -> None:
    with a_talk("run", "gated") as talk:
        session_id = started(talk)
        talk.say("begin")
        talk.wait_for("Agent: started")
        talk.type("/suspend\n")
        talk.wait_for("the agent is at work; /stop it first, or /quit and let it go on")
        latch.open(session_id)
        talk.wait_for("done")
        talk.say("/suspend")
        talk.wait_for(f"Session suspended: {session_id}\n")
        assert talk.end() == 0
    assert cli("get", session_id, "--json").json["state"] == "suspended"
    with a_talk("attach", session_id) as talk:
        talk.wait_for(f"Session resumed: {session_id}\n")
        talk.say("/quit")
        assert talk.end() == 0
    assert cli("get", session_id, "--json").json["state"] == "active"


def test_two_terminals_in_one_session_see_what_the_other_says(cli: Cli) -> None:
    session_id = cli("create", "--agent", "echo-agent").id
    with a_talk("attach", session_id) as one, a_talk("attach", session_id) as two:
        one.wait_for("You: ")
        two.wait_for("You: ")
        one.type("hello\n")
        one.wait_for("Agent: Echo Agent Response: hello\n")
        two.wait_for(": hello\nAgent: Echo Agent Response: hello\nYou: ")


def test_way_back_names_the_server_where_the_environment_does_not(
    latch: Latch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MOORAGE_URL")
    with a_talk("--url", latch.url, "run", "echo-agent") as talk:
        session_id = started(talk)
        talk.say("/quit")
        talk.wait_for(f"To come back: moorage attach {session_id} --url {latch.url}\n")
        assert talk.end() == 0


def test_attach_needs_a_terminal_and_an_open_session(cli: Cli) -> None:
    session_id = cli("create", "--agent", "echo-agent").id
    done = cli("attach", session_id)
    assert (done.code, "moorage watch" in done.err) == (2, True)
    cli("finalize", session_id, "completed")
    for ref, code in ((session_id, 4), ("nobody", 3)):
        with a_talk("attach", ref) as talk:
            assert talk.end() == code


def test_laptop_that_sleeps_and_wakes_goes_on_where_it_was(cli: Cli, latch: Latch) -> None:
    with a_talk("run", "gated") as talk:
        session_id = started(talk)
        talk.say("begin")
        talk.wait_for("Agent: started")
        os.kill(talk.process.pid, signal.SIGSTOP)
        latch.open(session_id)
        until(lambda: not is_at_work(cli, session_id), "the end of the run")
        os.kill(talk.process.pid, signal.SIGCONT)
        talk.wait_for("done\n")
        talk.say("/quit")
        assert talk.end() == 0


# A command that waits says why ------------------------------------------------------------------


def test_run_chat_and_attach_say_that_they_wait_for_a_launcher(cli: Cli, latch: Latch) -> None:
    cli("run", "narrow", "first", "--name", "first", "--mode", "async_poll")
    until(lambda: cli("get", "first", "--json").json["status"] == "running", "the first")
    waits = "The run waits until a launcher takes it."
    with a_talk("run", "narrow", "second") as command, a_talk("run", "narrow") as chat:
        session_id = started(chat)
        chat.say("third")
        chat.wait_for(waits)
        command.wait_for(waits)
        with a_talk("attach", session_id) as attached:
            attached.wait_for("It continues with your earlier request: third")
            attached.wait_for(waits)
            latch.open("narrow")
            for talk in (command, chat, attached):
                talk.wait_for("done")
                assert waits not in talk.shown.partition(waits)[2], "told once"


def test_run_says_that_it_waits_for_a_child(cli: Cli, latch: Latch) -> None:
    with a_talk("run", "mother", "go", "--name", "family") as talk:
        talk.wait_for("The run waits for a child, session ")
        latch.open("child")
        talk.wait_for("done")
        assert talk.end() == 0


def test_run_tells_the_question_and_waits_for_its_answer(cli: Cli, name: str) -> None:
    with a_talk("run", "asking", "do it", "--name", name) as talk:
        talk.wait_for("It asks a person: Apply it?")
        until(lambda: cli("get", name, "--json").json["status"] == "waiting", "the question")
        run = only(cli("runs", "--session", name, "--json").json)
        waited = cli("result", run["run_id"], "--wait", "60")
        assert (waited.code, f"moorage approvals show {run['because']['approval_id']}" in waited.err) == (1, True)
        assert cli("approve", name).code == 0
        talk.wait_for("You said approve")
        assert talk.end() == 0


def test_run_that_asks_for_longer_than_its_time_is_stopped(cli: Cli) -> None:
    stopped = cli("run", "asking", "do it", "--timeout", "1", "--json")
    assert (stopped.code, stopped.json["run"]["state"]) == (1, "stopped")


def test_ask_while_the_session_is_held_names_the_queue_option(cli: Cli) -> None:
    cli("create", "--agent", "echo-agent", "--name", "plan")
    session_id = cli("resume", "plan", "--holder", "nightly", "--json").json["session"]["session_id"]
    for asking in (("send", "plan", "hi"), ("run", "echo-agent", "hi", "--session", "plan")):
        refused = cli(*asking)
        assert (refused.code, f"moorage release {session_id}" in refused.err) == (4, True)
        assert "ask with --queue to be answered when the hold ends" in refused.err
    resumed = cli("resume", "plan", "--holder", "another")
    assert (resumed.code, "queue" in resumed.err, f"moorage release {session_id}" in resumed.err) == (4, False, True)
    sent = cli("send", "plan", "hi", "--queue")
    assert (sent.code, "The run waits while" in sent.err) == (0, True)
    told = cli("run", "echo-agent", "hi", "--session", "plan", "--queue", "--json").json["run"]
    assert (told["state"], told["because"]["reason"]) == ("queued", "held")
