"""Tables of frameworks in PostgreSQL: read-only, few rows at a time, and clear errors."""

from __future__ import annotations

import sys
from urllib.parse import urlsplit

import pytest

from moorage import sync
from moorage.adapters.moving import AT_ONCE, tables_of
from moorage.core.errors import InvalidField, Unsupported
from moorage.testing.postgres import GivenServer, PostgresServer

Server = GivenServer | PostgresServer
COUNT = 5 * AT_ONCE + 1


@pytest.fixture
def theirs(postgres: Server, postgres_url: str) -> str:
    filled = f"CREATE TABLE sessions AS SELECT n AS id, repeat('x', 5) AS state FROM generate_series(1, {COUNT}) n"
    postgres.sql(filled, urlsplit(postgres_url).path[1:])
    return postgres_url


def test_rows_are_read_while_others_are_streamed(theirs: str) -> None:
    with tables_of(theirs, "a test", {"sessions"}) as tables:
        assert tables.columns("sessions") == {"id", "state"}
        ids = [row[0] for row in tables.stream("SELECT id FROM sessions ORDER BY id")]
        found = [
            tables.rows("SELECT id, state FROM sessions WHERE id = $1", row[0])
            for row in tables.stream("SELECT id FROM sessions ORDER BY id")
        ]
    assert ids == list(range(1, COUNT + 1))
    assert [tuple(rows[0]) for rows in found] == [(number, "xxxxx") for number in ids]


def test_stream_may_be_left_early(theirs: str) -> None:
    with tables_of(theirs, "a test", {"sessions"}) as tables:
        assert next(tables.stream("SELECT id FROM sessions ORDER BY id"))[0] == 1
        assert len(tables.rows("SELECT id FROM sessions")) == COUNT


def test_nothing_can_be_written(theirs: str) -> None:
    with (
        tables_of(theirs, "a test", {"sessions"}) as tables,
        pytest.raises(InvalidField, match="read-only transaction"),
    ):
        tables.rows("DELETE FROM sessions")


def test_tables_of_the_store_are_not_taken_for_those_of_a_framework(theirs: str) -> None:
    with sync.connect(theirs) as moor:  # the user is called like its schema, which PostgreSQL looks into first
        moor.create(session_id="ours")
    with tables_of(theirs, "a test", {"sessions"}) as tables:
        assert tables.columns("sessions") == {"id", "state"}


def test_url_of_sqlalchemy_is_understood(theirs: str) -> None:
    with tables_of(theirs.replace("postgresql:", "postgresql+asyncpg:"), "a test", {"sessions"}) as tables:
        assert len(tables.rows("SELECT id FROM sessions")) == COUNT


def test_missing_tables_are_named(theirs: str) -> None:
    with (
        pytest.raises(InvalidField, match="has no tables of a test: app_states, events"),
        tables_of(theirs, "a test", {"sessions", "events", "app_states"}),
    ):
        pass


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://anna:secret@127.0.0.1:1/nothing",
        "postgresql://127.0.0.1:1/nothing?user=anna&password=secret",
        "postgres://anna:secret@127.0.0.1:port/nothing",
    ],
)
def test_database_that_cannot_be_reached_is_told_without_its_password(url: str) -> None:
    with pytest.raises(InvalidField, match="cannot be read") as refused, tables_of(url, "a test", {"sessions"}):
        pass
    assert "secret" not in refused.value.message


def test_missing_extra_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(Unsupported, match=r"moorage\[postgres\]"), tables_of("postgresql:///x", "a test", {"sessions"}):
        pass
