"""Runs and inboxes: asked for once, settled once, and waiting in between."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from moorage.core import work
from moorage.core.errors import (
    HeldByAnother,
    IdTaken,
    InvalidCursor,
    ItemNotFound,
    KeyReused,
    RunNotFound,
    RunSettled,
    SessionClosed,
    SessionNotFound,
)
from moorage.core.inbox import ItemState
from moorage.core.run import RunQuery, RunState
from moorage.core.session import HOLD_FOR, Change, Needs, State, View
from moorage.core.turn import Retry
from moorage.ports import Decision, Store
from moorage.testing.builders import *
from moorage.testing.work import *


def suspended(by: str = "person") -> Decision:
    """Return a decision for `apply` that suspends the session."""
    return lambda view: work.after(view, view.session.suspend(a_stamp(), by=by), a_stamp())


def resumed(at: Any = NOON) -> Decision:
    """Return a decision for `apply`: a person resumes the session."""
    return lambda view: work.after(view, view.session.resume("ann", "secret", a_stamp(at)), a_stamp(at))


def released(at: Any = NOON) -> Decision:
    """Return a decision for `apply`: the hold is released."""
    return lambda view: work.after(view, view.session.release(a_stamp(at)), a_stamp(at))


class RunRules:
    """Rules of `run`, `runs`, `run_by_key` and `inbox`, and of the changes that settle a run."""

    # Requests and reads

    async def test_run_is_kept_as_it_was_asked_for(self, store: Store) -> None:
        run = a_run(
            "run-1",
            asked="go",
            correlation={"n": [1, None]},
            idempotency_key="k-1",
            by="ann",
            expires_at=after(60),
            parent_session_id="p-1",
            parent_run_id="run-0",
        )
        session = await launch(store, "s-1", run)

        kept = await store.run(OWNER, "run-1")
        expected = replace(run, session_id="s-1", task_id=session.task_id, asked_entry=2)
        assert kept == expected
        assert await store.run_by_key(OWNER, "k-1") == expected

    async def test_unknown_run_is_not_found(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")

        for run_id in ("run-2", "s-1", "", "rün", "\ud800"):
            with pytest.raises(RunNotFound):
                await store.run(OWNER, run_id)
        assert await store.run_by_key(OWNER, "nothing") is None

    async def test_idempotency_key_asks_once(self, store: Store) -> None:
        await launch(store, "s-1", a_run("run-1", idempotency_key="k-1"))
        await store.create(OWNER, a_session("s-2"))

        async with nothing_changes(store):
            for ref in ("s-1", "s-2"):
                with pytest.raises(KeyReused):
                    await ask(store, ref, a_run("run-2", idempotency_key="k-1"))
            with pytest.raises(KeyReused):
                await launch(store, "s-3", a_run("run-2", idempotency_key="k-1"))
        assert [run.run_id for run in await all_runs(store)] == ["run-1"]

    async def test_idempotency_key_of_a_settled_run_is_still_its_own(self, store: Store) -> None:
        await launch(store, "s-1", a_run("run-1", idempotency_key="k-1"))
        await carry(store)

        with pytest.raises(KeyReused):
            await ask(store, "s-1", a_run("run-2", idempotency_key="k-1"))
        known = await store.run_by_key(OWNER, "k-1")
        assert known is not None
        assert (known.run_id, known.state) == ("run-1", RunState.COMPLETED)

    async def test_one_of_many_that_ask_with_one_key_wins(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        asks = [ask(store, "s-1", a_run(f"run-{n}", idempotency_key="k-1")) for n in range(5)]
        outcomes = await asyncio.gather(*asks, return_exceptions=True)

        assert [type(outcome) for outcome in outcomes].count(KeyReused) == 4
        assert len(await all_runs(store)) == 1
        assert (await store.get(OWNER, "s-1")).last_entry == 2

    async def test_closed_session_takes_no_runs(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", finalized())

        async with nothing_changes(store):
            with pytest.raises(SessionClosed):
                await ask(store, "s-1", "run-1")

    async def test_runs_are_listed_newest_first_by_filters(self, store: Store) -> None:
        await launch(store, "s-1", "run-1", agent_name="planner")
        await launch(store, "s-2", a_child_run("run-2", "s-1"), parent="s-1")
        await ask(store, "s-1", a_run("run-3", agent_name="planner"))
        await carry(store)  # the run of s-2: no launcher takes the planner's turns
        await ask(store, "s-2", a_child_run("run-4", "s-1", agent_name="planner"))

        async def listed(**filters: Any) -> list[str]:
            return [run.run_id for run in await all_runs(store, **filters)]

        assert await listed() == ["run-4", "run-3", "run-2", "run-1"]
        assert await listed(session_id="s-1") == ["run-3", "run-1"]
        assert await listed(parent_session_id="s-1") == ["run-4", "run-2"]
        assert await listed(parent_session_id="s-1", open_only=True) == ["run-4"]
        assert await listed(parent_session_id="s-1", session_id="s-1") == []
        assert await listed(agent="planner") == ["run-4", "run-3", "run-1"]
        assert await listed(state="completed") == ["run-2"]
        assert await listed(state="queued", session_id="s-2") == ["run-4"]
        assert await listed(open_only=True) == ["run-4", "run-3", "run-1"]
        assert await listed(open_only=True, state="completed") == []
        assert await listed(session_id="nobody") == []

    @pytest.mark.parametrize("filters", [{}, {"session_id": "s-1"}, {"parent_session_id": "p-1"}, {"state": "queued"}])
    async def test_pages_of_runs_hold_each_once(self, store: Store, filters: dict[str, str]) -> None:
        await store.create(OWNER, a_session("s-1"))
        for n in range(7):
            await ask(store, "s-1", a_child_run(f"run-{n}", "p-1"))

        for page in (1, 2, 3, 7):
            found = await all_runs(store, page=page, **filters)
            assert [run.run_id for run in found] == [f"run-{n}" for n in reversed(range(7))]

    async def test_cursor_belongs_to_its_list(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        for n in range(3):
            await ask(store, "s-1", f"run-{n}")
        runs = (await store.runs(OWNER, RunQuery(limit=1))).next
        items = (await store.inbox(OWNER, states=("waiting",), limit=1)).next

        for cursor in (runs, items, "nonsense", ""):
            with pytest.raises(InvalidCursor):
                await store.runs(OWNER, RunQuery(limit=1, session_id="s-1", cursor=cursor))
            with pytest.raises(InvalidCursor):
                await store.inbox(OWNER, ref="s-1", states=("waiting",), limit=1, cursor=cursor)

    # Reasons to wait

    async def test_run_does_not_settle_while_something_waits_for_it(self, store: Store) -> None:
        await launch(store, "p-1", "run-1")
        parent = await taken(store)
        await launch(store, "c-1", a_child_run("run-2", "p-1", "run-1"), parent="p-1")
        await carry(store)
        await finish(store, parent, result="too early")

        run = await store.run(OWNER, "run-1")
        assert (run.state, run.result, run.settled_at) == (RunState.QUEUED, None, None)
        await carry(store, result="now")
        run = await store.run(OWNER, "run-1")
        assert (run.state, run.result, run.turns) == (RunState.COMPLETED, "now", 2)

    async def test_run_does_not_settle_while_a_child_has_to_call_back(self, store: Store) -> None:
        await launch(store, "p-1", "run-1")
        parent = await taken(store)
        await launch(store, "c-1", a_child_run("run-2", "p-1", "run-1"), parent="p-1")
        await finish(store, parent)

        assert (await store.run(OWNER, "run-1")).state is RunState.QUEUED
        assert await states_of(store, "p-1") == ["completed"], "there is nothing to do until the child calls back"
        await carry(store)
        await carry(store)
        assert (await store.run(OWNER, "run-1")).state is RunState.COMPLETED

    async def test_run_does_not_wait_for_children_that_are_polled(self, store: Store) -> None:
        await launch(store, "p-1", "run-1")
        parent = await taken(store)
        await launch(store, "c-1", a_run("run-2", parent_session_id="p-1", parent_run_id="run-1"), parent="p-1")
        await finish(store, parent)

        assert (await store.run(OWNER, "run-1")).state is RunState.COMPLETED

    async def test_run_does_not_settle_while_a_person_was_asked(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store)
        await start(store, claimed)
        await store.apply(OWNER, "s-1", asked(an_approval("s-1", "a-1")))
        await finish(store, claimed)

        assert (await store.run(OWNER, "run-1")).state is RunState.QUEUED
        assert await take(store) is None
        await store.apply(OWNER, "s-1", answered("approve", after(5)), needs=Needs(approval="a-1"))
        again = await taken(store)
        assert [(item.kind.value, item.body["decision"]) for item in again.items] == [("decision", "approve")]
        await finish(store, again)
        assert (await store.run(OWNER, "run-1")).state is RunState.COMPLETED

    async def test_approval_that_expires_wakes_its_session(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store)
        await store.apply(OWNER, "s-1", asked(an_approval("s-1", "a-1", expires_at=after(60))))
        await finish(store, claimed)
        await store.apply(OWNER, "s-1", run_out(after(60)), needs=Needs(approval="a-1"))

        assert [item.body["state"] for item in (await taken(store, at=after(60))).items] == ["expired"]

    async def test_message_does_not_cancel_an_approval(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store)
        await store.apply(OWNER, "s-1", asked(an_approval("s-1", "a-1")))
        await finish(store, claimed)
        await ask(store, "s-1", "run-2")

        assert await take(store) is None
        await store.apply(OWNER, "s-1", answered("reject"), needs=Needs(approval="a-1"))
        assert [item.kind.value for item in (await taken(store)).items] == ["message", "decision"]

    async def test_turn_that_waits_for_an_answer_hears_it_itself(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store)
        await store.apply(OWNER, "s-1", asked(an_approval("s-1", "a-1", waits=True)))
        assert (await store.get(OWNER, "s-1")).state is State.ACTIVE
        await store.apply(OWNER, "s-1", answered("approve"), needs=Needs(approval="a-1"))

        assert await inbox_of(store, "s-1") == {"message:run-1": "given", "decision:a-1": "given"}
        await finish(store, claimed)
        assert (await store.run(OWNER, "run-1")).state is RunState.COMPLETED
        assert await inbox_of(store, "s-1") == {"message:run-1": "consumed", "decision:a-1": "consumed"}

    @pytest.mark.parametrize("outcome", ["completed", "failed", "stopped", "lost"])
    async def test_runs_that_waited_for_one_answer_all_settle(self, store: Store, outcome: str) -> None:
        await launch(store, "s-1", "run-1")
        await ask(store, "s-1", "run-2")
        claimed = await taken(store)
        await store.apply(OWNER, "s-1", asked(an_approval("s-1", "a-1")))
        await finish(store, claimed)
        await store.apply(OWNER, "s-1", answered("approve"), needs=Needs(approval="a-1"))
        for _ in range(3):
            if (claimed_again := await take(store, retry=Retry.NEVER)) is not None:
                await start(store, claimed_again)
                await (expire(store, NOON + TOO_LATE) if outcome == "lost" else finish(store, claimed_again, outcome))

        assert {run.state.value for run in await all_runs(store)} == {"failed" if outcome == "lost" else outcome}
        assert await all_items(store, states=("held", "waiting", "given")) == []
        assert await take(store) is None

    # Actions of people in between

    async def test_input_to_a_session_suspended_by_a_person_queues_no_turn(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await carry(store)
        await store.apply(OWNER, "s-1", suspended())
        await ask(store, "s-1", "run-2", wakes=False)

        assert await states_of(store, "s-1") == ["completed"]
        assert await inbox_of(store, "s-1") == {"message:run-1": "consumed", "message:run-2": "waiting"}

    async def test_ask_of_a_person_wakes_a_session_suspended_by_a_person(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await carry(store)
        await store.apply(OWNER, "s-1", suspended())
        await ask(store, "s-1", "run-2")

        session = await store.get(OWNER, "s-1")
        assert (session.state, session.suspended_by) == (State.ACTIVE, None)
        assert (await taken(store)).turn.turn_id == "s-1:t2"

    async def test_turns_that_waited_for_holds_are_taken_oldest_first(self, store: Store) -> None:
        for name in ("s-1", "s-2", "s-3"):
            await launch(store, name, f"run-{name}")
        for name, at in (("s-1", after(60)), ("s-2", NOON), ("s-3", NOON)):
            await store.apply(OWNER, name, resumed(at))
        assert await take(store) is None
        later = after(3600)

        first = await taken(store, at=later)
        await give_back(store, first, later)
        assert [(await taken(store, at=later)).turn.session_id for _ in range(3)] == ["s-1", "s-2", "s-3"]

    async def test_ask_of_the_holder_ends_its_hold_in_the_same_commit(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", resumed())
        change = await ask(store, "s-1", "run-1", holder="ann", before=["one", "two"])

        assert [entry.kind for entry in change.entries] == ["released", "message", "message", "message"]
        assert (await store.get(OWNER, "s-1")).hold is None
        assert (await taken(store)).session.session_id == "s-1"

    async def test_ask_while_another_holds_the_session_is_refused_and_changes_nothing(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", resumed())
        before = await store.get(OWNER, "s-1")
        with pytest.raises(HeldByAnother):
            await ask(store, "s-1", "run-1", holder="bob")

        assert await store.get(OWNER, "s-1") == before
        assert await all_runs(store) == []

    async def test_turn_that_was_queued_is_not_given_out_once_a_person_suspended_the_session(
        self, store: Store
    ) -> None:
        await launch(store, "s-1", "run-1")
        await store.apply(OWNER, "s-1", suspended())

        assert await take(store) is None
        assert await states_of(store, "s-1") == ["stopped"]
        assert (await store.get(OWNER, "s-1")).state is State.SUSPENDED
        await store.apply(OWNER, "s-1", resumed())
        await store.apply(OWNER, "s-1", released())
        assert (await taken(store)).turn.turn_id == "s-1:t2"

    async def test_session_suspended_by_its_agent_is_woken(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await carry(store)
        await store.apply(OWNER, "s-1", suspended(by="agent"))
        await ask(store, "s-1", "run-2")

        assert (await taken(store)).session.state is State.ACTIVE

    async def test_session_that_a_person_drives_is_given_out_when_the_hold_ends(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", resumed())
        await ask(store, "s-1", "run-1", at=after(1), queue=True)

        (turn,) = await turns_of(store, "s-1")
        assert turn.not_before == NOON + HOLD_FOR
        assert await take(store, at=NOON + HOLD_FOR - timedelta(microseconds=1)) is None
        assert (await taken(store, at=NOON + HOLD_FOR)).session.session_id == "s-1"

    async def test_session_that_a_person_takes_over_before_its_turn_is_given_out_later(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await launch(store, "s-2", "run-2")
        await store.apply(OWNER, "s-1", lambda view: view.session.resume("ann", "secret", a_stamp()))

        assert (await taken(store)).session.session_id == "s-2", "others need not wait for it"
        assert (await store.find_turn(OWNER, "s-1:t1")).not_before == NOON + HOLD_FOR
        await store.append(OWNER, "s-1", said("still here"), a_stamp(after(60)), token="secret")
        assert await take(store, at=NOON + HOLD_FOR) is None, "a write with the token renewed the hold"
        assert (await taken(store, at=after(60) + HOLD_FOR)).session.session_id == "s-1"

    async def test_session_that_is_released_is_given_out_at_once(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", resumed())
        await ask(store, "s-1", "run-1", queue=True)
        await store.apply(OWNER, "s-1", released(after(5)))

        assert (await taken(store, at=after(5))).session.session_id == "s-1"

    async def test_many_sessions_that_people_drive_hide_no_other(self, store: Store) -> None:
        for n in range(120):
            await launch(store, f"held-{n}", f"run-{n}")
            await store.apply(OWNER, f"held-{n}", lambda view: view.session.resume("ann", "secret", a_stamp()))
        await launch(store, "free", "run-free")

        assert (await taken(store)).session.session_id == "free"

    # Ends

    async def test_stopping_a_waiting_run_ends_it_at_once(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await stop(store, "s-1", "run-1", after(1))

        run = await store.run(OWNER, "run-1")
        assert (run.state, run.settled_at, run.reason) == (RunState.STOPPED, after(1), "stopped")
        assert await states_of(store, "s-1") == ["stopped"]
        assert await inbox_of(store, "s-1") == {"message:run-1": "consumed"}
        assert await take(store) is None

    async def test_stopping_one_run_leaves_the_others(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await ask(store, "s-1", "run-2")
        await stop(store, "s-1", "run-1")

        assert [item.item_id for item in (await taken(store)).items] == ["message:run-2"]

    async def test_stopping_a_running_run_asks_its_launcher(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await start(store, await taken(store))
        await ask(store, "s-1", "run-2")
        await stop(store, "s-1", None)

        assert (await store.find_turn(OWNER, "s-1:t1")).stop_requested
        assert (await store.run(OWNER, "run-1")).state is RunState.RUNNING
        assert (await store.run(OWNER, "run-2")).state is RunState.STOPPED

    async def test_stopped_run_consumes_its_waiting_items(self, store: Store) -> None:
        await launch(store, "p-1", "run-1")
        parent = await taken(store)
        await launch(store, "c-1", a_child_run("run-2", "p-1", "run-1"), parent="p-1")
        await carry(store)
        await finish(store, parent, "stopped")

        assert await inbox_of(store, "p-1") == {"message:run-1": "consumed", "callback:run-2": "consumed"}
        assert await take(store) is None

    async def test_settled_run_cannot_be_stopped(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await carry(store)

        async with nothing_changes(store):
            for run_id in ("run-1", "run-2"):
                with pytest.raises(RunSettled):
                    await stop(store, "s-1", run_id)
            await stop(store, "s-1", None)

    async def test_run_not_taken_in_time_expires(self, store: Store) -> None:
        await launch(store, "s-1", a_run("run-1", expires_at=after(60)))
        assert await expire(store, after(59)) == []
        assert await expire(store, after(60)) == ["s-1"]

        run = await store.run(OWNER, "run-1")
        assert (run.state, run.reason, run.settled_at) == (RunState.EXPIRED, "expired", after(60))
        assert await inbox_of(store, "s-1") == {"message:run-1": "consumed"}
        assert await take(store, at=after(60)) is None
        assert await store.overdue(after(10**6), 10) == []

    async def test_due_runs_are_those_of_one_owner_that_no_launcher_took_in_time(self, store: Store) -> None:
        await launch(store, "late", a_run("late", expires_at=after(60)))
        await launch(store, "early", a_run("early", expires_at=after(30)))
        await launch(store, "patient", a_run("patient", expires_at=after(61)))
        await launch(store, "endless", "endless")

        async def due(owner: str = OWNER) -> list[str]:
            return sorted(run.run_id for run in (await store.runs(owner, RunQuery(due_at=after(60)))).items)

        assert (await due(), await due(OTHER)) == (["early", "late"], [])
        assert await store.next_expiry(OWNER) == after(30)
        assert len((await store.runs(OWNER, RunQuery(due_at=after(60), limit=1))).items) == 1
        assert (await taken(store)).session.session_id == "late"
        assert await due() == ["early"]
        await store.apply(OWNER, "early", lambda view: work.untaken(view, a_stamp(after(60))))

        assert (await due(), await store.next_expiry(OWNER)) == ([], after(61))
        assert (await store.run(OWNER, "early")).state is RunState.EXPIRED

    async def test_callers_that_are_no_launcher_judge_no_lease(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await start(store, await taken(store))
        await ask(store, "s-1", a_run("run-2", expires_at=after(60)))
        await store.apply(OWNER, "s-1", lambda view: work.untaken(view, a_stamp(after(10**6))))

        states = {run.run_id: run.state.value for run in await all_runs(store)}
        assert states == {"run-1": "running", "run-2": "expired"}
        assert await states_of(store, "s-1") == ["running"]

    async def test_run_that_was_taken_does_not_expire(self, store: Store) -> None:
        await launch(store, "s-1", a_run("run-1", expires_at=after(60)))
        claimed = await taken(store)
        await start(store, claimed)
        assert await store.overdue(after(61), 10) == []
        await finish(store, claimed, "failed", at=after(62))

        assert await store.overdue(after(10**6), 10) == []
        assert (await store.run(OWNER, "run-1")).state is RunState.QUEUED

    async def test_run_whose_turn_was_never_started_may_still_expire(self, store: Store) -> None:
        await launch(store, "s-1", a_run("run-1", expires_at=after(60)))
        await taken(store)
        await expire(store, NOON + LATE)

        assert await expire(store, after(60)) == ["s-1"]
        assert (await store.run(OWNER, "run-1")).state is RunState.EXPIRED

    @pytest.mark.parametrize(
        ("outcome", "state"), [("completed", "completed"), ("failed", "failed"), ("abandoned", "stopped")]
    )
    async def test_closing_settles_open_runs(self, store: Store, outcome: str, state: str) -> None:
        await launch(store, "s-1", "run-1")
        await ask(store, "s-1", "run-2")
        await store.apply(OWNER, "s-1", finalized(outcome, summary="all in all"))

        runs = await all_runs(store)
        assert {(run.state.value, run.result, run.reason) for run in runs} == {(state, "all in all", "session_closed")}
        assert await states_of(store, "s-1") == ["stopped"]
        assert set((await inbox_of(store, "s-1")).values()) == {"consumed"}
        assert await take(store) is None

    async def test_turn_that_closes_its_own_session_ends_with_it(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store)
        await store.apply(OWNER, "s-1", finalized(token=token_of(claimed)))

        session = await store.get(OWNER, "s-1")
        assert (session.state, session.live_turn, session.hold) == (State.COMPLETED, None, None)
        assert await states_of(store, "s-1") == ["stopped"]
        assert (await store.run(OWNER, "run-1")).state is RunState.COMPLETED

    # The inbox

    async def test_inbox_is_listed_oldest_first_by_state_and_session(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", "planner"))
        await store.create(OWNER, a_session("s-2"))
        for n, ref in enumerate(("s-2", "s-1", "s-2", "s-1")):
            await ask(store, ref, f"run-{n}")
        await taken(store)  # those of s-2

        async def listed(*states: str, ref: str | None = None) -> list[str]:
            return [item.item_id for item in await all_items(store, ref, states=states, page=1)]

        assert await listed("waiting") == ["message:run-1", "message:run-3"]
        assert await listed("given") == ["message:run-0", "message:run-2"]
        assert await listed("waiting", "given") == [f"message:run-{n}" for n in range(4)]
        assert await listed("waiting", "given", ref="planner") == ["message:run-1", "message:run-3"]
        assert await listed("consumed") == []
        assert await listed() == []
        with pytest.raises(SessionNotFound):
            await listed("waiting", ref="nobody")

    async def test_dead_letter_can_be_sent_again(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        for _ in range(3):
            await carry(store, "failed")
        (aside,) = await all_items(store, states=("dead_letter",))
        assert (aside.item_id, aside.given, aside.body["content"]) == ("message:run-1", 3, "begin")
        change = await send_again(store, "s-1", "message:run-1")

        assert change.items[0].body == aside.body
        claimed = await taken(store)
        assert [(item.item_id, item.given, item.body["content"]) for item in claimed.items] == [
            ("message:run-1", 0, "begin")
        ]
        assert claimed.runs == (), "its run is over"
        await finish(store, claimed)
        assert await inbox_of(store, "s-1") == {"message:run-1": "consumed"}

    async def test_item_is_found_by_its_id_until_it_is_consumed(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await launch(store, "s-2", "run-2")
        for state in ("waiting", "given", "consumed"):
            expected = {item.item_id: item for item in await all_items(store)}
            assert [item.state.value for item in expected.values()] == [state, state]
            for item_id, item in expected.items():
                if state == "consumed":
                    with pytest.raises(ItemNotFound):
                        await store.item(OWNER, item_id)
                else:
                    assert await store.item(OWNER, item_id) == item
            if state == "waiting":
                claims = [await taken(store), await taken(store)]
            elif state == "given":
                for claimed in claims:
                    await finish(store, claimed)
        for item_id in ("nothing", "ïtem", ""):
            with pytest.raises(ItemNotFound):
                await store.item(OWNER, item_id)

    async def test_only_dead_letters_are_sent_again(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await launch(store, "s-2", "run-2")

        async with nothing_changes(store):
            await send_again(store, "s-1", "message:run-1")
            for item_id in ("message:run-2", "nothing", "ïtem"):
                with pytest.raises(ItemNotFound):
                    await send_again(store, "s-1", item_id)

    async def test_decision_sees_a_session_with_its_work(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await ask(store, "s-1", "run-2")
        await taken(store)
        await ask(store, "s-1", "run-3")
        seen: list[View] = []

        def look(view: View) -> Change:
            seen.append(view)
            return Change(session=view.session)

        await store.apply(OWNER, "s-1", look, needs=Needs(turn="s-1:t1", item="message:run-3"))
        view = seen[0]
        assert [run.run_id for run in view.work.runs] == ["run-1", "run-2", "run-3"]
        assert view.work.queued is None
        assert view.work.running == view.turn == await store.find_turn(OWNER, "s-1:t1")
        assert [(item.item_id, item.state) for item in view.work.items] == [
            ("message:run-1", ItemState.GIVEN),
            ("message:run-2", ItemState.GIVEN),
            ("message:run-3", ItemState.WAITING),
        ]
        assert [item.body for item in view.work.items] == [{}] * 3, "no rule looks at them, and they may be large"
        assert view.item is not None
        assert view.item.body == {"role": "user", "content": "go on"}

    # Copies

    async def test_fork_has_no_runs_turns_or_inbox(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await taken(store)
        fork = await store.fork(OWNER, "s-1", None, a_fork("f-1"))

        assert (fork.launched, fork.live_turn, fork.turns, fork.epoch, fork.hold) == (False, None, 0, 0, None)
        assert await all_runs(store, session_id="f-1") == []
        assert await all_items(store, "f-1") == []

    async def test_restored_session_has_no_runs_turns_or_inbox(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await taken(store)
        await store.restore(OTHER, await bundle_of(store, "s-1"))

        copy = await store.get(OTHER, "s-1")
        assert (copy.launched, copy.live_turn, copy.turns, copy.epoch, copy.hold) == (False, None, 0, 0, None)
        assert await all_runs(store, OTHER) == []
        assert await take(store, owners=(OTHER,)) is None
        await store.apply(OTHER, "s-1", lambda view: work.ask(view, a_run("run-1"), said("on")[0], a_stamp()))
        assert (await taken(store, owners=(OTHER,))).turn.turn_id == "s-1:t1"

    async def test_run_asked_with_creation_is_whole_or_absent(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))

        async with nothing_changes(store):
            with pytest.raises(IdTaken):
                await store.create(OWNER, asked_at_birth("s-1", a_run("run-1")))
        assert await all_runs(store) == []

    async def test_nothing_is_wrong_with_a_store_at_work(self, store: Store) -> None:
        for n in range(4):
            await launch(store, f"s-{n}", f"run-{n}")
        claimed = await taken(store)
        await start(store, claimed)
        await finish(store, await taken(store))
        await finish(store, await taken(store), "failed")

        assert await store.check() == []
