"""Servers that several folders of tests use: one for each process of the tests, started when first asked for.

Files of tests are in memory, if the machine has room for that: no test lives through a loss of power, so none has to
wait until a disk has taken what it writes. TMPDIR names another place.

Tests call no other machine, so they trust no certificate: reading the system's certificates takes longer than most of
them, and every client would.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from moorage.testing.postgres import GIVEN, GivenServer, NoPostgres, PostgresServer, installation
from moorage.testing.redis import NoRedis, RedisServer, redis_program
from tests import debian

MEMORY = Path("/dev/shm")  # where Linux keeps files in memory, for all users
ROOM = 2 << 30  # bytes; a container may have very few there


def _use_memory() -> None:
    if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # look again


def _trust_no_certificate() -> None:
    os.environ.pop("SSL_CERT_FILE", None)
    os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)  # no certificate is in there


def _fork_without_grpc() -> None:
    """Keep gRPC's handlers out of forked children: they can hang a child before it becomes PostgreSQL.

    A server that runs as another user is started by fork and exec. A program needs those handlers only if it goes on
    using gRPC after a fork, which nothing here does.
    """
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


def _allow_pauses() -> None:
    """Let no example fail because the machine paused: pytest-timeout bounds each test."""
    settings.register_profile("moorage", deadline=None)
    settings.load_profile("moorage")


_use_memory()  # before a test asks for a folder
_trust_no_certificate()  # before a test makes a client
_fork_without_grpc()  # before a test imports gRPC
_allow_pauses()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while tests are collected, and never among them: they stay until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run long tests first, so that the run does not wait for them at its end."""
    items.sort(key=lambda item: item.get_closest_marker("timeout") is None)


@pytest.fixture(scope="session")
def postgres() -> Iterator[GivenServer | PostgresServer]:
    """PostgreSQL: the one that was named, or the newest there is; it forgets everything if it is killed."""
    if url := os.environ.get(GIVEN):
        yield GivenServer(url)
        return
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def oldest_postgres() -> Iterator[PostgresServer]:
    """PostgreSQL 15, the oldest that is supported."""
    try:
        found = installation(15)
    except NoPostgres as missing:
        pytest.skip(str(missing))
    with PostgresServer(found) as server:
        yield server


@pytest.fixture
def durable_postgres() -> Iterator[PostgresServer]:
    """A server that keeps what it acknowledged, reached over the network: to be stopped and started again."""
    with PostgresServer(durable=True, tcp=True) as server:
        yield server


@pytest.fixture
def postgres_url(postgres: GivenServer | PostgresServer) -> Iterator[str]:
    """An empty database."""
    with postgres.database() as url:
        yield url


@pytest.fixture(scope="session")
def valkey() -> Iterator[RedisServer]:
    """Valkey; it forgets everything when it ends."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def valkey_cluster() -> Iterator[RedisServer]:
    """A cluster of one Valkey server: keys of two slots in one script are refused."""
    with RedisServer(cluster=True) as server:
        yield server


@pytest.fixture(scope="session")
def redis_7() -> Iterator[RedisServer]:
    """Redis 7, the oldest that is supported; root installs it where it is missing."""
    try:
        program = redis_program()
    except NoRedis:
        why = debian.install("redis-server")
        try:
            program = redis_program()
        except NoRedis:
            pytest.skip(why)
    with RedisServer(program) as server:
        yield server
