"""Forks: a new session from any entry, without copying, whatever becomes of the source."""

from __future__ import annotations

import pytest

from holdfast import sync
from holdfast.core.errors import EntryNotFound, IdTaken, NameTaken
from tests.service.doors import Place, Timed


def texts(hf: sync.Holdfast, ref: str) -> list[object]:
    return [entry.content for entry in hf.log(ref, limit=1000) if entry.is_message]


def a_source(hf: sync.Holdfast) -> str:
    """Entries: 1 created, 2 to 4 messages, 5 checkpoint, 6 message, 7 checkpoint, 8 message."""
    session = hf.create("planner", name="source", metadata={"a": 1}, task_id="t-1", project_dir="somewhere")
    hf.append(session.id, ["m2", "m3", "m4"])
    hf.save_checkpoint(session.id, {"step": 5})
    hf.append(session.id, "m6")
    hf.save_checkpoint(session.id, {"step": 7})
    hf.append(session.id, "m8")
    return session.id


def test_a_fork_goes_on_from_an_entry_with_the_checkpoint_up_to_there(place: Place) -> None:
    hf = place.connect()
    source = a_source(hf)
    fork = hf.fork(source, at=6, name="branch", metadata={"b": 2})
    assert (fork.forked_from, fork.last_entry, fork.state) == (source, 7, "created")
    assert (fork.agent_name, fork.task_id, fork.project_dir) == ("planner", "t-1", "somewhere")
    assert fork.metadata == {"a": 1, "b": 2}
    hf.append(fork.id, "other")
    assert texts(hf, fork.id) == ["m2", "m3", "m4", "m6", "other"]
    assert [entry.number for entry in hf.log(fork.id)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {entry.session_id for entry in hf.log(fork.id)} == {fork.id}
    assert hf.checkpoint(fork.id).checkpoint == {"step": 5}
    assert hf.resume(fork.id).checkpoint == {"step": 5}
    assert texts(hf, source) == ["m2", "m3", "m4", "m6", "m8"]
    assert hf.get(source).last_entry == 8


def test_without_a_place_a_fork_goes_on_from_the_end(place: Place) -> None:
    hf = place.connect()
    fork = hf.fork(a_source(hf))
    assert texts(hf, fork.id) == ["m2", "m3", "m4", "m6", "m8"]
    assert hf.checkpoint(fork.id).checkpoint == {"step": 7}


def test_what_the_source_says_later_is_not_in_the_fork(place: Place) -> None:
    hf = place.connect()
    source = a_source(hf)
    fork = hf.fork(source)
    hf.append(source, "later")
    hf.append(fork.id, "elsewhere")
    assert texts(hf, fork.id)[-1] == "elsewhere"
    assert texts(hf, source)[-1] == "later"


def test_a_fork_copies_the_context_and_goes_its_own_way(timed: Timed) -> None:
    hf = timed.hf
    source = hf.create("planner").id
    hf.context.put(source, "kept", 1)
    hf.context.put(source, "dying", 1, ttl=60)
    fork = hf.fork(source)
    hf.context.put(fork.id, "kept", 2)
    hf.context.put(source, "new", 3)
    assert hf.context.get(fork.id) == {"kept": 2, "dying": 1}
    assert hf.context.get(source) == {"kept": 1, "dying": 1, "new": 3}
    timed.forward(seconds=60)
    assert hf.context.get(fork.id) == {"kept": 2}


def test_a_fork_has_no_hold_no_children_no_approvals_and_is_a_new_root(place: Place) -> None:
    hf = place.connect()
    parent = hf.create("parent")
    source = hf.create("planner", parent=parent.id)
    hf.create("child", parent=source.id)
    hf.update(source.id, error="oops")
    hf.request_approval(source.id, "Apply?")
    hf.resume(source.id)
    fork = hf.fork(source.id)
    assert (fork.hold, fork.pending_approvals, fork.error_count) == (None, 0, 0)
    assert (fork.parent_session_id, fork.root_session_id, fork.depth) == (None, fork.id, 0)
    assert hf.count_children(fork.id) == 0
    assert hf.approvals(fork.id, pending_only=False) == []
    assert (fork.phase, fork.state) == ("initializing", "created")


def test_a_final_session_is_forked_to_go_on(place: Place) -> None:
    hf = place.connect()
    source = a_source(hf)
    hf.finalize(source, "failed")
    fork = hf.fork(source)
    hf.append(fork.id, "second try")
    assert texts(hf, fork.id)[-1] == "second try"


def test_a_fork_of_a_fork_of_a_fork_reads_all_of_it(place: Place) -> None:
    hf = place.connect()
    ids = [a_source(hf)]
    for generation in range(3):
        fork = hf.fork(ids[-1])
        hf.append(fork.id, f"g{generation}")
        ids.append(fork.id)
    assert texts(hf, ids[-1]) == ["m2", "m3", "m4", "m6", "m8", "g0", "g1", "g2"]
    early = hf.fork(ids[-1], at=3)
    assert texts(hf, early.id) == ["m2", "m3"]
    newest_first = hf.log(ids[-1], newest_first=True, limit=1000).items
    assert newest_first == hf.log(ids[-1], limit=1000).items[::-1]
    assert [entry.content for entry in hf.messages(ids[-1], last=4)] == ["m8", "g0", "g1", "g2"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_deleting_the_source_keeps_what_forks_still_need(place: Place, order: tuple[int, int]) -> None:
    hf = place.connect()
    source = a_source(hf)
    middle = hf.fork(source, at=6).id
    hf.append(middle, "middle")
    last = hf.fork(middle).id
    hf.append(last, "last")
    before = hf.log(last, limit=1000).items
    for doomed in (source, middle) if order == (0, 1) else (middle, source):
        hf.delete(doomed)
        assert hf.log(last, limit=1000).items == before
        assert hf.check() == []
    assert texts(hf, last) == ["m2", "m3", "m4", "m6", "middle", "last"]
    assert hf.checkpoint(last).checkpoint == {"step": 5}
    assert [entry.content for entry in hf.messages(last, last=2)] == ["middle", "last"]
    assert hf.get(last).forked_from == middle
    again = hf.fork(last, at=4)
    assert texts(hf, again.id) == ["m2", "m3", "m4"]
    hf.append(last, "still writable")
    hf.delete(last)
    assert texts(hf, again.id) == ["m2", "m3", "m4"]


def test_entries_nobody_needs_go_with_the_last_who_did(place: Place) -> None:
    hf = place.connect()
    source = a_source(hf)
    fork = hf.fork(source, at=4)
    hf.delete(source)
    assert [hit.session_id for hit in hf.search("m3")] == [fork.id]
    assert hf.search("m8") == []
    hf.delete(fork.id)
    assert hf.search("m3") == []
    assert hf.check() == []


@pytest.mark.parametrize("at", [9, 10_000, 2**40])
def test_a_fork_begins_at_an_entry_that_is_there(place: Place, at: int) -> None:
    hf = place.connect()
    source = a_source(hf)
    with pytest.raises(EntryNotFound):
        hf.fork(source, at=at)
    assert len(hf.list()) == 1


def test_a_fork_is_named_like_any_new_session(place: Place) -> None:
    hf = place.connect()
    source = a_source(hf)
    with pytest.raises(NameTaken):
        hf.fork(source, name="source")
    with pytest.raises(IdTaken):
        hf.fork(source, session_id=source)
    with pytest.raises(NameTaken):
        hf.fork(source, name=source)
    assert hf.fork(source, name="branch", session_id="b-1").id == "b-1"


def test_client_keys_of_the_source_are_not_the_forks(place: Place) -> None:
    hf = place.connect()
    source = hf.create("planner").id
    hf.append(source, {"content": "once", "client_key": "k-1"})
    fork = hf.fork(source)
    hf.append(fork.id, {"content": "something else", "client_key": "k-1"})
    assert texts(hf, fork.id) == ["once", "something else"]
