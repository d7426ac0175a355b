"""`moorage serve` as people run it: a process, told to stop, killed, doubled, at addresses of all kinds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx2
import pytest

from moorage import sync
from moorage.core.errors import ServerUnreachable
from moorage.testing.faults import PATIENCE
from tests.doors.http.listening import STREAM
from tests.doors.http.process import Process, answers, until


def _is_replaced(process: Process, victim: int) -> bool:
    workers = process.workers()
    return len(workers) == 2 and victim not in workers


def test_next_server_finishes_runs_of_the_last_one(start: Callable[..., Process]) -> None:
    first = start()
    with sync.connect(first.url) as moor:
        reply = moor.run("echo-agent", "hello", name="talk")
    assert first.end() == 0
    assert reply.result == "Echo Agent Response: hello"

    with sync.connect(start().url) as moor:
        assert moor.run("echo-agent", "again", session="talk").status == "completed"
        assert [entry.text for entry in moor.messages("talk", last=4)][::2] == ["hello", "again"]


SLOW = """
[agent]
name = "slow"
kind = "command"
command = ["sh", "-c", 'echo $$ > "$0/pid"; while ! [ -e "$0/go" ]; do sleep 0.05; done; echo "done"', "{folder}"]
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_agents_work_on_without_the_server(start: Callable[..., Process], tmp_path: Path, number: int) -> None:
    _define(tmp_path, SLOW.format(folder=tmp_path))
    first = start()
    with sync.connect(first.url) as moor:
        run = moor.run("slow", "take your time", mode="async_poll").run.run_id
    agent = int(until(lambda: (tmp_path / "pid").read_text() if (tmp_path / "pid").exists() else None))
    began = time.monotonic()
    first.end(number)
    assert time.monotonic() - began < 15, "a stop does not wait for agents that work without it"
    os.kill(agent, 0)  # it is there

    (tmp_path / "go").touch()
    second = start("--log-level", "debug")
    with sync.connect(second.url) as moor:
        assert moor.result(run, wait=PATIENCE).result == "done"
        assert moor.get_run(run).turns == 1
    lines = map(json.loads, second.log.read_text().splitlines())
    [adopted] = [line for line in lines if "is adopted" in line["message"]]
    assert adopted["run"] == run
    assert adopted["session"]
    assert adopted["task"]


def _define(folder: Path, agent: str) -> None:
    agents = folder / "home" / "agents"
    agents.mkdir(parents=True)
    (agents / "agent.toml").write_text(agent)


def test_a_stop_ends_streams_and_lets_the_store_go(start: Callable[..., Process]) -> None:
    process = start()
    url = process.url
    with httpx2.stream("GET", f"{url}/events", headers=STREAM, timeout=PATIENCE) as stream:
        lines = stream.iter_lines()
        next(lines)  # it has begun
        assert process.end() == 0
        assert list(lines) is not None  # ended, not broken off
    assert "Finished server process" in process.log.read_text()


def test_two_servers_on_one_store_see_each_other(start: Callable[..., Process]) -> None:
    one, other = start(), start("--name", "another")
    with sync.connect(one.url) as here, sync.connect(other.url) as there:
        session = here.create(agent="planner", idempotency_key="k-1")
        assert there.create(agent="planner", idempotency_key="k-1") == session
        heard = there.events(session.id)
        next(heard)
        here.append(session.id, "said at the other door")
        assert next(heard).data["content"] == "said at the other door"


@pytest.mark.parametrize("arguments", [(), ("--workers", "2")])
def test_second_launcher_of_one_name_is_refused_before_it_serves(
    start: Callable[..., Process], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    first = start()
    assert first.url
    second = start("--store", f"sqlite:///{tmp_path}/second.db", *arguments)
    assert second.ended() == 5
    said = second.log.read_text()
    assert "give this one another --name" in said
    assert "Moorage serves" not in said
    assert answers(first.url)


def test_killed_worker_is_replaced_without_failed_requests(start: Callable[..., Process]) -> None:
    process = start("--workers", "2")
    url = process.url
    until(lambda: len(process.workers()) == 2)
    with sync.connect(url) as moor:
        session = moor.create()
        for victim in process.workers():
            os.kill(victim, signal.SIGKILL)
            moor.append(session.id, "still there")
            until(partial(_is_replaced, process, victim))
        assert moor.run("echo-agent", "and agents too").status == "completed"
        assert [entry.text for entry in moor.messages(session.id)] == ["still there"] * 2
    assert process.end() == 0
    assert process.workers() == [] if Path(f"/proc/{process.pid}").exists() else True


def test_workers_exit_when_their_parent_is_killed(start: Callable[..., Process], tmp_path: Path) -> None:
    process = start("--workers", "2")
    port = process.url.rpartition(":")[2]
    until(lambda: len(process.workers()) == 2)
    workers = process.workers()
    process.end(signal.SIGKILL)
    until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))
    counted = tmp_path / "home" / "metrics"
    [left] = counted.iterdir()
    again = start("--port", port, "--workers", "2")
    assert answers(again.url)
    [theirs] = counted.iterdir()
    assert theirs != left
    assert again.end() == 0
    assert not list(counted.iterdir())


BOSS = """
[agent]
name = "boss"
kind = "command"
command = ["sh", "-c", '''
read first
case "$first" in
  Callbacks*) echo "my child said so" ;;
  *) moorage run echo-agent "work for me" --mode async_callback --json > /dev/null && echo "asked" ;;
esac
''']
"""


def test_an_agent_behind_keys_has_children_that_call_back(start: Callable[..., Process], tmp_path: Path) -> None:
    _define(tmp_path, BOSS)
    with sync.connect(f"sqlite:///{tmp_path / 'home' / 'moorage.db'}") as store:
        key = store.create_key(scopes=["write"]).text
    with sync.connect(start().url, key=key) as moor:
        reply = moor.run("boss", "have it done", timeout=PATIENCE)
        assert (reply.status, reply.result) == ("completed", "my child said so")
        [child] = moor.children(reply.session.id)
        assert (child.agent_name, child.parent_session_id) == ("echo-agent", reply.session.id)
        assert child.interface == "cli"


def test_at_an_address_that_others_reach_it_needs_a_key(start: Callable[..., Process], tmp_path: Path) -> None:
    refused = start("--host", "0.0.0.0")
    assert refused.ended() == 2
    assert "moorage keys create" in refused.log.read_text()

    environment = {**os.environ, "MOORAGE_HOME": str(tmp_path / "home")}
    made = subprocess.run(
        [sys.executable, "-m", "moorage", "keys", "create", "--scope", "read", "--json"],
        env=environment,
        capture_output=True,
        check=True,
    )
    key = json.loads(made.stdout)["text"]
    url = start("--host", "0.0.0.0").url
    assert httpx2.get(f"{url}/sessions").status_code == 401
    known = {"Authorization": f"Bearer {key}"}
    assert httpx2.get(f"{url}/sessions", headers={**known, "Host": "elsewhere.example"}).status_code == 200
    assert httpx2.post(f"{url}/sessions", headers=known).json()["scope"] == "write"


def test_loudly_told_so_it_is_open_to_all(start: Callable[..., Process]) -> None:
    process = start("--host", "0.0.0.0", "--insecure-no-keys")
    assert httpx2.get(f"{process.url}/sessions", headers={"Host": "elsewhere.example"}).status_code == 200
    assert '"level":"critical"' in process.log.read_text()


def test_a_port_that_is_taken_is_told(start: Callable[..., Process]) -> None:
    port = start().url.rpartition(":")[2]
    refused = start("--port", port, "--name", "another")
    assert refused.ended() == 5
    assert "give --port" in refused.log.read_text()


def test_a_store_that_cannot_be_opened_is_told(start: Callable[..., Process], tmp_path: Path) -> None:
    (tmp_path / "broken.db").write_bytes(b"no database " * 100)
    refused = start("--store", f"sqlite:///{tmp_path / 'broken.db'}")
    assert refused.ended() == 5
    assert "not a complete database" in refused.log.read_text()


def test_an_unreachable_server_is_reported() -> None:
    with sync.connect("http://127.0.0.1:9", deadline=0.2) as moor, pytest.raises(ServerUnreachable):
        moor.list()
