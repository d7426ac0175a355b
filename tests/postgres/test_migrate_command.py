"""moorage migrate on a PostgreSQL store: its schema, and sealing what is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import moorage.sync
from moorage.doors.cli import app
from moorage.stores.postgres.migrate import LATEST
from moorage.testing.postgres import GivenServer, PostgresServer
from tests.doors.cli.running import Done

KEYS = "MOORAGE_ENCRYPTION_KEYS"
ALL = list(range(1, LATEST + 1))

Command = Callable[..., Done]


@pytest.fixture
def command(
    postgres_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """With the keys that it is given, and no others."""
    monkeypatch.setenv("MOORAGE_HOME", str(tmp_path))
    monkeypatch.setenv("MOORAGE_URL", postgres_url)

    def run(*arguments: str, keys: str = "") -> Done:
        monkeypatch.setenv(KEYS, keys)
        capsys.readouterr()
        code = app.run(arguments)
        monkeypatch.delenv(KEYS)
        return Done(code, *capsys.readouterr())

    return run


def test_migrate_lists_pending_and_applied_migrations(command: Command, postgres_url: str) -> None:
    rehearsed = command("migrate", "--dry-run", "--json").json
    assert (rehearsed["schema_before"], rehearsed["schema"], rehearsed["missing"]) == (0, 0, ALL)
    assert command("migrate", "--dry-run", "--json").json == rehearsed, "nothing was changed"
    done = command("migrate", "--json").json
    assert (done["schema_before"], done["schema"], done["applied"]) == (0, LATEST, ALL)
    assert command("migrate", "--json").json["applied"] == []


def test_seal_reports_its_plan_and_result(command: Command, postgres_url: str) -> None:
    key = command("encryption-key", "k-1").out.strip()
    assert command("migrate", "--seal", "--dry-run", "--json", keys=key).json["to_seal"] == 0, "there is no schema yet"
    with moorage.sync.connect(postgres_url) as moor:
        plan = moor.create(agent="tester", name="plan")
        moor.append(plan.id, "a-needle")

    to_seal = command("migrate", "--seal", "--dry-run", "--json", keys=key).json["to_seal"]
    assert command("send", "plan", "still plain").code == 0, "to rehearse it seals nothing"
    done = command("migrate", "--seal", "--json", keys=key).json["sealed"]
    assert (done["key_id"], done["left"]) == ("k-1", [])
    assert 0 < to_seal < done["sealed"] <= done["looked_at"]
    assert command("migrate", "--seal", "--dry-run", "--json", keys=key).json["to_seal"] == 0
    assert "a-needle" in command("log", "plan", keys=key).out
    assert command("doctor", keys=key).code == 0
    refused = command("log", "plan")
    assert (refused.code, "encryption key 'k-1', which is not configured" in refused.err) == (5, True)


def test_seal_without_a_key_says_how_to_get_one_and_keeps_the_index(command: Command, postgres_url: str) -> None:
    with moorage.sync.connect(postgres_url) as moor:
        plan = moor.create(agent="tester")
        moor.append(plan.id, "a-needle")
        assert moor.search("a-needle")
    refused = command("migrate", "--seal", "--json")
    assert (refused.code, "moorage encryption-key" in refused.err) == (2, True)


def test_damage_is_told_and_makes_it_fail(
    command: Command, postgres: GivenServer | PostgresServer, postgres_url: str
) -> None:
    old, new = (command("encryption-key", key_id).out.strip() for key_id in ("k-1", "k-2"))
    assert command("create", "--name", "plan", keys=old).code == 0
    assert command("send", "plan", "hello", keys=old).code == 0
    name = postgres_url.partition("?")[0].rpartition("/")[2]
    postgres.sql("UPDATE moorage.entries SET data = '~sealed1:k-1:AAAA' WHERE number = 2", name)
    done = command("migrate", "--seal", keys=f"{new},{old}")
    assert (done.code, "left as it is: entries" in done.err) == (1, True), done


def test_passwords_are_not_shown(command: Command, postgres_url: str) -> None:
    with_password = postgres_url.replace("moorage@", "moorage:secret@")
    assert with_password != postgres_url
    done = command("--url", with_password, "migrate", "--json")
    assert (done.code, "secret" in done.out) == (0, False), done
