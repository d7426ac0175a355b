"""Processes that are told to stop when their database is gone already: they end soon all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

import moorage
from moorage.launcher.loop import IDLE_LOOK
from moorage.testing.faults import PATIENCE
from moorage.testing.postgres import PostgresServer
from tests.agents.chat_server import Exchange, serving
from tests.doors.http.process import starting, until

SOON = 10.0  # seconds, on a busy machine; it takes two and a half, and took thirty
THINKER = """\
[agent]
name = "thinker"
kind = "openai"
model = "any"
base_url = "{url}"
"""


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer(tcp=True) as server:
        yield server


@pytest.fixture
def store(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database() as url:
        yield url
        if not postgres.answers():
            postgres.start()
            postgres.wait()


def hang(exchange: Exchange) -> None:
    exchange.chat.closing.wait(PATIENCE)


def test_server_whose_database_is_gone_stops_soon(postgres: PostgresServer, store: str, tmp_path: Path) -> None:
    with serving(hang) as chat, starting(tmp_path) as begin:
        agents = tmp_path / "home" / "agents"
        agents.mkdir(parents=True)
        (agents / "thinker.toml").write_text(THINKER.format(url=chat.url))
        server = begin("--store", store)
        asked = {"agent_name": "thinker", "prompt": "hello", "mode": "async_poll"}
        httpx2.post(f"{server.url}/runs", json=asked, timeout=PATIENCE).raise_for_status()
        until(lambda: chat.requests)  # its agent lives in the server, and is at work
        postgres.stop("immediate")
        began = time.monotonic()
        assert server.end() == 0
        assert time.monotonic() - began < SOON


def test_launcher_whose_database_is_gone_stops_soon(postgres: PostgresServer, store: str, tmp_path: Path) -> None:
    environment = {**os.environ, "MOORAGE_HOME": str(tmp_path), "MOORAGE_URL": store}
    command = [sys.executable, "-m", "moorage", "launcher", "--name", "far"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as launcher:
        try:
            with moorage.sync.connect(store) as moor:
                until(lambda: [each.name for each in moor.launchers()] == ["far"])
            postgres.stop("immediate")
            time.sleep(2 * IDLE_LOOK)  # by then it asks for a turn, and waits for the database
            began = time.monotonic()
            launcher.send_signal(signal.SIGTERM)
            assert launcher.wait(PATIENCE) == 0
            assert time.monotonic() - began < SOON
        finally:
            launcher.kill()
