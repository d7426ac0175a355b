"""Servers that several folders of tests use: one for each process of the tests, started when first asked for.

Files of tests are in memory, if the machine has room for that: no test lives through a loss of power, so none has to
wait until a disk has taken what it writes. TMPDIR names another place.

Tests reach nobody outside, so they trust nobody there: to read the certificates of the world takes longer than most of
them, and every client would.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from moorage.testing.postgres import GIVEN, GivenServer, NoPostgres, PostgresServer, installation

MEMORY = Path("/dev/shm")  # where Linux keeps files in memory, for everybody to use
ROOM = 2 << 30  # bytes; a container may have very few there


def _use_memory() -> None:
    if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # look again


def _trust_nobody() -> None:
    os.environ.pop("SSL_CERT_FILE", None)
    os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)  # no certificate is in there


def _allow_pauses() -> None:
    """Let no example fail because the machine paused: pytest-timeout bounds each test."""
    settings.register_profile("moorage", deadline=None)
    settings.load_profile("moorage")


_use_memory()  # before anybody asks for a folder
_trust_nobody()  # before anybody makes a client
_allow_pauses()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What may take long, and says so, comes first: nobody has to wait for it at the end."""
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
