"""Turns: queued, claimed, renewed, lost and ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from moorage.core import work
from moorage.core.errors import (
    HeldByAnother,
    HoldLost,
    LauncherNotFound,
    SessionRunning,
    TurnLost,
    TurnNotFound,
)
from moorage.core.run import Mode, RunState
from moorage.core.session import MAX_METADATA_BYTES, Needs, State, Update
from moorage.core.turn import FORGOTTEN_AFTER, LEASE, LOST_AFTER, RESERVED_FOR, Launcher, Retry
from moorage.ports import Claimed, Decision, LauncherTurn, Store
from moorage.service.launchers import all_launchers, save_launcher, set_drain
from moorage.testing.builders import *
from moorage.testing.work import *

TurnReport = Callable[[Store, Claimed], Awaitable[Any]]


def _asking_with_a_launcher(run_id: str) -> Decision:
    (message,), stamp = said("go on"), replace(a_stamp(), takes_turns=True)
    return lambda view: work.ask(view, a_run(run_id), message, stamp)


async def _append(store: Store, claimed: Claimed) -> Any:
    return await store.append(OWNER, "s-1", said("late words"), a_stamp(), token=token_of(claimed))


async def _update(store: Store, claimed: Claimed) -> Any:
    def decide(view: Any) -> Any:
        return view.session.update(Update(error="late"), a_stamp(), token=token_of(claimed))

    return await store.apply(OWNER, "s-1", decide)


# Every report of a launcher about its turn, and the error that it gets if it is too late.
REPORTS: dict[str, tuple[type[Exception], TurnReport]] = {
    "started": (TurnLost, start),
    "renewed": (TurnLost, renew),
    "completed": (TurnLost, finish),
    "failed": (TurnLost, lambda store, claimed: finish(store, claimed, "failed")),
    "stopped": (TurnLost, lambda store, claimed: finish(store, claimed, "stopped")),
    "released": (TurnLost, give_back),
    "adopted": (TurnLost, lambda store, claimed: adopt(store, claimed, "launcher-9")),
    "append": (HoldLost, _append),
    "update": (HoldLost, _update),
}


async def waiting(store: Store, launcher_id: str) -> list[str]:
    """Return the ids of the launcher's turns that need no slot."""
    return [each.turn.turn_id for each in await store.turns_of(launcher_id) if each.is_waiting]


class TurnRules:
    """Rules of `claim`, `overdue`, and of launchers' reports with `apply` and `append`."""

    # Queueing

    async def test_asking_queues_one_turn(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await ask(store, "s-1", "run-1")

        (turn,) = await turns_of(store, "s-1")
        assert (turn.turn_id, turn.state, turn.agent_name, turn.queued_at) == ("s-1:t1", "queued", AGENT, NOON)
        assert await inbox_of(store, "s-1") == {"message:run-1": "waiting"}
        assert (await store.get(OWNER, "s-1")).launched

    async def test_asking_at_birth_queues_one_turn(self, store: Store) -> None:
        session = await launch(store, "s-1", "run-1")

        assert await states_of(store, "s-1") == ["queued"]
        assert (session.turns, session.last_entry, session.state) == (1, 2, State.ACTIVE)
        assert [entry.content for entry in await whole_log(store, "s-1")] == [None, "begin"]
        assert (await store.run(OWNER, "run-1")).session_id == "s-1"

    async def test_two_asks_share_one_turn(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await ask(store, "s-1", "run-2")

        assert await states_of(store, "s-1") == ["queued"]
        assert len((await taken(store)).items) == 2
        assert await take(store) is None

    async def test_input_during_a_turn_waits_for_the_next_turn(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store)
        await ask(store, "s-1", "run-2")

        assert await states_of(store, "s-1") == ["running"]
        await finish(store, claimed)
        assert await states_of(store, "s-1") == ["completed", "queued"]
        assert [item.item_id for item in (await taken(store)).items] == ["message:run-2"]

    async def test_session_without_input_has_no_turn(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.append(OWNER, "s-1", said("hello"), a_stamp())

        assert await take(store) is None
        assert not (await store.get(OWNER, "s-1")).launched

    # Claiming

    async def test_claim_gives_everything_that_waits_oldest_first(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        for name in ("run-2", "run-1", "run-3"):
            await ask(store, "s-1", name, prompt=f"words of {name}")

        claimed = await taken(store)

        assert [item.item_id for item in claimed.items] == ["message:run-2", "message:run-1", "message:run-3"]
        assert [item.body["content"] for item in claimed.items] == [
            "words of run-2",
            "words of run-1",
            "words of run-3",
        ]
        assert [item.entry for item in claimed.items] == [2, 3, 4]
        assert {item.state.value for item in claimed.items} == {"given"}
        assert [run.run_id for run in claimed.runs] == ["run-2", "run-1", "run-3"]
        assert {(run.state, run.turns, run.started_at) for run in claimed.runs} == {(RunState.RUNNING, 1, NOON)}

    async def test_claimed_turn_drives_its_session(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store, "launcher-7", after(5))

        session = await store.get(OWNER, "s-1")
        assert claimed.owner == OWNER
        assert claimed.session == session
        assert (session.live_turn, session.epoch, session.status) == ("s-1:t1", 1, "running")
        assert session.hold is not None
        assert (session.hold.holder, session.hold.until) == ("launcher:launcher-7", after(5) + LEASE)
        turn = await store.find_turn(OWNER, "s-1:t1")
        assert turn == claimed.turn
        assert (turn.state, turn.epoch, turn.launcher_id, turn.claimed_at) == ("running", 1, "launcher-7", after(5))
        assert (turn.lease_until, turn.lost_at) == (after(5) + LEASE, after(5) + LOST_AFTER)

    async def test_oldest_turn_is_taken_first(self, store: Store) -> None:
        for name in ("s-3", "s-1", "s-2"):
            await launch(store, name, f"run-of-{name}")

        assert [(await taken(store)).session.session_id for _ in range(3)] == ["s-3", "s-1", "s-2"]
        assert await take(store) is None

    async def test_turns_of_other_agents_are_not_taken(self, store: Store) -> None:
        await launch(store, "s-1", "run-1", agent_name="planner")
        await launch(store, "s-2", "run-2", agent_name="builder")

        assert await take(store, agents=()) is None
        assert await take(store, agents=("tester",)) is None
        assert (await taken(store, agents=("tester", "builder"))).session.session_id == "s-2"
        assert await take(store, agents=("builder",)) is None

    async def test_turns_of_agents_that_are_not_wanted_are_passed_by(self, store: Store) -> None:
        await launch(store, "s-1", "run-1", agent_name="planner")
        await launch(store, "s-2", "run-2", agent_name="builder")
        both = ("planner", "builder")

        assert (await taken(store, agents=("builder",))).session.session_id == "s-2"
        assert await take(store, agents=()) is None
        assert (await taken(store, agents=both)).session.session_id == "s-1"

    async def test_launcher_of_one_family_takes_no_others_turns(self, store: Store) -> None:
        await launch(store, "alone", "run-0")
        await launch(store, "r", "run-1")
        await launch(store, "a", "run-2", parent="r")
        await launch(store, "b", "run-3", parent="a")

        assert await take(store, root="a") is None
        assert await take(store, root="nobody") is None
        assert [(await taken(store, root="r")).session.session_id for _ in range(3)] == ["r", "a", "b"]
        assert await take(store, root="r") is None
        assert (await taken(store)).session.session_id == "alone"

    async def test_turn_is_reserved_for_the_launcher_of_its_caller(self, store: Store) -> None:
        for session_id in ("r", "s"):
            await store.create(OWNER, a_session(session_id, agent_name=AGENT))
            await store.apply(OWNER, session_id, _asking_with_a_launcher(f"run-{session_id}"))
        await launch(store, "free", "run-3")

        assert (await taken(store)).session.session_id == "free", "what is reserved keeps nothing else waiting"
        assert await take(store, at=NOON + RESERVED_FOR - timedelta(seconds=1)) is None
        assert (await taken(store, root="r")).session.session_id == "r"
        assert (await taken(store, at=NOON + RESERVED_FOR)).session.session_id == "s", "its launcher did not come"

    async def test_reserved_turn_is_free_once_the_clock_was_set_back(self, store: Store) -> None:
        await store.create(OWNER, a_session("r", agent_name=AGENT))
        await store.apply(OWNER, "r", _asking_with_a_launcher("run-1"))

        assert (await taken(store, at=NOON - timedelta(hours=1))).session.session_id == "r"

    async def test_turns_are_taken_only_for_the_owners_asked_for(self, store: Store) -> None:
        await store.create(OTHER, asked_at_birth("theirs", a_run("run-1"), owner=OTHER))
        await launch(store, "mine", "run-1")

        assert await take(store, owners=()) is None
        assert await take(store, owners=("nobody",)) is None
        claimed = await taken(store, owners=(OWNER, OTHER))
        assert (claimed.owner, claimed.session.session_id) == (OTHER, "theirs")
        assert await take(store, owners=(OTHER,)) is None
        assert (await taken(store)).owner == OWNER

    async def test_claim_that_finds_nothing_writes_nothing(self, store: Store) -> None:
        await launch(store, "s-1", "run-1", agent_name="planner")
        pulses = []
        for _ in range(5):  # a hint of the launch may come late; each claim that writes moves the pulse
            pulses.append(store.pulse())
            async with nothing_changes(store):
                assert await take(store) is None
            if store.pulse() == pulses[-1]:
                return
        pytest.fail(f"an idle launcher sends wake-ups: {pulses}")

    async def test_exactly_one_of_many_claims_gets_a_turn(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claims = await asyncio.gather(*(take(store, f"launcher-{n}") for n in range(10)))

        winners = [claimed for claimed in claims if claimed is not None]
        assert len(winners) == 1
        assert (await store.get(OWNER, "s-1")).epoch == 1

    async def test_every_turn_goes_to_exactly_one_of_many_launchers(self, store: Store) -> None:
        for n in range(12):
            await launch(store, f"s-{n}", f"run-{n}")
        claims = await asyncio.gather(*(take(store, f"launcher-{n}") for n in range(20)))

        got = [claimed.session.session_id for claimed in claims if claimed is not None]
        assert sorted(got) == sorted(f"s-{n}" for n in range(12))

    # A live turn excludes other drivers

    async def test_live_turn_keeps_others_from_resuming_suspending_closing_and_releasing(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await taken(store)
        late = a_stamp(after(10**6))  # however late its launcher is

        async with nothing_changes(store):
            with pytest.raises(HeldByAnother):
                await store.apply(OWNER, "s-1", lambda view: view.session.resume("ann", "secret", late))
            with pytest.raises(SessionRunning):
                await store.apply(OWNER, "s-1", lambda view: view.session.suspend(late))
            with pytest.raises(SessionRunning):
                await store.apply(OWNER, "s-1", lambda view: view.session.release(late))
            with pytest.raises(SessionRunning):
                await store.apply(OWNER, "s-1", finalized())

    async def test_others_may_still_say_something_during_a_turn(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store)
        await store.append(OWNER, "s-1", said("by the way"), a_stamp())
        await store.append(OWNER, "s-1", said("working"), a_stamp(), token=token_of(claimed))

        assert [entry.content for entry in await whole_log(store, "s-1")][1:] == ["begin", "by the way", "working"]

    async def test_turn_that_suspends_its_session_goes_on_to_its_end(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store)
        token = token_of(claimed)
        await start(store, claimed)
        await store.apply(
            OWNER, "s-1", lambda view: view.session.suspend(a_stamp(), checkpoint={"step": 1}, by="agent", token=token)
        )
        await store.append(OWNER, "s-1", said("one more thing"), a_stamp(), token=token)
        await finish(store, claimed)

        session = await store.get(OWNER, "s-1")
        assert (session.state, session.hold, session.live_turn) == (State.SUSPENDED, None, None)
        await ask(store, "s-1", "run-2")
        assert (await taken(store)).session.state is State.ACTIVE, "what an agent suspended, input wakes"

    # Epochs

    async def test_epochs_only_rise(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        epochs = []
        first = await taken(store)
        epochs.append(first.turn.epoch)
        await expire(store, NOON + LATE)
        second = await taken(store, at=NOON + LATE)
        epochs.append(second.turn.epoch)
        third = await adopt(store, second, "launcher-2", NOON + LATE)
        epochs.append(third.turn.epoch)
        await finish(store, third, at=NOON + LATE)
        await ask(store, "s-1", "run-2")
        epochs.append((await taken(store)).turn.epoch)

        assert epochs == [1, 2, 3, 4]
        assert (await store.get(OWNER, "s-1")).epoch == 4

    @pytest.mark.parametrize("report", REPORTS)
    async def test_report_of_a_launcher_that_lost_its_turn_is_refused(self, store: Store, report: str) -> None:
        await launch(store, "s-1", "run-1")
        late = await taken(store)
        await expire(store, NOON + LATE)
        error, call = REPORTS[report]

        async with nothing_changes(store):
            with pytest.raises(error):
                await call(store, late)

    @pytest.mark.parametrize("report", REPORTS)
    async def test_report_with_an_old_epoch_is_refused(self, store: Store, report: str) -> None:
        await launch(store, "s-1", "run-1")
        late = await taken(store)
        await expire(store, NOON + LATE)
        now = await taken(store, "launcher-2", NOON + LATE)
        assert late.turn.turn_id == now.turn.turn_id
        error, call = REPORTS[report]

        async with nothing_changes(store):
            with pytest.raises(error):
                await call(store, late)
        await finish(store, now, at=NOON + LATE)
        async with nothing_changes(store):
            with pytest.raises(error):
                await call(store, late)

    @pytest.mark.parametrize("report", REPORTS)
    async def test_report_of_a_former_self_is_refused(self, store: Store, report: str) -> None:
        await launch(store, "s-1", "run-1")
        former = await taken(store)
        adopted = await adopt(store, former, "launcher-2")
        error, call = REPORTS[report]

        async with nothing_changes(store):
            with pytest.raises(error):
                await call(store, former)
        assert adopted.turn.launcher_id == "launcher-2"
        await call(store, adopted)

    async def test_turn_of_another_session_or_none_is_not_found(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await launch(store, "s-2", "run-2")
        claimed = await taken(store)

        async with nothing_changes(store):
            for ref, turn_id in (("s-2", claimed.turn.turn_id), ("s-1", "nothing"), ("s-1", "ünknown")):
                with pytest.raises(TurnNotFound):
                    await store.apply(OWNER, ref, expiring(NOON), needs=Needs(turn=turn_id))
        for turn_id in ("s-1:t2", "s-1", "", "ünknown"):
            with pytest.raises(TurnNotFound):
                await store.find_turn(OWNER, turn_id)

    # Leases

    async def test_renewing_prolongs_the_lease_and_the_hold(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store)
        version = (await store.get(OWNER, "s-1")).version
        await renew(store, claimed, after(10))

        turn, session = await store.find_turn(OWNER, "s-1:t1"), await store.get(OWNER, "s-1")
        assert (turn.lease_until, turn.lost_at) == (after(10) + LEASE, after(10) + LOST_AFTER)
        assert session.hold is not None
        assert session.hold.until == after(10) + LEASE
        assert session.version == version, "a renewal changes no version"
        assert await store.overdue(NOON + LEASE, 10) == []

    async def test_output_of_an_agent_does_not_extend_lease_or_hold(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store)
        await start(store, claimed)
        token = claimed.session.token_of(claimed.turn)

        await store.append(OWNER, "s-1", said("at it", role="assistant"), a_stamp(after(10)), token=token)
        await store.append(OWNER, "s-1", said("done", "soon"), a_stamp(after(11)), token=token)
        update = Update(metadata={"at": "it"})
        await store.apply(OWNER, "s-1", lambda view: view.session.update(update, a_stamp(after(12)), token=token))

        session = await store.get(OWNER, "s-1")
        assert session.hold is not None
        assert session.hold.until == NOON + LEASE
        assert session.unresponsive_since(NOON + LEASE) == NOON + LEASE

    async def test_turn_of_a_launcher_that_is_gone_is_lost_before_its_time(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await start(store, await taken(store, "launcher-1"))
        judge = partial(work.expired, stamp=a_stamp(after(1)), gone={"launcher-1"})

        async with nothing_changes(store):
            await store.apply(OWNER, "s-1", partial(work.expired, stamp=a_stamp(after(1)), gone={"launcher-2"}))
        await store.apply(OWNER, "s-1", judge)

        assert await states_of(store, "s-1") == ["lost", "queued"]
        async with nothing_changes(store):
            await store.apply(OWNER, "s-1", judge)

    async def test_late_renewal_succeeds_while_the_turn_is_not_reassigned(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store)
        await start(store, claimed)
        await renew(store, claimed, NOON + 10 * LOST_AFTER)

        assert await expire(store, NOON + 10 * LOST_AFTER) == []
        await finish(store, claimed, at=NOON + 10 * LOST_AFTER)
        assert (await store.run(OWNER, "run-1")).state is RunState.COMPLETED

    async def test_turn_not_started_in_time_is_given_out_again_as_it_was(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        before = (await all_runs(store), await all_items(store), await turns_of(store, "s-1"))
        await taken(store)
        assert await store.overdue(NOON + LEASE - timedelta(microseconds=1), 10) == []
        assert await store.overdue(NOON + LEASE, 10) == [(OWNER, "s-1")]

        await expire(store, NOON + LEASE)

        (turn,) = await turns_of(store, "s-1")
        assert (turn.state, turn.launcher_id, turn.claimed_at, turn.attempt) == ("queued", None, None, 1)
        assert (await all_runs(store), await all_items(store)) == before[:2]
        session = await store.get(OWNER, "s-1")
        assert (session.live_turn, session.hold, session.error_count) == (None, None, 0)
        again = await taken(store, "launcher-2", NOON + LATE)
        assert (again.turn.turn_id, again.turn.epoch, again.turn.cut_off) == ("s-1:t1", 2, False)
        assert again.runs[0].turns == 1

    async def test_started_turn_that_is_silent_is_not_touched_before_it_is_lost(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store)
        await start(store, claimed)
        moment = NOON + LOST_AFTER - timedelta(microseconds=1)

        assert await store.overdue(moment, 10) == []
        async with nothing_changes(store):
            await store.apply(OWNER, "s-1", expiring(moment))
        assert (await store.find_turn(OWNER, "s-1:t1")).is_unresponsive(moment)
        assert await take(store, at=moment) is None

    async def test_started_turn_that_is_silent_for_too_long_is_lost(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store)
        await start(store, claimed)
        assert await expire(store, NOON + LOST_AFTER) == ["s-1"]

        lost, again = await turns_of(store, "s-1")
        assert (lost.state, lost.reason, lost.ended_at) == ("lost", "launcher_lost", NOON + LOST_AFTER)
        assert (again.state, again.attempt, again.cut_off) == ("queued", 2, True)
        run, session = await store.run(OWNER, "run-1"), await store.get(OWNER, "s-1")
        assert (run.state, run.failures, run.reason) == (RunState.QUEUED, 1, "launcher_lost")
        assert (session.error_count, session.live_turn, session.hold) == (1, None, None)
        (item,) = await all_items(store)
        assert (item.state, item.given) == ("waiting", 1)
        kinds = [entry.kind for entry in await whole_log(store, "s-1")]
        assert kinds[2:] == ["turn_started", "turn_ended", "error"]
        assert await store.overdue(NOON + 10 * LOST_AFTER, 10) == []

    async def test_run_fails_when_its_turn_was_lost_three_times(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        now = NOON
        for _ in range(3):
            claimed = await taken(store, at=now)
            await start(store, claimed, now)
            now += TOO_LATE
            await expire(store, now)

        run = await store.run(OWNER, "run-1")
        assert (run.state, run.reason, run.turns, run.failures) == (RunState.FAILED, "launcher_lost", 3, 3)
        assert await inbox_of(store, "s-1") == {"message:run-1": "dead_letter"}
        assert await states_of(store, "s-1") == ["lost"] * 3
        assert await take(store, at=now) is None
        assert not (await store.get(OWNER, "s-1")).is_final

    async def test_turn_that_is_always_retried_is_retried_however_often(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        now = NOON
        for attempt in range(1, 7):
            claimed = await taken(store, at=now, retry=Retry.ALWAYS)
            assert (claimed.turn.attempt, claimed.turn.cut_off) == (attempt, attempt > 1)
            await start(store, claimed, now)
            now += TOO_LATE
            await expire(store, now)
        await carry(store, at=now)

        assert (await store.run(OWNER, "run-1")).state is RunState.COMPLETED
        assert await inbox_of(store, "s-1") == {"message:run-1": "consumed"}

    async def test_turn_that_is_never_retried_fails_its_run_at_once(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store, retry=Retry.NEVER)
        await start(store, claimed)
        await expire(store, NOON + TOO_LATE)

        assert (await store.run(OWNER, "run-1")).state is RunState.FAILED
        assert await inbox_of(store, "s-1") == {"message:run-1": "dead_letter"}
        assert await states_of(store, "s-1") == ["lost"]

    async def test_turn_never_started_is_given_out_again_whatever_its_retry(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await taken(store, retry=Retry.NEVER)
        await expire(store, NOON + LATE)

        assert (await taken(store, at=NOON + LATE)).runs[0].run_id == "run-1"

    async def test_overdue_is_bounded_and_names_each_session_once(self, store: Store) -> None:
        for n in range(3):
            await launch(store, f"s-{n}", a_run(f"run-{n}"))
            await taken(store, at=after(n))
        for n in (2, 0, 1):
            await ask(store, f"s-{n}", a_run(f"late-{n}", expires_at=after(40 + n)))

        assert await store.overdue(after(10**6), 10) == [(OWNER, f"s-{n}") for n in range(3)]
        assert await store.overdue(after(10**6), 2) == [(OWNER, "s-0"), (OWNER, "s-1")]
        assert await store.overdue(after(31), 10) == [(OWNER, "s-0"), (OWNER, "s-1")]

    # Ending

    async def test_started_is_told_once(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store)
        await start(store, claimed, after(1))
        async with nothing_changes(store):
            await start(store, claimed, after(2))

        assert (await store.find_turn(OWNER, "s-1:t1")).started_at == after(1)
        entry = (await whole_log(store, "s-1"))[-1]
        assert (entry.kind, entry.data) == ("turn_started", {"turn_id": "s-1:t1", "epoch": 1, "attempt": 1})

    async def test_finished_turn_settles_its_run_and_lets_the_session_go(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await store.apply(OWNER, "s-1", updated(error="before"))
        claimed = await taken(store)
        await start(store, claimed, after(1))
        await finish(store, claimed, at=after(2), says="It is done", result="done")

        run, session = await store.run(OWNER, "run-1"), await store.get(OWNER, "s-1")
        assert (run.state, run.result, run.result_entry, run.settled_at) == (RunState.COMPLETED, "done", 5, after(2))
        assert (session.state, session.hold, session.live_turn) == (State.ACTIVE, None, None)
        assert (session.error_count, session.last_activity_at, session.status) == (0, after(2), "idle")
        assert await inbox_of(store, "s-1") == {"message:run-1": "consumed"}
        assert await states_of(store, "s-1") == ["completed"]
        log = await whole_log(store, "s-1")
        assert [entry.kind for entry in log[3:]] == ["turn_started", "message", "turn_ended", "run_settled"]
        assert log[4].content == "It is done"

    @pytest.mark.parametrize("outcome", ["completed", "failed", "stopped"])
    async def test_end_that_is_told_again_is_recognised(self, store: Store, outcome: str) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await carry(store, outcome, says="done")

        async with nothing_changes(store):
            await finish(store, claimed, outcome, after(99), says="done")
        for other in {"completed", "failed", "stopped"} - {outcome}:
            with pytest.raises(TurnLost):
                await finish(store, claimed, other)

    async def test_problems_are_entries_and_counted_in_the_runs_of_all_turns(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store)
        await start(store, claimed)
        await misspeak(store, claimed, 3, after(1))
        assert (await store.run(OWNER, "run-1")).problems == 1, "counted while the turn still runs"
        await finish(store, claimed, "failed", problems=980)
        await carry(store, problems=2)
        assert (await store.run(OWNER, "run-1")).problems == 983
        [entry] = [entry for entry in await whole_log(store, "s-1") if entry.kind == "problem"]
        assert entry.data == {"line": 3, "field": "role", "expected": "one of user, assistant", "text": "{}"}
        assert entry.at == after(1)

    async def test_problem_of_a_lost_turn_is_refused(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await carry(store)
        async with nothing_changes(store):
            with pytest.raises(TurnLost):
                await misspeak(store, claimed, 1)

    async def test_tokens_of_all_turns_are_summed_with_their_ends(self, store: Store) -> None:
        await launch(store, "s-1", "run-1", metadata={"usage": {"model": "small", "input_tokens": 1}, "more": 1})
        claimed = await taken(store)
        await start(store, claimed)
        for _ in range(2):  # the answer got lost, so the end is reported again
            await finish(store, claimed, "failed", usage={"input_tokens": 5, "output_tokens": 2, "total_tokens": 7})
        await carry(store, usage={"output_tokens": 4, "total_tokens": 4})

        usage = {"model": "small", "input_tokens": 6, "output_tokens": 6, "total_tokens": 12}
        assert (await store.get(OWNER, "s-1")).metadata == {"usage": usage, "more": 1}
        ends = [entry.data for entry in await whole_log(store, "s-1") if entry.kind == "turn_ended"]
        assert [(end or {}).get("usage", {}).get("total_tokens") for end in ends] == [7, 4]

    @pytest.mark.parametrize("metadata", [{"usage": "a lot"}, {"pad": "x" * (MAX_METADATA_BYTES - 20)}])
    async def test_tokens_that_have_no_place_do_not_keep_a_turn_from_ending(
        self, store: Store, metadata: dict[str, Any]
    ) -> None:
        await launch(store, "s-1", "run-1", metadata=metadata)
        await carry(store, usage={"input_tokens": 5, "output_tokens": 2, "total_tokens": 7})

        assert (await store.get(OWNER, "s-1")).metadata == metadata
        assert (await store.run(OWNER, "run-1")).state is RunState.COMPLETED

    async def test_failed_turn_gives_its_items_back(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await carry(store, "failed", error="no such tool", reason="agent_failed")

        run, session = await store.run(OWNER, "run-1"), await store.get(OWNER, "s-1")
        assert (run.state, run.failures, run.error) == (RunState.QUEUED, 1, "no such tool")
        assert (session.error_count, session.last_error) == (1, "no such tool")
        again = await taken(store)
        assert (again.turn.turn_id, again.turn.attempt, again.turn.cut_off) == ("s-1:t2", 2, False)
        assert [(item.item_id, item.given) for item in again.items] == [("message:run-1", 1)]

    async def test_run_fails_after_three_failed_turns_in_a_row(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        for n in range(3):
            await carry(store, "failed", error=f"failure {n}")

        run = await store.run(OWNER, "run-1")
        assert (run.state, run.failures, run.error) == (RunState.FAILED, 3, "failure 2")
        assert await inbox_of(store, "s-1") == {"message:run-1": "dead_letter"}
        assert await take(store) is None

    async def test_failures_of_one_run_are_not_those_of_another(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        for _ in range(2):
            await carry(store, "failed")
        await ask(store, "s-1", "run-2")
        await carry(store, "failed")

        assert (await store.run(OWNER, "run-1")).state is RunState.FAILED
        assert (await store.run(OWNER, "run-2")).state is RunState.QUEUED
        assert await inbox_of(store, "s-1") == {"message:run-1": "dead_letter", "message:run-2": "waiting"}
        await carry(store)
        assert (await store.run(OWNER, "run-2")).state is RunState.COMPLETED

    async def test_stopped_turn_settles_its_runs_as_stopped(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store)
        await start(store, claimed)
        await stop(store, "s-1", "run-1")
        assert (await renew(store, claimed)).turns[0].stop_requested
        await finish(store, claimed, "stopped", says="so far", reason="stopped")

        run = await store.run(OWNER, "run-1")
        assert (run.state, run.result_entry) == (RunState.STOPPED, 4)
        assert await inbox_of(store, "s-1") == {"message:run-1": "consumed"}
        assert await take(store) is None

    async def test_turn_that_was_to_stop_is_not_tried_again_when_its_launcher_is_lost(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await launch(store, "s-2", "run-2")
        started, unstarted = await taken(store), await taken(store)
        await start(store, started)
        for claimed in (started, unstarted):
            await stop(store, claimed.session.session_id)
        await expire(store, NOON + TOO_LATE)

        assert [(await store.run(OWNER, name)).state for name in ("run-1", "run-2")] == [RunState.STOPPED] * 2
        assert (await states_of(store, "s-1"), await states_of(store, "s-2")) == (["lost"], ["stopped"])
        assert await take(store, at=NOON + TOO_LATE) is None

    async def test_turn_that_its_launcher_gives_back_is_given_out_again(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        for cut_off in (False, True, True):
            claimed = await taken(store)
            assert (claimed.turn.turn_id, claimed.turn.attempt, claimed.turn.cut_off) == ("s-1:t1", 1, cut_off)
            if not cut_off:
                await start(store, claimed)
            await give_back(store, claimed)

        session = await store.get(OWNER, "s-1")
        assert (session.live_turn, session.hold, session.error_count) == (None, None, 0)
        assert [(item.state, item.given) for item in await all_items(store)] == [("waiting", 0)]
        await carry(store)
        assert (await store.run(OWNER, "run-1")).state is RunState.COMPLETED

    async def test_turn_asked_to_stop_is_not_given_out_again_after_release(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store)
        await start(store, claimed)
        await stop(store, "s-1", "run-1")
        await give_back(store, claimed)

        assert (await store.run(OWNER, "run-1")).state is RunState.STOPPED
        assert await take(store) is None

    # Slots and launchers

    async def test_turn_waits_while_its_session_awaits_a_sync_child(self, store: Store) -> None:
        await launch(store, "p-1", "run-1")
        parent = await taken(store, "launcher-1")
        assert await waiting(store, "launcher-1") == []
        await launch(store, "c-1", a_child_run("run-2", "p-1", "run-1", mode=Mode.SYNC), parent="p-1")
        await launch(store, "c-2", a_child_run("run-3", "p-1", "run-1", mode=Mode.ASYNC_POLL), parent="p-1")

        assert await waiting(store, "launcher-1") == [parent.turn.turn_id]
        assert await waiting(store, "launcher-2") == []
        child = await taken(store, "launcher-2")
        assert await waiting(store, "launcher-1") == [parent.turn.turn_id]
        await finish(store, child)
        assert await waiting(store, "launcher-1") == []

    async def test_live_turns_of_a_launcher_are_listed_with_their_owners(self, store: Store) -> None:
        for number in (1, 2, 3):
            await launch(store, f"s-{number}", f"run-{number}")
        await store.create(OTHER, asked_at_birth("s-1", a_run("run-1"), owner=OTHER))
        first, second, third = [await taken(store) for _ in range(3)]
        others = await taken(store, owners=(OTHER,))
        await start(store, second)
        await finish(store, third)

        begun = await store.find_turn(OWNER, second.turn.turn_id)
        assert await store.turns_of("launcher-1") == [
            LauncherTurn(OWNER, first.turn, False),
            LauncherTurn(OWNER, begun, False),
            LauncherTurn(OTHER, others.turn, False),
        ]
        assert await store.turns_of("launcher-2") == []
        await give_back(store, first)
        assert [each.turn for each in await store.turns_of("launcher-1")] == [begun, others.turn]

    async def test_turn_adopted_twice_by_the_same_launcher_is_adopted_once(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        former = await taken(store)
        adopted = await adopt(store, former, "launcher-2")
        again = await adopt(store, former, "launcher-2", after(1))
        assert (again.turn.epoch, again.turn.launcher_id) == (adopted.turn.epoch, "launcher-2")
        for other in ("launcher-1", "launcher-3"):
            with pytest.raises(TurnLost):
                await adopt(store, former, other)

    async def test_launchers_are_listed_newest_first_as_they_are_now(self, store: Store) -> None:
        one = Launcher(launcher_id="l-1", name="one", registered_at=NOON, seen_at=NOON, slots=4, agents=("a", "b"))
        other = Launcher(launcher_id="l-0", name="one", registered_at=after(1), seen_at=after(1), host="h", pid=7)
        assert await all_launchers(store) == []
        await save_launcher(store, one)
        await save_launcher(store, other)
        beaten = Launcher(launcher_id="l-1", name="one", registered_at=NOON, seen_at=after(9), running=2, draining=True)
        await save_launcher(store, beaten)

        assert await all_launchers(store) == [other, beaten]

    async def test_launchers_not_seen_for_a_week_go_when_another_comes(self, store: Store) -> None:
        def launcher(name: str, seen: timedelta = timedelta()) -> Launcher:
            return Launcher(launcher_id=name, name=name, registered_at=NOON, seen_at=NOON + seen)

        async def ids() -> set[str]:
            return {each.launcher_id for each in await all_launchers(store)}

        await save_launcher(store, launcher("gone"))
        await save_launcher(store, launcher("lives"))
        await save_launcher(store, launcher("late", timedelta(microseconds=1)))
        await save_launcher(store, launcher("lives", FORGOTTEN_AFTER))
        assert await ids() == {"late", "lives", "gone"}, "no new launcher came"
        await save_launcher(store, launcher("new", FORGOTTEN_AFTER))

        assert await ids() == {"new", "late", "lives"}
        await save_launcher(store, launcher("gone", FORGOTTEN_AFTER))
        assert await ids() == {"gone", "new", "late", "lives"}

    async def test_launcher_stays_drained_for_as_long_as_it_lives(self, store: Store) -> None:
        launcher = Launcher(launcher_id="launcher-1", name="one", registered_at=NOON, seen_at=NOON)
        await save_launcher(store, launcher)
        await set_drain(store, "launcher-1", True)
        for days in (5, 10):
            await save_launcher(store, replace(launcher, seen_at=NOON + timedelta(days=days)))
            await store.purge(NOON + timedelta(days=days), 9)

        assert [each.drain for each in await all_launchers(store)] == [True]
        await launch(store, "s-1", "run-1")
        assert await take(store) is None
        await store.purge(NOON + timedelta(days=17), 9)
        assert await store.documents("drained_launcher") == []

    async def test_launcher_that_is_to_drain_gets_no_turn_until_it_may_again(self, store: Store) -> None:
        launcher = Launcher(launcher_id="launcher-1", name="one", registered_at=NOON, seen_at=NOON)
        await save_launcher(store, launcher)
        await launch(store, "s-1", "run-1")
        await launch(store, "s-2", "run-2")
        at_work = await taken(store)

        drained = await set_drain(store, "launcher-1", True)
        assert drained == replace(launcher, drain=True)
        assert await take(store) is None
        assert await take(store, root="s-2") is None
        await renew(store, at_work)
        await finish(store, at_work)
        assert await take(store) is None, "though one of its turns has ended"
        assert await take(store, "launcher-2") is not None, "another one may have it"
        await launch(store, "s-3", "run-3")
        assert await set_drain(store, "launcher-1", False) == launcher
        assert (await taken(store)).session.session_id == "s-3"

    async def test_sign_of_life_does_not_end_the_wish_to_drain(self, store: Store) -> None:
        launcher = Launcher(launcher_id="l-1", name="one", registered_at=NOON, seen_at=NOON)
        assert await save_launcher(store, replace(launcher, drain=True)) == launcher, "it is not its own to say"
        await set_drain(store, "l-1", True)
        beaten = await save_launcher(store, replace(launcher, seen_at=after(9), running=1))

        assert beaten == replace(launcher, seen_at=after(9), running=1, drain=True)
        assert await all_launchers(store) == [beaten]
        for unknown in ("l-2", "", "l\x001"):
            with pytest.raises(LauncherNotFound):
                await set_drain(store, unknown, True)
