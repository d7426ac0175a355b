"""Ids, names and prefixes: what they find, and whose they are."""

from __future__ import annotations

from contextlib import suppress

import pytest

from moorage.core.errors import (
    AmbiguousReference,
    IdTaken,
    InvalidCursor,
    InvalidRequest,
    NameTaken,
    NotFound,
    SessionGone,
    SessionNotFound,
)
from tests.service.doors import Place, Timed


def test_a_name_will_do_wherever_an_id_does(place: Place) -> None:
    moor = place.connect()
    session = moor.create("planner", name="plan-prod")
    moor.append("plan-prod", "hello")
    moor.update("plan-prod", phase="planning")
    moor.context.put("plan-prod", "k", 1)
    moor.suspend("plan-prod", checkpoint={"step": 1})
    assert moor.resume("plan-prod").session.id == session.id
    assert moor.should_resume("plan-prod").session_id == session.id
    assert [entry.session_id for entry in moor.messages("plan-prod")] == [session.id]
    assert moor.fork("plan-prod").forked_from == session.id
    assert moor.create("child", parent="plan-prod").parent_session_id == session.id
    assert next(iter(moor.events("plan-prod", follow=False))).session_id == session.id
    assert moor.finalize("plan-prod").id == session.id
    assert moor.delete("plan-prod").session_id == session.id


def test_an_id_goes_before_a_name(place: Place) -> None:
    moor = place.connect()
    named = moor.create(session_id="s-1", name="shared")
    moor.finalize(named.id)
    moor.create(session_id="shared")
    assert moor.get("shared").id == "shared"


def test_a_name_is_unique_among_open_sessions_and_free_afterwards(place: Place) -> None:
    moor = place.connect()
    first = moor.create(session_id="s-1", name="planner")
    with pytest.raises(NameTaken) as refused:
        moor.create(session_id="s-2", name="planner")
    assert refused.value.facts == {"session_name": "planner", "session_id": "s-1"}
    moor.finalize(first.id)
    second = moor.create(session_id="s-2", name="planner")
    assert moor.get("planner").id == second.id
    moor.finalize(second.id)
    assert moor.get("planner").id == "s-2", "the newest that had it"
    moor.delete("s-2")
    assert moor.get("planner").id == "s-1"
    moor.delete("s-1")
    assert moor.create(name="planner").name == "planner"


def test_names_and_ids_do_not_collide(place: Place) -> None:
    moor = place.connect()
    moor.create(session_id="s-1", name="planner")
    with pytest.raises(NameTaken):
        moor.create(name="s-1")
    with pytest.raises(IdTaken):
        moor.create(session_id="planner")
    assert len(moor.list()) == 1


def test_a_deleted_id_stays_spent_and_its_name_is_free(place: Place) -> None:
    moor = place.connect()
    moor.create(session_id="s-1", name="planner")
    moor.delete("s-1")
    with pytest.raises(SessionGone):
        moor.create(session_id="s-1")
    with pytest.raises(SessionGone):
        moor.get("s-1")
    assert moor.create(session_id="s-2", name="planner").id == "s-2"
    with pytest.raises(SessionNotFound):
        moor.get("nobody")


def test_an_unambiguous_prefix_of_four_characters_is_resolved(place: Place) -> None:
    moor = place.connect()
    for session_id in ("abcd-1", "abcd-2", "abce-1"):
        moor.create(session_id=session_id)
    assert moor.resolve("abce") == "abce-1"
    assert moor.resolve("abcd-2") == "abcd-2"
    with pytest.raises(AmbiguousReference) as refused:
        moor.resolve("abcd")
    assert refused.value.facts == {"candidates": ["abcd-1", "abcd-2"]}
    for prefix in ("abc", "abcf", "abcd-3"):
        with pytest.raises(SessionNotFound):
            moor.resolve(prefix)
    with pytest.raises(SessionNotFound):
        moor.get("abce")


def test_exact_id_before_name_before_prefix(place: Place) -> None:
    moor = place.connect()
    moor.create(session_id="plan")
    moor.create(session_id="planner-1")
    moor.create(session_id="other", name="plann")
    assert [moor.resolve(ref) for ref in ("plan", "plann", "planne")] == ["plan", "other", "planner-1"]


def test_owners_do_not_know_of_each_other(place: Place) -> None:
    ann, bob = place.connect(owner="ann"), place.connect(owner="bob")
    hers = ann.create("planner", session_id="s-1", name="planner")
    his = bob.create("other", session_id="s-1", name="planner")
    assert (ann.get("planner").agent_name, bob.get("planner").agent_name) == ("planner", "other")
    assert (hers.owner, his.owner) == ("ann", "bob")
    ann.create(session_id="only-hers", name="secret")
    ann.append("only-hers", "a secret word")
    ann.context.put("only-hers", "k", 1)
    for call in (
        bob.get,
        bob.log,
        bob.messages,
        bob.resume,
        bob.fork,
        bob.delete,
        bob.tree,
        bob.context.get,
        bob.resolve,
    ):
        for ref in ("only-hers", "secret"):
            with pytest.raises(SessionNotFound):
                call(ref)
    assert [session.id for session in bob.list()] == ["s-1"]
    assert bob.search("secret") == []
    assert {event.session_id for event in bob.events(follow=False)} == {"s-1"}
    assert bob.should_resume("only-hers").reason == "session_not_found"
    assert bob.cleanup(0).session_ids == ["s-1"]
    assert bob.deleted().items != []
    assert ann.deleted().items == []
    assert {session.id for session in ann.list()} == {"s-1", "only-hers"}


def test_a_log_never_reaches_into_the_next_session(place: Place) -> None:
    ann, bob = place.connect(owner="ann"), place.connect(owner="bob")
    first = ann.create(session_id="s-1")
    bob.create(session_id="s-2")
    bob.append("s-2", "his words")
    for after, before in ((0, 2**32), (0, 2**33), (0, 2**62), (-1, None), (-(2**33), None)):
        with suppress(InvalidRequest):  # a refusal is as good as an answer
            assert [entry.number for entry in ann.log(first.id, limit=1000, after=after, before=before)] == [1]
    for after in (1, 2**32, 2**33, 2**62, 2**80):
        with suppress(InvalidRequest):
            assert ann.log(first.id, after=after, limit=1000).items == []
    for number in (2**32 + 1, 2**32 + 2):
        with pytest.raises((NotFound, InvalidRequest)):
            ann.checkpoint(first.id, number)


# Lists ------------------------------------------------------------------------------------------


def test_a_list_is_walked_page_by_page_newest_first(place: Place) -> None:
    moor = place.connect()
    for number in range(25):
        moor.create("even" if number % 2 == 0 else "odd", session_id=f"s-{number:02}")
    for filters, expected in (
        ({}, range(24, -1, -1)),
        ({"agent": "even"}, range(24, -1, -2)),
        ({"agent": "odd", "sort": "created"}, range(1, 25, 2)),
        ({"state": "created", "active_only": True}, range(24, -1, -1)),
    ):
        found, cursor = [], None
        while True:
            page = moor.list(limit=4, cursor=cursor, **filters)
            assert len(page) <= 4
            found += [session.id for session in page]
            cursor = page.next
            if cursor is None:
                break
        assert found == [f"s-{number:02}" for number in expected]


def test_pages_neither_skip_nor_repeat_when_sessions_come_and_go(place: Place) -> None:
    moor = place.connect()
    for number in range(10):
        moor.create(session_id=f"s-{number}")
    first = moor.list(limit=4)
    moor.create(session_id="newcomer")
    moor.delete("s-8")
    moor.delete("s-5")
    second = moor.list(limit=100, cursor=first.next)
    assert [session.id for session in first] == ["s-9", "s-8", "s-7", "s-6"]
    assert [session.id for session in second] == ["s-4", "s-3", "s-2", "s-1", "s-0"]


def test_a_cursor_of_another_query_is_refused(place: Place) -> None:
    moor = place.connect()
    for _ in range(3):
        moor.create("planner")
    cursor = moor.list(agent="planner", limit=1).next
    with pytest.raises(InvalidCursor):
        moor.list(limit=1, cursor=cursor)
    with pytest.raises(InvalidCursor):
        moor.list(agent="other", limit=1, cursor=cursor)
    with pytest.raises(InvalidCursor):
        moor.deleted(limit=1, cursor=cursor)
    assert len(moor.list(agent="planner", limit=2, cursor=cursor)) == 2


def test_every_filter_narrows(timed: Timed) -> None:
    moor = timed.moor
    moor.create(
        "planner", session_id="s-1", name="plan-prod", metadata={"env": "prod", "n": 1}, task_id="t-1", labels=["a"]
    )
    at = timed.forward(minutes=1)
    moor.create("other", session_id="s-2", project_dir="somewhere", parent="s-1")
    moor.update("s-2", phase="executing")
    moor.create(session_id="s-3")
    moor.finalize("s-3", "failed")
    for filters, expected in (
        ({"agent": "planner"}, {"s-1"}),
        ({"state": "active"}, {"s-2"}),
        ({"status": "idle"}, {"s-2"}),
        ({"phase": "executing"}, {"s-2"}),
        ({"parent": "s-1"}, {"s-2"}),
        ({"root": "plan-prod"}, {"s-1", "s-2"}),
        ({"task_id": "t-1"}, {"s-1", "s-2"}),
        ({"name_prefix": "plan"}, {"s-1"}),
        ({"project_dir": "somewhere"}, {"s-2"}),
        ({"label": "a"}, {"s-1"}),
        ({"label": "b"}, set()),
        ({"metadata_key": "env"}, {"s-1"}),
        ({"metadata_key": "env", "metadata_value": "prod"}, {"s-1"}),
        ({"metadata_key": "env", "metadata_value": "test"}, set()),
        ({"metadata_key": "n", "metadata_value": 1}, {"s-1"}),
        ({"active_only": True}, {"s-1", "s-2"}),
        ({"created_before": at}, {"s-1"}),
        ({"updated_after": at}, set()),
        ({"agent": "planner", "state": "failed"}, set()),
    ):
        assert {session.id for session in moor.list(**filters)} == expected, filters
    with pytest.raises(SessionNotFound):
        moor.list(parent="nobody")
