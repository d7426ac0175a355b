"""Turns that were cut off: their questions stay open, and the answers of people are not lost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from moorage.core.approval import ApprovalState
from moorage.core.errors import HoldLost
from moorage.core.run import RunState
from moorage.core.session import Needs
from moorage.core.turn import Retry
from moorage.ports import Claimed, Store
from moorage.testing.builders import *
from moorage.testing.work import *

LATER = NOON + TOO_LATE
DECISION = "decision:a-1"


async def cut_off(store: Store, claimed: Claimed, how: str) -> None:
    """End a turn without a report of its agent: its launcher is silent or leaves, or the agent dies."""
    if how == "lost":
        await expire(store, LATER)
    elif how == "released":
        await give_back(store, claimed, LATER)
    else:
        await finish(store, claimed, "failed", LATER, reason="agent_failed", error="killed", cut_off=True)


async def at_work(store: Store, retry: Retry = Retry.RESUME) -> Claimed:
    """Return a turn whose agent has been started."""
    await launch(store, "s-1", "run-1")
    claimed = await taken(store, retry=retry)
    await start(store, claimed)
    return claimed


async def two_at_work(store: Store) -> Claimed:
    """Return a turn for two runs whose agent has been started."""
    await launch(store, "s-1", "run-1")
    await ask(store, "s-1", "run-2")
    claimed = await taken(store)
    await start(store, claimed)
    return claimed


async def question(store: Store, name: str = "a-1", *, waits: bool = True, **fields: Any) -> None:
    """Ask a person in the session."""
    await store.apply(OWNER, "s-1", asked(an_approval("s-1", name, waits=waits, **fields)))


async def answer(store: Store, name: str = "a-1", decision: str = "approve") -> None:
    """Answer as a person."""
    await store.apply(OWNER, "s-1", answered(decision), needs=Needs(approval=name))


async def answered_then_cut_off(store: Store, how: str = "lost", **fields: Any) -> Claimed:
    """Return the turn after one whose question was answered and that was cut off right after."""
    claimed = await at_work(store)
    await question(store, **fields)
    await answer(store)
    await cut_off(store, claimed, how)
    again = await taken(store, at=LATER)
    await start(store, again, LATER)
    return again


class CutOffRules:
    """Rules of questions and answers in turns that end without a report."""

    @pytest.mark.parametrize("waits", [True, False])
    @pytest.mark.parametrize("how", ["lost", "died", "released"])
    async def test_interrupted_turn_keeps_its_question_and_blocks_new_turns(
        self, store: Store, how: str, waits: bool
    ) -> None:
        claimed = await at_work(store)
        await question(store, waits=waits)
        await cut_off(store, claimed, how)

        assert (await store.approval(OWNER, "a-1")).state is ApprovalState.PENDING
        assert (await store.get(OWNER, "s-1")).pending_approvals == 1
        assert await take(store, at=LATER) is None
        await answer(store)
        again = await taken(store, at=LATER)
        assert again.turn.cut_off
        assert [item.kind.value for item in again.items] == ["message", "decision"]
        told = again.items[1].body
        assert (told["question"], told["decision"]) == ("Apply the plan?", "approve")

    @pytest.mark.parametrize("how", ["lost", "died", "released"])
    async def test_answer_heard_by_a_turn_that_is_cut_off_is_given_to_the_next(self, store: Store, how: str) -> None:
        again = await answered_then_cut_off(store, how)

        assert again.turn.cut_off
        assert [(item.item_id, item.body.get("decision")) for item in again.items] == [
            ("message:run-1", None),
            (DECISION, "approve"),
        ]
        assert again.turn.heard == {}

    @pytest.mark.parametrize("how", ["lost", "died", "released"])
    async def test_same_question_after_a_cut_replays_the_answer_once(self, store: Store, how: str) -> None:
        again = await answered_then_cut_off(store, how)

        assert await ask_again(store, again, "a-1", "a-2", LATER)
        assert not await ask_again(store, again, "a-1", "a-3", LATER)
        assert (await store.get(OWNER, "s-1")).pending_approvals == 0
        assert [entry.kind for entry in await whole_log(store, "s-1")].count("approval_replayed") == 1
        await finish(store, again, at=LATER)
        assert (await store.run(OWNER, "run-1")).state is RunState.COMPLETED
        assert set((await inbox_of(store, "s-1")).values()) == {"consumed"}

    async def test_answer_survives_every_further_cut_of_the_same_run(self, store: Store) -> None:
        again = await answered_then_cut_off(store)
        assert await ask_again(store, again, "a-1", "a-2", LATER)
        await expire(store, LATER + TOO_LATE)
        third = await taken(store, at=LATER + TOO_LATE)

        assert await ask_again(store, third, "a-1", "a-3", LATER + TOO_LATE)

    async def test_two_answers_to_the_same_question_are_replayed_one_after_the_other(self, store: Store) -> None:
        claimed = await at_work(store)
        for name, decision in (("a-1", "approve"), ("a-2", "reject")):
            await question(store, name)
            await answer(store, name, decision)
        await expire(store, LATER)
        again = await taken(store, at=LATER)

        assert claimed.turn.turn_id != again.turn.turn_id
        assert await ask_again(store, again, "a-1", "b-1", LATER)
        assert await ask_again(store, again, "a-2", "b-2", LATER)
        assert not await ask_again(store, again, "a-1", "b-3", LATER)
        assert not await ask_again(store, again, "a-2", "b-3", LATER)
        assert (await store.find_turn(OWNER, again.turn.turn_id)).heard == {"b-1": "a-1", "b-2": "a-2"}

    async def test_answer_in_the_same_turn_is_not_replayed(self, store: Store) -> None:
        claimed = await at_work(store)
        await question(store)
        await answer(store)

        assert not await ask_again(store, claimed, "a-1", "a-2")

    async def test_answer_of_a_turn_that_is_cut_off_is_not_replayed_in_the_turn_that_heard_it(
        self, store: Store
    ) -> None:
        claimed = await at_work(store)
        await expire(store, LATER)
        again = await taken(store, at=LATER)
        await question(store)
        await answer(store)

        assert claimed.turn.turn_id != again.turn.turn_id
        assert again.turn.cut_off
        assert not await ask_again(store, again, "a-1", "a-2", LATER)

    async def test_turn_that_was_not_cut_off_is_asked_anew(self, store: Store) -> None:
        claimed = await at_work(store)
        await question(store, waits=False)
        await finish(store, claimed)
        await answer(store)
        again = await taken(store)

        assert [item.item_id for item in again.items] == [DECISION]
        assert not await ask_again(store, again, "a-1", "a-2")

    async def test_failed_agent_withdraws_its_question_and_gets_no_replay(self, store: Store) -> None:
        claimed = await at_work(store)
        await question(store)
        await answer(store)
        await question(store, "a-2")
        await finish(store, claimed, "failed", error="no way")
        again = await taken(store)

        assert (await store.approval(OWNER, "a-2")).state is ApprovalState.WITHDRAWN
        assert not again.turn.cut_off
        assert not await ask_again(store, again, "a-1", "a-3")

    async def test_expired_question_is_reported_and_not_replayed(self, store: Store) -> None:
        await at_work(store)
        await question(store, expires_at=LATER)
        await expire(store, LATER)
        await store.apply(OWNER, "s-1", run_out(LATER), needs=Needs(approval="a-1"))
        again = await taken(store, at=LATER)

        assert [item.body.get("state") for item in again.items] == [None, "expired"]
        assert not await ask_again(store, again, "a-1", "a-2", LATER)

    async def test_answer_whose_time_has_run_out_since_is_not_replayed(self, store: Store) -> None:
        again = await answered_then_cut_off(store, expires_at=LATER + timedelta(seconds=1))

        assert not await ask_again(store, again, "a-1", "a-2", LATER + timedelta(seconds=1))
        assert await ask_again(store, again, "a-1", "a-2", LATER)

    async def test_replayed_answer_of_a_turn_that_does_not_wait_is_given_to_the_next(self, store: Store) -> None:
        again = await answered_then_cut_off(store)
        assert await ask_again(store, again, "a-1", "a-2", LATER, waits=False)
        await finish(store, again, at=LATER)

        assert (await store.run(OWNER, "run-1")).state is RunState.QUEUED
        third = await taken(store, at=LATER)
        assert ([item.item_id for item in third.items], third.turn.cut_off) == ([DECISION], False)

    async def test_answer_is_never_replayed_to_another_run(self, store: Store) -> None:
        claimed = await at_work(store, Retry.NEVER)
        await question(store)
        await answer(store)
        await expire(store, LATER)
        assert claimed.runs[0].run_id == "run-1"
        assert (await store.run(OWNER, "run-1")).state is RunState.FAILED
        assert await inbox_of(store, "s-1") == {"message:run-1": "dead_letter", DECISION: "consumed"}
        await ask(store, "s-1", "run-2", LATER)
        other = await taken(store, at=LATER)
        await start(store, other, LATER)
        await expire(store, LATER + TOO_LATE)
        again = await taken(store, at=LATER + TOO_LATE)

        assert again.turn.cut_off
        assert [item.item_id for item in again.items] == ["message:run-2"]
        assert not await ask_again(store, again, "a-1", "a-2", LATER + TOO_LATE)

    async def test_replay_needs_the_live_turn(self, store: Store) -> None:
        again = await answered_then_cut_off(store)
        await expire(store, LATER + TOO_LATE)

        with pytest.raises(HoldLost):
            await ask_again(store, again, "a-1", "a-2", LATER + TOO_LATE)

    async def test_adopted_turn_goes_on_hearing_and_is_not_replayed_its_own_answers(self, store: Store) -> None:
        claimed = await at_work(store)
        await question(store)
        await answer(store)
        adopted = await adopt(store, claimed, "launcher-2")

        assert adopted.turn.heard == {"a-1": "a-1"}
        assert not await ask_again(store, adopted, "a-1", "a-2")

    # Settled runs

    @pytest.mark.parametrize("ending", ["lost", "stopped"])
    async def test_settled_run_withdraws_its_questions_though_another_run_waits(
        self, store: Store, ending: str
    ) -> None:
        await launch(store, "s-1", "run-0")
        first = await taken(store)
        child = a_child_run("run-c", "s-1", "run-0", agent_name="hello-world")
        await launch(store, "c-1", child, parent="s-1", agent_name="hello-world")
        await finish(store, first)  # run-0 waits for its child
        await ask(store, "s-1", "run-1")
        claimed = await taken(store, retry=Retry.NEVER)
        await start(store, claimed)
        await question(store, waits=ending == "lost")
        if ending == "lost":
            await expire(store, LATER)
        else:
            await finish(store, claimed)
            await stop(store, "s-1", "run-1")

        assert (await store.run(OWNER, "run-1")).state.value == ("failed" if ending == "lost" else "stopped")
        assert (await store.approval(OWNER, "a-1")).state is ApprovalState.WITHDRAWN
        assert (await store.run(OWNER, "run-0")).state is RunState.QUEUED

    # Several runs

    @pytest.mark.parametrize("how", ["lost", "died", "released"])
    @pytest.mark.parametrize("at", ["before the next turn", "in the next turn"])
    async def test_answer_to_two_runs_is_the_others_when_one_is_stopped(self, store: Store, how: str, at: str) -> None:
        claimed = await two_at_work(store)
        await question(store)
        await answer(store)
        await cut_off(store, claimed, how)
        if at == "before the next turn":
            await stop(store, "s-1", "run-1", LATER)
        again = await taken(store, at=LATER)
        if at == "in the next turn":
            await start(store, again, LATER)
            await stop(store, "s-1", "run-1", LATER)
            await finish(store, again, "stopped", LATER)
            again = await taken(store, at=LATER)

        assert (await store.run(OWNER, "run-1")).state is RunState.STOPPED
        assert [item.item_id for item in again.items] == ["message:run-2", DECISION]
        assert again.turn.cut_off
        assert await ask_again(store, again, "a-1", "a-2", LATER)

    @pytest.mark.parametrize("outcome", ["stopped", "failed"])
    async def test_run_of_a_stopped_shared_turn_does_not_ask_again(self, store: Store, outcome: str) -> None:
        claimed = await two_at_work(store)
        await question(store)
        await answer(store)
        await stop(store, "s-1", "run-1")
        await ask(store, "s-1", "run-3")
        await finish(store, claimed, outcome)
        again = await taken(store)

        assert again.turn.cut_off
        assert [item.item_id for item in again.items] == ["message:run-2", DECISION, "message:run-3"]
        assert [run.cut_off for run in again.runs] == [True, False]
        assert await ask_again(store, again, "a-1", "a-2")

    async def test_answer_to_two_runs_is_the_others_when_one_fails(self, store: Store) -> None:
        """A run that was cut off twice before fails; the run that joined it continues."""
        first = await at_work(store)
        for _ in range(2):
            await cut_off(store, first, "died")
            first = await taken(store)
            await start(store, first)
        await cut_off(store, first, "released")
        await ask(store, "s-1", "run-2")
        claimed = await taken(store)
        await start(store, claimed)
        await question(store)
        await answer(store)
        await cut_off(store, claimed, "lost")

        assert (await store.run(OWNER, "run-1")).state is RunState.FAILED
        again = await taken(store, at=LATER)
        assert [item.item_id for item in again.items] == ["message:run-2", DECISION]
        assert await ask_again(store, again, "a-1", "a-2", LATER)

    async def test_answer_to_two_runs_ends_with_the_last_of_them(self, store: Store) -> None:
        claimed = await two_at_work(store)
        await question(store)
        await answer(store)
        await cut_off(store, claimed, "lost")
        await ask(store, "s-1", "run-3", LATER)
        for run_id in ("run-1", "run-2"):
            await stop(store, "s-1", run_id, LATER)

        assert (await inbox_of(store, "s-1"))[DECISION] == "consumed"
        assert [item.item_id for item in (await taken(store, at=LATER)).items] == ["message:run-3"]
