"""Delegations: recorded once, counted by agent, task and time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.core.delegation import Delegation, Span
from holdfast.core.errors import InvalidCursor
from holdfast.ports import Store
from holdfast.testing.builders import MANY, NOON, OTHER, OWNER, a_session, a_stamp, after, all_sessions, may_delete
from holdfast.testing.texts import TEXTS


def a_delegation(delegation_id: str = "d-1", **fields: Any) -> Delegation:
    """Work handed to the echo agent at noon, nothing picked up."""
    fields = {"at": NOON, "resumed": False, "reason": "no_existing_session", "agent_name": "echo-agent", **fields}
    return Delegation(delegation_id=delegation_id, **fields)


class CountingRules:
    """Rules of `record_delegation` and `delegations`."""

    async def test_recorded_delegation_reads_back_whole(self, store: Store) -> None:
        delegation = a_delegation(
            at=after(1) + timedelta(microseconds=1),
            resumed=True,
            reason="session_resumable",
            task_id="task-1",
            project_dir="/work",
            session_id="s-1",
            host_session_id="host-1",
        )

        assert await store.record_delegation(OWNER, delegation)
        assert (await store.delegations(OWNER, Span(), MANY)).items == [delegation]

    @pytest.mark.parametrize("text", TEXTS)
    async def test_any_text_of_a_delegation_comes_back_the_same(self, store: Store, text: str) -> None:
        delegation = a_delegation(agent_name=text, task_id=text, project_dir=text)
        await store.record_delegation(OWNER, delegation)

        assert (await store.delegations(OWNER, Span(agent=text, task=text), MANY)).items == [delegation]

    async def test_delegation_told_twice_is_recorded_once(self, store: Store) -> None:
        first = a_delegation()

        assert await store.record_delegation(OWNER, first)
        assert not await store.record_delegation(OWNER, a_delegation(agent_name="another"))
        assert (await store.delegations(OWNER, Span(), MANY)).items == [first]

    async def test_delegations_are_each_owners_own(self, store: Store) -> None:
        mine, theirs = a_delegation(), a_delegation(reason="session_closed")

        assert await store.record_delegation(OWNER, mine)
        assert await store.record_delegation(OTHER, theirs)
        assert (await store.delegations(OWNER, Span(), MANY)).items == [mine]
        assert (await store.delegations(OTHER, Span(), MANY)).items == [theirs]

    async def test_span_begins_with_its_first_instant_and_ends_before_its_last(self, store: Store) -> None:
        made = [a_delegation(f"d-{second}", at=after(second)) for second in range(4)]
        for delegation in made:
            await store.record_delegation(OWNER, delegation)

        found = await store.delegations(OWNER, Span(after=after(1), before=after(3)), MANY)

        assert found.items == made[1:3]

    async def test_pages_of_delegations_have_no_gap_and_no_double(self, store: Store) -> None:
        made = [a_delegation(f"d-{n}", task_id=f"task-{n % 2}") for n in range(7)]
        for delegation in made:
            await store.record_delegation(OWNER, delegation)

        found, cursor = [], None
        while True:
            page = await store.delegations(OWNER, Span(task="task-0"), 2, cursor)
            assert len(page) <= 2
            found += page.items
            if (cursor := page.next) is None:
                break

        assert found == made[::2]

    async def test_cursor_of_another_list_is_refused_for_delegations(self, store: Store) -> None:
        with pytest.raises(InvalidCursor):
            await store.delegations(OWNER, Span(), 1, "00000000-1")

    async def test_delegation_outlives_its_session(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        delegation = a_delegation(resumed=True, session_id="s-1")
        await store.record_delegation(OWNER, delegation)
        await store.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp(), reason="deleted")

        assert await all_sessions(store, OWNER) == []
        assert (await store.delegations(OWNER, Span(), MANY)).items == [delegation]
