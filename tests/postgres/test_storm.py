"""A storm over servers on PostgreSQL, which is killed again and again: see tests/fleet/storm.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.testing.postgres import PostgresServer
from tests.fleet.storm import LENGTH, rage


@pytest.mark.timeout(300 * LENGTH)
def test_nothing_is_lost_and_nothing_done_twice_in_a_storm(durable_postgres: PostgresServer, tmp_path: Path) -> None:
    database = durable_postgres
    name = database.create_database()

    def url(port: int) -> str:
        return database.url(name).replace(str(database.port), str(port))

    wrong = rage(url, database.port, tmp_path, crash=lambda: database.stop("immediate"), start=database.start)
    assert wrong == []
