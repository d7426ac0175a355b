"""Calls: runs of any agent in any session, each with a turn of its own, begun or answered in the calling process."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.core import work
from moorage.core.errors import HeldByAnother, RunStopped, TurnLost
from moorage.core.family import FamilyLimits, born
from moorage.core.run import Run
from moorage.core.session import Asker, Birth, Change, Needs, View
from moorage.core.turn import Retry, TurnState
from moorage.core.work import AnotherTurn, TurnEnd
from moorage.ports import Claimed, Store
from moorage.testing.builders import *
from moorage.testing.work import *

HERE = "asking-process"
ANSWER = TurnEnd(messages=tuple(said("the answer", role="assistant")), result="the answer", metadata={"n": 1})


def a_call(run_id: str = "run-1", **fields: Any) -> Run:
    """Return a run whose caller waits."""
    return a_run(run_id, called=True, **fields)


async def call_here(store: Store, ref: str, run: Run, prompt: str = "go on", **wish: Any) -> Change:
    """Ask for a run and begin its turn."""
    claim, (message,) = a_claim(HERE, Retry.NEVER, **wish), said(prompt)
    return await store.apply(OWNER, ref, lambda view: work.ask(view, run, message, a_stamp(), claim))


async def answer_here(store: Store, ref: str, run: Run, *, after_turns: int, end: TurnEnd = ANSWER) -> Change:
    """Ask for a run and store its answer."""
    claim, (message,) = a_claim(HERE, Retry.NEVER), said("go on")
    return await store.apply(
        OWNER,
        ref,
        lambda view: work.answered_here(view, run, message, end, a_stamp(), claim, after_turns=after_turns),
    )


async def take_here(store: Store, ref: str, run_id: str) -> Change:
    """Begin the turn of a queued call, if it is the next."""
    claim = a_claim(HERE, Retry.NEVER)
    return await store.apply(OWNER, ref, lambda view: work.take_here(view, run_id, claim, a_stamp()))


def claimed_by(change: Change) -> Claimed:
    """Return the claim of a turn that began in the calling process."""
    return Claimed(OWNER, change.session, change.turns[0], (), change.runs)


class CallRules:
    """Rules of turns that serve the runs of one agent, and of calls."""

    # Several agents in one session

    async def test_turn_serves_the_runs_of_one_agent(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await ask(store, "s-1", a_run("run-2", agent_name="other"))
        await ask(store, "s-1", "run-3")
        first = await taken(store, agents=(AGENT, "other"))
        assert (first.turn.agent_name, [run.run_id for run in first.runs]) == (AGENT, ["run-1", "run-3"])
        await finish(store, first, result="of the first")
        assert await take(store) is None, "the next turn is another agent's"
        second = await taken(store, agents=("other",))
        assert (second.turn.agent_name, [run.run_id for run in second.runs]) == ("other", ["run-2"])
        await finish(store, second, result="of the other")

        found = {run.run_id: run.result for run in await all_runs(store)}
        assert found == {"run-1": "of the first", "run-3": "of the first", "run-2": "of the other"}

    async def test_session_without_an_agent_is_served_by_the_agent_of_its_run(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", agent_name=None))
        await ask(store, "s-1", a_run("run-1", agent_name="other"))

        assert (await taken(store, agents=("other",))).turn.agent_name == "other"

    async def test_queued_turn_goes_with_the_only_run_of_its_agent(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await ask(store, "s-1", a_run("run-2", agent_name="other"))
        await stop(store, "s-1", "run-1")

        assert await states_of(store, "s-1") == ["stopped", "queued"]
        assert (await taken(store, agents=("other",))).runs[0].run_id == "run-2"

    async def test_callback_wakes_the_agent_whose_run_asked(self, store: Store) -> None:
        await launch(store, "p-1", "run-p", agent_name="planner")
        await finish(store, await taken(store, agents=("planner",)))
        await ask(store, "p-1", a_run("run-g", agent_name="guest"))
        guest = await taken(store, agents=("guest",))
        await launch(store, "c-1", a_child_run("run-c", "p-1", "run-g"), parent="p-1")
        await finish(store, guest)
        await carry(store)

        assert await take(store, agents=("planner",)) is None
        again = await taken(store, agents=("guest",))
        assert [item.item_id for item in again.items] == ["callback:run-c"]

    async def test_run_stores_parameters_usage_and_metadata(self, store: Store) -> None:
        await launch(store, "s-1", a_call(parameters={"days": "3"}, tools=("weather-tool",)))
        claimed = await taken(store)
        assert (claimed.runs[0].parameters, claimed.runs[0].tools) == ({"days": "3"}, ("weather-tool",))
        await finish(store, claimed, usage={"input_tokens": 5}, metadata={"n": 1})

        run = await store.run(OWNER, "run-1")
        assert (run.usage, run.metadata) == ({"input_tokens": 5}, {"n": 1})

    # Calls

    async def test_each_call_has_a_turn_of_its_own_in_order(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        for number in (2, 3):
            await ask(store, "s-1", a_call(f"run-{number}"))
        await ask(store, "s-1", "run-4")
        served = []
        while (claimed := await take(store)) is not None:
            served.append([run.run_id for run in claimed.runs])
            await finish(store, claimed)

        assert served == [["run-1", "run-4"], ["run-2"], ["run-3"]]

    async def test_run_with_parameters_has_turns_of_its_own(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await ask(store, "s-1", a_run("run-2", parameters={"days": 3}))
        await ask(store, "s-1", a_run("run-3", tools=("weather-tool",)))
        await ask(store, "s-1", "run-4")
        served = []
        while (claimed := await take(store)) is not None:
            served.append([run.run_id for run in claimed.runs])
            await finish(store, claimed)

        assert served == [["run-1", "run-4"], ["run-2"], ["run-3"]]

    async def test_first_failure_of_a_call_is_its_answer(self, store: Store) -> None:
        await launch(store, "s-1", a_call())
        await carry(store, "failed", error="no luck", reason="agent_failed")

        run = await store.run(OWNER, "run-1")
        assert (run.state, run.error, run.turns) == ("failed", "no luck", 1)
        assert await inbox_of(store, "s-1") == {"message:run-1": "consumed"}, "the caller knows the outcome"
        assert await take(store) is None

    # Begun in the calling process

    async def test_call_begins_its_turn_in_the_commit_that_asks(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        change = await call_here(store, "s-1", a_call())

        turn = await store.find_turn(OWNER, "s-1:t1")
        assert (turn.state, turn.launcher_id, turn.started_at, turn.epoch) == (TurnState.RUNNING, HERE, NOON, 1)
        assert [(entry.kind, entry.by) for entry in change.entries] == [("message", "tester"), ("turn_started", AGENT)]
        assert (await store.run(OWNER, "run-1")).state == "running"
        assert (await store.get(OWNER, "s-1")).status == "running"
        assert await take(store) is None
        await finish(store, claimed_by(change), says="well", result="well")
        assert (await store.run(OWNER, "run-1")).result == "well"

    async def test_call_is_queued_behind_another_turn(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        first = await call_here(store, "s-1", a_call("run-1"))
        second = await call_here(store, "s-1", a_call("run-2"))
        assert (second.turns, second.runs[0].state) == ((), "queued")
        assert (await take_here(store, "s-1", "run-2")).turns == ()
        await call_here(store, "s-1", a_call("run-3"))
        await finish(store, claimed_by(first))

        assert (await take_here(store, "s-1", "run-3")).turns == (), "run-2 came first"
        begun = await take_here(store, "s-1", "run-2")
        assert (begun.turns[0].state, begun.turns[0].launcher_id) == (TurnState.RUNNING, HERE)
        await finish(store, claimed_by(begun))
        assert (await taken(store)).runs[0].run_id == "run-3", "a launcher may serve it as well"

    async def test_turn_that_was_begun_here_is_fenced_and_stopped_as_any_other(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        begun = claimed_by(await call_here(store, "s-1", a_call()))
        await stop(store, "s-1", "run-1")
        assert (await renew(store, begun)).turns[0].stop_requested
        await finish(store, begun, "stopped", says="so far")
        assert (await store.run(OWNER, "run-1")).state == "stopped"
        with pytest.raises(TurnLost):
            await finish(store, begun)

    async def test_call_whose_process_is_lost_fails(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await call_here(store, "s-1", a_call())
        await expire(store, after(TOO_LATE.total_seconds()))

        run = await store.run(OWNER, "run-1")
        assert (run.state, run.reason) == ("failed", "launcher_lost")
        assert await take(store) is None

    async def test_call_is_refused_while_the_session_is_held(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", lambda view: view.session.resume("ann", "secret", a_stamp()))

        async with nothing_changes(store):
            with pytest.raises(HeldByAnother):
                await call_here(store, "s-1", a_call())

    # Answered in the calling process

    async def test_answer_is_one_commit_with_all_of_it(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        change = await answer_here(store, "s-1", a_call(), after_turns=0)

        kinds = ["message", "message", "run_settled"]
        assert [(entry.kind, entry.by) for entry in change.entries] == [
            (kind, AGENT if number else "tester") for number, kind in enumerate(kinds)
        ]
        run, turn = await store.run(OWNER, "run-1"), await store.find_turn(OWNER, "s-1:t1")
        assert (run.state, run.result, run.turns, run.metadata) == ("completed", "the answer", 1, {"n": 1})
        assert (turn.state, turn.epoch, turn.launcher_id) == (TurnState.COMPLETED, 1, HERE)
        head = await store.get(OWNER, "s-1")
        assert (head.status, head.hold, head.waits, head.turns) == ("idle", None, False, 1)
        assert await all_items(store, "s-1") == []
        assert await store.check() == []

    async def test_answer_may_come_with_the_session(self, store: Store) -> None:
        (message,), claim = said("go on"), a_claim(HERE)

        def decide(birth: Birth) -> Change:
            change = born(new_session("s-1"), birth, a_stamp(), FamilyLimits())
            return change.then(
                lambda head: work.answered_here(View(head), a_call(), message, ANSWER, a_stamp(), claim, after_turns=0)
            )

        session = await store.create(OWNER, decide)
        assert (session.status, session.last_entry) == ("idle", 4)
        assert (await store.run(OWNER, "run-1")).state == "completed"

    @pytest.mark.parametrize("first", ["answered", "running", "queued"])
    async def test_answer_is_refused_if_another_turn_came_first(self, store: Store, first: str) -> None:
        await store.create(OWNER, a_session("s-1"))
        if first == "answered":
            await answer_here(store, "s-1", a_call("run-0"), after_turns=0)
        elif first == "running":
            await call_here(store, "s-1", a_call("run-0"))
        else:
            await ask(store, "s-1", "run-0")

        async with nothing_changes(store):
            with pytest.raises(AnotherTurn):
                await answer_here(store, "s-1", a_call(), after_turns=0)

    async def test_failure_that_comes_at_once_is_an_answer(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        end = TurnEnd(outcome=TurnState.FAILED, error="no luck", reason="agent_failed")
        await answer_here(store, "s-1", a_call(), after_turns=0, end=end)

        run, head = await store.run(OWNER, "run-1"), await store.get(OWNER, "s-1")
        assert (run.state, run.error, head.error_count, head.status) == ("failed", "no luck", 1, "run_failed")

    async def test_stopped_asker_gets_no_answer(self, store: Store) -> None:
        await launch(store, "p-1", "run-p")
        await taken(store)
        await stop(store, "p-1")
        await store.create(OWNER, a_session("s-1"))
        (message,), claim = said("go on"), a_claim(HERE)

        async with nothing_changes(store):
            with pytest.raises(RunStopped):
                await store.apply(
                    OWNER,
                    "s-1",
                    lambda view: work.answered_here(view, a_call(), message, ANSWER, a_stamp(), claim, after_turns=0),
                    needs=Needs(asker=Asker(run_id="run-p")),
                )
