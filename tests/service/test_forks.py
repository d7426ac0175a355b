"""Forks: a new session from any entry, without copying, whatever becomes of the source."""

from __future__ import annotations

import pytest

from moorage import sync
from moorage.core.errors import EntryNotFound, IdTaken, NameTaken
from tests.service.doors import Place, Timed


def texts(moor: sync.Moorage, ref: str) -> list[object]:
    return [entry.content for entry in moor.log(ref, limit=1000) if entry.is_message]


def a_source(moor: sync.Moorage) -> str:
    """Entries: 1 created, 2 to 4 messages, 5 checkpoint, 6 message, 7 checkpoint, 8 message."""
    session = moor.create(
        "planner", name="source", metadata={"a": 1}, task_id="t-1", project_dir="somewhere", labels=["w"]
    )
    moor.append(session.id, ["m2", "m3", "m4"])
    moor.save_checkpoint(session.id, {"step": 5})
    moor.append(session.id, "m6")
    moor.save_checkpoint(session.id, {"step": 7})
    moor.append(session.id, "m8")
    return session.id


def test_a_fork_goes_on_from_an_entry_with_the_checkpoint_up_to_there(place: Place) -> None:
    moor = place.connect()
    source = a_source(moor)
    fork = moor.fork(source, at=6, name="branch", metadata={"b": 2})
    assert (fork.forked_from, fork.last_entry, fork.state) == (source, 7, "created")
    assert (fork.agent_name, fork.task_id, fork.project_dir) == ("planner", "t-1", "somewhere")
    assert (fork.metadata, fork.labels) == ({"a": 1, "b": 2}, ["w"])
    moor.append(fork.id, "other")
    assert texts(moor, fork.id) == ["m2", "m3", "m4", "m6", "other"]
    assert [entry.number for entry in moor.log(fork.id)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {entry.session_id for entry in moor.log(fork.id)} == {fork.id}
    assert moor.checkpoint(fork.id).checkpoint == {"step": 5}
    assert moor.resume(fork.id).checkpoint == {"step": 5}
    assert texts(moor, source) == ["m2", "m3", "m4", "m6", "m8"]
    assert moor.get(source).last_entry == 8


def test_without_a_place_a_fork_goes_on_from_the_end(place: Place) -> None:
    moor = place.connect()
    fork = moor.fork(a_source(moor))
    assert texts(moor, fork.id) == ["m2", "m3", "m4", "m6", "m8"]
    assert moor.checkpoint(fork.id).checkpoint == {"step": 7}


def test_later_messages_of_the_source_are_not_in_the_fork(place: Place) -> None:
    moor = place.connect()
    source = a_source(moor)
    fork = moor.fork(source)
    moor.append(source, "later")
    moor.append(fork.id, "elsewhere")
    assert texts(moor, fork.id)[-1] == "elsewhere"
    assert texts(moor, source)[-1] == "later"


def test_a_fork_copies_the_context_and_goes_its_own_way(timed: Timed) -> None:
    moor = timed.moor
    source = moor.create("planner").id
    moor.context.put(source, "kept", 1)
    moor.context.put(source, "dying", 1, ttl=60)
    fork = moor.fork(source)
    moor.context.put(fork.id, "kept", 2)
    moor.context.put(source, "new", 3)
    assert moor.context.get(fork.id) == {"kept": 2, "dying": 1}
    assert moor.context.get(source) == {"kept": 1, "dying": 1, "new": 3}
    timed.forward(seconds=60)
    assert moor.context.get(fork.id) == {"kept": 2}


def test_a_fork_has_no_hold_no_children_no_approvals_and_is_a_new_root(place: Place) -> None:
    moor = place.connect()
    parent = moor.create("parent")
    source = moor.create("planner", parent=parent.id)
    moor.create("child", parent=source.id)
    moor.update(source.id, error="oops")
    moor.request_approval(source.id, "Apply?")
    moor.resume(source.id)
    fork = moor.fork(source.id)
    assert (fork.hold, fork.pending_approvals, fork.error_count) == (None, 0, 0)
    assert (fork.parent_session_id, fork.root_session_id, fork.depth) == (None, fork.id, 0)
    assert moor.count_children(fork.id) == 0
    assert moor.approvals(fork.id, pending_only=False) == []
    assert (fork.phase, fork.state) == ("initializing", "created")


def test_a_final_session_is_forked_to_go_on(place: Place) -> None:
    moor = place.connect()
    source = a_source(moor)
    moor.finalize(source, "failed")
    fork = moor.fork(source)
    moor.append(fork.id, "second try")
    assert texts(moor, fork.id)[-1] == "second try"


def test_a_fork_of_a_fork_of_a_fork_reads_all_of_it(place: Place) -> None:
    moor = place.connect()
    ids = [a_source(moor)]
    for generation in range(3):
        fork = moor.fork(ids[-1])
        moor.append(fork.id, f"g{generation}")
        ids.append(fork.id)
    assert texts(moor, ids[-1]) == ["m2", "m3", "m4", "m6", "m8", "g0", "g1", "g2"]
    early = moor.fork(ids[-1], at=3)
    assert texts(moor, early.id) == ["m2", "m3"]
    newest_first = moor.log(ids[-1], newest_first=True, limit=1000).items
    assert newest_first == moor.log(ids[-1], limit=1000).items[::-1]
    assert [entry.content for entry in moor.messages(ids[-1], last=4)] == ["m8", "g0", "g1", "g2"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_deleting_the_source_keeps_entries_of_its_forks(place: Place, order: tuple[int, int]) -> None:
    moor = place.connect()
    source = a_source(moor)
    middle = moor.fork(source, at=6).id
    moor.append(middle, "middle")
    last = moor.fork(middle).id
    moor.append(last, "last")
    before = moor.log(last, limit=1000).items
    for deleted in (source, middle) if order == (0, 1) else (middle, source):
        moor.delete(deleted)
        assert moor.log(last, limit=1000).items == before
        assert moor.check() == []
    assert texts(moor, last) == ["m2", "m3", "m4", "m6", "middle", "last"]
    assert moor.checkpoint(last).checkpoint == {"step": 5}
    assert [entry.content for entry in moor.messages(last, last=2)] == ["middle", "last"]
    assert moor.get(last).forked_from == middle
    again = moor.fork(last, at=4)
    assert texts(moor, again.id) == ["m2", "m3", "m4"]
    moor.append(last, "still writable")
    moor.delete(last)
    assert texts(moor, again.id) == ["m2", "m3", "m4"]


def test_entries_are_deleted_with_their_last_reader(place: Place) -> None:
    moor = place.connect()
    source = a_source(moor)
    fork = moor.fork(source, at=4)
    moor.delete(source)
    assert [hit.session_id for hit in moor.search("m3")] == [fork.id]
    assert moor.search("m8") == []
    moor.delete(fork.id)
    assert moor.search("m3") == []
    assert moor.check() == []


@pytest.mark.parametrize("at", [9, 10_000, 2**40])
def test_a_fork_begins_at_an_entry_that_is_there(place: Place, at: int) -> None:
    moor = place.connect()
    source = a_source(moor)
    with pytest.raises(EntryNotFound):
        moor.fork(source, at=at)
    assert len(moor.list()) == 1


def test_a_fork_is_named_like_any_new_session(place: Place) -> None:
    moor = place.connect()
    source = a_source(moor)
    with pytest.raises(NameTaken):
        moor.fork(source, name="source")
    with pytest.raises(IdTaken):
        moor.fork(source, session_id=source)
    with pytest.raises(NameTaken):
        moor.fork(source, name=source)
    assert moor.fork(source, name="branch", session_id="b-1").id == "b-1"


def test_client_keys_of_the_source_are_not_the_forks(place: Place) -> None:
    moor = place.connect()
    source = moor.create("planner").id
    moor.append(source, {"content": "once", "client_key": "k-1"})
    fork = moor.fork(source)
    moor.append(fork.id, {"content": "something else", "client_key": "k-1"})
    assert texts(moor, fork.id) == ["once", "something else"]
