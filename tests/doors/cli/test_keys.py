"""keys create, list, revoke."""

import re

import pytest

from tests.doors.cli.running import Cli


def test_a_key_is_printed_once_and_never_again(cli: Cli) -> None:
    made = cli("keys", "create", "--name", "laptop")
    assert re.fullmatch(r"moor_[0-9a-f]{12}_[0-9a-f]{64}\n", made.out)
    key_id, secret = made.out.strip().split("_")[1:]
    listed = cli("keys", "list")
    assert listed.lines == ["\t".join((key_id, "valid", "local", "read,write", "laptop", "-", "-"))]
    assert secret not in listed.out + cli("keys", "list", "--json").out


def test_create_takes_owner_scopes_owners_and_expiry(cli: Cli) -> None:
    made = cli(
        "keys", "create", "--owner", "ann", "--scope", "launch", "--scope", "read", "--owners", "ann", "--owners",
        "bob", "--expires", "90d", "--json",
    ).json  # fmt: skip
    assert (made["owner"], made["scopes"], made["owners"]) == ("ann", ["read", "launch"], ["ann", "bob"])
    assert made["text"].startswith(f"moor_{made['key_id']}_")
    assert made["expires_at"] > made["created_at"]
    assert made["created_by"]
    assert cli("keys", "list", "--owner", "bob").lines == []
    [listed] = cli("keys", "list", "--owner", "ann", "--json").json["items"]
    assert listed == {name: value for name, value in made.items() if name != "text"}


def test_a_revoked_key_is_listed_as_such(cli: Cli) -> None:
    key_id = cli("keys", "create", "--json").json["key_id"]
    assert cli("keys", "revoke", key_id).out == f"{key_id}\n"
    first = cli("keys", "revoke", key_id, "--json").json
    assert (first["state"], first["revoked_at"] is not None) == ("revoked", True)
    assert cli("keys", "list").lines[0].split("\t")[1] == "revoked"


def test_a_key_past_its_time_is_listed_as_such(cli: Cli) -> None:
    cli("keys", "create", "--expires", "0.001s")
    assert cli("keys", "list").lines[0].split("\t")[1] == "expired"


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("revoke", "nobody"), 3, "key_not_found"),
        (("create", "--owners", "ann"), 2, "invalid_owners"),
        (("create", "--scope", "root"), 2, "usage"),
        (("create", "--expires", "soon"), 2, "invalid_expires"),
    ],
)
def test_invalid_key_request_is_refused(cli: Cli, arguments: tuple[str, ...], code: int, error: str) -> None:
    refused = cli("keys", *arguments, "--json")
    assert (refused.code, refused.json["code"]) == (code, error)
    assert cli("keys", "list").lines == []
