"""Families: births, forks and deletions, and how large a tree may grow."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from moorage.core.entry import Kind
from moorage.core.errors import FamilyLimit, HasChildren, OwnAncestor, SessionClosed, SessionRunning, TooLarge
from moorage.core.family import MAX_DEPTH, MAX_OPEN_CHILDREN, FamilyLimits, Member, born, check_deletion, forked
from moorage.core.session import FINAL_STATES, MAX_METADATA_BYTES, Birth, Hold, Phase, Session, State
from moorage.testing.builders import NOON, a_stamp, new_session
from tests.core.heads import LATER, a_head, a_held_head

LIMITS = FamilyLimits()


def a_child_of(parent: Session, siblings: int = 0, limits: FamilyLimits = LIMITS) -> Session:
    return born(new_session("s-2"), Birth(parent=parent, open_descendants=siblings), a_stamp(), limits).session


def test_a_root_is_its_own_root_and_has_no_parent() -> None:
    root = born(new_session("s-1"), Birth(), a_stamp(), LIMITS).session
    assert (root.parent_session_id, root.root_session_id, root.depth) == (None, "s-1", 0)
    assert (root.version, root.last_entry, root.state) == (1, 1, State.CREATED)


def test_a_child_knows_its_parent_its_root_and_its_depth() -> None:
    parent = a_head(State.ACTIVE, session_name="planner", root_session_id="s-0", depth=3)
    child = a_child_of(parent)
    assert (child.parent_session_id, child.parent_session_name) == ("s-1", "planner")
    assert (child.root_session_id, child.depth) == ("s-0", 4)


def test_a_task_is_named_inherited_or_made() -> None:
    parent = a_head(State.ACTIVE, task_id="t-1")
    named = born(new_session("s-2", task_id="t-2"), Birth(parent=parent), a_stamp(), LIMITS).session
    assert (named.task_id, a_child_of(parent).task_id) == ("t-2", "t-1")
    assert born(new_session("s-2", spare_task_id="spare"), Birth(), a_stamp(), LIMITS).session.task_id == "spare"


def test_the_birth_is_the_first_entry() -> None:
    change = born(new_session("s-1", purpose="tidy up"), Birth(), a_stamp(), LIMITS)
    assert [(entry.number, entry.kind, entry.data) for entry in change.entries] == [
        (1, Kind.CREATED, {"agent_name": "echo-agent", "purpose": "tidy up"})
    ]


def test_a_session_is_not_its_own_parent() -> None:
    with pytest.raises(OwnAncestor):
        born(new_session("s-1"), Birth(parent=a_head(State.ACTIVE)), a_stamp(), LIMITS)


@pytest.mark.parametrize("state", sorted(FINAL_STATES))
def test_a_final_session_has_no_more_children(state: State) -> None:
    with pytest.raises(SessionClosed):
        a_child_of(a_head(state))


def test_a_family_is_sixteen_generations_deep() -> None:
    assert (MAX_DEPTH, MAX_OPEN_CHILDREN) == (16, 1000)
    assert a_child_of(a_head(depth=15)).depth == 16
    with pytest.raises(FamilyLimit) as refused:
        a_child_of(a_head(depth=16))
    assert (refused.value.code, refused.value.facts) == ("too_deep", {"limit": 16})


def test_a_family_has_a_thousand_open_children() -> None:
    assert a_child_of(a_head(), siblings=999).depth == 1
    with pytest.raises(FamilyLimit) as refused:
        a_child_of(a_head(), siblings=1000)
    assert (refused.value.code, refused.value.facts) == ("too_many_children", {"limit": 1000})


def test_the_limits_are_settable() -> None:
    with pytest.raises(FamilyLimit):
        a_child_of(a_head(), siblings=1, limits=FamilyLimits(open_children=1))
    with pytest.raises(FamilyLimit):
        a_child_of(a_head(depth=1), limits=FamilyLimits(depth=1))


# Forks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", State)
def test_a_fork_is_a_new_root_whatever_became_of_its_source(state: State) -> None:
    source = replace(
        a_head(state), parent_session_id="s-0", root_session_id="s-0", depth=2, last_entry=9, metadata={"a": 1, "b": 1}
    )
    fork = forked(source, 5, 3, new_session("s-2", metadata={"b": 2}), a_stamp(LATER)).session
    assert (fork.parent_session_id, fork.root_session_id, fork.depth) == (None, "s-2", 0)
    assert (fork.forked_from, fork.last_entry, fork.last_checkpoint) == ("s-1", 6, 3)
    assert (fork.state, fork.phase, fork.metadata) == (State.CREATED, Phase.INITIALIZING, {"a": 1, "b": 2})
    assert fork.created_at == LATER


def test_a_fork_takes_over_no_hold_no_errors_and_no_open_questions() -> None:
    source = replace(a_held_head(), error_count=2, last_error="oops", pending_approvals=1, finalized_at=NOON)
    fork = forked(source, 1, None, new_session("s-2"), a_stamp()).session
    assert isinstance(source.hold, Hold)
    assert (fork.hold, fork.error_count, fork.last_error, fork.pending_approvals, fork.finalized_at) == (
        None,
        0,
        None,
        0,
        None,
    )


def test_a_forks_first_entry_says_where_it_comes_from_and_numbers_go_on() -> None:
    change = forked(a_head(last_entry=9), 5, None, new_session("s-2"), a_stamp())
    assert [(entry.number, entry.kind, entry.data) for entry in change.entries] == [
        (6, Kind.FORKED, {"forked_from": "s-1", "at": 5})
    ]


def test_a_fork_keeps_agent_purpose_task_and_folder_unless_told_otherwise() -> None:
    source = a_head(agent_name="planner", purpose="plan", task_id="t-1", project_dir="somewhere")
    same = forked(source, 1, None, new_session("s-2", agent_name=None), a_stamp()).session
    assert (same.agent_name, same.purpose, same.task_id, same.project_dir) == ("planner", "plan", "t-1", "somewhere")
    other = forked(source, 1, None, new_session("s-2", agent_name="other", task_id="t-2"), a_stamp()).session
    assert (other.agent_name, other.task_id) == ("other", "t-2")


def test_a_forks_merged_metadata_stays_within_the_limit() -> None:
    source = a_head(metadata={"old": "x" * (MAX_METADATA_BYTES - 100)})
    with pytest.raises(TooLarge) as refused:
        forked(source, 1, None, new_session("s-2", metadata={"new": "y" * 200}), a_stamp())
    assert refused.value.code == "metadata_too_large"


# Deletions --------------------------------------------------------------------------------------

ALONE = [Member("s-1", 0)]
FAMILY = [Member("s-2", 1), Member("s-1", 0)]
BUSY = [Member("s-2", 1, is_running=True), Member("s-1", 0)]


def test_nothing_is_ever_orphaned() -> None:
    with pytest.raises(HasChildren) as refused:
        check_deletion("s-1", FAMILY, cascade=False, force=True)
    assert refused.value.facts == {"session_id": "s-1", "children": 1}
    check_deletion("s-1", ALONE, cascade=False, force=False)
    check_deletion("s-1", FAMILY, cascade=True, force=False)


def test_a_live_turn_stands_in_the_way_unless_forced() -> None:
    with pytest.raises(SessionRunning) as refused:
        check_deletion("s-1", BUSY, cascade=True, force=False)
    assert refused.value.facts == {"session_ids": ["s-2"]}
    check_deletion("s-1", BUSY, cascade=True, force=True)
