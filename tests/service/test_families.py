"""Families: parents, trees, and deleting them without leaving an orphan."""

from __future__ import annotations

import warnings

import pytest

from moorage import sync
from moorage.core.errors import (
    FamilyLimit,
    HasChildren,
    IdTaken,
    OwnAncestor,
    ParentNotFound,
    SessionClosed,
    SessionGone,
    SessionNotFound,
)
from moorage.core.family import FamilyLimits
from moorage.service.deps import Settings
from moorage.service.family import TreeNode
from tests.service.doors import Place, Timed


def a_family(moor: sync.Moorage) -> None:
    """root → (a → (a1, a2), b)"""
    moor.create("root-agent", session_id="root", name="the-root", task_id="t-1")
    for child, parent in (("a", "root"), ("b", "root"), ("a1", "a"), ("a2", "a")):
        moor.create("agent", session_id=child, parent=parent)


def shape(node: TreeNode) -> dict[str, object]:
    return {node.session.id: [shape(child) for child in node.children]}


def test_a_child_knows_its_parent_root_depth_and_task(place: Place) -> None:
    moor = place.connect()
    a_family(moor)
    child = moor.get("a1")
    assert (child.parent_session_id, child.root_session_id, child.depth, child.task_id) == ("a", "root", 2, "t-1")
    assert moor.get("a").parent_session_name == "the-root"
    assert moor.create("agent", parent="the-root").parent_session_id == "root"


def test_children_ancestors_trees_and_counts(place: Place) -> None:
    moor = place.connect()
    a_family(moor)
    assert [session.id for session in moor.children("root")] == ["a", "b"]
    assert [session.id for session in moor.ancestors("a2")] == ["a", "root"]
    assert moor.ancestors("root") == []
    assert (moor.count_children("root"), moor.count_children("a"), moor.count_children("b")) == (2, 2, 0)
    assert shape(moor.tree("root")) == {"root": [{"a": [{"a1": []}, {"a2": []}]}, {"b": []}]}
    assert shape(moor.tree("a")) == {"a": [{"a1": []}, {"a2": []}]}
    assert {session.id for session in moor.list(root="root")} == {"root", "a", "b", "a1", "a2"}
    assert {session.id for session in moor.list(parent="a")} == {"a1", "a2"}


def test_children_come_in_pages(place: Place) -> None:
    moor = place.connect()
    moor.create(session_id="root")
    for number in range(7):
        moor.create(session_id=f"c-{number}", parent="root")
    found, cursor = [], None
    while True:
        page = moor.children("root", limit=3, cursor=cursor)
        found += [session.id for session in page]
        cursor = page.next
        if cursor is None:
            break
    assert found == [f"c-{number}" for number in range(7)]


def test_a_parent_that_does_not_exist_is_an_error_before_anything_is_written(place: Place) -> None:
    moor = place.connect()
    gone = moor.create("agent").id
    moor.delete(gone)
    other = place.connect(owner="bob").create("agent").id
    for parent in ("nobody", gone, other, "../x"):
        with pytest.raises(ParentNotFound, match="nothing was created"):
            moor.create("agent", session_id="child", parent=parent)
    assert moor.list().items == []


def test_no_session_is_its_own_parent(place: Place) -> None:
    moor = place.connect()
    with pytest.raises(OwnAncestor):
        moor.create(session_id="s-1", parent="s-1")
    moor.create(session_id="s-1", name="me")
    with pytest.raises((OwnAncestor, IdTaken)):
        moor.create(session_id="s-1", parent="me")


def test_a_closed_parent_has_no_more_children(place: Place) -> None:
    moor = place.connect()
    a_family(moor)
    moor.finalize("a", "completed")
    with pytest.raises(SessionClosed):
        moor.create("agent", parent="a")


def test_a_tree_has_limits_that_finalizing_makes_room_in(timed: Timed) -> None:
    small = timed.with_settings(Settings(family=FamilyLimits(depth=2, open_children=3)))
    small.moor.create(session_id="root")
    small.moor.create(session_id="a", parent="root")
    small.moor.create(session_id="a1", parent="a")
    with pytest.raises(FamilyLimit) as refused:
        small.moor.create(parent="a1")
    assert refused.value.code == "too_deep"
    small.moor.create(session_id="b", parent="root")
    with pytest.raises(FamilyLimit) as refused:
        small.moor.create(parent="a")
    assert refused.value.code == "too_many_children"
    small.moor.finalize("b", "completed")
    assert small.moor.create(parent="a").depth == 2


# Deleting ---------------------------------------------------------------------------------------


def test_deleting_a_parent_deletes_its_tree_leaves_first(timed: Timed) -> None:
    moor = timed.moor
    a_family(moor)
    moor.append("a1", ["one", "two"])
    moor.save_checkpoint("a", {"step": 1})
    stay = moor.create("agent").id
    start = moor.events(follow=False)
    seen = max(event.id for event in start)
    gone = moor.delete("a", reason="tidying")
    assert (gone.session_id, gone.deleted_sessions, gone.cascaded_children) == ("a", 3, 2)
    assert (gone.messages, gone.entries, gone.checkpoints, gone.runs) == (2, 6, 1, 0)
    assert (gone.session_ids, gone.dry_run) == (["a2", "a1", "a"], False)
    events = list(moor.events(after=seen, follow=False))
    assert [(event.type, event.session_id, event.data["root_of_deletion"]) for event in events] == [
        ("session_deleted", "a2", "a"),
        ("session_deleted", "a1", "a"),
        ("session_deleted", "a", "a"),
    ]
    assert shape(moor.tree("root")) == {"root": [{"b": []}]}
    assert moor.get(stay).id == stay
    assert moor.check() == []
    for ref in ("a", "a1", "a2"):
        with pytest.raises(SessionGone) as refused:
            moor.get(ref)
        assert refused.value.facts["reason"] == "tidying"
    tombstones = moor.deleted().items
    assert [
        (tombstone.session_id, tombstone.root_of_deletion, tombstone.deleted_by, tombstone.deleted_at)
        for tombstone in tombstones
    ] == [
        ("a", "a", "ann", timed.clock.now()),
        ("a1", "a", "ann", timed.clock.now()),
        ("a2", "a", "ann", timed.clock.now()),
    ]


def test_a_dry_run_says_the_same_and_takes_nothing(place: Place) -> None:
    moor = place.connect()
    a_family(moor)
    preview = moor.delete("root", dry_run=True)
    assert preview.dry_run
    assert len(moor.list()) == 5
    gone = moor.delete("root")
    assert (gone.session_ids, gone.entries, gone.messages) == (preview.session_ids, preview.entries, preview.messages)
    assert moor.list().items == []


def test_without_cascade_a_parent_stays(place: Place) -> None:
    moor = place.connect()
    a_family(moor)
    for force in (False, True):
        with pytest.raises(HasChildren) as refused:
            moor.delete("root", cascade=False, force=force)
        assert refused.value.facts == {"session_id": "root", "children": 4}
    with pytest.raises(HasChildren):
        moor.delete("root", cascade=False, dry_run=True)
    assert len(moor.list()) == 5
    assert moor.delete("b", cascade=False).session_ids == ["b"]


def test_the_audit_comes_in_pages_newest_first(place: Place) -> None:
    moor = place.connect()
    for number in range(5):
        moor.delete(moor.create(session_id=f"s-{number}").id)
    found, cursor = [], None
    while True:
        page = moor.deleted(limit=2, cursor=cursor)
        found += [tombstone.session_id for tombstone in page]
        cursor = page.next
        if cursor is None:
            break
    assert found == ["s-4", "s-3", "s-2", "s-1", "s-0"]


def test_a_deep_tree_is_deleted_whole(place: Place) -> None:
    moor = place.connect()
    parent = moor.create(session_id="d-0").id
    for depth in range(1, 17):
        parent = moor.create(session_id=f"d-{depth}", parent=parent).id
    assert moor.delete("d-0").session_ids == [f"d-{depth}" for depth in range(16, -1, -1)]
    assert moor.check() == []


# The caller's own session -----------------------------------------------------------------------


def test_a_child_learns_its_parent_from_the_environment(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    moor = place.connect()
    moor.create(session_id="by-id", name="by-name")
    other = moor.create(session_id="explicit")
    monkeypatch.setenv("AGENT_SESSION_NAME", "by-name")
    assert moor.create("agent").parent_session_id == "by-id"
    monkeypatch.setenv("AGENT_SESSION_ID", "by-id")
    monkeypatch.setenv("AGENT_SESSION_NAME", "no-such-session")
    assert moor.create("agent").parent_session_id == "by-id", "the id goes first"
    assert moor.create("agent", parent=other.id).parent_session_id == "explicit", "an argument goes before all"
    assert moor.create("agent", parent=None).parent_session_id is None


def test_an_unfilled_placeholder_counts_as_absent_with_a_warning(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    moor = place.connect()
    monkeypatch.setenv("AGENT_SESSION_NAME", "${AGENT_SESSION_NAME}")
    with pytest.warns(UserWarning, match="was not filled in"):
        assert moor.create("agent").parent_session_id is None
    moor.create(session_id="real", parent=None)
    monkeypatch.setenv("AGENT_SESSION_ID", "${AGENT_SESSION_ID}")
    monkeypatch.setenv("AGENT_SESSION_NAME", "real")
    with pytest.warns(UserWarning, match="AGENT_SESSION_ID"):
        assert moor.create("agent").parent_session_id == "real"


@pytest.mark.parametrize("value", ["", "   "])
def test_an_empty_environment_is_none(place: Place, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("AGENT_SESSION_ID", value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert place.connect().create("agent", session_id="s-1").parent_session_id is None


def test_a_parent_in_the_environment_that_does_not_exist_is_an_error(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    moor = place.connect()
    monkeypatch.setenv("AGENT_SESSION_ID", "no-such-session")
    with pytest.raises(ParentNotFound):
        moor.create("agent")
    assert moor.list().items == []


def test_the_environment_does_not_make_a_session_its_own_parent(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    moor = place.connect()
    monkeypatch.setenv("AGENT_SESSION_ID", "me")
    with pytest.raises(OwnAncestor):
        moor.create("agent", session_id="me")
    with pytest.raises(SessionNotFound):
        moor.get("me")
