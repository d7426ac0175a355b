"""Keys: made, told from those that do not count, revoked."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from moorage.core.document import Document
from moorage.core.errors import Forbidden, InvalidField, KeyNotFound, Unauthorized
from moorage.core.key import Key, Scope, check_held, read_key
from moorage.service.deps import Deps
from moorage.service.inline import drive
from moorage.service.keys import KNOWN_FOR, all_keys, authenticate, create_key, find_key, has_keys, revoke_key
from moorage.stores.sqlite.store import SqliteStore
from moorage.testing.builders import NOON, FakeClock
from tests.service.doors import Timed


@pytest.fixture
def timed(timed_store: Timed) -> Timed:
    """No door in between: this is what servers do with keys, tokens and each other."""
    return timed_store


def make(timed: Timed, **given: Any) -> tuple[Key, str]:
    made = drive(create_key(timed.deps, **given))
    return made.key, made.text


def who(timed: Timed, text: object) -> Key:
    return drive(authenticate(timed.deps, text))


def test_key_has_owner_and_scopes(timed: Timed) -> None:
    key, text = make(timed, owner="ann", scopes=["write", "read", "write"], name="laptop", by="bob")

    assert text.startswith(f"moor_{key.key_id}_")
    assert (key.owner, key.scopes, key.name, key.created_by) == ("ann", (Scope.READ, Scope.WRITE), "laptop", "bob")
    assert (key.created_at, key.expires_at, key.revoked_at, key.last_used_at, key.owners) == (
        NOON,
        None,
        None,
        None,
        (),
    )
    assert who(timed, text).key_id == key.key_id
    assert who(timed, f" {text}\n").owner == "ann"  # as it comes out of a file


def test_the_secret_is_nowhere_in_the_store(timed: Timed, tmp_path: Path) -> None:
    key, text = make(timed)
    secret = text.rpartition("_")[2]
    assert len(bytes.fromhex(secret)) == 32

    _, digest = drive(find_key(timed.store, key.key_id)) or (None, "")
    assert secret not in digest
    for file in tmp_path.glob("moorage.db*"):
        assert secret.encode() not in file.read_bytes()
        assert bytes.fromhex(secret) not in file.read_bytes()


def test_every_invalid_key_gets_the_same_refusal(timed: Timed) -> None:
    revoked, expired, good = make(timed), make(timed, expires_in=60), make(timed)
    drive(revoke_key(timed.deps, revoked[0].key_id))
    timed.forward(seconds=60)
    wrong = [
        revoked[1],
        expired[1],
        good[1][:-1] + ("0" if good[1][-1] != "0" else "1"),
        f"moor_{good[0].key_id}_{expired[1].rpartition('_')[2]}",
        "moor_000000000000_" + "0" * 64,
        "", "moor", "moor__", "moor_a_", "moor__b", good[1] + "0", "x" + good[1], "Bearer " + good[1], "é" * 9,
        "h" * 10**6, None, 7, b"moor_a_b",
    ]  # fmt: skip

    told = set()
    for text in wrong:
        with pytest.raises(Unauthorized) as refused:
            who(timed, text)
        told.add(tuple(refused.value.to_dict().items()))
    assert len(told) == 1
    assert who(timed, good[1]).key_id == good[0].key_id


def test_a_key_ends_at_its_time_though_it_was_just_used(timed: Timed) -> None:
    _, text = make(timed, expires_in=timedelta(days=90))
    timed.forward(days=89, hours=23, minutes=59, seconds=59.9)
    who(timed, text)
    timed.forward(seconds=0.1)

    with pytest.raises(Unauthorized):
        who(timed, text)


def test_a_key_revoked_here_stops_at_once(timed: Timed) -> None:
    key, text = make(timed)
    who(timed, text)

    assert drive(revoke_key(timed.deps, key.key_id)).revoked_at == NOON
    with pytest.raises(Unauthorized):
        who(timed, text)


def test_a_key_revoked_elsewhere_stops_within_a_second(timed: Timed) -> None:
    key, text = make(timed)
    who(timed, text)
    drive(revoke_key(Deps(timed.store, timed.clock, os.urandom), key.key_id))
    assert timedelta(seconds=1) > KNOWN_FOR

    timed.forward(seconds=KNOWN_FOR.total_seconds())
    with pytest.raises(Unauthorized):
        who(timed, text)


def test_a_clock_that_goes_back_brings_no_key_back(timed: Timed) -> None:
    key, text = make(timed)
    who(timed, text)
    drive(revoke_key(Deps(timed.store, timed.clock, os.urandom), key.key_id))
    timed.forward(hours=-1)

    with pytest.raises(Unauthorized):
        who(timed, text)


def test_keys_are_not_read_anew_for_every_request(tmp_path: Path) -> None:
    class Counting(SqliteStore):
        reads = 0

        async def document(self, kind: str, key: str) -> Document | None:
            self.reads += 1
            return await super().document(kind, key)

    store = Counting.open(tmp_path / "moorage.db")
    assert isinstance(store, Counting)
    deps = Deps(store, FakeClock(), os.urandom)
    text = drive(create_key(deps)).text
    for _ in range(100):
        drive(authenticate(deps, text))
    assert store.reads == 1
    drive(store.close())


def test_when_a_key_was_used_is_known_to_the_hour(timed: Timed) -> None:
    key, text = make(timed)
    who(timed, text)
    timed.forward(minutes=59)
    who(timed, text)
    assert [each.last_used_at for each in drive(all_keys(timed.store))] == [NOON]
    at = timed.forward(minutes=1)
    assert who(timed, text).last_used_at == at
    with pytest.raises(Unauthorized):
        who(timed, f"moor_{key.key_id}_00")  # a guess is no use
    assert [each.last_used_at for each in drive(all_keys(timed.store))] == [at]


def test_a_revoked_key_does_not_open_the_door(timed: Timed) -> None:
    assert not drive(has_keys(timed.deps))
    drive(revoke_key(timed.deps, make(timed)[0].key_id))
    assert drive(has_keys(timed.deps))


def test_owners_have_keys_of_their_own(timed: Timed) -> None:
    mine, theirs = make(timed, owner="ann")[0], make(timed, owner="bob")[0]

    assert drive(all_keys(timed.store, "ann")) == [mine]
    assert {key.key_id for key in drive(all_keys(timed.store))} == {mine.key_id, theirs.key_id}
    with pytest.raises(KeyNotFound):
        drive(revoke_key(timed.deps, theirs.key_id, owner="ann"))
    drive(revoke_key(timed.deps, theirs.key_id))


def test_a_launchers_key_names_the_owners_it_works_for(timed: Timed) -> None:
    assert make(timed, scopes=["launch"], owners=["ann", "bob", "ann"])[0].owners == ("ann", "bob")
    assert make(timed, scopes=["launch"], owner="ann")[0].owners == ("ann",)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"scopes": []}, "invalid_scopes"),
        ({"scopes": ["read", "root"]}, "invalid_scopes"),
        ({"scopes": "read"}, "invalid_scopes"),
        ({"scopes": [1]}, "invalid_scopes"),
        ({"owner": ""}, "invalid_owner"),
        ({"owner": "a\nb"}, "invalid_owner"),
        ({"name": ""}, "invalid_name"),
        ({"owners": ["ann"]}, "invalid_owners"),
        ({"owners": [""], "scopes": ["launch"]}, "invalid_owners"),
        ({"expires_in": 0}, "invalid_expires_in"),
    ],
)
def test_invalid_key_options_are_refused(timed: Timed, given: dict[str, Any], code: str) -> None:
    with pytest.raises(InvalidField) as refused:
        make(timed, **given)
    assert refused.value.code == code
    assert not drive(has_keys(timed.deps))


@pytest.mark.parametrize(
    ("held", "allowed"),
    [
        ("read", {"read"}),
        ("write", {"read", "write"}),
        ("launch", {"launch"}),
        ("approve", {"approve"}),
        ("admin", set(Scope)),
    ],
)
def test_a_key_is_good_for_its_scopes_alone(held: str, allowed: set[str]) -> None:
    key = Key(key_id="k", owner="ann", scopes=(Scope(held),), created_at=NOON)
    for scope in Scope:
        if scope in allowed:
            assert key.allows(scope)
            continue
        assert not key.allows(scope)
        with pytest.raises(Forbidden) as refused:
            check_held(frozenset(filter(key.allows, Scope)), scope)
        assert (refused.value.scope, scope.value in refused.value.message) == (scope.value, True)


def test_only_a_key_is_read_as_one() -> None:
    assert read_key("moor_a1_b2") == ("a1", "b2")
    for text in ("moors_a1_b2", "moor_a-1_b2", "moor_a1_b_2", "moor_a1"):
        assert read_key(text) is None
