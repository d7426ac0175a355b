"""migrate --from --to between SQLite, PostgreSQL and Redis: everything, both ways, killed half way, used afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moorage.testing.builders import OWNER, a_stamp, said
from moorage.testing.contract.dump import everything
from moorage.testing.faults import Worker
from moorage.testing.redis import RedisServer
from tests.contract.choice import IS_ALL
from tests.fleet.copying import COPIER, Migrate, filled, migrating, on


@pytest.fixture(params=["valkey", "valkey_cluster", *(["redis_7"] if IS_ALL else [])])
def redis_url(request: pytest.FixtureRequest) -> str:
    server: RedisServer = request.getfixturevalue(request.param)
    server.ask("FLUSHALL")
    return server.url()


@pytest.fixture
def migrate(tmp_path: Path) -> Migrate:
    return migrating(tmp_path / "home")


@pytest.fixture
def source(tmp_path: Path) -> str:
    return filled(tmp_path / "source.db")


@pytest.fixture
def target(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'back.db'}"


def test_everything_goes_there_and_back(source: str, redis_url: str, target: str, migrate: Migrate) -> None:
    there = migrate(source, redis_url, "--force")
    again = migrate(redis_url, target, "--force")

    assert there["digest"] == again["digest"]
    assert there["copied"] == again["copied"]
    assert on(source, everything) == on(redis_url, everything) == on(target, everything)
    assert on(redis_url, lambda store: store.check()) == []
    assert migrate(source, redis_url, "--force")["code"] == "store_not_empty"


def test_everything_goes_from_postgres_and_back(
    source: str, postgres_url: str, redis_url: str, target: str, migrate: Migrate
) -> None:
    migrate(source, postgres_url, "--force")
    there = migrate(postgres_url, redis_url, "--force")
    assert there["digest"] == migrate(redis_url, target, "--force")["digest"]
    assert on(postgres_url, everything) == on(redis_url, everything) == on(target, everything)


@pytest.mark.parametrize("commits", [2, 9])
def test_copy_that_was_killed_goes_on(source: str, redis_url: str, migrate: Migrate, commits: int) -> None:
    with Worker(COPIER, source, redis_url, commits, "moorage.stores.redis.store", "RedisStore") as copier:
        os.waitid(os.P_PID, copier.pid, os.WEXITED | os.WNOWAIT)

    done = migrate(source, redis_url, "--force")

    assert done["went_on"]
    assert on(redis_url, everything) == on(source, everything)


def test_copied_session_goes_on(source: str, redis_url: str, migrate: Migrate) -> None:
    migrate(source, redis_url, "--force")
    last = on(source, lambda store: store.get(OWNER, "s-1")).last_entry
    [entry] = on(redis_url, lambda store: store.append(OWNER, "s-1", said("and on"), a_stamp()))
    assert entry.number == last + 1
