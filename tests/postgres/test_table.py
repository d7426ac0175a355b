"""import --postgres-table: the rows of another program's table become sessions, and the table stays as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from moorage.testing.postgres import GivenServer, PostgresServer

Server = GivenServer | PostgresServer
Command = Callable[..., subprocess.CompletedProcess[str]]
TABLE = """
SET timezone = 'UTC';
CREATE TABLE sessions (session_id text PRIMARY KEY, context {type}, updated_at {time});
INSERT INTO sessions
    SELECT 's-' || n, ('{{"n": ' || n || ', "é": "\\u00e9"}}')::{type}, '2026-01-08 18:05:30+00'::{time}
    FROM generate_series(1, 20) n;
INSERT INTO sessions VALUES ('not an id', '{{}}', now()), ('no-object', '[1]', now()), ('empty', NULL, NULL)
"""


@pytest.fixture
def moorage_command(tmp_path: Path) -> Command:
    env = {**os.environ, "MOORAGE_HOME": str(tmp_path / "home")}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "moorage", *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)

    return run


def make(server: Server, url: str, kind: str = "jsonb", time: str = "timestamptz") -> str:
    name = urlsplit(url).path.lstrip("/")
    server.sql(TABLE.format(type=kind, time=time), name)
    return name


@pytest.mark.parametrize(("kind", "time"), [("jsonb", "timestamptz"), ("text", "timestamp"), ("json", "timestamptz")])
def test_every_row_that_is_sound_comes_in(
    postgres: Server, postgres_url: str, moorage_command: Command, kind: str, time: str
) -> None:
    name = make(postgres, postgres_url, kind, time)
    before = postgres.sql("SELECT md5(string_agg(sessions::text, '')) FROM sessions", name)
    command = ("import", "--postgres-table", "sessions", "--database", postgres_url, "--json")

    rehearsed = moorage_command(*command, "--dry-run")
    done = moorage_command(*command)
    again = moorage_command(*command)

    assert done.returncode == 1, done.stderr  # something was left out
    report: dict[str, Any] = json.loads(done.stdout)
    assert len(report["imported"]) == len(json.loads(rehearsed.stdout)["imported"]) == 21
    assert sorted(left["reason"].split()[0] for left in report["left_out"]) == ["not", "session_id"]
    assert {left["file"] for left in report["left_out"]} == {"sessions"}
    assert len(json.loads(again.stdout)["already_there"]) == 21
    assert json.loads(moorage_command("context", "get", "s-20", "--json").stdout) == {"n": 20, "é": "é"}
    head = json.loads(moorage_command("get", "s-7", "--json").stdout)
    assert head["updated_at"] == "2026-01-08T18:05:30Z"
    assert postgres.sql("SELECT md5(string_agg(sessions::text, '')) FROM sessions", name) == before


def test_a_table_beside_our_own_is_found_in_the_database_of_the_store(
    postgres: Server, postgres_url: str, moorage_command: Command
) -> None:
    make(postgres, postgres_url)
    command = ("import", "--postgres-table", "sessions", "--url", postgres_url, "--json")
    assert len(json.loads(moorage_command(*command).stdout)["imported"]) == 21
    assert len(json.loads(moorage_command(*command).stdout)["already_there"]) == 21


def test_a_table_that_is_not_there_is_told(postgres_url: str, moorage_command: Command) -> None:
    done = moorage_command("import", "--postgres-table", "no.such", "--database", postgres_url, "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["code"] == "invalid_import"


def test_a_database_that_does_not_answer_is_told(moorage_command: Command) -> None:
    url = "postgresql://nobody@127.0.0.1:1/nothing"
    done = moorage_command("import", "--postgres-table", "sessions", "--database", url, "--json")
    assert (done.returncode, json.loads(done.stdout)["code"]) == (2, "invalid_import")


@pytest.mark.parametrize("flags", [(), ("--database", "postgresql:///x"), ("--postgres-table", "sessions")])
def test_a_table_needs_its_database_and_the_other_way_round(moorage_command: Command, flags: tuple[str, ...]) -> None:
    assert moorage_command("import", *flags).returncode == 2
