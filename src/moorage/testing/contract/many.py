"""Reads of many sessions at once: the same answers as one by one, and no session hides another."""

from __future__ import annotations

from collections.abc import Sequence

from moorage.core.query import SessionQuery
from moorage.core.record import Put, RecordName, RecordRequest, needs_of, write_with_messages
from moorage.core.session import Needs
from moorage.ports import Decision, Store
from moorage.testing.builders import *

STRANGER = "another-owner"


class ManyRules:
    """Rules of `get_many`, `find`, `tails`, `approvals_of` and `records_of`."""

    async def test_many_sessions_come_in_the_order_asked_for(self, store: Store) -> None:
        await _three(store)

        found = await store.get_many(OWNER, ["c", "a", "c"])

        assert found == [await store.get(OWNER, each) for each in ("c", "a", "c")]

    async def test_missing_session_does_not_hide_others(self, store: Store) -> None:
        await _three(store)
        await store.delete_tree(OWNER, "b", may_delete("b"), a_stamp())
        ids = ["nobody", "b", "a", "named-c", "né"]

        assert [each and each.session_id for each in await store.get_many(OWNER, ids)] == [None, None, "a", None, None]
        assert [len(each.messages) for each in await store.tails(OWNER, ["nobody", "b", "a"], 5)] == [0, 0, 3]
        assert await store.approvals_of(OWNER, ["nobody", "b"]) == [[], []]

    async def test_many_of_another_owner_are_unknown(self, store: Store) -> None:
        await _three(store)

        assert await store.get_many(STRANGER, ["a"]) == [None]
        assert [page.items for page in await store.find(STRANGER, SessionQuery(), SessionQuery())] == [[], []]
        assert [(each.pinned, each.messages) for each in await store.tails(STRANGER, ["a"], 5)] == [([], [])]
        assert await store.approvals_of(STRANGER, ["a"]) == [[]]

    async def test_many_pages_are_those_of_single_queries(self, store: Store) -> None:
        await _three(store)
        for number in range(3):
            await store.create(OWNER, a_session(f"child-{number}"), parent="a")
        queries = [SessionQuery(parent=each, sort="created", limit=2) for each in ("a", "b")]

        pages = await store.find(OWNER, *queries)

        assert pages == [page for query in queries for page in await store.find(OWNER, query)]
        assert [session.session_id for session in pages[0].items] == ["child-0", "child-1"]
        assert pages[0].next is not None

    async def test_many_tails_are_those_of_single_sessions(self, store: Store) -> None:
        await _three(store)

        assert await store.tails(OWNER, ["a", "b"], 2) == [await store.tail(OWNER, each, 2) for each in ("a", "b")]

    async def test_tails_before_a_number_end_there(self, store: Store) -> None:
        await _three(store)
        [newest] = await store.tails(OWNER, ["a"], 1)

        [before] = await store.tails(OWNER, ["a"], 5, before=newest.messages[0].number)

        assert [entry.text for entry in before.messages] == ["two", "one"]
        assert before.pinned == []

    async def test_many_sessions_approvals_are_told_apart(self, store: Store) -> None:
        await _three(store)
        await store.apply(OWNER, "a", asked(an_approval("a", "q-1")))
        await store.apply(OWNER, "b", asked(an_approval("b", "q-2")))

        found = await store.approvals_of(OWNER, ["b", "c", "a"])

        assert [[each.approval_id for each in some] for some in found] == [["q-2"], [], ["q-1"]]

    async def test_record_of_many_sessions_comes_in_the_order_asked_for(self, store: Store) -> None:
        await _three(store)
        for session_id, ttl in (("a", None), ("b", 60.0)):
            wish = [Put(namespace="n", key="k", value=session_id.encode(), ttl=ttl)]
            await store.apply(OWNER, session_id, written(wish), needs=Needs(records=needs_of(wish)))
        ids, name = ["b", "nobody", "c", "a", "named-a", "né", "b"], RecordName("n", "k")

        found = await store.records_of(OWNER, ids, name, NOON)
        later = await store.records_of(OWNER, ids, name, after(60))

        assert [one and one.value for one in found] == [b"b", None, None, b"a", None, None, b"b"]
        assert [one and one.value for one in later] == [None, None, None, b"a", None, None, None]
        assert await store.records_of(OWNER, ids, RecordName("m", "k"), NOON) == [None] * 7
        assert await store.records_of(OWNER, [], name, NOON) == []


def written(requests: Sequence[RecordRequest]) -> Decision:
    """Write records."""
    return lambda view: write_with_messages(view, [], requests, a_stamp())


async def _three(store: Store) -> None:
    for session_id in ("a", "b", "c"):
        await store.create(OWNER, a_session(session_id, f"named-{session_id}"))
        await store.append(OWNER, session_id, said("one", "two", "three"), a_stamp())
