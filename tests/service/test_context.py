"""Context: a keyed memory beside the log, with versions and times to live."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from moorage.core.errors import InvalidField, MoorageError, VersionConflict
from tests.service.doors import Place, Timed


def test_nothing_there_is_an_empty_object(place: Place) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    assert moor.context.get(session.id) == {}
    assert moor.context.get(session.id, "missing") == {}
    assert moor.context.items(session.id) == {}


def test_values_are_put_merged_replaced_and_deleted(place: Place) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    moor.context.put(session.id, "a", {"deep": [1, None, "ü"]})
    moor.context.merge(session.id, {"b": 2, "c": 3})
    assert moor.context.get(session.id) == {"a": {"deep": [1, None, "ü"]}, "b": 2, "c": 3}
    assert moor.context.get(session.id, "b") == 2
    moor.context.replace(session.id, {"c": 4, "d": 5})
    assert moor.context.get(session.id) == {"c": 4, "d": 5}
    moor.context.delete(session.id, "c")
    moor.context.delete(session.id, "never there")
    assert moor.context.get(session.id) == {"d": 5}
    moor.context.delete(session.id)
    assert moor.context.get(session.id) == {}


def test_values_are_merged_into_the_object_under_a_key(place: Place) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    first = moor.context.merge(session.id, {"cpu": 4}, key="limits")
    second = moor.context.merge(session.id, {"memory": "1G", "cpu": 8}, key="limits", version=first.version)
    assert moor.context.get(session.id) == {"limits": {"cpu": 8, "memory": "1G"}}
    with pytest.raises(VersionConflict):
        moor.context.merge(session.id, {"cpu": 16}, key="limits", version=first.version)
    moor.context.put(session.id, "list", [1])
    with pytest.raises(InvalidField, match="'list' holds no object"):
        moor.context.merge(session.id, {"a": 1}, key="list")
    with pytest.raises(InvalidField, match="must be a JSON object"):
        moor.context.merge(session.id, [1], key="limits")  # type: ignore[arg-type]
    assert moor.context.items(session.id)["limits"].version == second.version


def test_concurrent_merges_into_one_key_all_land(place: Place) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")

    def merge(number: int) -> None:
        place.connect().context.merge(session.id, {f"n{number}": number}, key="shared")

    merging = [threading.Thread(target=merge, args=(number,)) for number in range(8)]
    for each in merging:
        each.start()
    for each in merging:
        each.join()
    assert moor.context.get(session.id, "shared") == {f"n{number}": number for number in range(8)}


def test_context_is_not_the_log_and_moves_no_version_of_the_session(place: Place) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    moor.context.put(session.id, "a", 1)
    now = moor.get(session.id)
    assert (now.version, now.last_entry, now.state) == (session.version, session.last_entry, "created")


def test_a_keys_expected_version_is_compared(place: Place) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    first = moor.context.put(session.id, "a", 1, version=0)
    with pytest.raises(VersionConflict):
        moor.context.put(session.id, "a", 2, version=0)
    second = moor.context.put(session.id, "a", 2, version=first.version)
    with pytest.raises(VersionConflict) as refused:
        moor.context.put(session.id, "a", 3, version=first.version)
    assert (refused.value.facts["expected"], refused.value.facts["actual"]) == (first.version, second.version)
    with pytest.raises(VersionConflict):
        moor.context.delete(session.id, "a", version=first.version)
    assert moor.context.get(session.id) == {"a": 2}
    moor.context.delete(session.id, "a", version=second.version)
    assert moor.context.get(session.id) == {}


def test_the_wholes_expected_version_is_compared(place: Place) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    first = moor.context.put(session.id, "a", 1)
    moor.context.put(session.id, "b", 1)
    writes: list[Callable[[], object]] = [
        lambda: moor.context.merge(session.id, {"c": 1}, version=first.version),
        lambda: moor.context.replace(session.id, {}, version=first.version),
        lambda: moor.context.delete(session.id, version=first.version),
    ]
    for write in writes:
        with pytest.raises(VersionConflict):
            write()
    assert moor.context.get(session.id) == {"a": 1, "b": 1}


def test_versions_go_on_after_a_key_was_deleted_so_that_an_old_one_never_fits_again(place: Place) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    old = moor.context.put(session.id, "a", 1)
    moor.context.delete(session.id, "a")
    moor.context.put(session.id, "a", 2)
    with pytest.raises(VersionConflict):
        moor.context.put(session.id, "a", 3, version=old.version)


def test_a_key_is_gone_exactly_when_its_time_is_over(timed: Timed) -> None:
    session = timed.moor.create("echo-agent")
    timed.moor.context.put(session.id, "a", 1, ttl=60)
    timed.moor.context.put(session.id, "b", 2)
    timed.forward(seconds=59.999999)
    assert timed.moor.context.get(session.id) == {"a": 1, "b": 2}
    timed.forward(seconds=0.000001)
    assert timed.moor.context.get(session.id) == {"b": 2}
    assert timed.moor.context.get(session.id, "a") == {}
    assert "a" not in timed.moor.context.items(session.id)
    assert timed.moor.resume(session.id).context == {"b": 2}


def test_writing_refreshes_the_ttl_and_reading_does_not(timed: Timed) -> None:
    session = timed.moor.create("echo-agent")
    timed.moor.context.put(session.id, "written", 1, ttl=60)
    timed.moor.context.put(session.id, "read", 1, ttl=60)
    for _ in range(3):
        timed.forward(seconds=40)
        timed.moor.context.put(session.id, "written", 1, ttl=60)
        timed.moor.context.get(session.id, "read")
        timed.moor.context.get(session.id)
    assert timed.moor.context.get(session.id) == {"written": 1}


def test_an_expired_key_counts_as_absent_for_the_next_write(timed: Timed) -> None:
    session = timed.moor.create("echo-agent")
    timed.moor.context.put(session.id, "a", 1, ttl=60)
    timed.forward(seconds=60)
    assert timed.moor.context.put(session.id, "a", 2, version=0).keys == ["a"]
    assert timed.moor.context.get(session.id) == {"a": 2}


def test_secrets_are_not_kept_and_their_paths_told(place: Place) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    written = moor.context.merge(session.id, {"db": {"password": "hunter2"}, "tokenizer": "bpe"})
    assert written.redacted == ("db.password",)
    assert moor.context.put(session.id, "api_key", "hunter2").redacted == ("api_key",)
    assert moor.context.get(session.id) == {
        "db": {"password": "[redacted]"},
        "tokenizer": "bpe",
        "api_key": "[redacted]",
    }


@pytest.mark.parametrize(
    ("key", "value", "ttl"),
    [
        ("", 1, None),
        ("a\nb", 1, None),
        ("k" * 257, 1, None),
        (7, 1, None),
        ("a", float("nan"), None),
        ("a", object(), None),
        ("a", "x" * 1024 * 1025, None),
        ("a", 1, -1),
        ("a", 1, 0),
        ("a", 1, "soon"),
    ],
)
def test_invalid_context_is_refused_and_changes_nothing(place: Place, key: Any, value: Any, ttl: Any) -> None:
    moor = place.connect()
    session = moor.create("echo-agent")
    moor.context.put(session.id, "kept", 1)
    with pytest.raises(MoorageError):
        moor.context.put(session.id, key, value, ttl=ttl)
    with pytest.raises(MoorageError):
        moor.context.merge(session.id, {"other": 1, key: value}, ttl=ttl)
    assert moor.context.get(session.id) == {"kept": 1}


def test_several_agents_share_one_context_without_losing_a_key(place: Place) -> None:
    doors = [place.connect() for _ in range(4)]
    session = doors[0].create("echo-agent")

    def remember(number: int) -> None:
        for count in range(20):
            doors[number].context.put(session.id, f"k-{number}-{count}", count)

    threads = [threading.Thread(target=remember, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(doors[0].context.get(session.id)) == 80
