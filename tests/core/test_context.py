"""Context: versions that are compared, times to live that are exact."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from moorage.core.context import (
    MAX_KEYS,
    MAX_VALUE_BYTES,
    ContextItem,
    check_values,
    drop_all,
    drop_key,
    items_in,
    merge_keys,
    put_key,
    record_of,
    replace_all,
)
from moorage.core.duration import MAX_TTL, check_ttl
from moorage.core.errors import InvalidField, InvalidJson, SessionClosed, TooLarge, VersionConflict
from moorage.core.record import DropRecords, PutRecord, RecordsView
from moorage.core.session import FINAL_STATES, Change, State, View
from moorage.testing.builders import NOON
from tests.core.heads import LATER, a_head

HOUR = timedelta(hours=1)
head = a_head(State.ACTIVE, context_version=7)
OLD = ContextItem(value="old", version=3, updated_at=NOON)


def a_view(**items: ContextItem) -> View:
    records = [record_of(key, item).without_value() for key, item in items.items()]
    return View(head, records=RecordsView({record.name: record for record in records}))


BOTH = a_view(a=OLD, b=OLD)


def put_by(change: Change) -> dict[str, ContextItem]:
    return items_in(write.record for write in change.records if isinstance(write, PutRecord))


def dropped_by(change: Change) -> list[str]:
    return [write.name.key for write in change.records if isinstance(write, DropRecords)]


def test_a_write_moves_the_contexts_version_and_gives_it_to_the_key() -> None:
    change = put_key(BOTH, {"a": "new"}, at=LATER)
    assert change.session.context_version == 8
    assert put_by(change) == {"a": ContextItem(value="new", version=8, updated_at=LATER)}
    assert [write.was for write in change.records if isinstance(write, PutRecord)] == [3]
    assert (change.session.version, change.session.last_entry) == (head.version, head.last_entry)
    assert (change.session.last_activity_at, change.session.updated_at) == (NOON, LATER)


@pytest.mark.parametrize(("view", "version"), [(BOTH, 3), (a_view(), 0)])
def test_a_keys_expected_version_is_its_own_or_nothing_if_it_is_new(view: View, version: int) -> None:
    assert put_by(put_key(view, {"a": 1}, at=NOON, expected=version))["a"].value == 1
    with pytest.raises(VersionConflict) as refused:
        put_key(view, {"a": 1}, at=NOON, expected=version + 1)
    assert (refused.value.facts["expected"], refused.value.facts["actual"]) == (version + 1, version)


def test_merging_and_replacing_expect_the_version_of_the_whole() -> None:
    for expected in (None, 7):
        assert dropped_by(merge_keys(BOTH, {"c": 1}, at=NOON, expected=expected)) == []
        assert dropped_by(replace_all(BOTH, {"b": 1, "c": 2}, at=NOON, expected=expected)) == ["a"]
    with pytest.raises(VersionConflict):
        merge_keys(BOTH, {"c": 1}, at=NOON, expected=6)
    with pytest.raises(VersionConflict):
        replace_all(BOTH, {}, at=NOON, expected=8)


def test_deleting_an_absent_key_changes_nothing() -> None:
    ended = a_view(a=replace(OLD, expires_at=LATER))
    assert drop_key(BOTH, "x", at=LATER) == Change(session=head)
    assert drop_key(ended, "a", at=LATER) == Change(session=head)
    assert drop_all(ended, at=LATER) == drop_all(a_view(), at=LATER) == Change(session=head)


def test_forgetting_compares_the_keys_version_or_the_wholes() -> None:
    assert dropped_by(drop_key(BOTH, "a", at=NOON, expected=3)) == ["a"]
    assert dropped_by(drop_all(BOTH, at=NOON, expected=7)) == ["a", "b"]
    with pytest.raises(VersionConflict):
        drop_key(BOTH, "a", at=NOON, expected=7)
    with pytest.raises(VersionConflict):
        drop_all(BOTH, at=NOON, expected=3)


def test_every_write_sets_the_ttl_anew_or_takes_it_away() -> None:
    dying = a_view(a=replace(OLD, expires_at=NOON + HOUR))
    assert put_by(put_key(dying, {"a": "new"}, at=LATER, ttl=HOUR))["a"].expires_at == LATER + HOUR
    assert put_by(put_key(dying, {"a": "new"}, at=LATER))["a"].expires_at is None


def test_a_key_lives_until_its_last_instant() -> None:
    view = a_view(a=replace(OLD, expires_at=LATER))
    assert put_key(view, {"a": 1}, at=LATER - timedelta(microseconds=1), expected=3).records
    assert put_key(view, {"a": 1}, at=LATER, expected=0).records


@pytest.mark.parametrize("state", sorted(FINAL_STATES))
def test_a_final_sessions_context_is_not_written(state: State) -> None:
    closed = View(a_head(state))
    for rule in (put_key, merge_keys, replace_all):
        with pytest.raises(SessionClosed):
            rule(closed, {"a": 1}, at=NOON)
    with pytest.raises(SessionClosed):
        drop_key(closed, "a", at=NOON)
    with pytest.raises(SessionClosed):
        drop_all(closed, at=NOON)


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
