"""migrate --from --to between SQLite and PostgreSQL: everything, both ways, killed half way, used afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moorage.testing.contract.dump import a_full_store, everything
from moorage.testing.faults import Worker
from moorage.testing.postgres import GivenServer, PostgresServer
from tests.fleet.copying import COPIER, Migrate, filled, migrating, on


@pytest.fixture
def migrate(tmp_path: Path) -> Migrate:
    return migrating(tmp_path / "home")


@pytest.fixture
def source(tmp_path: Path) -> str:
    return filled(tmp_path / "source.db")


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


@pytest.mark.parametrize("commits", [2, 9])
def test_a_copy_that_was_killed_goes_on(source: str, postgres_url: str, migrate: Migrate, commits: int) -> None:
    with Worker(COPIER, source, postgres_url, commits, "moorage.stores.postgres.store", "PostgresStore") as copier:
        os.waitid(os.P_PID, copier.pid, os.WEXITED | os.WNOWAIT)

    done = migrate(source, postgres_url, "--force")

    assert done["went_on"]
    assert on(postgres_url, everything) == on(source, everything)
