"""migrate --from --to between SQLite and PostgreSQL: everything, both ways, killed half way, used afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from moorage.config import open_store
from moorage.ports import Store
from moorage.testing.builders import OWNER, a_stamp, said
from moorage.testing.contract.records import a_full_store, everything
from moorage.testing.faults import Worker
from moorage.testing.postgres import GivenServer, PostgresServer

Migrate = Callable[..., dict[str, Any]]


def on(url: str, work: Callable[[Store], Coroutine[Any, Any, Any]]) -> Any:
    """What some work on a store gives."""

    async def run() -> Any:
        store = open_store(url, threaded=True)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MOORAGE_", "AGENT_"))}
    return {**kept, "MOORAGE_HOME": str(tmp_path / "home")}


@pytest.fixture
def migrate(environment: dict[str, str]) -> Migrate:
    def run(source: str, target: str, *flags: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "moorage", "migrate", "--from", source, "--to", target, *flags, "--json"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    return run


@pytest.fixture
def source(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'source.db'}"
    on(url, a_full_store)
    on(url, lambda store: store.append(OWNER, "s-1", said("binary \0 output"), a_stamp()))
    return url


def test_everything_goes_there_and_back(source: str, postgres_url: str, tmp_path: Path, migrate: Migrate) -> None:
    back = f"sqlite:///{tmp_path / 'back.db'}"

    there = migrate(source, postgres_url, "--force")
    again = migrate(postgres_url, back, "--force")

    assert there["digest"] == again["digest"]
    assert there["copied"] == again["copied"]
    assert on(source, everything) == on(postgres_url, everything) == on(back, everything)
    assert on(postgres_url, lambda store: store.check()) == []


def test_everything_goes_from_one_database_to_another(
    postgres: GivenServer | PostgresServer, postgres_url: str, migrate: Migrate
) -> None:
    on(postgres_url, a_full_store)
    with postgres.database() as other:
        assert "copied" in migrate(postgres_url, other, "--force")
        assert on(other, everything) == on(postgres_url, everything)
        assert migrate(postgres_url, other, "--force")["code"] == "store_not_empty"


def test_a_table_called_sessions_is_left_alone(
    postgres: GivenServer | PostgresServer, postgres_url: str, source: str, migrate: Migrate
) -> None:
    name = postgres_url.partition("?")[0].rpartition("/")[2]
    postgres.sql("CREATE TABLE public.sessions (session_id text); INSERT INTO sessions VALUES ('theirs')", name)
    migrate(source, postgres_url, "--force")
    assert postgres.sql("SELECT * FROM public.sessions", name) == ["theirs"]


COPIER = """
import os, signal, sys
from moorage.doors.cli.app import run
from moorage.stores.postgres.store import PostgresStore
real, left = PostgresStore.load, int(sys.argv[3])

async def load(self, records, mark):
    global left
    await real(self, records, mark)
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

PostgresStore.load = load
sys.exit(run(["migrate", "--from", sys.argv[1], "--to", sys.argv[2], "--force"]))
"""


@pytest.mark.parametrize("commits", [2, 9])
def test_a_copy_that_was_killed_goes_on(source: str, postgres_url: str, migrate: Migrate, commits: int) -> None:
    with Worker(COPIER, source, postgres_url, commits) as copier:
        os.waitid(os.P_PID, copier.pid, os.WEXITED | os.WNOWAIT)

    done = migrate(source, postgres_url, "--force")

    assert done["went_on"]
    assert on(postgres_url, everything) == on(source, everything)
