"""encryption-key and migrate --seal."""

import os
from pathlib import Path

import pytest

from moorage.stores.sealing import read_keys
from tests.doors.cli.running import Cli


def test_a_new_key_is_printed_as_it_is_configured(cli: Cli, database: Path) -> None:
    [(key_id, key)] = read_keys(cli("encryption-key").out).items()
    assert (key_id[0], len(key)) == ("k", 32)
    assert read_keys(cli("encryption-key").out) != {key_id: key}
    made = cli("encryption-key", "2026-01", "--json").json
    assert made["key_id"] == "2026-01"
    assert list(read_keys(made["key"])) == ["2026-01"]
    assert not database.exists(), "no store is needed for it"


def test_a_key_id_that_is_none_is_refused(cli: Cli) -> None:
    refused = cli("encryption-key", "a:b")
    assert (refused.code, refused.out) == (2, "")


def test_seal_reports_its_plan_and_result(cli: Cli, plan: str, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("send", plan, "a-needle")
    monkeypatch.setenv("MOORAGE_ENCRYPTION_KEYS", cli("encryption-key", "k-1").out)
    to_seal = cli("migrate", "--seal", "--dry-run", "--json").json["to_seal"]
    done = cli("migrate", "--seal", "--json").json["sealed"]
    assert (done["key_id"], done["left"], done["is_compact"]) == ("k-1", [], True)
    assert 0 < done["sealed"] <= to_seal
    assert b"a-needle" not in database.read_bytes()
    assert "a-needle" in cli("log", plan).out
    again = cli("migrate", "--seal")
    assert (again.code, "sealed.sealed" in again.out) == (0, True)
    assert cli("migrate", "--seal", "--dry-run", "--json").json["to_seal"] == 0
    refused = cli("search", "a-needle")
    assert (refused.code, "encrypted at rest" in refused.err) == (2, True)
    assert cli("doctor").code == 0


def test_seal_without_a_key_says_how_to_get_one(cli: Cli, plan: str) -> None:
    refused = cli("migrate", "--seal", "--json")
    assert refused.code == 2
    assert "moorage encryption-key" in refused.err


def test_without_the_key_a_command_says_which_is_missing(cli: Cli, plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORAGE_ENCRYPTION_KEYS", cli("encryption-key", "k-1").out)
    cli("send", plan, "hello")
    monkeypatch.delenv("MOORAGE_ENCRYPTION_KEYS")
    refused = cli("log", plan)
    assert refused.code == 5
    assert "encryption key 'k-1', which is not configured" in refused.err
    refused = cli("send", plan, "plain")
    assert (refused.code, "this store is sealed" in refused.err) == (5, True)
    assert cli("doctor").code == 1


def test_damage_is_told_and_makes_it_fail(cli: Cli, plan: str, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import apsw

    monkeypatch.setenv("MOORAGE_ENCRYPTION_KEYS", cli("encryption-key", "k-1").out)
    cli("send", plan, "hello")
    db = apsw.Connection(str(database))
    db.execute("UPDATE entries SET data = '~sealed1:k-1:AAAA' WHERE id = (SELECT max(id) FROM entries)")
    db.close()
    new = cli("encryption-key", "k-2").out.strip()
    monkeypatch.setenv("MOORAGE_ENCRYPTION_KEYS", f"{new},{os.environ['MOORAGE_ENCRYPTION_KEYS']}")
    done = cli("migrate", "--seal")
    assert done.code == 1
    assert "left as it is: entries" in done.err
