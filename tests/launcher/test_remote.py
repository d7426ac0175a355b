"""Launchers that reach their server over HTTP, as processes: what they run, and what survives which death."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from moorage import config, sync
from moorage.core.errors import Forbidden, LauncherNotFound
from moorage.core.run import Run
from moorage.service.inline import drive
from moorage.service.keys import create_key
from moorage.testing.history import problems_in
from tests.launcher.serving import free_port, server_process
from tests.launcher.test_processes import AGENT, is_alive, until

PATIENCE = 60.0
TELLER = """\
import os, time
print("Once upon ", end="", flush=True)
while not os.path.exists({signal_file!r}):
    time.sleep(0.02)
print("a time")
"""
PARENT = """\
import json, os, sys, urllib.request
prompt = sys.stdin.read()
if "Callbacks" in prompt:
    print("heard " + ("the child" if "Echo Agent Response: from the parent" in prompt else prompt))
else:
    body = {"agent_name": "echo-agent", "prompt": "from the parent", "mode": "async_callback"}
    request = urllib.request.Request(os.environ["MOORAGE_URL"] + "/runs", json.dumps(body).encode())
    request.add_header("Authorization", "Bearer " + os.environ["MOORAGE_TOKEN"])
    request.add_header("X-Agent-Session-Id", os.environ["AGENT_SESSION_ID"])
    request.add_header("X-Agent-Run-Id", os.environ["AGENT_RUN_ID"])
    child = json.load(urllib.request.urlopen(request))
    print("asked", sorted(name for name in os.environ if name.startswith("MOORAGE_KEY")))
"""


class Works:
    """A server with agents, and launchers elsewhere that have nothing but its URL and a key."""

    def __init__(self, folder: Path) -> None:
        self.home, self.elsewhere = folder / "home", folder / "elsewhere"
        self.journal, self.go = folder / "journal", folder / "go"
        self.port = free_port()
        self.url, self.store = f"http://127.0.0.1:{self.port}", f"sqlite:///{folder / 'moorage.db'}"
        (self.home / "agents").mkdir(parents=True)
        self.defines("slow", AGENT.format(journal=str(self.journal), signal_file=str(self.go)))
        self.moor = sync.connect(self.store)
        self.key = self.key_for("launch")

    def key_for(self, *scopes: str) -> str:
        """A key of this server."""
        deps = config.open_deps(self.store, threaded=False)
        try:
            return drive(create_key(deps, scopes=scopes)).text
        finally:
            drive(deps.store.close())

    def defines(self, name: str, code: str) -> None:
        script = self.home / f"{name}.py"
        script.write_text(code)
        self.define(name, f'kind = "command"\ncommand = ["{sys.executable}", "{script}"]\n')

    def define(self, name: str, table: str) -> None:
        (self.home / "agents" / f"{name}.toml").write_text(f'[agent]\nname = "{name}"\n{table}')

    def server(self) -> Any:
        return server_process(self.store, self.port)

    @contextmanager
    def launcher(
        self, key: str | None = None, name: str = "one", lost_after: str = "60s"
    ) -> Iterator[subprocess.Popen[str]]:
        """A launcher on another machine; killed in the end if it still runs."""
        command = [sys.executable, "-m", "moorage", "launcher", "--url", self.url, "--name", name, "--lease", "0.6s"]
        env = {**os.environ, "MOORAGE_HOME": str(self.elsewhere), "MOORAGE_KEY": key or self.key}
        process = subprocess.Popen([*command, "--lost-after", lost_after], stderr=subprocess.PIPE, text=True, env=env)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.communicate()

    @property
    def agents(self) -> list[int]:
        """The process ids of all slow agents that were ever started."""
        return [int(line) for line in self.journal.read_text().split()] if self.journal.exists() else []

    def ask(self, agent: str = "slow", prompt: str = "it") -> Run:
        run: Run = self.moor.run(agent, prompt, mode="async_poll").run
        return run

    def result(self, run: Run) -> Run:
        over: Run = self.moor.result(run.run_id, wait=PATIENCE)
        assert over.is_settled, over
        return over

    def problems(self, *runs: Run) -> list[str]:
        store = config.open_store(self.store, threaded=False)
        try:
            return drive(problems_in(store, "local", [run.run_id for run in runs]))
        finally:
            drive(store.close())


@pytest.fixture
def works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Works]:
    for name in ("AGENT_SESSION_ID", "AGENT_SESSION_NAME", "AGENT_RUN_ID", "MOORAGE_URL", "MOORAGE_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MOORAGE_HOME", str(tmp_path / "home"))
    made = Works(tmp_path)
    yield made
    made.moor.close()
    for pid in made.agents:
        assert not is_alive(pid), f"agent {pid} was left behind"


def test_a_launcher_elsewhere_runs_agents_of_every_kind_with_nothing_but_its_key(works: Works) -> None:
    (works.home / "greeting.py").write_text("def greet(turn):\n    return f'hello {turn.prompt}'\n")
    path = os.pathsep.join([str(works.home), os.environ.get("PYTHONPATH", "")])
    works.define("greeter", f'kind = "python"\nfunction = "greeting:greet"\n[agent.env]\nPYTHONPATH = "{path}"\n')
    works.go.touch()
    asked = {agent: works.ask(agent) for agent in ("echo-agent", "slow", "greeter")}
    with works.server(), works.launcher():
        results = {agent: works.result(run).result for agent, run in asked.items()}
        [launcher] = works.moor.launchers().items
    assert results == {"echo-agent": "Echo Agent Response: it", "slow": "did it", "greeter": "hello it"}
    assert (launcher.name, launcher.owners) == ("one", ("local",))
    assert works.problems(*asked.values()) == []


def test_an_agent_defined_later_is_started_too(works: Works) -> None:
    with works.server(), works.launcher():
        works.result(works.ask("echo-agent"))
        works.defines("late", "print('here I am')")
        assert works.result(works.ask("late")).result == "here I am"
        until(lambda: "late" in works.moor.launchers().items[0].agents)  # so no caller gets `no_launcher`


def test_a_parent_hears_of_the_child_it_asked_through_the_server(works: Works) -> None:
    works.defines("parent", PARENT)
    with works.server(), works.launcher():
        run = works.ask("parent")
        assert works.result(run).result == "heard the child"
        said = [entry.text for entry in works.moor.messages(run.session_id) if entry.role == "assistant"]
    assert said[0] == "asked []", "the launcher's key is not for its agents"
    [child] = works.moor.children(run.session_id).items
    assert child.agent_name == "echo-agent"
    assert works.problems(run) == []


def test_draining_launcher_finishes_its_turns_and_exits(works: Works) -> None:
    with works.server(), works.launcher() as process:
        running = works.ask()
        until(lambda: len(works.agents) == 1)
        with sync.connect(works.url, key=works.key_for("admin")) as admin:
            assert admin.drain_launcher("one").drain
            waiting = works.ask("echo-agent")
            seen = works.moor.launchers().items[0].seen_at
            until(lambda: works.moor.launchers().items[0].seen_at > seen)  # it has heard of it, and goes on
            assert works.moor.get_run(waiting.run_id).state == "queued"
            assert not admin.drain_launcher("one", drain=False).drain
            assert works.result(waiting).result == "Echo Agent Response: it"
            admin.drain_launcher("one")
            later = works.ask("echo-agent")
            works.go.touch()
            assert works.result(running).result == "did it"
        assert process.wait(PATIENCE) == 0
        assert works.moor.get_run(later.run_id).state == "queued"
        assert works.moor.launchers().items == [], "it has said farewell"
        with works.launcher():  # the next start of it is another launcher
            works.result(later)
    assert works.problems(running, waiting, later) == []


def test_words_of_an_agent_elsewhere_are_heard_while_it_says_them(works: Works) -> None:
    works.defines("teller", TELLER.format(signal_file=str(works.go)))
    headers = {"Authorization": f"Bearer {works.key_for('read')}", "Accept": "text/event-stream"}
    with works.server(), works.launcher():
        run = works.ask("teller")
        path = f"{works.url}/sessions/{run.session_id}/words"
        with httpx2.stream("GET", path, headers=headers, timeout=PATIENCE) as stream:
            heard, lines = "", (line for line in stream.iter_lines() if line.startswith("data: "))
            while heard != "Once upon ":
                spoken = json.loads(next(lines)[6:])
                heard = spoken["text"] if spoken["begins"] else heard + spoken["text"]
            works.go.touch()
            while not (spoken["begins"] and not spoken["text"]):
                spoken = json.loads(next(lines)[6:])
        assert works.result(run).result == "Once upon a time"
        answer = httpx2.post(
            f"{works.url}/turns/{run.session_id}:t1/words",
            headers={"Authorization": f"Bearer {works.key}"},
            json={"epoch": 1, "text": "late"},
        )
        assert (answer.status_code, answer.json()["code"]) == (409, "turn_lost")


def test_only_an_admin_drains_a_launcher(works: Works) -> None:
    with works.server(), works.launcher():
        until(lambda: len(works.moor.launchers()) == 1)
        others = works.key_for("read", "write", "approve")
        with sync.connect(works.url, key=others) as other, pytest.raises(Forbidden):
            other.drain_launcher("one")
        with sync.connect(works.url, key=works.key_for("admin")) as admin, pytest.raises(LauncherNotFound):
            admin.drain_launcher("another")


def test_an_agent_outlives_its_server_and_its_result_arrives_once(works: Works) -> None:
    with works.launcher():  # which comes before its server, and waits for it
        with works.server() as first:
            run = works.ask()
            until(lambda: len(works.agents) == 1)
            first.kill()
            first.wait()
        works.go.touch()
        until(lambda: not is_alive(works.agents[0]))
        with works.server():
            assert works.result(run).result == "did it"
            other = works.ask("echo-agent")
            works.result(other)
    assert len(works.agents) == 1
    assert works.problems(run, other) == []


def test_an_agent_outlives_its_launcher_and_is_adopted(works: Works) -> None:
    run = works.ask()
    with works.server():
        with works.launcher() as first:
            until(lambda: len(works.agents) == 1)
            first.kill()
            first.wait()
        with works.launcher():
            until(lambda: works.moor.get(run.session_id).epoch == 2)
            works.go.touch()
            assert works.result(run).result == "did it"
    assert len(works.agents) == 1
    assert works.problems(run) == []


def test_a_launcher_that_comes_back_before_its_server_still_adopts(works: Works) -> None:
    with works.server() as server:
        run = works.ask()
        with works.launcher() as first:
            until(lambda: len(works.agents) == 1)
            first.kill()
            first.wait()
        server.kill()
        server.wait()
    with works.launcher() as second:
        assert second.stderr is not None
        until(lambda: "trying again" in second.stderr.readline())  # type: ignore[union-attr]  # seen above
        assert is_alive(works.agents[0]), "unreachable is not refusal"
        with works.server():
            until(lambda: works.moor.get(run.session_id).epoch == 2)
            works.go.touch()
            assert works.result(run).result == "did it"
    assert len(works.agents) == 1


def test_a_launcher_that_wakes_up_late_is_refused_and_its_agent_gone(works: Works) -> None:
    run = works.ask()
    with works.server(), works.launcher(lost_after="3s") as first:
        until(lambda: len(works.agents) == 1)
        first.send_signal(signal.SIGSTOP)
        works.elsewhere = works.elsewhere.with_name("third")
        with works.launcher(name="two", lost_after="3s"):
            until(lambda: len(works.agents) == 2)
            assert not is_alive(works.agents[0])
            works.go.touch()
            works.result(run)
            first.send_signal(signal.SIGCONT)
            works.result(works.ask())
    said = [entry.text for entry in works.moor.messages(run.session_id) if entry.role == "assistant"]
    assert len(said) == 1
    assert works.problems(run) == []


def test_a_run_that_is_stopped_ends_its_agent_soon(works: Works) -> None:
    with works.server(), works.launcher() as launcher:
        run = works.ask()
        until(lambda: len(works.agents) == 1)
        works.moor.stop_run(run.run_id)
        assert works.result(run).state.value == "stopped"
        until(lambda: not is_alive(works.agents[0]))
        assert launcher.poll() is None


@pytest.mark.parametrize("scopes", [("read", "write", "approve"), ()])
def test_a_launcher_whose_key_is_not_for_launchers_ends_and_says_so(works: Works, scopes: tuple[str, ...]) -> None:
    works.ask("echo-agent")
    key = works.key_for(*scopes) if scopes else "moor_nobody_knows"
    with works.server(), works.launcher(key) as launcher:
        _, said = launcher.communicate(timeout=PATIENCE)
        assert launcher.returncode == 4
    assert ("'launch'" if scopes else "key") in said
    assert works.moor.launchers().items == []
