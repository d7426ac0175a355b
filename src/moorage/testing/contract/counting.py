"""Counting: delegations, facts of sessions by agent, task and time, outcomes, sizes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from moorage.core.errors import InvalidCursor
from moorage.core.fact import CallbackCounts, Fate, SessionFact
from moorage.core.policy import Delegation, Span
from moorage.core.query import Page
from moorage.core.session import State
from moorage.ports import Store
from moorage.testing.builders import *
from moorage.testing.texts import TEXTS
from moorage.testing.work import *


def a_delegation(delegation_id: str = "d-1", **fields: Any) -> Delegation:
    """Return a delegation to the echo agent at noon that resumed nothing."""
    fields = {"at": NOON, "resumed": False, "reason": "no_existing_session", "agent_name": "echo-agent", **fields}
    return Delegation(delegation_id=delegation_id, **fields)


async def _callbacks(store: Store, span: Span | None = None) -> dict[str, CallbackCounts]:
    """Return the place of callbacks, for the sessions that have any."""
    facts = await all_facts(store, span=span, page=2)
    return {fact.session_id: fact.callbacks for fact in facts if fact.callbacks is not None}


class CountingRules:
    """Rules of `record_delegation`, `delegations`, `facts`, `fates` and `totals`."""

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

        assert (await store.delegations(OWNER, Span(agent=text, task_id=text), MANY)).items == [delegation]

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

        found = await store.delegations(OWNER, Span(created_after=after(1), created_before=after(3)), MANY)

        assert found.items == made[1:3]

    async def test_delegations_come_oldest_first_whenever_they_were_recorded(self, store: Store) -> None:
        for second in (3, 1, 2, 0):  # a delegation that could not be stored at once is recorded later
            await store.record_delegation(OWNER, a_delegation(f"d-{second}", at=after(second)))

        first = await store.delegations(OWNER, Span(), 2)
        rest = await store.delegations(OWNER, Span(), 2, first.next)

        assert [one.delegation_id for one in [*first, *rest]] == ["d-0", "d-1", "d-2", "d-3"]

    async def test_pages_of_delegations_have_no_gap_and_no_double(self, store: Store) -> None:
        made = [a_delegation(f"d-{n}", task_id=f"task-{n % 2}") for n in range(7)]
        for delegation in made:
            await store.record_delegation(OWNER, delegation)

        found, cursor = [], None
        while True:
            page = await store.delegations(OWNER, Span(task_id="task-0"), 2, cursor)
            assert len(page) <= 2
            found += page.items
            if (cursor := page.next) is None:
                break

        assert found == made[::2]

    async def test_cursor_of_another_list_is_refused_for_delegations(self, store: Store) -> None:
        for delegation_id in ("d-1", "d-2"):
            await store.record_delegation(OWNER, a_delegation(delegation_id))
        other = (await store.delegations(OWNER, Span(agent="echo-agent"), 1)).next

        for cursor in ("00000000-1", "0.00000000-1", "", "x", other):
            with pytest.raises(InvalidCursor):
                await store.delegations(OWNER, Span(), 1, cursor)

    async def test_delegation_outlives_its_session(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        delegation = a_delegation(resumed=True, session_id="s-1")
        await store.record_delegation(OWNER, delegation)
        await store.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp())

        assert await all_sessions(store, OWNER) == []
        assert (await store.delegations(OWNER, Span(), MANY)).items == [delegation]

    # Facts --------------------------------------------------------------------------------------

    async def test_fact_holds_the_counted_values(self, store: Store) -> None:
        usage = {"input_tokens": 12, "output_tokens": 3.5, "model": "small"}
        at = NOON + timedelta(microseconds=1)
        await store.create(OWNER, a_session("s-1", at=at, task_id="task-1", metadata={"usage": usage, "more": [1]}))
        await store.apply(OWNER, "s-1", updated(error="oops"))
        await store.apply(OWNER, "s-1", finalized("failed", at=after(90)))

        [fact] = await all_facts(store)

        assert fact == SessionFact("s-1", "echo-agent", "task-1", at, State.FAILED, 90.0, True, 12, 3.5)

    async def test_session_that_goes_on_has_no_duration_no_errors_and_no_tokens(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", agent_name=None, task_id="task-1"))
        await store.append(OWNER, "s-1", said("error"), a_stamp())

        assert await all_facts(store) == [SessionFact("s-1", None, "task-1", NOON, State.ACTIVE, None, False)]

    @pytest.mark.parametrize(
        "usage",
        [
            None,
            7,
            "12",
            [12, 3],
            {},
            {"input_tokens": "12", "output_tokens": None},
            {"input_tokens": True, "output_tokens": [3]},
            {"input_tokens": -1, "output_tokens": 10**18},
            {"usage": {"input_tokens": 12}},
        ],
    )
    async def test_invalid_token_counts_are_unknown(self, store: Store, usage: Any) -> None:
        await store.create(OWNER, a_session("s-1", metadata={"usage": usage}))

        [fact] = await all_facts(store)

        assert (fact.input_tokens, fact.output_tokens) == (None, None)

    async def test_usage_elsewhere_in_the_metadata_does_not_count(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", metadata={"last": {"usage": {"input_tokens": 12}}}))

        assert [fact.input_tokens for fact in await all_facts(store)] == [None]

    async def test_callbacks_are_counted_by_where_they_are(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await launch(store, "p-1", "run-p", task_id="task-p")
        for name in ("c-1", "c-2", "c-3", "c-4"):
            await launch(store, name, a_child_run(f"run-{name}", "p-1", "run-p", agent_name="other"), parent="p-1")
        for _ in range(2):
            await finish(store, await taken(store, agents=("other",)))
        assert await _callbacks(store) == {"p-1": CallbackCounts(0, 2, 0)}, "held and waiting ones wait"
        claimed = await taken(store)
        await finish(store, await taken(store, agents=("other",)))
        assert await _callbacks(store) == {"p-1": CallbackCounts(2, 1, 0)}, "one came while the others were given"
        await finish(store, claimed)
        for _ in range(3):
            await carry(store, "failed")
        assert await _callbacks(store) == {"p-1": CallbackCounts(2, 0, 1)}
        assert await _callbacks(store, Span(agent="echo-agent")) == await _callbacks(store)
        assert await _callbacks(store, Span(task_id="task-p")) == await _callbacks(store)
        assert await _callbacks(store, Span(agent="other")) == {}

    async def test_errors_stay_errors_after_a_turn_that_went_well(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", updated(error="oops"))
        change = await store.apply(OWNER, "s-1", lambda view: view.session.end_turn(a_stamp()))

        assert change.session.error_count == 0
        assert [fact.has_errors for fact in await all_facts(store)] == [True]

    async def test_fork_has_only_its_own_errors(self, store: Store) -> None:
        await store.create(OWNER, a_session("source"))
        await store.apply(OWNER, "source", updated(error="oops"))
        for name in ("clean", "broken"):
            await store.fork(OWNER, "source", None, a_fork(name))
        await store.apply(OWNER, "broken", updated(error="oops again"))

        found = {fact.session_id: fact.has_errors for fact in await all_facts(store)}

        assert found == {"source": True, "clean": False, "broken": True}

    async def test_restored_session_has_the_errors_it_came_with(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", updated(error="oops"))
        await store.restore(OTHER, await bundle_of(store, "s-1"))

        assert [fact.has_errors for fact in await all_facts(store, OTHER)] == [True]

    async def test_deleted_session_is_not_counted(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp())

        assert await all_facts(store) == []

    @pytest.mark.parametrize(
        ("span", "expected"),
        [
            (Span(), "a b c d e"),
            (Span(created_after=after(1)), "b c d e"),
            (Span(created_before=after(3)), "a b c"),
            (Span(created_after=after(1), created_before=after(3)), "b c"),
            (Span(created_after=after(9)), ""),
            (Span(created_after=after(3), created_before=after(1)), ""),
            (Span(agent="echo-agent"), "a c e"),
            (Span(agent="nobody"), ""),
            (Span(agent="echo-agent", created_after=after(1), created_before=after(4)), "c"),
            (Span(task_id="task-1"), "a b"),
            (Span(task_id="c"), "c e"),
            (Span(task_id="c", created_after=after(3)), "e"),
            (Span(task_id="task-1", agent="echo-agent", created_before=after(1)), "a"),
        ],
    )
    @pytest.mark.parametrize("limit", [1, 2, MANY])
    async def test_facts_of_a_span(self, store: Store, span: Span, expected: str, limit: int) -> None:
        """The task of `c` is its own id, which is the default; that of `e` too."""
        tasks = {"a": "task-1", "b": "task-1", "c": "c", "d": "d", "e": "c"}
        for second, (name, task) in enumerate(tasks.items()):
            agent = "hello-world" if name in "bd" else "echo-agent"
            await store.create(OWNER, a_session(name, at=after(second), task_id=task, agent_name=agent))
        await store.create(OTHER, a_session("theirs", owner=OTHER, at=after(1), task_id="task-1"))

        found = await all_facts(store, span=span, page=limit)

        assert " ".join(sorted(fact.session_id for fact in found)) == expected

    @pytest.mark.parametrize(
        "span", [Span(), Span(created_after=NOON), Span(agent="echo-agent"), Span(task_id="task-1")]
    )
    async def test_pages_of_facts_have_no_gap_and_no_double_though_all_began_together(
        self, store: Store, span: Span
    ) -> None:
        made = [f"s-{n}" for n in range(7)]
        for name in made:
            await store.create(OWNER, a_session(name, task_id="task-1"))

        found = await all_facts(store, span=span, page=2)

        assert sorted(fact.session_id for fact in found) == made

    async def test_a_page_of_facts_goes_on_after_a_session_that_went_meanwhile(self, store: Store) -> None:
        for n in range(4):
            await store.create(OWNER, a_session(f"s-{n}", at=after(n)))
        first: Page[SessionFact] = await store.facts(OWNER, Span(), 2)
        last = first.items[-1].session_id
        await store.delete_tree(OWNER, last, may_delete(last), a_stamp())
        rest = await store.facts(OWNER, Span(), 2, first.next)

        assert rest.next is None
        assert len({fact.session_id for fact in [*first, *rest]}) == 4

    async def test_cursor_of_another_span_is_refused_for_facts(self, store: Store) -> None:
        for n in range(2):
            await store.create(OWNER, a_session(f"s-{n}"))
            await store.record_delegation(OWNER, a_delegation(f"d-{n}"))
        others = [
            (await store.facts(OWNER, Span(agent="echo-agent"), 1)).next,
            (await store.delegations(OWNER, Span(), 1)).next,
        ]

        for cursor in (*others, "00000000-1", "0.00000000-1", "", "x"):
            assert cursor is not None
            with pytest.raises(InvalidCursor):
                await store.facts(OWNER, Span(), 1, cursor)

    # Fates and size -----------------------------------------------------------------------------

    async def test_fates_of_open_closed_and_deleted_sessions(self, store: Store) -> None:
        for name in ("open", "done", "gone", "gone-open", "not-asked-for"):
            await store.create(OWNER, a_session(name))
        for name in ("done", "gone"):
            await store.apply(OWNER, name, finalized("completed"))
        for name in ("gone", "gone-open"):
            await store.delete_tree(OWNER, name, may_delete(name), a_stamp())

        found = await store.fates(OWNER, ["open", "done", "gone", "gone-open", "never-was", "open"])

        assert sorted(found, key=lambda fate: fate.session_id) == [
            Fate("done", State.COMPLETED),
            Fate("gone", State.COMPLETED, is_deleted=True),
            Fate("gone-open", State.CREATED, is_deleted=True),
            Fate("open", State.CREATED),
        ]
        assert [fate.has_ended for fate in found if fate.session_id == "open"] == [False]

    async def test_fates_of_none_are_none(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))

        assert await store.fates(OWNER, []) == []

    async def test_fates_of_many_at_once(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-7"))

        assert await store.fates(OWNER, [f"s-{n}" for n in range(40_000)]) == [Fate("s-7", State.CREATED)]

    async def test_size_counts_sessions_of_all_owners_and_grows(self, store: Store) -> None:
        before = (await store.totals()).size
        if before is None:
            pytest.skip("this store cannot tell")
        await store.create(OWNER, a_session("s-1"))
        await store.create(OTHER, a_session("s-1", owner=OTHER))
        await store.append(OWNER, "s-1", said("x" * 100_000), a_stamp())
        size = (await store.totals()).size

        assert size is not None
        assert (before.sessions, size.sessions) == (0, 2)
        assert size.bytes > before.bytes + 90_000  # existing free pages may hold some of it
        assert size.used_bytes > before.used_bytes + 90_000
