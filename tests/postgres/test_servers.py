"""The servers that tests run on are what they say: their own, durable or not, and gone afterwards."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from moorage.testing.faults import Worker, eventually
from moorage.testing.postgres import GIVEN, GivenServer, PostgresServer, installations

KEEPER = """
import sys
from moorage.testing.postgres import PostgresServer
server = PostgresServer()
print(server.folder, flush=True)
print((server.data / "postmaster.pid").read_text().split()[0], flush=True)
sys.stdin.readline()
"""


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_there_is_a_server_of_version_18_to_start() -> None:
    assert 18 in {each.version for each in installations()}


def test_a_database_is_there_for_as_long_as_its_block(postgres: GivenServer | PostgresServer) -> None:
    with postgres.database() as url:
        name = url.rpartition("/")[2].split("?")[0]
        assert postgres.sql("SELECT current_database()", name) == [name]
    assert postgres.sql(f"SELECT count(*) FROM pg_database WHERE datname = '{name}'") == ["0"]


def test_a_database_can_be_the_copy_of_another(postgres: GivenServer | PostgresServer) -> None:
    template = postgres.create_database()
    postgres.sql("CREATE TABLE marked (n int)", template)
    copy = postgres.create_database(template)
    assert postgres.sql("SELECT count(*) FROM marked", copy) == ["0"]
    postgres.drop_database(copy)
    postgres.drop_database(template)


def test_the_oldest_supported_server_says_its_version(oldest_postgres: PostgresServer) -> None:
    assert oldest_postgres.sql("SHOW server_version_num")[0].startswith("15")


def test_durable_server_keeps_acknowledged_writes(durable_postgres: PostgresServer) -> None:
    durable_postgres.sql("CREATE TABLE kept AS SELECT 1")
    durable_postgres.restart("immediate")
    assert durable_postgres.sql("SELECT count(*) FROM kept") == ["1"]
    assert "not properly shut down" in durable_postgres.log()
    assert durable_postgres.sql("SHOW fsync") == ["on"]


def test_a_server_ends_with_the_process_that_started_it() -> None:
    with Worker(KEEPER) as keeper:
        folder, pid = Path(keeper.line()), int(keeper.line())
        assert _runs(pid)
        os.kill(keeper.pid, signal.SIGKILL)
        assert eventually(lambda: not _runs(pid))
        assert eventually(lambda: not folder.exists())


@pytest.mark.skipif(bool(os.environ.get(GIVEN)), reason="a server that was given is somebody else's")
def test_server_listens_on_a_socket_unless_asked(postgres: PostgresServer) -> None:
    assert postgres.sql("SHOW listen_addresses") == [""]
