"""A stop against agents that never stop by themselves: nothing of them survives it, however it meets them.

There are three agents: one has short turns and starts a child in each, which calls back; one starts a child every 60 ms
in a single turn; one does the same and ignores SIGTERM. Each is stopped at a random moment, several times.
`MOORAGE_TEST_STOPS=200` stops each of them 200 times on every store and launcher.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from moorage import config
from moorage.service.inline import drive
from moorage.service.keys import create_key
from tests.contract.choice import IS_ALL
from tests.launcher.serving import free_port
from tests.launcher.test_processes import PATIENCE, is_alive

TRIES = int(os.environ.get("MOORAGE_TEST_STOPS", "3"))
AT_ONCE = 12
QUIET = 0.6  # seconds in which nothing may happen any more: two short turns

# Without libraries, so that it starts fast: asks the server for a child, and takes no refusal for an end.
AGENT = """\
import os, signal, socket, sys, time
began = time.monotonic()
if "--deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
place = os.environ["MOORAGE_URL"].split("//")[1].rstrip("/")
host, port = place.split(":")
with open(sys.argv[1] + "/" + os.environ["AGENT_SESSION_ID"], "a") as journal:
    journal.write(f"{os.getpid()}\\n")
def bear():
    body = b'{"agent_name": "echo-agent", "prompt": "hello", "mode": "async_callback"}'
    token = os.environ.get("MOORAGE_TOKEN")
    headers = [
        "POST /runs HTTP/1.1", "Host: " + place, "Connection: close", "Content-Type: application/json",
        "Content-Length: %d" % len(body), "X-Agent-Session-Id: " + os.environ["AGENT_SESSION_ID"],
        "X-Agent-Run-Id: " + os.environ["AGENT_RUN_ID"], *(["Authorization: Bearer " + token] if token else []),
    ]
    with socket.create_connection((host, int(port)), 30) as line:
        line.sendall("\\r\\n".join([*headers, "", ""]).encode() + body)
        while line.recv(65536):
            pass
bear()
while "--forever" in sys.argv:
    time.sleep(0.06)
    bear()
time.sleep(max(0.0, began + 0.3 - time.monotonic()))
print("again")
"""
KINDS = {"short-turns": [], "many-children": ["--forever"], "deaf": ["--forever", "--deaf"]}


class Ground:
    """A server, its launcher, and the agents to be stopped."""

    def __init__(self, folder: Path, store: str) -> None:
        self.home, self.journals, self.store, self.port = folder / "home", folder / "journals", store, free_port()
        (self.home / "agents").mkdir(parents=True)
        self.journals.mkdir()
        script = folder / "agent.py"
        script.write_text(AGENT)
        for name, flags in KINDS.items():
            command = json.dumps([sys.executable, "-S", "-E", str(script), str(self.journals), *flags])
            table = f'[agent]\nname = "{name}"\nkind = "command"\ncommand = {command}\n'
            (self.home / "agents" / f"{name}.toml").write_text(table)
        self.key: str | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def set_up(self, *, over_http: bool) -> Iterator[None]:
        """With a launcher of the server's own, or one that reaches it over HTTP with a key."""
        serve = ["serve", "--store", self.store, "--port", str(self.port), "--no-grpc", "--slots", "32"]
        with ExitStack() as running:
            if over_http:
                self.key = self._make_key()
                serve.append("--no-launcher")
            running.enter_context(self._process(serve))
            if over_http:
                running.enter_context(self._process(["launcher", "--url", self.url, "--slots", "32"]))
            yield

    def _make_key(self) -> str:
        deps = config.open_deps(self.store, threaded=False)
        try:
            return drive(create_key(deps, scopes=("read", "write", "launch"))).text
        finally:
            drive(deps.store.close())

    @contextmanager
    def _process(self, arguments: list[str]) -> Iterator[None]:
        env = {**os.environ, "MOORAGE_HOME": str(self.home), **({"MOORAGE_KEY": self.key} if self.key else {})}
        with (self.home / f"{arguments[0]}.log").open("wb") as log:
            process = subprocess.Popen([sys.executable, "-m", "moorage", *arguments], stderr=log, env=env)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx2.AsyncClient]:
        headers = {"authorization": f"Bearer {self.key}"} if self.key else {}
        async with httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=PATIENCE) as http:
            await _until(lambda: _answers(http))
            yield http

    def agents_of(self, session_id: str) -> list[int]:
        """The process ids of all agents that ever worked on a session."""
        journal = self.journals / session_id
        return [int(line) for line in journal.read_text().split()] if journal.exists() else []


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await holds():  # noqa: ASYNC110  other processes have no event for it
            await asyncio.sleep(0.03)


async def _answers(http: httpx2.AsyncClient) -> bool:
    try:
        return (await http.get("/readyz")).status_code == 200
    except httpx2.TransportError:
        return False


async def _runs(http: httpx2.AsyncClient, session_id: str) -> dict[str, dict[str, Any]]:
    """The runs of a session and of its children, by their ids."""
    found: dict[str, dict[str, Any]] = {}
    for name in ("session_id", "parent_session_id"):
        cursor: str | None = None
        while True:
            page = {} if cursor is None else {"cursor": cursor}
            answer = (await http.get("/runs", params={name: session_id, "limit": 1000, **page})).json()
            found |= {run["run_id"]: run for run in answer["items"]}
            if (cursor := answer["next"]) is None:
                break
    return found


async def stop_once(ground: Ground, http: httpx2.AsyncClient, agent: str, chance: random.Random) -> list[str]:
    """Start an agent, stop it some time later, and tell what went on after the stop."""
    asked = (await http.post("/runs", json={"agent_name": agent, "prompt": "go", "mode": "async_poll"})).json()
    session_id, run_id = asked["session"]["session_id"], asked["run"]["run_id"]

    async def has_child() -> bool:
        return len(await _runs(http, session_id)) > 1

    async def is_over() -> bool:
        runs = await _runs(http, session_id)
        return all(run["settled_at"] for run in runs.values()) and not any(map(is_alive, ground.agents_of(session_id)))

    await _until(has_child)
    await asyncio.sleep(chance.uniform(0.0, 0.9))
    stopped = await http.post(f"/sessions/{session_id}/stop", json={})
    assert stopped.status_code == 200, stopped.text
    before = await _runs(http, session_id)
    await _until(is_over)
    await asyncio.sleep(QUIET)  # time in which something could go on
    return _survivors(before, await _runs(http, session_id), run_id)


def _survivors(before: dict[str, Any], after: dict[str, Any], run_id: str) -> list[str]:
    """Return new children, started turns, and runs that did not end as stopped."""
    born = [f"{each} was born after the stop" for each in after if each not in before]
    started = [f"{each} had another turn" for each in before if after[each]["turns"] > before[each]["turns"]]
    living = [f"{each} is {run['state']}" for each, run in after.items() if run["settled_at"] is None]
    end = after[run_id]["state"]
    found = [*born, *started, *living, *([] if end == "stopped" else [f"the stopped run is {end}"])]
    return [f"{after[run_id]['agent_name']}: {problem}" for problem in found]


ALL = [(store, launcher) for store in ("sqlite", "postgres") for launcher in ("embedded", "http")]
PLACES = ALL if IS_ALL or TRIES > 3 else [("sqlite", "http"), ("postgres", "embedded")]


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'moorage.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.mark.timeout(120 + TRIES * 60)
@pytest.mark.parametrize(("store_url", "launcher"), PLACES, indirect=["store_url"])
async def test_nothing_survives_a_stop(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: str
) -> None:
    for name in ("AGENT_SESSION_ID", "AGENT_SESSION_NAME", "AGENT_RUN_ID", "MOORAGE_URL", "MOORAGE_KEY"):
        monkeypatch.delenv(name, raising=False)
    ground, chance, found = Ground(tmp_path, store_url), random.Random(launcher), list[list[str]]()
    with ground.set_up(over_http=launcher == "http"):
        async with ground.client() as http:
            for agents in batched(sorted(KINDS) * TRIES, AT_ONCE):
                found += await asyncio.gather(*(stop_once(ground, http, agent, chance) for agent in agents))
    survivors = [problems for problems in found if problems]
    assert not survivors, f"{len(survivors)} of {len(found)}: {survivors[:3]}"


def batched(items: list[str], size: int) -> Iterator[list[str]]:
    """So many at once, the kinds mixed: what waits for a deaf one waits for others meanwhile."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
