"""Lost answers and outages: a request is done, though its caller gets an error and asks again.

Each report of the turn protocol is repeated as its launcher or caller would repeat it: it is recognised,
nothing is doubled, nothing is lost. In the end the history must be consistent.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from moorage.agents.interface import Commands, Emit, Job
from moorage.core.answer import RunAnswer
from moorage.core.errors import RunSettled, StoreError, TurnLost
from moorage.core.turn import Retry, Turn, TurnState
from moorage.core.work import TurnEnd
from moorage.ports import Claimed
from moorage.service import runs
from moorage.service.approvals import decide_approval, list_approvals
from moorage.service.runs import Wish
from moorage.service.turns import TurnDispatcher
from moorage.testing.faults import UnreliableStore
from moorage.testing.history import problems_in
from moorage.testing.work import a_launcher
from tests.launcher.stage import Stage, echo, on

Report = Callable[[], Awaitable[Any]]
SHORT = timedelta(milliseconds=1)
AGENT = "echo"


@pytest.fixture(params=["memory", "sqlite"])
async def stage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Stage]:
    monkeypatch.setattr("tests.launcher.stage.PATIENCE", 20.0)  # who breaks a rule need not wait for the end so long
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'moorage.db'}"
    async with on(url, tmp_path) as made:
        made.deps.store = UnreliableStore(made.deps.store)  # it passes everything on
        made.plays(AGENT, echo)
        yield made


def answers(stage: Stage) -> UnreliableStore:
    assert isinstance(stage.deps.store, UnreliableStore)
    return stage.deps.store


async def twice(stage: Stage, report: Report, again: Report | None = None) -> Any:
    """Do something that is done, though the caller hears of an error; then do it again."""
    lossy = answers(stage)
    before = len(lossy.lost)
    lossy.loses = lambda _: len(lossy.lost) == before
    with pytest.raises(StoreError):
        await report()
    lossy.loses = lambda _: False
    assert len(lossy.lost) == before + 1
    return await (again or report)()


class Story:
    """A child at work for a parent: one turn, from its claim on, with its launcher's dispatcher."""

    def __init__(self, stage: Stage, run_id: str, claimed: Claimed) -> None:
        self.stage, self.run_id, self.claimed = stage, run_id, claimed
        self.dispatcher = TurnDispatcher(stage.deps)
        self.turn: Turn = claimed.turn
        self.session_id = claimed.session.session_id

    async def twice(self, report: Report, again: Report | None = None) -> Any:
        return await twice(self.stage, report, again)

    async def kinds(self) -> Counter[str]:
        return Counter(entry.kind for entry in await self.stage.log(self.session_id))

    async def finish(self, result: str = "done") -> None:
        await self.dispatcher.finish("local", self.turn, TurnEnd(result=result))


@pytest.fixture
async def story(stage: Stage) -> AsyncIterator[Story]:
    """The child's turn has been started; whatever the test does with it, the story must end well."""
    parent = await stage.ask(AGENT, "parent")
    async with stage.launcher():
        await stage.settled(parent.run)
    wish = {"mode": "async_callback", "parent": parent.session.session_id}
    child = await stage.ask(AGENT, "child", **wish)
    claimed = await claim(stage, TurnDispatcher(stage.deps))
    told = Story(stage, child.run.run_id, claimed)
    await told.dispatcher.started("local", claimed.turn)
    yield told
    await ends_well(stage, [parent.run.run_id, child.run.run_id])
    callbacks = await stage.log(parent.session.session_id, "callback")
    assert [(entry.data or {})["run_id"] for entry in callbacks] == [child.run.run_id]


async def claim(stage: Stage, dispatcher: TurnDispatcher) -> Claimed:
    claimed = await dispatcher.claim(a_launcher("one", "local"), {AGENT: Retry.RESUME})
    assert claimed is not None
    return claimed


async def ends_well(stage: Stage, acknowledged: list[str]) -> None:
    """Others do what is left to do; then the history is whole."""
    async with stage.launcher():
        await stage.quiet()
    assert await problems_in(stage.deps.store, "local", acknowledged) == []


# One report at a time ---------------------------------------------------------------------------


async def test_a_claim_whose_answer_got_lost_is_given_out_again_when_its_lease_is_over(stage: Stage) -> None:
    asked = await stage.ask(AGENT, "hello")
    deaf, dispatcher = TurnDispatcher(stage.deps, lease=SHORT), TurnDispatcher(stage.deps)
    answers(stage).loses = lambda name: name == "claim"
    with pytest.raises(StoreError):
        await deaf.claim(a_launcher("one", "local"), {AGENT: Retry.RESUME})
    answers(stage).loses = lambda _: False
    await asyncio.sleep(0.01)
    await dispatcher.expire()
    again = await claim(stage, dispatcher)
    assert (again.turn.epoch, again.turn.attempt, again.turn.cut_off) == (2, 1, False)
    assert [item.given for item in again.items] == [0]
    await dispatcher.release("local", again.turn)
    await ends_well(stage, [asked.run.run_id])
    assert len(stage.jobs) == 1


async def test_started_is_told_once(story: Story) -> None:
    await story.dispatcher.release("local", story.turn)
    turn = (await claim(story.stage, story.dispatcher)).turn
    await story.twice(lambda: story.dispatcher.started("local", turn))
    assert (await story.kinds())["turn_started"] == 2  # of two claims
    await story.dispatcher.finish("local", turn, TurnEnd(result="done"))


async def test_a_lease_is_renewed_whatever_was_heard_of_it(story: Story) -> None:
    renewed = await story.twice(lambda: story.dispatcher.renew("local", story.turn))
    assert renewed.epoch == story.turn.epoch
    await story.finish()


async def test_words_are_said_once(story: Story) -> None:
    words = [{"role": "assistant", "content": "working", "client_key": "k-1"}]
    await story.twice(lambda: story.dispatcher.say("local", story.turn, words))
    said = await story.stage.log(story.session_id, "message")
    assert [entry.text for entry in said] == ["child", "working"]
    await story.finish()


@pytest.mark.parametrize(
    ("kind", "report"),
    [
        ("phase", {"phase": "planning"}),
        ("metadata", {"metadata": {"step": 1, "api_key": "a secret"}}),
        ("error", {"error": "no such bucket"}),
        ("metadata", {"phase": "planning", "metadata": {"step": 1}}),
    ],
)
async def test_repeated_agent_updates_are_stored_once(story: Story, kind: str, report: dict[str, Any]) -> None:
    await story.dispatcher.update("local", story.turn, **report)
    if kind == "phase":
        await story.dispatcher.update("local", story.turn, phase="executing")
    kept = (await story.stage.session(story.session_id)).last_entry  # the agent says the same a second time
    session = await story.twice(
        lambda: story.dispatcher.update("local", story.turn, **report),
        lambda: story.dispatcher.update("local", story.turn, **report, since=kept),
    )
    entries = [entry.data for entry in await story.stage.log(story.session_id, kind)]
    assert len(entries) == (3 if kind == "phase" else 2)
    assert session.error_count == (2 if kind == "error" else 0)
    await story.finish()


async def test_a_checkpoint_is_kept_once(story: Story) -> None:
    kept = (await story.stage.session(story.session_id)).last_entry
    await story.twice(
        lambda: story.dispatcher.checkpoint("local", story.turn, {"step": 3}),
        lambda: story.dispatcher.checkpoint("local", story.turn, {"step": 3}, since=kept),
    )
    assert (await story.kinds())["checkpoint"] == 1
    await story.finish()


async def test_updates_of_a_former_turn_do_not_count_as_repeated(story: Story) -> None:
    await story.dispatcher.update("local", story.turn, error="again")
    await story.dispatcher.finish("local", story.turn, TurnEnd(outcome=TurnState.FAILED))
    turn = (await claim(story.stage, story.dispatcher)).turn
    await story.dispatcher.started("local", turn)
    await story.dispatcher.update("local", turn, error="again", since=0)
    errors = [(entry.data or {})["error"] for entry in await story.stage.log(story.session_id, "error")]
    assert errors.count("again") == 2
    await story.dispatcher.finish("local", turn, TurnEnd(result="done"))


@pytest.mark.parametrize("waits", [True, False])
async def test_a_question_is_asked_once_and_answered_once(story: Story, waits: bool) -> None:
    stage, dispatcher = story.stage, story.dispatcher
    asked = await story.twice(
        lambda: dispatcher.request_approval("local", story.turn, "Apply?", key="k-1", waits=waits)
    )
    other = await dispatcher.request_approval("local", story.turn, "And this?", key="k-2", waits=waits)
    assert [each.approval_id for each in await list_approvals(stage.deps, stage.caller)] == [
        asked.approval_id,
        other.approval_id,
    ]
    for each in (asked, other):
        decision = partial(decide_approval, stage.deps, stage.caller, each.approval_id, "approve")
        assert (await story.twice(decision)).decision == "approve"
    kinds = await story.kinds()
    assert (kinds["approval_requested"], kinds["approval_decided"]) == (2, 2)
    again = await dispatcher.request_approval("local", story.turn, "Apply?", key="k-1", waits=waits)
    assert again.decision == "approve"
    await story.finish()


async def test_an_end_is_told_once(story: Story) -> None:
    await story.twice(story.finish)
    kinds = await story.kinds()
    assert (kinds["turn_ended"], kinds["run_settled"]) == (1, 1)


@pytest.mark.parametrize("outcome", [TurnState.FAILED, TurnState.STOPPED])
async def test_a_bad_end_counts_once(story: Story, outcome: TurnState) -> None:
    await story.twice(lambda: story.dispatcher.finish("local", story.turn, TurnEnd(outcome=outcome, error="no")))
    run = await story.stage.deps.store.run("local", story.run_id)
    assert run.failures == (1 if outcome is TurnState.FAILED else 0)
    assert (await story.kinds())["turn_ended"] == 1


async def test_a_turn_given_back_is_given_back_once(story: Story) -> None:
    with pytest.raises(TurnLost):  # as its launcher expects: the turn is free, or another's
        await story.twice(lambda: story.dispatcher.release("local", story.turn))
    again = await claim(story.stage, story.dispatcher)
    assert (again.turn.turn_id, again.turn.cut_off) == (story.turn.turn_id, True)
    with pytest.raises(TurnLost):
        await story.dispatcher.release("local", story.turn)
    await story.dispatcher.started("local", again.turn)
    await story.dispatcher.finish("local", again.turn, TurnEnd(result="done"))


async def test_a_turn_is_adopted_once(story: Story) -> None:
    mine = await story.twice(lambda: story.dispatcher.adopt("local", story.turn, "reborn"))
    assert (mine.epoch, mine.launcher_id) == (story.turn.epoch + 1, "reborn")
    with pytest.raises(TurnLost):
        await story.finish("late")
    with pytest.raises(TurnLost):  # another life that knows no more than the first did
        await story.dispatcher.adopt("local", story.turn, "a third")
    story.turn = mine
    await story.finish()


async def test_a_life_that_died_of_its_adoption_hands_the_turn_on(story: Story) -> None:
    """It was killed between the store's commit and its own note of the new epoch: the note names who tried."""
    await story.dispatcher.adopt("local", story.turn, "second life")
    mine = await story.dispatcher.adopt("local", replace(story.turn, launcher_id="second life"), "third life")
    assert (mine.epoch, mine.launcher_id) == (story.turn.epoch + 2, "third life")
    story.turn = mine
    await story.finish()


async def test_turn_that_was_given_back_and_then_stopped_ends_in_the_log(story: Story) -> None:
    await story.dispatcher.release("local", story.turn)
    await runs.stop_session(story.stage.deps, story.stage.caller, story.turn.session_id)
    log = await story.stage.log(story.turn.session_id)
    told = [
        (entry.kind, (entry.data or {})["turn_id"]) for entry in log if entry.kind in ("turn_started", "turn_ended")
    ]
    assert told == [("turn_started", story.turn.turn_id), ("turn_ended", story.turn.turn_id)]


async def test_a_late_question_is_refused(story: Story) -> None:
    await story.dispatcher.release("local", story.turn)
    again = await claim(story.stage, story.dispatcher)
    for turn in (story.turn, again.turn):
        report = story.dispatcher.request_approval("local", turn, "Apply?", key="k-1", waits=True)
        if turn is story.turn:
            with pytest.raises(TurnLost):
                await report
        else:
            await report
    assert len(await list_approvals(story.stage.deps, story.stage.caller)) == 1
    await story.dispatcher.finish("local", again.turn, TurnEnd(outcome=TurnState.FAILED))
    assert await list_approvals(story.stage.deps, story.stage.caller) == []


async def test_work_is_asked_for_once(stage: Stage) -> None:
    asked = await twice(stage, lambda: stage.ask(AGENT, "hello", idempotency_key="k-1"))
    session_id, deps = asked.session.session_id, stage.deps
    more = await twice(
        stage, lambda: runs.ask(deps, stage.caller, session_id, "more", wish=Wish(idempotency_key="k-2"))
    )
    said = {"content": "go on", "client_key": "k-3"}
    sent = await twice(stage, lambda: runs.post(deps, stage.caller, session_id, said))
    assert [entry.text for entry in await stage.log(session_id, "message")] == ["hello", "more", "go on"]
    await ends_well(stage, [asked.run.run_id, more.run.run_id, sent.run.run_id])


async def test_a_stop_is_told_once(stage: Stage) -> None:
    waiting = await stage.ask(AGENT, "waiting")
    with pytest.raises(RunSettled):  # it is over, and the run tells how
        await twice(stage, lambda: runs.stop_run(stage.deps, stage.caller, waiting.run.run_id))
    assert (await stage.settled(waiting.run)).state.value == "stopped"
    running, dispatcher = await stage.ask(AGENT, "running"), TurnDispatcher(stage.deps)
    claimed = await claim(stage, dispatcher)
    await dispatcher.started("local", claimed.turn)
    await twice(stage, lambda: runs.stop_run(stage.deps, stage.caller, running.run.run_id))
    assert (await dispatcher.renew("local", claimed.turn)).stop_requested
    await dispatcher.finish("local", claimed.turn, TurnEnd(outcome=TurnState.STOPPED))
    await ends_well(stage, [waiting.run.run_id, running.run.run_id])


# A launcher that never hears the first answer ----------------------------------------------------


async def test_a_launcher_that_hears_of_nothing_at_first_does_everything_once(stage: Stage) -> None:
    """Every other answer to a write gets lost: to the launcher and to the caller."""

    async def worker(_: Stage, __: Job, emit: Emit, commands: Commands) -> str:
        await emit({"type": "phase", "phase": "planning"})
        for _again in range(2):  # the same twice is twice
            await emit({"type": "message", "content": "working"})
            await emit({"type": "error", "error": "a small one"})
            await emit({"type": "metadata", "metadata": {"step": 1}})
            await emit({"type": "checkpoint", "checkpoint": {"step": 1}})
        await emit({"type": "approval", "id": "1", "question": "Apply?", "wait": True})
        while (command := await commands.get())["type"] != "decision":
            continue
        return f"told {command['decision']}"

    stage.plays("worker", worker)
    parent = await stage.ask(AGENT, "parent")
    async with stage.launcher():
        await stage.settled(parent.run)
    child = await stage.ask("worker", mode="async_callback", parent=parent.session.session_id)
    written = Counter[str]()

    def every_other(name: str) -> bool:
        written[name] += 1
        return written[name] % 2 == 1

    answers(stage).loses = every_other
    async with stage.launcher(lease=timedelta(seconds=0.2)):
        await stage.until(lambda: is_asked(stage))
        answers(stage).loses = lambda _: False
        [approval] = await list_approvals(stage.deps, stage.caller)
        answers(stage).loses = every_other
        await decided(stage, approval.approval_id)
        run = await stage.settled(child.run)
        await stage.quiet()
    answers(stage).loses = lambda _: False
    assert run.result == "told approve"
    assert Counter(answers(stage).lost)["apply"] > 5
    assert {"claim", "append"} < set(answers(stage).lost)
    kinds = Counter(entry.kind for entry in await stage.log(child.session.session_id))
    assert {kind: kinds[kind] for kind in ONCE} == ONCE
    assert len(stage.prompts("worker")) == 1
    assert await problems_in(stage.deps.store, "local", [parent.run.run_id, child.run.run_id]) == []


ONCE = {
    "message": 4,  # what was asked, two words, the result
    "error": 2,
    "metadata": 2,
    "checkpoint": 2,
    "approval_requested": 1,
    "approval_decided": 1,
    "turn_started": 1,
    "turn_ended": 1,
    "run_settled": 1,
}


async def is_asked(stage: Stage) -> bool:
    return bool(await list_approvals(stage.deps, stage.caller))


async def decided(stage: Stage, approval_id: str) -> None:
    """Approve, until it is heard."""
    while True:
        try:
            await decide_approval(stage.deps, stage.caller, approval_id, "approve")
        except StoreError:
            continue
        else:
            return


async def test_events_during_a_store_outage_are_reported_afterwards(stage: Stage) -> None:
    """An agent begins before the outage, talks and asks during it, and ends after; another is claimed before."""
    begun, away, said = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def worker(_: Stage, __: Job, emit: Emit, commands: Commands) -> str:
        begun.set()
        await away.wait()
        for event in (
            {"type": "message", "content": "working"},
            {"type": "phase", "phase": "planning"},
            {"type": "error", "error": "a small one"},
            {"type": "checkpoint", "checkpoint": {"step": 1}},
            {"type": "approval", "id": "1", "question": "Apply?", "wait": True},
        ):
            await emit(event)
        said.set()
        while (command := await commands.get())["type"] != "decision":
            continue
        return f"told {command['decision']}"

    stage.plays("worker", worker)
    asked = await stage.ask("worker")
    async with stage.launcher(lease=timedelta(seconds=0.15)):
        await begun.wait()
        answers(stage).is_away = True
        away.set()
        await said.wait()
        await asyncio.sleep(0.3)  # two leases
        answers(stage).is_away = False
        await stage.until(lambda: is_asked(stage))
        [approval] = await list_approvals(stage.deps, stage.caller)
        answers(stage).is_away = True
        await asyncio.sleep(0.3)
        answers(stage).is_away = False
        await decide_approval(stage.deps, stage.caller, approval.approval_id, "approve")
        assert (await stage.settled(asked.run)).result == "told approve"
    kinds = Counter(entry.kind for entry in await stage.log(asked.session.session_id))
    assert (kinds["message"], kinds["error"], kinds["checkpoint"], kinds["turn_ended"]) == (3, 1, 1, 1)
    assert await problems_in(stage.deps.store, "local", [asked.run.run_id]) == []


async def test_a_turn_claimed_just_before_the_store_goes_away_is_carried_when_it_is_back(stage: Stage) -> None:
    before, lossy = await stage.ask(AGENT, "before"), answers(stage)
    async with stage.launcher():
        await stage.settled(before.run)
    asked = await runs.ask(stage.deps, stage.caller, before.session.session_id, "hello")

    def goes_away(name: str) -> bool:
        lossy.is_away = lossy.is_away or name == "claim"
        return False

    lossy.loses = goes_away
    async with stage.launcher():
        await stage.until(lambda: has_failed(lossy, "tail"))  # what was said before is asked for, in vain
        lossy.loses, lossy.is_away = lambda _: False, False
        run = await stage.settled(asked.run)
    assert (run.result, run.turns, run.failures) == ("echo: hello", 1, 0)


async def has_failed(lossy: UnreliableStore, name: str) -> bool:
    return name in lossy.lost


async def test_no_agent_begins_before_the_store_has_said_that_it_knows(stage: Stage) -> None:
    asked, lossy = await stage.ask(AGENT, "hello"), answers(stage)
    lossy.loses = lambda name: name == "apply" and lossy.lost.count("apply") < 1
    lossy.refuses = lambda name: name == "apply" and bool(lossy.lost)
    async with stage.launcher():
        await stage.until(lambda: has_lost(lossy, 3))  # it is known by then, but its launcher cannot be sure
        assert stage.jobs == []
        lossy.refuses = lambda _: False
        await stage.settled(asked.run)
    assert len(stage.jobs) == 1
    assert len(await stage.log(asked.session.session_id, "turn_started")) == 1


async def has_lost(lossy: UnreliableStore, enough: int) -> bool:
    return len(lossy.lost) >= enough


async def test_a_turn_that_is_given_back_may_say_other_words_the_next_time(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moorage.launcher.loop.DRAIN", 0.0)
    words = iter(["one", "two"])

    async def worker(_: Stage, job: Job, emit: Emit, __: Commands) -> str:
        await emit({"type": "message", "content": next(words)})
        if not job.cut_off:
            await asyncio.Event().wait()
        return "done"

    stage.plays("worker", worker)
    asked = await stage.ask("worker")
    async with stage.launcher():
        await stage.until(lambda: has_said(stage, asked, "one"))
    async with stage.launcher():
        assert (await stage.settled(asked.run)).result == "done"
    said = [entry.text for entry in await stage.log(asked.session.session_id, "message")]
    assert said == ["go", "one", "two", "done"]
    assert await problems_in(stage.deps.store, "local", [asked.run.run_id]) == []


async def has_said(stage: Stage, asked: RunAnswer, text: str) -> bool:
    return text in [entry.text for entry in await stage.log(asked.session.session_id, "message")]


async def test_claims_side_by_side_cost_each_other_nothing(stage: Stage) -> None:
    """One answer of eight gets lost: that turn comes back when its lease is over, the others are carried at once."""
    begun: list[str] = []
    together = asyncio.Event()

    async def slow(_: Stage, job: Job, __: Emit, ___: Commands) -> str:
        begun.append(job.prompt)
        await together.wait()
        return job.prompt

    stage.plays("slow", slow)
    asked = [await stage.ask("slow", str(number)) for number in range(8)]
    lossy, claims = answers(stage), count(1)
    lossy.loses = lambda name: name == "claim" and next(claims) == 3  # the first comes alone, the others together
    async with stage.launcher(lease=timedelta(minutes=5)):
        await stage.until(lambda: has_begun(begun, 7))
        together.set()
        await stage.until(lambda: are_settled(stage, asked, 7))
        assert lossy.lost == ["claim"]
        stuck = [run for run in asked if not (await stage.deps.store.run("local", run.run.run_id)).is_settled]
        await runs.stop_run(stage.deps, stage.caller, stuck[0].run.run_id)
    assert len(begun) == 7


async def has_begun(begun: list[str], enough: int) -> bool:
    return len(begun) >= enough


async def are_settled(stage: Stage, asked: list[Any], enough: int) -> bool:
    found = [await stage.deps.store.run("local", each.run.run_id) for each in asked]
    return sum(run.is_settled for run in found) >= enough
