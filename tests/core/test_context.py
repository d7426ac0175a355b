"""Context: versions that are compared, times to live that are exact."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from moorage.core.context import (
    MAX_KEYS,
    MAX_TTL,
    MAX_VALUE_BYTES,
    ContextChange,
    ContextItem,
    check_ttl,
    check_values,
    drop_keys,
    merge_keys,
    put_key,
    replace_all,
)
from moorage.core.errors import InvalidField, InvalidJson, SessionClosed, TooLarge, VersionConflict
from moorage.core.session import FINAL_STATES, State
from moorage.testing.builders import NOON
from tests.core.heads import LATER, a_head

HOUR = timedelta(hours=1)
head = a_head(State.ACTIVE, context_version=7)
OLD = ContextItem(value="old", version=3, updated_at=NOON)
PRESENT = {"a": OLD, "b": OLD}


def test_a_write_moves_the_contexts_version_and_gives_it_to_the_key() -> None:
    change = put_key(head, "a", "new", OLD, at=LATER, ttl=None, expected=None)
    assert change.session.context_version == 8
    assert change.put == {"a": ContextItem(value="new", version=8, updated_at=LATER)}
    assert (change.session.version, change.session.last_entry) == (head.version, head.last_entry)
    assert (change.session.last_activity_at, change.session.updated_at) == (NOON, LATER)


@pytest.mark.parametrize(("old", "version"), [(OLD, 3), (None, 0)])
def test_a_keys_expected_version_is_its_own_or_nothing_if_it_is_new(old: ContextItem | None, version: int) -> None:
    assert put_key(head, "a", 1, old, at=NOON, ttl=None, expected=version).put["a"].value == 1
    with pytest.raises(VersionConflict) as refused:
        put_key(head, "a", 1, old, at=NOON, ttl=None, expected=version + 1)
    assert (refused.value.facts["expected"], refused.value.facts["actual"]) == (version + 1, version)


def test_merging_and_replacing_expect_the_version_of_the_whole() -> None:
    for expected in (None, 7):
        assert merge_keys(head, {"c": 1}, at=NOON, ttl=None, expected=expected).drop == ()
        assert set(replace_all(head, {"b": 1, "c": 2}, PRESENT, at=NOON, ttl=None, expected=expected).drop) == {"a"}
    with pytest.raises(VersionConflict):
        merge_keys(head, {"c": 1}, at=NOON, ttl=None, expected=6)
    with pytest.raises(VersionConflict):
        replace_all(head, {}, PRESENT, at=NOON, ttl=None, expected=8)


def test_forgetting_what_is_not_there_changes_nothing() -> None:
    assert drop_keys(head, ("x",), PRESENT, at=LATER, expected=None, whole=False) == ContextChange(session=head)


def test_forgetting_compares_the_keys_version_or_the_wholes() -> None:
    assert drop_keys(head, ("a",), PRESENT, at=NOON, expected=3, whole=False).drop == ("a",)
    assert drop_keys(head, ("a", "b"), PRESENT, at=NOON, expected=7, whole=True).drop == ("a", "b")
    with pytest.raises(VersionConflict):
        drop_keys(head, ("a",), PRESENT, at=NOON, expected=7, whole=False)
    with pytest.raises(VersionConflict):
        drop_keys(head, ("a", "b"), PRESENT, at=NOON, expected=3, whole=True)


def test_every_write_sets_the_ttl_anew_or_takes_it_away() -> None:
    dying = ContextItem(value="old", version=3, updated_at=NOON, expires_at=NOON + HOUR)
    kept = put_key(head, "a", "new", dying, at=LATER, ttl=HOUR, expected=None).put["a"]
    assert kept.expires_at == LATER + HOUR
    assert put_key(head, "a", "new", dying, at=LATER, ttl=None, expected=None).put["a"].expires_at is None


def test_a_key_lives_until_its_last_instant() -> None:
    item = ContextItem(value=1, version=1, updated_at=NOON, expires_at=LATER)
    assert item.lives(LATER - timedelta(microseconds=1))
    assert not item.lives(LATER)
    assert OLD.lives(NOON + timedelta(days=36500))


@pytest.mark.parametrize("state", sorted(FINAL_STATES))
def test_a_final_sessions_context_is_not_written(state: State) -> None:
    closed = a_head(state)
    with pytest.raises(SessionClosed):
        put_key(closed, "a", 1, None, at=NOON, ttl=None, expected=None)
    with pytest.raises(SessionClosed):
        merge_keys(closed, {}, at=NOON, ttl=None, expected=None)
    with pytest.raises(SessionClosed):
        replace_all(closed, {}, {}, at=NOON, ttl=None, expected=None)
    with pytest.raises(SessionClosed):
        drop_keys(closed, ("a",), {}, at=NOON, expected=None, whole=False)


@pytest.mark.parametrize("ttl", [1, 0.5, 3600, HOUR, MAX_TTL, MAX_TTL.total_seconds()])
def test_a_ttl_is_more_than_nothing(ttl: object) -> None:
    lifetime = check_ttl(ttl)
    assert lifetime is not None
    assert lifetime > timedelta(0)


@pytest.mark.parametrize(
    "ttl",
    [0, -1, 1e-9, True, float("nan"), float("inf"), "60", "1h", timedelta(0), -HOUR, MAX_TTL + HOUR, 10**12, [1]],
)
def test_a_ttl_of_nothing_or_of_nonsense_is_refused(ttl: object) -> None:
    with pytest.raises(InvalidField) as refused:
        check_ttl(ttl)
    assert refused.value.code == "invalid_ttl"


def test_no_ttl_is_no_ttl() -> None:
    assert check_ttl(None) is None


def test_values_are_json_objects_within_their_limits() -> None:
    assert check_values({"a": {"deep": [1]}}) == {"a": {"deep": [1]}}
    for wrong, error in (
        ([], InvalidField),
        ({"": 1}, InvalidField),
        ({"a\nb": 1}, InvalidField),
        ({7: 1}, InvalidField),
        ({"k" * 257: 1}, InvalidField),
        ({"a": float("nan")}, InvalidJson),
        ({"a": "x" * (MAX_VALUE_BYTES + 1)}, TooLarge),
        (dict.fromkeys(map(str, range(MAX_KEYS + 1)), 1), InvalidField),
    ):
        value: Any = wrong
        with pytest.raises(error):
            check_values(value)
