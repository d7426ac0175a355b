"""Requests under an idempotency key: asked again, they get what the first one made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import moorage
from moorage import sync
from moorage.core.errors import InvalidField, InvalidJson, KeyReused, SessionGone
from tests.service.doors import Place, Timed

Ask = Callable[..., Any]

# How each is asked for, twice alike and once otherwise; and what identifies the answer.
REQUESTS: dict[str, tuple[Ask, dict[str, Any], dict[str, Any], Callable[[Any], Any]]] = {
    "create": (
        lambda moor, **given: moor.create("planner", metadata={"b": 1, "a": {"x": [1]}}, **given),
        {"session_id": "new", "name": "plan"},
        {"session_id": "other"},
        lambda session: session.id,
    ),
    "fork": (lambda moor, **given: moor.fork("s-1", **given), {"at": 1}, {"at": 2}, lambda session: session.id),
    "save_checkpoint": (
        lambda moor, **given: moor.save_checkpoint("s-1", **given),
        {"checkpoint": {"step": 3}},
        {"checkpoint": {"step": 4}},
        lambda checkpoint: (checkpoint.number, checkpoint.at, checkpoint.checkpoint),
    ),
    "request_approval": (
        lambda moor, **given: moor.request_approval("s-1", "Apply?", options=["yes", "no"], **given),
        {"plan": {"steps": 2}},
        {"plan": {"steps": 3}},
        lambda approval: approval.approval_id,
    ),
    "compact": (
        lambda moor, **given: moor.compact("s-1", **given),
        {"summary": "So far"},
        {"summary": "Otherwise"},
        lambda entry: (entry.number, entry.data),
    ),
}


@pytest.fixture
def moor(timed: Timed) -> sync.Moorage:
    timed.moor.create(session_id="s-1")
    timed.moor.append("s-1", ["one", "two"])
    return timed.moor


@pytest.mark.parametrize("name", REQUESTS)
def test_repeated_request_gets_the_first_result(moor: sync.Moorage, timed: Timed, name: str) -> None:
    ask, given, _, mark = REQUESTS[name]
    first = ask(moor, **given, idempotency_key="k-1")
    timed.forward(hours=23)
    before = [event.id for event in moor.events(follow=False)]

    again = ask(moor, **given, idempotency_key="k-1")

    assert mark(again) == mark(first)
    assert [event.id for event in moor.events(follow=False)] == before


@pytest.mark.parametrize("name", REQUESTS)
def test_another_request_under_the_key_is_refused(moor: sync.Moorage, name: str) -> None:
    ask, given, other, _ = REQUESTS[name]
    ask(moor, **given, idempotency_key="k-1")
    before = [event.id for event in moor.events(follow=False)]

    with pytest.raises(KeyReused) as refused:
        ask(moor, **{**given, **other}, idempotency_key="k-1")

    assert (refused.value.code, refused.value.key) == ("key_reused", "k-1")
    assert [event.id for event in moor.events(follow=False)] == before


@pytest.mark.parametrize("name", sorted(REQUESTS.keys() - {"create"}))
def test_after_a_day_it_is_done_anew(moor: sync.Moorage, timed: Timed, name: str) -> None:
    ask, given, _, mark = REQUESTS[name]
    first = ask(moor, **given, idempotency_key="k-1")
    timed.forward(hours=24)

    assert mark(ask(moor, **given, idempotency_key="k-1")) != mark(first)


def test_one_key_serves_every_operation(moor: sync.Moorage) -> None:
    for ask, given, _, _ in REQUESTS.values():
        ask(moor, **given, idempotency_key="k-1")


def test_repeated_request_gets_its_result_even_if_now_invalid(moor: sync.Moorage) -> None:
    saved = moor.save_checkpoint("s-1", {"step": 3}, idempotency_key="k-1")
    moor.finalize("s-1")

    assert moor.save_checkpoint("s-1", {"step": 3}, idempotency_key="k-1") == saved


def test_a_fork_is_found_though_its_source_is_gone(moor: sync.Moorage) -> None:
    fork = moor.fork("s-1", idempotency_key="k-1")
    moor.delete("s-1")

    assert moor.fork("s-1", idempotency_key="k-1").id == fork.id


def test_an_entry_is_found_in_its_own_session_though_another_has_the_name_by_now(moor: sync.Moorage) -> None:
    first = moor.create(name="planner")
    saved = moor.save_checkpoint("planner", {"step": 1}, idempotency_key="k-1")
    moor.finalize(first.id)
    moor.save_checkpoint(moor.create(name="planner").id, {"step": 2})

    assert moor.save_checkpoint("planner", {"step": 1}, idempotency_key="k-1") == saved


def test_repeated_request_does_not_recreate_a_deleted_session(moor: sync.Moorage) -> None:
    made = moor.create(idempotency_key="k-1")
    moor.delete(made.id)

    with pytest.raises(SessionGone):
        moor.create(idempotency_key="k-1")


def test_secrets_taken_out_are_told_the_second_time_too(moor: sync.Moorage) -> None:
    for _ in range(2):
        session = moor.create(metadata={"password": "hunter2"}, idempotency_key="k-1")
        assert session.redacted == ("password",)


@pytest.mark.parametrize("key", ["", "  ", "k" * 256, "line\nbreak", 7])
def test_a_key_is_some_printable_characters(moor: sync.Moorage, key: Any) -> None:
    with pytest.raises(InvalidField) as refused:
        moor.create(idempotency_key=key)
    assert refused.value.code == "invalid_idempotency_key"
    moor.create(idempotency_key="k" * 255)


@pytest.mark.parametrize("metadata", [{"a": "\ud800"}, {"a": object()}, {1: 2}, {"a": float("nan")}])
def test_values_outside_json_are_refused_with_a_key_too(moor: sync.Moorage, metadata: Any) -> None:
    with pytest.raises(InvalidJson):
        moor.create(metadata=metadata, idempotency_key="k-1")
    moor.create(idempotency_key="k-1")


def test_a_ttl_counts_whatever_its_form_is(moor: sync.Moorage) -> None:
    made = moor.create(ttl=timedelta(hours=1), idempotency_key="k-1")

    assert moor.create(ttl=timedelta(minutes=60), idempotency_key="k-1").id == made.id
    with pytest.raises(KeyReused):
        moor.create(ttl=timedelta(minutes=61), idempotency_key="k-1")


def test_another_owners_key_is_their_own(place: Place) -> None:
    ann, bob = place.connect(owner="ann"), place.connect(owner="bob")

    mine, theirs = ann.create("planner", idempotency_key="k-1"), bob.create("tester", idempotency_key="k-1")

    assert mine.id != theirs.id
    assert ann.create("planner", idempotency_key="k-1").id == mine.id


async def test_of_requests_at_the_same_time_all_get_one_session(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'moorage.db'}"
    async with moorage.connect(url) as moor, moorage.connect(url) as other:
        asked = [door.create("planner", idempotency_key="k-1") for door in (moor, other) * 10]
        made = {session.id for session in await asyncio.gather(*asked)}

        assert len(made) == 1
        assert len((await moor.list()).items) == 1


def test_a_key_survives_reopening(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'moorage.db'}"
    with sync.connect(url) as moor:
        made = moor.create(idempotency_key="k-1")
    with sync.connect(url) as moor:
        assert moor.create(idempotency_key="k-1").id == made.id
