"""Forks: a new session that continues from an entry of another and shares the earlier entries."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from moorage.core.approval import ApprovalQuery
from moorage.core.entry import Kind
from moorage.core.errors import EntryNotFound, IdTaken, NameTaken, SessionGone, SessionNotFound, VersionConflict
from moorage.core.query import LogQuery
from moorage.core.session import Change, Phase, Session, State
from moorage.ports import Capability, Store
from moorage.testing.builders import *


async def contents(store: Store, ref: str) -> list[Any]:
    """Return the log of a session: contents of messages, kinds of other entries."""
    return [entry.content or entry.kind for entry in await whole_log(store, ref, page=3)]


class ForkRules:
    """Rules of `fork`."""

    async def test_fork_goes_on_from_the_last_entry(self, store: Store) -> None:
        await _source(store)
        fork = await store.fork(OWNER, "s-1", None, a_fork("f-1", at=after(5)))
        await store.append(OWNER, "f-1", said("own"), a_stamp())

        assert await contents(store, "f-1") == ["created", "one", "two", "three", "forked", "own"]
        assert [entry.number for entry in await whole_log(store, "f-1")] == [1, 2, 3, 4, 5, 6]
        assert (fork.forked_from, fork.last_entry, fork.version) == ("s-1", 5, 1)
        assert (fork.created_at, fork.state) == (after(5), State.CREATED)

    async def test_fork_goes_on_from_any_entry(self, store: Store) -> None:
        await _source(store)
        await store.fork(OWNER, "s-1", 2, a_fork("f-1"))
        await store.fork(OWNER, "s-1", 1, a_fork("f-2"))

        assert await contents(store, "f-1") == ["created", "one", "forked"]
        assert await contents(store, "f-2") == ["created", "forked"]

    async def test_fork_is_a_root_that_reads_back_whole(self, store: Store) -> None:
        await store.create(OWNER, a_session("p-1"))
        await store.create(OWNER, a_session("s-1", "planner", metadata={"a": 1}, purpose="test"), parent="p-1")
        fork = await store.fork(OWNER, "planner", None, a_fork("f-1", "other", metadata={"b": 2}))

        assert fork == await store.get(OWNER, "f-1") == await store.get(OWNER, "other")
        assert (fork.parent_session_id, fork.root_session_id, fork.depth) == (None, "f-1", 0)
        assert (fork.metadata, fork.purpose) == ({"a": 1, "b": 2}, "test")
        assert await store.ancestors(OWNER, "f-1") == []
        assert await store.count_children(OWNER, "s-1") == 0

    @pytest.mark.parametrize("at", [0, -1, 5, 10**9])
    async def test_fork_needs_an_entry_that_is_there(self, store: Store, at: int) -> None:
        await _source(store)

        async with nothing_changes(store):
            with pytest.raises(EntryNotFound) as missing:
                await store.fork(OWNER, "s-1", at, refusing)
        assert (missing.value.session_id, missing.value.last) == ("s-1", 4)

    async def test_fork_needs_a_session(self, store: Store) -> None:
        with pytest.raises(SessionNotFound):
            await store.fork(OWNER, "nobody", None, refusing)

    async def test_refused_fork_changes_nothing(self, store: Store) -> None:
        await _source(store)

        async with nothing_changes(store):
            with pytest.raises(DecisionRefused):
                await store.fork(OWNER, "s-1", None, refusing)

    async def test_fork_needs_a_free_id_and_name(self, store: Store) -> None:
        await _source(store)
        await store.create(OWNER, a_session("s-2", "planner"))

        async with nothing_changes(store):
            with pytest.raises(IdTaken):
                await store.fork(OWNER, "s-1", None, a_fork("s-1"))
            with pytest.raises(NameTaken):
                await store.fork(OWNER, "s-1", None, a_fork("f-1", "planner"))

    async def test_closed_session_can_be_forked(self, store: Store) -> None:
        await _source(store)
        await store.apply(OWNER, "s-1", finalized())
        await store.fork(OWNER, "s-1", None, a_fork("f-1"))
        await store.append(OWNER, "f-1", said("on we go"), a_stamp())

        assert await contents(store, "f-1") == [
            "created",
            "one",
            "two",
            "three",
            "finalized",
            "forked",
            "on we go",
        ]

    async def test_fork_and_source_go_their_own_ways(self, store: Store) -> None:
        await _source(store)
        await store.fork(OWNER, "s-1", 2, a_fork("f-1"))
        await store.append(OWNER, "s-1", said("of the source"), a_stamp())
        await store.append(OWNER, "f-1", said("of the fork"), a_stamp())

        assert await contents(store, "s-1") == ["created", "one", "two", "three", "of the source"]
        assert await contents(store, "f-1") == ["created", "one", "forked", "of the fork"]

    async def test_shared_entries_carry_the_ids_of_the_session_they_are_read_in(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", task_id="task-1"))
        await store.fork(OWNER, "s-1", None, a_fork("f-1", task_id="task-2"))

        assert [(entry.session_id, entry.task_id) for entry in await whole_log(store, "f-1")] == [("f-1", "task-2")] * 2

    async def test_fork_takes_no_children_approvals_or_hold(self, store: Store) -> None:
        await _source(store)
        await store.create(OWNER, a_session("c-1"), parent="s-1")
        await store.apply(OWNER, "s-1", asked(an_approval("s-1")))
        await store.apply(OWNER, "s-1", lambda view: view.session.resume("ann", "secret", a_stamp()))
        fork = await store.fork(OWNER, "s-1", None, a_fork("f-1"))

        assert (fork.hold, fork.pending_approvals) == (None, 0)
        assert await store.approvals(OWNER, ApprovalQuery(session_id="f-1", pending_only=False)) == []
        assert await store.tree(OWNER, "f-1", 10) == [fork]

    async def test_decision_sees_the_source_the_entry_and_the_newest_checkpoint(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        for _ in (2, 3):
            await store.apply(OWNER, "s-1", lambda view: view.session.save_checkpoint({"step": 1}, a_stamp()))
        await store.append(OWNER, "s-1", said("hello"), a_stamp())
        seen: dict[int, int | None] = {}

        def look(source: Session, at: int, checkpoint: int | None) -> Change:
            assert source.session_id == "s-1"
            seen[at] = checkpoint
            raise DecisionRefused

        for at in (1, 2, 3, None):
            with pytest.raises(DecisionRefused):
                await store.fork(OWNER, "s-1", at, look)

        assert seen == {1: None, 2: 2, 3: 3, 4: 3}

    async def test_fork_of_a_fork_finds_a_shared_checkpoint(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", lambda view: view.session.save_checkpoint({"step": 1}, a_stamp()))
        await store.fork(OWNER, "s-1", None, a_fork("f-1"))
        fork = await store.fork(OWNER, "f-1", None, a_fork("f-2"))

        assert fork.last_checkpoint == 2
        (checkpoint,) = await store.log(OWNER, "f-2", LogQuery(kinds=(str(Kind.CHECKPOINT),)))
        assert checkpoint.data == {"checkpoint": {"step": 1}}

    # Paging over what is shared -----------------------------------------------------------------

    async def test_log_of_forks_over_forks_pages_both_ways(self, store: Store) -> None:
        await _forks_over_forks(store)

        for page in (1, 2, 3, 100):
            forwards = [entry.number for entry in await whole_log(store, "f-3", page=page)]
            assert forwards == list(range(1, 9))
        backwards = await store.log(OWNER, "f-3", LogQuery(limit=5, newest_first=True))
        assert [entry.number for entry in backwards] == [8, 7, 6, 5, 4]
        rest = await store.log(OWNER, "f-3", LogQuery(limit=5, newest_first=True, before=4))
        assert [entry.number for entry in rest] == [3, 2, 1]

    async def test_log_of_a_fork_answers_by_kinds(self, store: Store) -> None:
        await _forks_over_forks(store)
        messages, forks = (str(Kind.MESSAGE),), (str(Kind.FORKED), str(Kind.CREATED))

        assert [entry.number for entry in await store.log(OWNER, "f-3", LogQuery(kinds=messages))] == [2, 4, 6, 8]
        assert [entry.number for entry in await store.log(OWNER, "f-3", LogQuery(kinds=forks))] == [1, 3, 5, 7]
        newest = await store.log(OWNER, "f-3", LogQuery(kinds=messages, limit=2, newest_first=True))
        assert [entry.number for entry in newest] == [8, 6]
        between = await store.log(OWNER, "f-3", LogQuery(kinds=messages, after=2, before=8))
        assert [entry.number for entry in between] == [4, 6]

    async def test_fork_of_a_fork_before_its_own_entries_skips_it(self, store: Store) -> None:
        await _source(store)
        await store.fork(OWNER, "s-1", 3, a_fork("f-1"))
        await store.append(OWNER, "f-1", said("not shared"), a_stamp())
        await store.fork(OWNER, "f-1", 2, a_fork("f-2"))
        await store.fork(OWNER, "f-1", 3, a_fork("f-3"))
        await store.delete_tree(OWNER, "f-1", may_delete("f-1"), a_stamp())

        assert await contents(store, "f-2") == ["created", "one", "forked"]
        assert await contents(store, "f-3") == ["created", "one", "two", "forked"]

    # Deleting what is shared --------------------------------------------------------------------

    async def test_deleting_the_source_keeps_entries_of_forks(self, store: Store) -> None:
        await _source(store)
        await store.fork(OWNER, "s-1", 3, a_fork("f-1"))
        await store.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp())
        await store.append(OWNER, "f-1", said("own"), a_stamp())

        with pytest.raises(SessionGone):
            await store.log(OWNER, "s-1")
        assert await contents(store, "f-1") == ["created", "one", "two", "forked", "own"]
        assert (await store.get(OWNER, "f-1")).forked_from == "s-1"

    async def test_every_order_of_deletion_leaves_the_others_whole(self, store: Store) -> None:
        await _forks_over_forks(store)
        expected = {ref: await contents(store, ref) for ref in ("s-1", "f-1", "f-2", "f-3")}

        for gone in ("f-1", "s-1", "f-3", "f-2"):
            await store.delete_tree(OWNER, gone, may_delete(gone), a_stamp())
            del expected[gone]
            assert {ref: await contents(store, ref) for ref in expected} == expected

    async def test_forks_of_a_deleted_source_can_be_forked(self, store: Store) -> None:
        await _source(store)
        await store.fork(OWNER, "s-1", 3, a_fork("f-1"))
        await store.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp())
        await store.fork(OWNER, "f-1", 2, a_fork("f-2"))
        await store.delete_tree(OWNER, "f-1", may_delete("f-1"), a_stamp())

        assert await contents(store, "f-2") == ["created", "one", "forked"]

    async def test_source_deleted_with_its_tree_still_serves_its_forks(self, store: Store) -> None:
        await store.create(OWNER, a_session("p-1"))
        await store.create(OWNER, a_session("s-1"), parent="p-1")
        await store.append(OWNER, "s-1", said("one"), a_stamp())
        await store.fork(OWNER, "s-1", None, a_fork("f-1"))
        await store.delete_tree(OWNER, "p-1", may_delete("p-1"), a_stamp())

        assert await contents(store, "f-1") == ["created", "one", "forked"]

    async def test_entries_without_forks_are_deleted_with_the_source(self, store: Store) -> None:
        if Capability.SEARCH not in store.capabilities:
            pytest.skip("only a search could tell")
        await _source(store)
        await store.fork(OWNER, "s-1", 3, a_fork("f-1"))
        await store.fork(OWNER, "s-1", 2, a_fork("f-2"))

        async def found(word: str) -> list[tuple[str, int]]:
            return [(hit.session_id, hit.number) for hit in await store.search(OWNER, word, 10)]

        await store.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp())
        assert (await found("one"), await found("two"), await found("three")) == ([("f-1", 2)], [("f-1", 3)], [])
        await store.delete_tree(OWNER, "f-1", may_delete("f-1"), a_stamp())
        assert (await found("one"), await found("two")) == ([("f-2", 2)], [])
        await store.delete_tree(OWNER, "f-2", may_delete("f-2"), a_stamp())
        assert await found("one") == []

    async def test_deletion_counts_entries_of_the_fork_itself(self, store: Store) -> None:
        await _source(store)
        await store.fork(OWNER, "s-1", None, a_fork("f-1"))
        await store.append(OWNER, "f-1", said("own"), a_stamp())

        deletion = await store.delete_tree(OWNER, "f-1", may_delete("f-1"), a_stamp())

        assert (deletion.entries, deletion.messages) == (2, 1)

    # Client keys and context --------------------------------------------------------------------

    async def test_client_keys_of_the_source_are_free_in_the_fork(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.append(OWNER, "s-1", said("hello", key="k-1"), a_stamp())
        await store.fork(OWNER, "s-1", None, a_fork("f-1"))

        (entry,) = await store.append(OWNER, "f-1", said("something else", key="k-1"), a_stamp())

        assert (entry.number, entry.content) == (4, "something else")

    async def test_context_is_copied_and_then_apart(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write_context(store, OWNER, "s-1", merging({"a": 1, "b": 2}, ttl=timedelta(seconds=9)))
        await store.fork(OWNER, "s-1", None, a_fork("f-1"))
        assert await context_of(store, OWNER, "f-1", NOON) == await context_of(store, OWNER, "s-1", NOON)
        assert await context_of(store, OWNER, "f-1", after(9)) == {}

        await write_context(store, OWNER, "f-1", remembering("a", "fork"))
        await write_context(store, OWNER, "s-1", remembering("b", "source"))

        assert await _values(store, "s-1") == {"a": 1, "b": "source"}
        assert await _values(store, "f-1") == {"a": "fork", "b": 2}

    async def test_context_versions_of_a_fork_go_on_from_those_it_copied(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        for value in (1, 2, 3):
            await write_context(store, OWNER, "s-1", remembering("a", value))
        await store.fork(OWNER, "s-1", None, a_fork("f-1"))
        await write_context(store, OWNER, "f-1", remembering("a", "fork"))

        assert (await context_of(store, OWNER, "f-1", NOON))["a"].version == 4
        with pytest.raises(VersionConflict):
            await write_context(store, OWNER, "f-1", remembering("a", "late", expected=3))

    async def test_fork_is_seen_by_the_answers_about_sessions(self, store: Store) -> None:
        await _source(store)
        await store.fork(OWNER, "s-1", None, a_fork("f-1"))
        await store.apply(OWNER, "f-1", updated(phase=Phase.PLANNING))

        assert await store.match(OWNER, "f-", 10) == ["f-1"]
        assert (await store.get(OWNER, "f-1")).phase is Phase.PLANNING
        assert (await store.get(OWNER, "s-1")).phase is Phase.INITIALIZING


async def _values(store: Store, ref: str) -> dict[str, Any]:
    return {key: item.value for key, item in (await context_of(store, OWNER, ref, NOON)).items()}


async def _source(store: Store) -> None:
    """Create a session with four entries: created, one, two, three."""
    await store.create(OWNER, a_session("s-1"))
    await store.append(OWNER, "s-1", said("one", "two", "three"), a_stamp())


async def _forks_over_forks(store: Store) -> None:
    """Create f-3, which reads two entries each of s-1, f-1 and f-2; each of these has one more, not shared."""
    await store.create(OWNER, a_session("s-1"))
    await store.append(OWNER, "s-1", said("s-1", "s-1 alone"), a_stamp())
    for number, (source, fork) in enumerate((("s-1", "f-1"), ("f-1", "f-2"), ("f-2", "f-3")), 1):
        await store.fork(OWNER, source, 2 * number, a_fork(fork))
        await store.append(OWNER, fork, said(fork, f"{fork} alone") if fork != "f-3" else said(fork), a_stamp())
