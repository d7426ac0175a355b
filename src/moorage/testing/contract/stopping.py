"""Stopping: after the commit of a stop, no stopped run starts, creates a session or wakes one."""

from __future__ import annotations

import asyncio

import pytest

from moorage.core import work
from moorage.core.errors import RunStopped, TurnLost
from moorage.core.query import LogQuery
from moorage.core.run import Mode, RunState
from moorage.core.session import Asker, Needs
from moorage.ports import Claimed, Store
from moorage.testing.builders import *
from moorage.testing.work import *


async def at_work(store: Store, session_id: str = "s-1", run_id: str = "run-1") -> Claimed:
    """Create a session with a running turn for a run."""
    await launch(store, session_id, run_id)
    claimed = await taken(store)
    await start(store, claimed)
    return claimed


async def serving_two(store: Store) -> Claimed:
    """Return a live turn that serves two runs, of which the first is stopped."""
    await launch(store, "s-1", "run-1")
    await ask(store, "s-1", "run-2")
    claimed = await taken(store)
    await start(store, claimed)
    await stop(store, "s-1", "run-1")
    return claimed


class StopRules:
    """A stop is never lost, even if a turn is just ending."""

    @pytest.mark.parametrize("outcome", ["completed", "failed", "stopped"])
    async def test_stopped_run_settles_as_stopped_however_its_turn_ends(self, store: Store, outcome: str) -> None:
        claimed = await at_work(store)
        await launch(store, "c-1", a_child_run("run-2", "s-1", "run-1"), parent="s-1")
        await stop(store, "s-1")
        assert (await store.run(OWNER, "run-1")).stop_requested
        await finish(store, claimed, outcome, says="so far", result="half of it")

        run = await store.run(OWNER, "run-1")
        assert (run.state, run.reason, run.result) == (RunState.STOPPED, "stopped", "half of it")
        assert await inbox_of(store, "s-1") == {"message:run-1": "consumed"}
        assert (await taken(store)).session.session_id == "c-1"

    async def test_stopped_run_goes_on_with_no_callback_that_came_before_its_turn_ended(self, store: Store) -> None:
        claimed = await at_work(store)
        await launch(store, "c-1", a_child_run("run-2", "s-1", "run-1"), parent="s-1")
        await carry(store)
        await stop(store, "s-1")
        await finish(store, claimed)

        assert (await store.run(OWNER, "run-1")).state is RunState.STOPPED
        assert await inbox_of(store, "s-1") == {"message:run-1": "consumed", "callback:run-2": "consumed"}
        assert await take(store) is None

    async def test_callback_to_a_run_that_is_about_to_stop_is_noted(self, store: Store) -> None:
        claimed = await at_work(store)
        await launch(store, "c-1", a_child_run("run-2", "s-1", "run-1"), parent="s-1")
        await stop(store, "s-1")
        await carry(store)

        assert (await inbox_of(store, "s-1"))["callback:run-2"] == "consumed"
        assert len(await store.log(OWNER, "s-1", LogQuery(kinds=("callback",)))) == 1
        await finish(store, claimed)
        assert await take(store) is None

    async def test_run_whose_parent_was_stopped_is_only_logged_there(self, store: Store) -> None:
        await launch(store, "p-1", "run-1")
        await carry(store)
        for name in ("c-1", "c-2"):
            await launch(store, name, a_child_run(f"run-{name}", "p-1"), parent="p-1")
        children = [await taken(store), await taken(store)]
        await store.apply(OWNER, "c-1", lambda view: work.unheard(view, "run-c-1", a_stamp()))
        await stop(store, "p-1")
        await finish(store, children[0])

        assert (await inbox_of(store, "p-1"))["callback:run-c-1"] == "consumed"
        assert len(await store.log(OWNER, "p-1", LogQuery(kinds=("callback",)))) == 1
        assert await take(store) is None
        assert (await store.run(OWNER, "run-c-1")).callback == "delivered"
        await finish(store, children[1])
        assert (await taken(store)).session.session_id == "p-1", "others are heard as usual"

    async def test_turn_that_was_claimed_but_not_started_ends_with_the_stop(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store)
        await stop(store, "s-1")

        assert (await store.run(OWNER, "run-1")).state is RunState.STOPPED
        async with nothing_changes(store):
            with pytest.raises(TurnLost):
                await start(store, claimed)
        assert await states_of(store, "s-1") == ["stopped"]

    async def test_person_may_ask_a_stopped_session_anew(self, store: Store) -> None:
        claimed = await at_work(store)
        await stop(store, "s-1")
        await ask(store, "s-1", "run-2")
        await finish(store, claimed, "stopped")
        await carry(store)

        assert [run.state.value for run in await all_runs(store)] == ["completed", "stopped"]

    async def test_stopping_a_session_drops_items_without_a_run(self, store: Store) -> None:
        await launch(store, "p-1", "run-1")
        await carry(store)
        await launch(store, "c-1", a_child_run("run-2", "p-1"), parent="p-1")
        await carry(store)
        assert await states_of(store, "p-1") == ["completed", "queued"]
        await stop(store, "p-1")

        assert await states_of(store, "p-1") == ["completed", "stopped"]
        assert await take(store) is None

    # One turn that serves several runs

    @pytest.mark.parametrize("outcome", ["stopped", "failed"])
    async def test_other_run_of_a_stopped_turn_gets_another(self, store: Store, outcome: str) -> None:
        await finish(store, await serving_two(store), outcome)

        again = await taken(store)
        assert [(item.item_id, item.given) for item in again.items] == [("message:run-2", 0)]
        await start(store, again)
        await finish(store, again)
        runs = {run.run_id: (run.state.value, run.failures) for run in await all_runs(store)}
        assert runs == {"run-1": ("stopped", 0), "run-2": ("completed", 0)}

    async def test_other_run_of_a_turn_that_completed_all_the_same_is_done(self, store: Store) -> None:
        await finish(store, await serving_two(store), result="both")

        runs = {run.run_id: (run.state.value, run.result) for run in await all_runs(store)}
        assert runs == {"run-1": ("stopped", "both"), "run-2": ("completed", "both")}
        assert await take(store) is None

    @pytest.mark.parametrize("how", ["lost", "released"])
    async def test_other_run_of_a_stopped_turn_gets_another_turn(self, store: Store, how: str) -> None:
        claimed = await serving_two(store)
        await (expire(store, NOON + TOO_LATE) if how == "lost" else give_back(store, claimed))

        again = await taken(store, at=NOON + TOO_LATE)
        assert ([item.item_id for item in again.items], again.turn.cut_off) == (["message:run-2"], True)
        assert (await store.run(OWNER, "run-1")).state is RunState.STOPPED

    # Creation

    @pytest.mark.parametrize("named", ["run", "session"])
    @pytest.mark.parametrize("ended", [False, True])
    async def test_stopped_run_has_no_more_children(self, store: Store, named: str, ended: bool) -> None:
        claimed = await at_work(store)
        asker = Asker(run_id="run-1") if named == "run" else Asker(session_id="s-1")
        await store.create(OWNER, a_session("c-0"), parent="s-1", asker=asker)
        await stop(store, "s-1")
        if ended:
            await finish(store, claimed, "stopped")
        if ended and named == "session":  # an agent can no longer be told from a person
            return
        async with nothing_changes(store):
            for birth in (a_session("c-1"), asked_at_birth("c-1", a_child_run("run-2", "s-1", "run-1"))):
                with pytest.raises(RunStopped):
                    await store.create(OWNER, birth, parent="s-1", asker=asker)
            with pytest.raises(RunStopped):
                await store.apply(OWNER, "c-0", asking(a_child_run("run-2", "s-1", "run-1")), needs=Needs(asker=asker))

    async def test_caller_is_the_parent_if_none_is_named(self, store: Store) -> None:
        await at_work(store)
        await stop(store, "s-1")

        for asker in (Asker(), Asker(run_id="unknown")):
            with pytest.raises(RunStopped):
                await store.create(OWNER, a_session("c-1"), parent="s-1", asker=asker)

    async def test_other_run_of_a_turn_that_is_told_to_stop_has_no_more_children(self, store: Store) -> None:
        await serving_two(store)

        with pytest.raises(RunStopped):
            await store.create(OWNER, a_session("c-1"), parent="s-1", asker=Asker(run_id="run-2"))

    async def test_missing_caller_does_not_block_the_request(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"), asker=Asker(run_id="unknown", session_id="nowhere"))
        await store.apply(
            OWNER, "s-1", asking(a_run("run-1")), needs=Needs(asker=Asker(run_id="Ünknown", session_id="nowhere"))
        )

        assert (await store.run(OWNER, "run-1")).state is RunState.QUEUED

    async def test_run_that_completed_may_be_named(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await carry(store)

        await store.create(OWNER, a_session("c-1"), parent="s-1", asker=Asker(run_id="run-1"))

    # Races

    async def test_births_that_race_with_a_stop_are_below_it_or_refused(self, store: Store) -> None:
        await at_work(store)

        async def bear(number: int) -> str | None:
            birth = asked_at_birth(f"c-{number}", a_child_run(f"run-c-{number}", "s-1", "run-1"))
            try:
                return (await store.create(OWNER, birth, parent="s-1", asker=Asker(run_id="run-1"))).session_id
            except RunStopped:
                return None

        async def stop_and_look() -> set[str]:
            await stop(store, "s-1")
            return {session.session_id for session in await store.tree(OWNER, "s-1", 100)}

        stopping = asyncio.ensure_future(stop_and_look())
        born = await asyncio.gather(*(bear(number) for number in range(12)))
        assert {name for name in born if name is not None} <= await stopping
        assert {session.session_id for session in await all_sessions(store, OWNER)} == await stopping

    @pytest.mark.parametrize("ending", ["finish", "callback"])
    async def test_stop_that_races_with_an_end_is_not_lost(self, store: Store, ending: str) -> None:
        for number in range(5):
            parent, child = f"p-{number}", f"c-{number}"
            claimed = await at_work(store, parent, f"run-p-{number}")
            await launch(store, child, a_child_run(f"run-c-{number}", parent, f"run-p-{number}"), parent=parent)
            below = await taken(store)
            await start(store, below)
            await asyncio.gather(stop(store, parent), finish(store, claimed if ending == "finish" else below))
            if ending == "callback":
                await finish(store, claimed)
            else:
                await finish(store, below)
            assert (await store.run(OWNER, f"run-p-{number}")).state is RunState.STOPPED
            assert await take(store) is None

    # Too many turns

    async def test_run_fails_after_as_many_turns_as_it_may_take(self, store: Store) -> None:
        await launch(store, "p-1", a_run("run-1", max_turns=3))
        for number in range(3):
            claimed = await taken(store, at=after(number))
            await start(store, claimed, after(number))
            child = a_child_run(f"run-c-{number}", "p-1", "run-1")
            await launch(store, f"c-{number}", child, parent="p-1", at=after(number))
            if number < 2:
                await carry(store, at=after(number))
            await finish(store, claimed, at=after(number))

        run = await store.run(OWNER, "run-1")
        assert (run.state, run.reason, run.turns) == (RunState.FAILED, "too_many_turns", 3)
        await carry(store, at=after(9))
        assert (await inbox_of(store, "p-1"))["callback:run-c-2"] == "dead_letter"
        assert await take(store, at=after(9)) is None

    async def test_last_turn_that_leaves_nothing_outstanding_completes_its_run(self, store: Store) -> None:
        await launch(store, "s-1", a_run("run-1", max_turns=1))
        await carry(store)

        assert (await store.run(OWNER, "run-1")).state is RunState.COMPLETED

    @pytest.mark.parametrize("how", ["failed", "lost"])
    async def test_turns_that_went_wrong_count_too(self, store: Store, how: str) -> None:
        await launch(store, "s-1", a_run("run-1", max_turns=1, mode=Mode.SYNC))
        claimed = await taken(store)
        await start(store, claimed)
        await (finish(store, claimed, "failed") if how == "failed" else expire(store, NOON + TOO_LATE))

        assert (await store.run(OWNER, "run-1")).reason == "too_many_turns"
        assert await inbox_of(store, "s-1") == {"message:run-1": "dead_letter"}
        assert await take(store, at=NOON + TOO_LATE) is None
