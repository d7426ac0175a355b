"""Callbacks: the message a parent gets when a child's run settles, in the same commit and once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from moorage.core import work
from moorage.core.errors import RunNotFound, SessionGone, SessionRunning, TurnNotFound
from moorage.core.query import LogQuery
from moorage.core.run import Join, RunState
from moorage.core.session import Needs, State
from moorage.core.turn import Retry
from moorage.ports import Store, SweepPart
from moorage.testing.builders import *
from moorage.testing.contract.runs import suspended
from moorage.testing.work import *


async def busy_parent(store: Store, *children: str, retry: Retry = Retry.RESUME, **fields: Any) -> Any:
    """Create a parent with a running turn that has asked children, which are queued; return its turn."""
    await launch(store, "p-1", "run-p")
    claimed = await taken(store, retry=retry)
    await start(store, claimed)
    for name in children:
        await launch(store, name, a_child_run(f"run-{name}", "p-1", "run-p", **fields), parent="p-1")
    return claimed


async def _completed(store: Store) -> None:
    await carry(store)


async def _failed(store: Store) -> None:
    for _ in range(3):
        await carry(store, "failed", error="broken")


async def _stopped(store: Store) -> None:
    await stop(store, "c-1", "run-c-1")


async def _stopped_at_work(store: Store) -> None:
    await carry(store, "stopped")


async def _expired(store: Store) -> None:
    await expire(store, after(60))


async def _lost(store: Store) -> None:
    claimed = await taken(store, retry=Retry.NEVER)
    await start(store, claimed)
    await store.apply(OWNER, "c-1", expiring(NOON + TOO_LATE))


async def _finalized(store: Store) -> None:
    await store.apply(OWNER, "c-1", finalized("failed"))


async def _deleted(store: Store) -> None:
    await store.delete_tree(OWNER, "c-1", may_delete("c-1"), a_stamp())


async def _swept(store: Store) -> None:
    step = await store.sweep(
        OWNER, lambda tree: "old" if tree[0].session_id == "c-1" else None, a_stamp(), SweepPart(before=after(9))
    )
    assert [tombstone.session_id for tombstone in step.gone] == ["c-1"]


ENDINGS: dict[str, tuple[str, str | None, Callable[[Store], Awaitable[None]]]] = {
    "completed": ("completed", None, _completed),
    "failed": ("failed", "agent_failed", _failed),
    "stopped": ("stopped", "stopped", _stopped),
    "stopped at work": ("stopped", None, _stopped_at_work),
    "expired": ("expired", "expired", _expired),
    "lost": ("failed", "launcher_lost", _lost),
    "closed": ("failed", "session_closed", _finalized),
    "deleted": ("stopped", "deleted", _deleted),
    "swept": ("stopped", "deleted", _swept),
}


class CallbackRules:
    """Rules of a change's callbacks, of `delete_tree`, and of `sweep` with running sessions."""

    # A parent that never had a launcher ---------------------------------------------------------

    async def test_callback_to_a_parent_never_launched_waits_and_starts_nothing(self, store: Store) -> None:
        await store.create(OWNER, a_session("p-1"))
        await launch(store, "c-1", a_child_run("run-c-1", "p-1"), parent="p-1")
        await carry(store)

        assert await inbox_of(store, "p-1") == {"callback:run-c-1": "waiting"}
        assert [entry.kind for entry in await whole_log(store, "p-1")][-1] == "callback"
        assert await take(store) is None
        assert not (await store.get(OWNER, "p-1")).launched

    async def test_closing_a_parent_never_launched_leaves_nothing_waiting(self, store: Store) -> None:
        await store.create(OWNER, a_session("p-1"))
        for name in ("c-1", "c-2"):
            await launch(store, name, a_child_run(f"run-{name}", "p-1"), parent="p-1")
        await carry(store)
        await store.apply(OWNER, "p-1", finalized())
        await carry(store)

        assert await inbox_of(store, "p-1") == {"callback:run-c-1": "consumed"}
        assert (await store.run(OWNER, "run-c-2")).callback == "parent_closed"

    async def test_manual_driver_gets_waiting_items_once(self, store: Store) -> None:
        await store.create(OWNER, a_session("p-1"))
        await launch(store, "p-2", "run-p")
        for child, parent in (("c-1", "p-1"), ("c-2", "p-1"), ("c-3", "p-2")):
            await launch(store, child, a_child_run(f"run-{child}", parent, agent_name="other"), parent=parent)
        for _ in range(3):
            await finish(store, await taken(store, agents=("other",)))
        ids = {"callback:run-c-1", "callback:run-c-3"}
        for parent in ("p-1", "p-2"):
            await store.apply(OWNER, parent, lambda view: work.handed_over(view, ids, a_stamp()))

        assert await inbox_of(store, "p-1") == {
            "callback:run-c-1": "consumed",
            "callback:run-c-2": "waiting",
        }
        assert await inbox_of(store, "p-2") == {"message:run-p": "waiting", "callback:run-c-3": "waiting"}

    async def test_first_turn_of_a_parent_gets_earlier_items(self, store: Store) -> None:
        await store.create(OWNER, a_session("p-1"))
        await launch(store, "c-1", a_child_run("run-c-1", "p-1"), parent="p-1")
        await carry(store)
        await ask(store, "p-1", "run-p")

        assert [item.item_id for item in (await taken(store)).items] == ["callback:run-c-1", "message:run-p"]

    async def test_callback_comes_with_the_childs_end_in_one_commit(self, store: Store) -> None:
        parent = await busy_parent(store, "c-1")
        await finish(store, parent)
        feed_end = await store.feed_end(OWNER)
        child = await taken(store, at=after(5))
        change = await finish(store, child, at=after(7), says="The answer is 42", result="42")

        assert [run.callback for run in change.runs] == ["delivered"]
        assert (await store.run(OWNER, "run-c-1")).callback == "delivered"
        assert await inbox_of(store, "p-1") == {"message:run-p": "consumed", "callback:run-c-1": "waiting"}
        assert await states_of(store, "p-1") == ["completed", "queued"]
        events = [event for event in await whole_feed(store) if event.id > feed_end]
        assert [(event.session_id, event.type) for event in events] == [
            ("c-1", "message"),
            ("c-1", "turn_ended"),
            ("c-1", "run_settled"),
            ("p-1", "callback"),
        ]

    async def test_callback_names_the_outcome_and_the_prompt(self, store: Store) -> None:
        await busy_parent(store, "c-1", "c-2", asked="find it", correlation="blue")
        await carry(store, at=after(7), result="found")

        (item,) = await all_items(store, "p-1", states=("waiting",))
        assert (item.item_id, item.kind, item.run_id, item.created_at) == (
            "callback:run-c-1",
            "callback",
            "run-p",
            after(7),
        )
        expected = {
            "child_session_id": "c-1",
            "run_id": "run-c-1",
            "agent_name": "echo-agent",
            "asked": "find it",
            "outcome": "completed",
            "result": "found",
            "error": None,
            "reason": None,
            "correlation": "blue",
            "still_out": 1,
        }
        assert expected.items() <= item.body.items()
        entry = (await whole_log(store, "p-1"))[-1]
        assert (entry.kind, entry.number, entry.data, entry.at) == ("callback", item.entry, item.body, after(7))

    @pytest.mark.parametrize("ending", ENDINGS)
    async def test_every_end_of_a_child_calls_back_once(self, store: Store, ending: str) -> None:
        parent = await busy_parent(store, "c-1", expires_at=after(60))
        outcome, reason, end = ENDINGS[ending]
        await end(store)

        (item,) = await all_items(store, "p-1", states=("waiting",))
        assert (item.item_id, item.body["outcome"], item.body["reason"]) == ("callback:run-c-1", outcome, reason)
        callbacks = [entry for entry in await whole_log(store, "p-1") if entry.kind == "callback"]
        assert len(callbacks) == 1
        await finish(store, parent)
        assert [item.item_id for item in (await taken(store, at=after(10**6))).items] == ["callback:run-c-1"]

    async def test_parent_at_rest_is_woken_by_a_callback(self, store: Store) -> None:
        await finish(store, await busy_parent(store, "c-1"))
        await carry(store)

        claimed = await taken(store)
        assert (claimed.session.session_id, claimed.turn.turn_id) == ("p-1", "p-1:t2")
        assert [run.run_id for run in claimed.runs] == ["run-p"]

    async def test_busy_parent_gets_all_callbacks_with_its_next_turn_in_order(self, store: Store) -> None:
        names = [f"c-{n}" for n in range(5)]
        parent = await busy_parent(store, *names)
        children = {(claimed := await taken(store)).session.session_id: claimed for _ in names}
        order = ["c-3", "c-0", "c-4", "c-1", "c-2"]
        for name in order:
            await finish(store, children[name])

        assert await states_of(store, "p-1") == ["running"]
        await finish(store, parent)
        assert await states_of(store, "p-1") == ["completed", "queued"]
        claimed = await taken(store)
        assert [item.item_id for item in claimed.items] == [f"callback:run-{name}" for name in order]
        assert [item.body["still_out"] for item in claimed.items] == [4, 3, 2, 1, 0]
        await finish(store, claimed)
        assert (await store.run(OWNER, "run-p")).state is RunState.COMPLETED
        assert await take(store) is None, "never an empty turn"

    async def test_callbacks_that_come_at_once_queue_one_turn(self, store: Store) -> None:
        names = [f"c-{n}" for n in range(8)]
        await finish(store, await busy_parent(store, *names))
        children = [await taken(store) for _ in names]
        await asyncio.gather(*(finish(store, child) for child in children))

        assert await states_of(store, "p-1") == ["completed", "queued"]
        assert len((await taken(store)).items) == 8

    async def test_message_and_callback_at_the_same_instant_both_arrive(self, store: Store) -> None:
        await finish(store, await busy_parent(store, "c-1"))
        child = await taken(store)
        await asyncio.gather(finish(store, child), ask(store, "p-1", "run-2"))

        claimed = await taken(store)
        assert {item.item_id for item in claimed.items} == {"callback:run-c-1", "message:run-2"}
        await finish(store, claimed)
        assert {run.state for run in await all_runs(store)} == {RunState.COMPLETED}

    async def test_lost_turn_gives_callbacks_back(self, store: Store) -> None:
        await finish(store, await busy_parent(store, "c-1"))
        await carry(store)
        again = await taken(store)
        await start(store, again)
        await expire(store, NOON + TOO_LATE)

        claimed = await taken(store, at=NOON + TOO_LATE)
        assert [(item.item_id, item.given) for item in claimed.items] == [("callback:run-c-1", 1)]
        assert claimed.items[0].body["outcome"] == "completed"

    async def test_grandparent_hears_the_final_answer_once(self, store: Store) -> None:
        await launch(store, "g-1", "run-g")
        grandparent = await taken(store)
        await launch(store, "p-1", a_child_run("run-p", "g-1", "run-g"), parent="g-1")
        parent = await taken(store)
        await launch(store, "c-1", a_child_run("run-c", "p-1", "run-p"), parent="p-1")
        await finish(store, parent, result="I have asked another agent")
        assert await all_items(store, "g-1", states=("waiting",)) == [], "the parent waits for its child"
        await carry(store, result="the detail")
        await carry(store, result="the answer")
        await finish(store, grandparent)

        (item,) = (await taken(store)).items
        assert (item.item_id, item.body["result"]) == ("callback:run-p", "the answer")

    # Joined

    async def test_joined_callbacks_wait_for_the_last(self, store: Store) -> None:
        names = ["c-1", "c-2", "c-3"]
        await finish(store, await busy_parent(store, *names, join=Join.ALL))
        for _ in names[:2]:
            await carry(store)
        assert await states_of(store, "p-1") == ["completed"]
        assert set((await inbox_of(store, "p-1")).values()) == {"consumed", "held"}
        await carry(store)

        claimed = await taken(store)
        assert [item.item_id for item in claimed.items] == [f"callback:run-{name}" for name in names]
        await finish(store, claimed)
        assert (await store.run(OWNER, "run-p")).state is RunState.COMPLETED

    @pytest.mark.parametrize("ending", ["failed", "stopped", "expired", "closed", "deleted", "swept"])
    async def test_joined_callbacks_are_delivered_however_the_last_ends(self, store: Store, ending: str) -> None:
        await finish(store, await busy_parent(store, "c-2", "c-1", join=Join.ALL, expires_at=after(60)))
        await carry(store)
        assert await take(store, agents=("nobody",)) is None
        await ENDINGS[ending][2](store)

        items = (await taken(store, at=after(60))).items
        assert [item.item_id for item in items] == ["callback:run-c-2", "callback:run-c-1"]

    async def test_joined_children_that_are_deleted_together_are_delivered_together(self, store: Store) -> None:
        await launch(store, "p-1", "run-p")
        parent = await taken(store)
        await store.create(OWNER, a_session("group"))
        for name in ("c-1", "c-2"):
            await launch(store, name, a_child_run(f"run-{name}", "p-1", "run-p", join=Join.ALL), parent="group")
        await finish(store, parent)
        await store.delete_tree(OWNER, "group", may_delete("group"), a_stamp())

        assert [item.item_id for item in (await taken(store)).items] == ["callback:run-c-2", "callback:run-c-1"]

    async def test_joined_children_wait_only_for_those_of_the_same_run(self, store: Store) -> None:
        parent = await busy_parent(store, "c-1", join=Join.ALL)
        await ask(store, "p-1", "run-q")
        await launch(store, "c-2", a_child_run("run-c-2", "p-1", "run-q", join=Join.ALL), parent="p-1")
        await carry(store)

        assert (await inbox_of(store, "p-1"))["callback:run-c-1"] == "waiting"
        await finish(store, parent)
        assert (await taken(store)).session.session_id == "c-2"

    async def test_those_that_come_one_by_one_do_not_wait_for_those_that_are_joined(self, store: Store) -> None:
        await finish(store, await busy_parent(store, "c-1", "c-2", join=Join.ALL))
        await launch(store, "c-3", a_child_run("run-c-3", "p-1", "run-p"), parent="p-1")
        first, _, third = [await taken(store) for _ in range(3)]
        await finish(store, first)
        await finish(store, third)

        assert await inbox_of(store, "p-1") == {
            "message:run-p": "consumed",
            "callback:run-c-1": "held",
            "callback:run-c-3": "waiting",
        }

    async def test_callback_to_a_failed_run_does_not_wait(self, store: Store) -> None:
        await busy_parent(store, "c-1", "c-2", retry=Retry.NEVER, join=Join.ALL)
        await store.apply(OWNER, "p-1", expiring(NOON + TOO_LATE))
        assert (await store.run(OWNER, "run-p")).state == "failed"
        await carry(store)

        assert (await taken(store)).session.session_id == "c-2", "it was queued before"
        (item,) = (await taken(store)).items
        assert (item.item_id, item.run_id) == ("callback:run-c-1", None)

    async def test_callback_to_a_stopped_run_is_logged_without_a_turn(self, store: Store) -> None:
        parent = await busy_parent(store, "c-1", "c-2", "c-3", join=Join.ALL)
        await carry(store)
        await finish(store, parent, "stopped")
        await carry(store)
        await carry(store, "stopped")

        assert await inbox_of(store, "p-1") == {
            "message:run-p": "consumed",
            **{f"callback:run-c-{number}": "consumed" for number in (1, 2, 3)},
        }
        assert len(await store.log(OWNER, "p-1", LogQuery(kinds=("callback",), limit=9))) == 3
        assert await take(store) is None

    # A parent that cannot continue

    async def test_callback_to_a_closed_parent_is_dropped_and_said_so(self, store: Store) -> None:
        parent = await busy_parent(store, "c-1")
        await finish(store, parent)
        await store.apply(OWNER, "p-1", finalized())
        before = await whole_log(store, "p-1")
        await carry(store)

        assert (await store.run(OWNER, "run-c-1")).callback == "parent_closed"
        assert await whole_log(store, "p-1") == before
        assert await all_items(store, "p-1", states=("held", "waiting", "given")) == []

    async def test_callback_to_a_deleted_parent_goes_nowhere(self, store: Store) -> None:
        await launch(store, "p-1", "run-p")
        await carry(store)
        await launch(store, "c-1", a_child_run("run-c-1", "p-1", "run-p"))
        await store.delete_tree(OWNER, "p-1", may_delete("p-1"), a_stamp())
        await store.create(OWNER, a_session("s-9", "p-1"))  # a name may be the id of a deleted session
        async with _untouched(store, "s-9"):
            await carry(store)

        assert (await store.run(OWNER, "run-c-1")).callback == "parent_deleted"

    async def test_callback_to_a_parent_that_no_launcher_has_to_do_with_waits(self, store: Store) -> None:
        await store.create(OWNER, a_session("p-1"))
        await launch(store, "c-1", a_child_run("run-c-1", "p-1"), parent="p-1")
        await carry(store)

        assert await inbox_of(store, "p-1") == {"callback:run-c-1": "waiting"}
        assert await take(store) is None
        await ask(store, "p-1", "run-p")
        assert [item.item_id for item in (await taken(store)).items] == ["callback:run-c-1", "message:run-p"]

    async def test_callback_to_a_parent_that_a_person_suspended_waits(self, store: Store) -> None:
        await finish(store, await busy_parent(store, "c-1"))
        await store.apply(OWNER, "p-1", suspended())
        await carry(store)

        assert (await inbox_of(store, "p-1"))["callback:run-c-1"] == "waiting"
        assert await take(store) is None
        assert (await store.get(OWNER, "p-1")).state is State.SUSPENDED

    async def test_callback_to_a_parent_that_waits_for_a_person_waits_too(self, store: Store) -> None:
        parent = await busy_parent(store, "c-1")
        await store.apply(OWNER, "p-1", asked(an_approval("p-1", "a-1")))
        await finish(store, parent)
        await carry(store)

        assert await take(store) is None
        await store.apply(OWNER, "p-1", answered("approve"), needs=Needs(approval="a-1"))
        assert [item.kind.value for item in (await taken(store)).items] == ["callback", "decision"]

    async def test_polled_child_sends_no_callback(self, store: Store) -> None:
        await launch(store, "p-1", "run-p")
        await carry(store)
        await launch(store, "c-1", a_run("run-c-1", parent_session_id="p-1", parent_run_id="run-p"), parent="p-1")
        async with _untouched(store, "p-1"):
            await carry(store)

        assert (await store.run(OWNER, "run-c-1")).callback is None

    # Deleting

    async def test_tree_with_a_live_turn_is_not_deleted(self, store: Store) -> None:
        await busy_parent(store, "c-1")
        child = await taken(store)

        async with nothing_changes(store):
            with pytest.raises(SessionRunning) as refused:
                await store.delete_tree(OWNER, "p-1", may_delete("p-1"), a_stamp())
        assert refused.value.facts["session_ids"] == ["c-1", "p-1"]
        await finish(store, child)
        with pytest.raises(SessionRunning) as refused:
            await store.delete_tree(OWNER, "p-1", may_delete("p-1"), a_stamp(), dry_run=True)
        assert refused.value.facts["session_ids"] == ["p-1"]

    async def test_forced_deletion_deletes_running_sessions(self, store: Store) -> None:
        parent = await busy_parent(store, "c-1")
        await ask(store, "p-1", "run-q")
        forced = may_delete("p-1", force=True)
        would = await store.delete_tree(OWNER, "p-1", forced, a_stamp(), dry_run=True)
        does = await store.delete_tree(OWNER, "p-1", forced, a_stamp())

        assert (would.runs, does.runs, does.deleted_sessions) == (3, 3, 2)
        assert (await all_runs(store), await all_items(store)) == ([], [])
        assert await take(store) is None
        assert await store.overdue(after(10**6), 10) == []
        for missing in (store.run(OWNER, "run-p"), store.find_turn(OWNER, "p-1:t1")):
            with pytest.raises((RunNotFound, TurnNotFound)):
                await missing
        with pytest.raises(SessionGone):
            await finish(store, parent)
        assert await store.check() == []

    async def test_key_of_a_run_that_was_deleted_is_free(self, store: Store) -> None:
        await launch(store, "s-1", a_run("run-1", idempotency_key="k-1"))
        await store.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp())
        await launch(store, "s-2", a_run("run-2", idempotency_key="k-1"))

        known = await store.run_by_key(OWNER, "k-1")
        assert known is not None
        assert known.run_id == "run-2"

    async def test_deleted_tree_tells_only_parents_outside_it(self, store: Store) -> None:
        parent = await busy_parent(store, "c-1")
        await launch(store, "d-1", a_child_run("run-d-1", "c-1", "run-c-1"), parent="c-1")
        await store.delete_tree(OWNER, "c-1", may_delete("c-1"), a_stamp(after(3)))

        assert await inbox_of(store, "p-1") == {"message:run-p": "given", "callback:run-c-1": "waiting"}
        await finish(store, parent)
        (item,) = (await taken(store)).items
        assert (item.body["reason"], item.created_at, item.body["still_out"]) == ("deleted", after(3), 0)

    async def test_dry_run_of_deletion_sends_no_callback(self, store: Store) -> None:
        await busy_parent(store, "c-1")

        async with nothing_changes(store):
            await store.delete_tree(OWNER, "c-1", may_delete("c-1"), a_stamp(), dry_run=True)
            await store.sweep(OWNER, lambda _: "old", a_stamp(), SweepPart(before=after(9)), dry_run=True)

    async def test_sweep_of_parent_and_child_sends_no_callback(self, store: Store) -> None:
        await launch(store, "p-1", "run-p")
        await launch(store, "c-1", a_child_run("run-c-1", "p-1", "run-p"))
        end = await store.feed_end(OWNER)
        step = await store.sweep(OWNER, lambda _: "old", a_stamp(), SweepPart(before=after(9)))

        assert [tombstone.session_id for tombstone in step.gone] == ["p-1", "c-1"]
        events = [event.type for event in await whole_feed(store) if event.id > end]
        assert events == ["session_deleted", "session_deleted"]

    async def test_session_that_runs_is_in_use(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        assert not (await store.get(OWNER, "s-1")).is_in_use(NOON)
        claimed = await taken(store)

        assert (await store.get(OWNER, "s-1")).is_in_use(after(10**6))
        await finish(store, claimed)
        assert not (await store.get(OWNER, "s-1")).is_in_use(NOON)

    async def test_deleting_a_parent_while_callbacks_arrive_settles_all_of_them(self, store: Store) -> None:
        await launch(store, "p-1", "run-p")
        await carry(store)
        for n in range(4):
            await launch(store, f"c-{n}", a_child_run(f"run-{n}", "p-1", "run-p"))
        children = [await taken(store) for _ in range(4)]
        force = may_delete("p-1", force=True)
        await asyncio.gather(
            *(finish(store, child) for child in children[:2]),
            store.delete_tree(OWNER, "p-1", force, a_stamp()),
            *(finish(store, child) for child in children[2:]),
        )

        runs = await all_runs(store)
        assert {run.state for run in runs} == {RunState.COMPLETED}
        assert {run.callback for run in runs} <= {"delivered", "parent_deleted"}
        assert await all_items(store, states=("waiting",)) == []


class _untouched:
    """Assert that the block leaves one session and its inbox unchanged."""

    def __init__(self, store: Store, ref: str) -> None:
        self._store, self._ref = store, ref

    async def __aenter__(self) -> None:
        self._before = await self._look()

    async def __aexit__(self, *failure: object) -> None:
        if failure[0] is None:
            assert await self._look() == self._before

    async def _look(self) -> object:
        return await whole_log(self._store, self._ref), await inbox_of(self._store, self._ref)
