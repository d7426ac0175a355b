"""Reads of many sessions at once: the same answers as one by one, and none that hides another."""

from __future__ import annotations

from moorage.core.query import SessionQuery
from moorage.ports import Store
from moorage.testing.builders import OWNER, a_session, a_stamp, an_approval, asked, may_delete, said

NOBODY = "somebody-else"


class ManyRules:
    """Rules of `get_many`, `find_many`, `tails` and `approvals_of`."""

    async def test_many_sessions_come_in_the_order_asked_for(self, store: Store) -> None:
        await _three(store)

        found = await store.get_many(OWNER, ["c", "a", "c"])

        assert found == [await store.get(OWNER, each) for each in ("c", "a", "c")]

    async def test_what_is_not_there_hides_no_other(self, store: Store) -> None:
        await _three(store)
        await store.delete_tree(OWNER, "b", may_delete("b"), a_stamp(), reason="test")
        ids = ["nobody", "b", "a", "named-c", "né"]

        assert [each and each.session_id for each in await store.get_many(OWNER, ids)] == [None, None, "a", None, None]
        assert [len(each.messages) for each in await store.tails(OWNER, ["nobody", "b", "a"], 5)] == [0, 0, 3]
        assert await store.approvals_of(OWNER, ["nobody", "b"]) == [[], []]

    async def test_many_of_another_owner_are_unknown(self, store: Store) -> None:
        await _three(store)

        assert await store.get_many(NOBODY, ["a"]) == [None]
        assert [page.items for page in await store.find_many(NOBODY, [SessionQuery()])] == [[]]
        assert [(each.pinned, each.messages) for each in await store.tails(NOBODY, ["a"], 5)] == [([], [])]
        assert await store.approvals_of(NOBODY, ["a"]) == [[]]

    async def test_many_pages_are_those_of_single_queries(self, store: Store) -> None:
        await _three(store)
        for number in range(3):
            await store.create(OWNER, a_session(f"child-{number}"), parent="a")
        queries = [SessionQuery(parent=each, sort="created", limit=2) for each in ("a", "b")]

        pages = await store.find_many(OWNER, queries)

        assert pages == [await store.find(OWNER, query) for query in queries]
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


async def _three(store: Store) -> None:
    for session_id in ("a", "b", "c"):
        await store.create(OWNER, a_session(session_id, f"named-{session_id}"))
        await store.append(OWNER, session_id, said("one", "two", "three"), a_stamp())
