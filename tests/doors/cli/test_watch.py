"""watch, replay, tree --watch: real processes, read while they write."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.doors.cli.running import Cli

PATIENCE = 30.0


class Watching:
    """A command that goes on, and its lines."""

    def __init__(self, *args: str) -> None:
        command = [sys.executable, "-m", "moorage", *args]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)
        self._left = b""

    def line(self) -> str:
        """The next line that is not empty."""
        assert self.process.stdout is not None
        until = time.monotonic() + PATIENCE
        while True:
            line, end, rest = self._left.partition(b"\n")
            if end:
                self._left = rest
                if line:
                    return line.decode()
                continue
            assert select.select([self.process.stdout], [], [], max(0, until - time.monotonic()))[0], "nothing comes"
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, "it ended"
            self._left += data

    def has_something(self) -> bool:
        """Whether something comes within a moment."""
        assert self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], 0.2)[0])

    def line_with(self, word: str) -> str:
        while word not in (line := self.line()):
            continue
        return line

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE)


@contextmanager
def watching(*args: str) -> Iterator[Watching]:
    watch = Watching(*args)
    try:
        yield watch
    finally:
        watch.process.kill()
        watch.process.wait()
        assert watch.process.stdout is not None
        watch.process.stdout.close()


def test_once_prints_what_is_there_a_document_in_each_line(cli: Cli, plan: str) -> None:
    events = [json.loads(line) for line in cli("watch", "plan-prod", "--once", "--json").lines]
    assert [event["type"] for event in events] == ["created", "message", "message"]
    assert [event["id"] for event in events] == [1, 2, 3]
    rows = [line.split("\t") for line in cli("watch", "--once").lines]
    assert [(row[2], row[3], row[4]) for row in rows] == [
        (plan, "created", "-"),
        (plan, "message", "user"),
        (plan, "message", "assistant"),
    ]
    assert [json.loads(line)["id"] for line in cli("watch", plan, "--once", "--after", "2", "--json").lines] == [3]
    assert cli("watch", "nothing").code == 3


def test_watch_goes_on_with_what_comes(cli: Cli, plan: str) -> None:
    with watching("watch", "--after", "0", "--json") as watch:
        assert json.loads(watch.line())["type"] == "created"
        cli("run", "echo-agent", "hello", "--name", "greeting")
        answer = json.loads(watch.line_with("Echo Agent Response"))
        assert (answer["type"], answer["data"]["role"]) == ("message", "assistant")
        watch.line_with("run_settled")
        assert watch.interrupt() == 130


def test_watch_of_a_session_begins_with_what_is_new_and_ends_with_its_deletion(cli: Cli, plan: str) -> None:
    with watching("watch", plan) as watch:
        for number in range(100):  # it may take its time to begin
            cli("send", plan, f"message {number}")
            if watch.has_something():
                break
        assert "message" in watch.line()
        cli("delete", plan, "--yes")
        watch.line_with("session_deleted")
        assert watch.process.wait(PATIENCE) == 0


def test_replay_tells_the_log_in_order(cli: Cli, plan: str) -> None:
    assert [line.split("\t")[0] for line in cli("replay", plan).lines] == ["1", "2", "3"]
    kinds = [json.loads(line)["kind"] for line in cli("replay", plan, "--json", "--speed", "1000000").lines]
    assert kinds == ["created", "message", "message"]


def test_replay_keeps_the_pauses(cli: Cli, plan: str) -> None:
    entries = cli("log", plan, "--json").json["items"]
    from datetime import datetime

    first, last = (datetime.fromisoformat(entries[at]["at"]) for at in (0, -1))
    started = time.monotonic()
    cli("replay", plan, "--speed", "0.5")
    assert time.monotonic() - started >= 2 * (last - first).total_seconds()


def test_a_tree_that_is_watched_is_drawn_again_until_it_is_deleted(cli: Cli, plan: str) -> None:
    with watching("tree", plan, "--watch") as watch:
        assert plan in watch.line()
        child = cli("create", "--parent", plan).id
        assert "└── " in watch.line_with(child)
        cli("delete", plan, "--yes")
        assert watch.process.wait(PATIENCE) == 0


def test_a_watched_tree_is_a_document_in_each_line(cli: Cli, plan: str) -> None:
    with watching("tree", plan, "--watch", "--json") as watch:
        assert json.loads(watch.line())["children"] == []
        child = cli("create", "--parent", plan).id
        assert json.loads(watch.line())["children"][0]["session"]["session_id"] == child
        assert watch.interrupt() == 130


def test_log_follows_what_happens(cli: Cli, plan: str) -> None:
    with watching("log", "plan-prod", "--kind", "message", "--follow") as follow:
        assert [follow.line().split("\t")[0] for _ in range(2)] == ["2", "3"]
        cli("update", plan, "--phase", "planning")
        cli("send", plan, "Go on")
        assert follow.line().split("\t")[::4] == ["5", "Go on"]
        assert follow.interrupt() == 130


def test_log_that_follows_prints_a_document_in_each_line(cli: Cli, plan: str) -> None:
    with watching("log", "plan-prod", "--last", "1", "--follow", "--json") as follow:
        assert json.loads(follow.line())["number"] == 3
        cli("send", plan, "Go on")
        assert json.loads(follow.line())["content"] == "Go on"
