"""memory get, set, list, delete."""

from __future__ import annotations

import pytest

from tests.doors.cli.running import Cli


def test_value_is_json_if_it_is_that_else_text(cli: Cli) -> None:
    for value, kept in (("metric", "metric"), ("42", 42), ('{"cpu": 4}', {"cpu": 4}), ("null", None)):
        assert cli("memory", "set", "n", "k", value).code == 0
        assert cli("memory", "get", "n", "k", "--json").json["value"] == kept
    cli("memory", "set", "n", "k", "42", "--text")
    assert cli("memory", "get", "n", "k").out == "42\n"
    assert cli("memory", "get", "n", "k", "--json").json["version"] == 5


def test_key_that_is_not_there_is_not_found(cli: Cli) -> None:
    done = cli("memory", "get", "n", "none")
    assert (done.code, done.out) == (3, "")
    assert "there is no record 'none'" in done.err


def test_version_that_is_not_there_is_refused(cli: Cli) -> None:
    assert cli("memory", "set", "n", "k", "1", "--expected-version", "0").code == 0
    assert cli("memory", "set", "n", "k", "2", "--expected-version", "0").code == 4
    assert cli("memory", "delete", "n", "k", "--expected-version", "7").code == 4
    assert cli("memory", "get", "n", "k").out == "1\n"


def test_list_has_keys_in_order_and_may_be_cut(cli: Cli) -> None:
    for key in ("b", "a/2", "a/1"):
        cli("memory", "set", "n", key, f"value of {key}")
    assert [line.split("\t")[0] for line in cli("memory", "list", "n").lines] == ["a/1", "a/2", "b"]
    assert [line.split("\t")[0] for line in cli("memory", "list", "n", "--prefix", "a/").lines] == ["a/1", "a/2"]
    page = cli("memory", "list", "n", "--limit", "1", "--json").json
    assert ([each["key"] for each in page["items"]], page["next"]) == (["a/1"], "a/1")
    rest = cli("memory", "list", "n", "--cursor", "a/1", "--json").json
    assert ([each["value"] for each in rest["items"]], rest["next"]) == (["value of a/2", "value of b"], None)


def test_delete_takes_a_key_a_prefix_or_everything(cli: Cli) -> None:
    for key in ("a/1", "a/2", "b", "c"):
        cli("memory", "set", "n", key, "1")
    cli("memory", "delete", "n", "c")
    cli("memory", "delete", "n", "--prefix", "a/")
    assert [line.split("\t")[0] for line in cli("memory", "list", "n").lines] == ["b"]
    cli("memory", "delete", "n", "--all")
    assert cli("memory", "list", "n").out == ""


@pytest.mark.parametrize("how", [(), ("k", "--all"), ("--prefix", "a", "--all")])
def test_delete_wants_to_know_what(cli: Cli, how: tuple[str, ...]) -> None:
    assert cli("memory", "delete", "n", *how).code == 2
