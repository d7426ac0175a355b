"""The loop: claim a turn, carry it to its end, claim the next.

Each turn is carried by a task of its own. Its lease is renewed by another, which has nothing
to do with what the agent says: an agent that floods its output does not lose its turn. What
cannot be reported now (the store is away) is reported later, as long as the turn is ours.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from msgspec import to_builtins
from msgspec.structs import replace

from moorage.agents.interface import NO_ANSWER, NOT_KEPT, NOT_STARTED
from moorage.core.agent import AgentDefinition
from moorage.core.approval import Approval
from moorage.core.entry import MAX_MESSAGE_BYTES, check_message
from moorage.core.errors import (
    Conflict,
    InvalidRequest,
    MoorageError,
    NotFound,
    SessionCorrupt,
    StoreError,
    StoreUnavailable,
    TurnLost,
)
from moorage.core.problem import Problem, problem_of
from moorage.core.turn import Launcher, Turn, TurnState, name_of
from moorage.core.usage import Usage, summed, usage_of
from moorage.core.work import TurnEnd, cut
from moorage.launcher.desk import Desk
from moorage.launcher.drivers.base import KEPT_PROBLEMS
from moorage.launcher.job import job_for
from moorage.launcher.processes import clock
from moorage.launcher.undisturbed import undisturbed
from moorage.ports import Claimed
from moorage.service.about import working_on

log = logging.getLogger(__name__)

HEARTBEAT = 10.0  # seconds
SEEN_OFF_FOR = 30.0  # seconds it is told that the agent of a session that is gone has ended
AT_ONCE = 8  # turns claimed side by side
IDLE_LOOK = 1.0  # a wake-up is a hint and may get lost
LOOK_AT_APPROVALS = 0.2
LOOK_FOR_STOPS = 1.0
BACKOFF = (0.05, 5.0)  # seconds: between attempts to reach a store that is away
FAREWELL = 2.0  # seconds to say that nothing is at work here any more
DRAIN = 30.0  # seconds that turns have whose agents end with the launcher, when it is asked to

Event = dict[str, Any]
Listener = Callable[[Turn, Event], None]
Report = Callable[[], Awaitable[Any]]


class Carrier(Protocol):
    """An agent at work on one turn."""

    dies_with_us: bool  # whether it ends with the launcher

    def events(self) -> Any:
        """What it says, as an asynchronous iterator; the last event is its result."""

    async def tell(self, command: Event) -> None:
        """Tell it something: renewed, stop, decision."""

    async def kept(self, entry: int) -> None:
        """What it said last is in the log, not after this entry."""

    async def adopting(self, turn: Turn, launcher_id: str) -> None:
        """It is about to go on under the next epoch."""

    async def adopted(self, turn: Turn) -> None:
        """It goes on under another epoch."""

    async def close(self) -> None:
        """It is over and reported: nothing of it is needed any more."""


class Carriers(Protocol):
    """Starts agents of any kind."""

    async def start(self, job: Any, definition: AgentDefinition) -> Carrier:
        """Begin one turn."""

    async def found(self) -> Sequence[tuple[Any, Turn, Carrier]]:
        """What a former life of this launcher has left at work: job, turn, carrier."""


class Loop:
    """Takes turns for some owners until it is told to stop."""

    def __init__(
        self,
        desk: Desk,
        launcher: Launcher,
        carriers: Carriers,
        find_agent: Callable[[], dict[str, AgentDefinition]],
        *,
        owners: tuple[str, ...] = ("local",),
        root: str | None = None,
        listener: Listener | None = None,
        environment: dict[str, str] | None = None,
        ends_when_drained: bool = False,
        beat_every: float = HEARTBEAT,
    ) -> None:
        """With `ends_when_drained`, it stops by itself when it is to drain and has nothing at work."""
        self._desk, self._launcher, self._carriers, self._find_agents = desk, launcher, carriers, find_agent
        self._owners, self._root, self._listener = owners, root, listener
        self._environment = environment or {}
        self._ends_when_drained, self._beat_every, self._is_to_drain = ends_when_drained, beat_every, False
        self._turns: dict[str, asyncio.Task[None]] = {}
        self._outliving: set[str] = set()  # turns whose agents go on without us
        self._agents: Counter[str] = Counter()
        self._ended = asyncio.Event()
        self._seen_off: dict[str, float] = {}  # sessions we had to leave, and when their agents were gone
        self._has_news, self._is_draining, self._in_a_hurry = asyncio.Event(), False, asyncio.Event()
        self._at_once = 1  # how many turns the next claim is for; several, as long as there is one for each

    @property
    def at_work(self) -> set[str]:
        """The sessions it has turns of."""
        return {turn_id.rpartition(":")[0] for turn_id in self._turns}

    def hurry(self) -> None:
        """Do not wait for turns to end."""
        self._in_a_hurry.set()

    async def give_back(self, session_id: str) -> None:
        """End the agent at work on a session, and give its turn back for whoever comes next."""
        tasks = [task for turn_id, task in self._turns.items() if turn_id.rpartition(":")[0] == session_id]
        for task in tasks:
            task.cancel()
        await undisturbed(_all(tasks))

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`; then end what can be ended, and leave the rest to whoever comes back."""
        await self._adopt()
        beat = asyncio.create_task(self._beat())
        try:
            while not (stop.is_set() or self._is_drained):
                await self._step(stop)
        finally:
            self._is_draining = True
            self._has_news.set()
            await self._drain()
            beat.cancel()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._register(), FAREWELL)

    @property
    def _is_drained(self) -> bool:
        return self._ends_when_drained and self._is_to_drain and not self._turns

    async def _step(self, stop: asyncio.Event) -> None:
        """Claim what there is room for, then wait until something happens."""
        seen = self._desk.pulse()
        self._ended.clear()
        try:
            while not stop.is_set() and await self._claim_some(await self._room()):
                continue
        except StoreError as error:
            log.warning("the store cannot be reached, trying again: %s", error)
            await _first(stop.wait(), asyncio.sleep(IDLE_LOOK))
            return
        await _first(stop.wait(), self._ended.wait(), self._desk.wait(seen, IDLE_LOOK))

    async def _room(self) -> int:
        """How many turns more there is room for. One that waits for a child needs none."""
        free = self._launcher.slots - len(self._turns)
        if free <= 0:
            waiting = await self._desk.waiting(self._launcher.launcher_id)
            free += len(waiting & self._turns.keys())
        return free

    async def _claim_some(self, room: int) -> bool:
        """Claim several turns side by side, so that they share a commit; whether there may be more."""
        agents = self._find_agents()
        self._note_agents(agents)
        retries = {name: agent.retry for name, agent in agents.items()}
        full = tuple(name for name, agent in agents.items() if self._is_full(agent))
        at_once = 1 if any(agent.max_concurrent is not None for agent in agents.values()) else self._at_once
        wishes = [
            self._desk.claim(self._launcher.launcher_id, self._owners, retries, full=full, root=self._root)
            for _ in range(min(room, at_once))
        ]
        answers = await asyncio.gather(*wishes, return_exceptions=True)  # one that fails costs the others nothing
        claimed = [each for each in answers if isinstance(each, Claimed)]
        for each in claimed:
            self._begin(each.turn, self._carry(each, agents[str(each.turn.agent_name)]))
        if wishes:
            self._at_once = AT_ONCE if len(claimed) == len(wishes) else 1
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return bool(wishes) and len(claimed) == len(wishes)

    def _note_agents(self, agents: dict[str, AgentDefinition]) -> None:
        """Have it known whom we start, if that has changed; a launcher that names nobody starts all."""
        if self._launcher.agents and self._launcher.agents != (names := tuple(agents)):
            self._launcher = replace(self._launcher, agents=names)
            self._has_news.set()

    def _is_full(self, agent: AgentDefinition) -> bool:
        return agent.max_concurrent is not None and self._agents[agent.name] >= agent.max_concurrent

    def _begin(self, turn: Turn, work: Any) -> None:
        task = asyncio.create_task(work, name=turn.turn_id)
        self._turns[turn.turn_id] = task
        self._agents[str(turn.agent_name)] += 1

        def done(_: asyncio.Task[None]) -> None:
            if self._turns.get(turn.turn_id) is task:  # given out again, it may be at work here a second time
                del self._turns[turn.turn_id]
                self._outliving.discard(turn.turn_id)
            self._agents[str(turn.agent_name)] -= 1
            self._ended.set()

        task.add_done_callback(done)

    # One turn -----------------------------------------------------------------------------------

    async def _carry(self, claimed: Claimed, agent: AgentDefinition) -> None:
        """A turn from its claim to its end."""
        session, run_id = claimed.session, claimed.runs[0].run_id if claimed.runs else None
        with working_on(session=session.session_id, task=session.task_id, run=run_id):
            log.info("turn %s begins: %s", claimed.turn.turn_id, agent.name)
            await self._start(claimed, agent)

    async def _start(self, claimed: Claimed, agent: AgentDefinition) -> None:
        owner, turn = claimed.owner, claimed.turn
        try:
            job = job_for(await self._insist(lambda: self._desk.given(claimed)), agent, self._environment)
            await self._insist(lambda: self._desk.started(owner, turn))
            carrier = await undisturbed(self._carriers.start(job, agent))
        except (TurnLost, NotFound):
            self._confirm(owner, turn)
            return
        except asyncio.CancelledError:
            await undisturbed(self._release(owner, turn))
            return
        except Exception as error:
            log.exception("agent %s could not be started", agent.name)
            await self._finish(owner, turn, _failing(NOT_STARTED, error))
            return
        if _is_cancelled():
            await undisturbed(self._give_back(owner, turn, carrier))
            return
        await self._attend(owner, turn, carrier)

    async def _attend(self, owner: str, turn: Turn, carrier: Carrier) -> None:
        """Keep what a started agent says until it ends, or until the turn is somebody else's."""
        if not carrier.dies_with_us:
            self._outliving.add(turn.turn_id)
        renewing = self._renewing(owner, turn, carrier)
        try:
            end = await self._listen(owner, turn, carrier)
            renewing.cancel()
            is_ours = end is None or await self._finish(owner, turn, end)
        except (TurnLost, NotFound):  # somebody else has it, or the session was deleted
            log.warning("turn %s is no longer ours; its agent is told to stop", turn.turn_id)
            await self._see_off(owner, turn, carrier)
            renewing.cancel()
            return
        except asyncio.CancelledError:
            if not carrier.dies_with_us:
                renewing.cancel()
                return  # it goes on without us, and is adopted when we come back
            await undisturbed(self._give_back(owner, turn, carrier))
            renewing.cancel()
            return
        except Exception as error:  # something that cannot be kept, or a session that cannot be read any more
            log.exception("turn %s cannot go on", turn.turn_id)
            await _ended(carrier)
            is_ours = await self._finish(owner, turn, _failing(NOT_KEPT, error))
        renewing.cancel()
        await carrier.close()
        if not is_ours:
            self._confirm(owner, turn)

    async def _give_back(self, owner: str, turn: Turn, carrier: Carrier) -> None:
        """End an agent that cannot go on without us, and only then let somebody else have its turn."""
        await _ended(carrier)
        await self._release(owner, turn)

    async def _release(self, owner: str, turn: Turn) -> None:
        with suppress(MoorageError):
            await self._desk.release(owner, turn)

    def _renewing(self, owner: str, turn: Turn, carrier: Carrier) -> _Later:
        """Renewals from a third of the lease on, or from when somebody wants the turn to stop."""
        third, seen = turn.lease.total_seconds() / 3, self._desk.pulse()
        first = min(third, LOOK_FOR_STOPS)

        async def renew() -> None:
            if self._desk.pulse() == seen or not await self._desk.is_unwanted(owner, turn):
                await self._sleep_unless_unwanted(owner, turn, third - first)
            await self._renew(owner, turn, carrier, third)

        return _Later(first, renew)

    async def _renew(self, owner: str, turn: Turn, carrier: Carrier, pause: float) -> None:
        """Renew the lease now, and again after each pause; tell the agent if somebody wants it to stop.

        While it waits for a child, its own time stands still.
        """
        is_first, is_told, is_paused = True, False, False
        while True:
            if not is_first:
                await (asyncio.sleep(pause) if is_told else self._sleep_unless_unwanted(owner, turn, pause))
            is_first, asked_at = False, clock()
            try:
                now = await self._desk.renew(owner, turn)
                waits = turn.turn_id in await self._desk.waiting(self._launcher.launcher_id)
            except (TurnLost, NotFound):
                await carrier.tell({"type": "stop"})
                return
            except MoorageError as error:  # unreachable is not refusal
                log.warning("turn %s could not be renewed: %s", turn.turn_id, error)
                continue
            await carrier.tell({"type": "renewed", "at": asked_at})  # the lease counts from when it was asked for
            if waits is not is_paused:
                is_paused = waits
                await carrier.tell({"type": "pause" if waits else "go_on"})
            if now.stop_requested:
                await carrier.tell({"type": "stop"})
                is_told = True

    async def _sleep_unless_unwanted(self, owner: str, turn: Turn, seconds: float) -> None:
        """Let time pass; less of it, if somebody wants the turn to stop."""
        while seconds > 0:
            seen, step = self._desk.pulse(), min(seconds, LOOK_FOR_STOPS)
            await asyncio.sleep(step)
            seconds -= step
            if self._desk.pulse() != seen and await self._desk.is_unwanted(owner, turn):
                return

    async def _listen(self, owner: str, turn: Turn, carrier: Carrier) -> TurnEnd | None:
        said: list[str] = []
        usage: Usage = {}
        kept = 0  # the last entry before what is reported next
        refused = 0  # events that the desk has refused
        asking: list[asyncio.Task[None]] = []
        try:
            async for event in carrier.events():
                self._show(turn, event)
                if event["type"] == "result":
                    return _ending(event, said, usage, _untold(event.get("problems", 0)) + _untold(refused))
                if event["type"] == "usage":
                    usage = summed(usage, usage_of(event))
                elif event["type"] == "chunk":
                    await self._desk.speak(owner, turn, event["text"])
                elif event["type"] == "problem":
                    await self._keep_problem(owner, turn, _problem(event))
                try:
                    if event["type"] == "approval":
                        approval = await self._ask(owner, turn, carrier, event)
                        if approval is not None and event.get("wait"):
                            asking.append(asyncio.create_task(self._answer(owner, approval, carrier, event)))
                    elif event["type"] == "message":
                        await self._keep_message(owner, turn, event, said)
                    elif event["type"] in ("phase", "metadata", "error", "checkpoint"):
                        kept = await self._keep(owner, turn, event, kept)
                        await carrier.kept(kept)
                except InvalidRequest as error:  # the turn goes on without it
                    refused += 1
                    if refused <= KEPT_PROBLEMS:
                        problem = problem_of(event, error)
                        self._show(turn, {"type": "problem", **to_builtins(problem)})
                        await self._keep_problem(owner, turn, problem)
        finally:
            for task in asking:
                task.cancel()
        return TurnEnd(outcome=TurnState.FAILED, error="the agent ended without a word", reason=NO_ANSWER, usage=usage)

    def _show(self, turn: Turn, event: Event) -> None:
        if self._listener is not None:
            self._listener(turn, event)

    async def _keep_problem(self, owner: str, turn: Turn, problem: Problem) -> None:
        await self._insist(lambda: self._desk.misspoken(owner, turn, problem))

    async def _keep_message(self, owner: str, turn: Turn, event: Event, said: list[str]) -> None:
        message = {"role": event.get("role", "assistant"), "content": event["content"], "client_key": event["key"]}
        await self._insist(lambda: self._desk.say(owner, turn, [message]))
        if isinstance(event["content"], str):
            said.append(event["content"])

    async def _keep(self, owner: str, turn: Turn, event: Event, after: int) -> int:
        """Keep what has no key of its own; told again, it is looked for in the log `after` what was kept before it."""
        if event["type"] == "checkpoint":
            report = partial(self._desk.checkpoint, owner, turn, event["checkpoint"])
        else:
            facts = {name: event.get(name) for name in ("phase", "metadata", "error")}
            report = partial(self._desk.update, owner, turn, **facts)
        doubtful = event.get("doubtful")
        again = partial(report, since=after if doubtful is None else max(after, doubtful))
        session = await self._insist(report if doubtful is None else again, again)
        return int(session.last_entry)

    async def _ask(self, owner: str, turn: Turn, carrier: Carrier, event: Event) -> Approval | None:
        """Put an agent's question to a person, before anything that the agent said later: its end may be next."""
        try:
            approval: Approval = await self._insist(lambda: self._request(owner, turn, event))
        except (TurnLost, NotFound):
            raise
        except MoorageError as error:  # a question that makes no sense: nobody will ever answer it
            await carrier.tell({**_told(event), "decision": "withdrawn", "note": str(error)})
            if isinstance(error, InvalidRequest):
                raise
            return None
        return approval

    async def _answer(self, owner: str, approval: Approval, carrier: Carrier, event: Event) -> None:
        """Give an agent that waits the answer, as soon as there is one."""
        look = partial(self._desk.approval, owner, approval.approval_id)
        with suppress(TurnLost, NotFound):
            while approval.state.value == "pending":
                await asyncio.sleep(LOOK_AT_APPROVALS)
                approval = await self._insist(look)
            decision = approval.decision or approval.state.value
            await carrier.tell({**_told(event), "decision": decision, "note": approval.note})

    async def _request(self, owner: str, turn: Turn, event: Event) -> Approval:
        options = {name: event[name] for name in ("plan", "options", "expires_in") if event.get(name)}
        question, waits = str(event.get("question") or "May I?"), bool(event.get("wait"))
        return await self._desk.request_approval(owner, turn, question, key=event["key"], waits=waits, **options)

    async def _finish(self, owner: str, turn: Turn, end: TurnEnd) -> bool:
        """Report the end; False if the turn was not ours any more, or never will be told to anybody."""
        try:
            await self._insist(lambda: self._desk.finish(owner, turn, end))
        except (TurnLost, NotFound, SessionCorrupt):
            return False
        log.info("turn %s has ended: %s", turn.turn_id, end.outcome.value)
        return True

    async def _insist(self, report: Report, again: Report | None = None) -> Any:
        """Report until it is taken or refused; a store that is away comes back.

        It may have been taken though we heard of an error: then `again` is what is asked, if it is not the same.
        """
        pause, longest = BACKOFF
        while True:
            try:
                return await report()
            except SessionCorrupt:
                raise  # that does not pass
            except StoreError as error:
                log.warning("could not report, trying again: %s", error)
                await asyncio.sleep(pause)
                pause, report = min(pause * 2, longest), again or report
            except Conflict as error:
                if error.code == "hold_lost":
                    raise TurnLost("", 0) from error
                raise

    # Beginning and end --------------------------------------------------------------------------

    async def _adopt(self) -> None:
        """Go on with what a former life has left at work."""
        for job, turn, carrier in await self._carriers.found():
            self._outliving.add(turn.turn_id)
            self._begin(turn, self._go_on(job, turn, carrier))

    async def _go_on(self, job: Any, turn: Turn, carrier: Carrier) -> None:
        """A turn of a former life to its end."""
        with working_on(session=job.session_id, task=job.task_id, run=job.run_id):
            log.info("turn %s goes on: its agent outlived us", turn.turn_id)
            await self._take_over(job.owner, turn, carrier)

    async def _take_over(self, owner: str, turn: Turn, carrier: Carrier) -> None:
        """Ask for a turn as soon as there is somebody to ask; its agent works on meanwhile."""
        await carrier.adopting(turn, self._launcher.launcher_id)
        try:
            mine = await self._insist(partial(self._desk.adopt, owner, turn, self._launcher.launcher_id))
        except (TurnLost, NotFound):
            await self._see_off(owner, turn, carrier)
            return
        await carrier.adopted(mine)
        await carrier.tell({"type": "renewed"})
        await self._attend(owner, mine, carrier)

    async def _see_off(self, owner: str, turn: Turn, carrier: Carrier) -> None:
        """End an agent whose turn is not ours any more."""
        await _ended(carrier)
        self._confirm(owner, turn)

    async def _beat(self) -> None:
        while True:
            self._has_news.clear()
            await self._register()
            await _first(self._has_news.wait(), asyncio.sleep(self._beat_every))

    async def _register(self) -> None:
        """Say that we are there, what we do, and whom we have seen off lately; hear whether we are to drain."""
        recent = clock() - SEEN_OFF_FOR
        self._seen_off = {name: at for name, at in self._seen_off.items() if at >= recent}
        told = replace(
            self._launcher, running=len(self._turns), draining=self._is_draining, seen_off=tuple(self._seen_off)
        )
        try:
            self._is_to_drain = await self._desk.register(told)
        except MoorageError as error:
            if self._is_draining and isinstance(error, StoreUnavailable):
                self.hurry()  # nothing that ends now could be kept

    def _confirm(self, owner: str, turn: Turn) -> None:
        """Have it known that nothing of a turn is left which is not ours any more: who deleted it may be waiting."""
        self._seen_off[name_of(owner, turn.session_id)] = clock()
        self._has_news.set()

    async def _drain(self) -> None:
        """Wait a while for turns that would end with us; other agents work on, for whoever comes back."""
        with suppress(asyncio.CancelledError):
            await _first(self._until_none_ends_with_us(), self._in_a_hurry.wait())
        tasks = list(self._turns.values())
        for task in tasks:
            task.cancel()
        await undisturbed(_all(tasks))

    async def _until_none_ends_with_us(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN):
                while ending := [task for turn_id, task in self._turns.items() if turn_id not in self._outliving]:
                    await asyncio.wait(ending, timeout=LOOK_FOR_STOPS)  # one that starts meanwhile may outlive us


def _is_cancelled() -> bool:
    """Whether somebody cancelled this task while it was undisturbed."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _ended(carrier: Carrier) -> None:
    """Tell an agent to stop, and see that nothing of it is left."""
    await carrier.tell({"type": "stop"})
    async for event in carrier.events():
        if event["type"] == "result":
            break
    await carrier.close()


def _told(event: Event) -> Event:
    """An answer without its words: to which question it is, by the agent's own name for it and by ours."""
    return {"type": "decision", "id": event.get("id"), "key": event["key"]}


def _failing(reason: str, error: Exception) -> TurnEnd:
    """The end of a turn that failed for a reason of its launcher's."""
    return TurnEnd(outcome=TurnState.FAILED, error=f"{type(error).__name__}: {error}", reason=reason)


def _problem(event: Event) -> Problem:
    """Return what a driver has reported."""
    more = {name: event.get(name) for name in ("field", "line", "text")}
    return Problem(expected=str(event["expected"]), **more)


def _untold(problems: int) -> int:
    """Return how many of so many problems were counted only."""
    return max(0, problems - KEPT_PROBLEMS)


def _ending(event: Event, said: list[str], usage: Usage, problems: int) -> TurnEnd:
    """A result as the end of a turn; its text is kept as a message, unless the log has it already."""
    text = event.get("text") or ""
    is_new = bool(text.strip()) and not event.get("said")
    return TurnEnd(
        outcome=TurnState(event.get("outcome", "completed")),
        messages=(check_message({"role": "assistant", "content": cut(text, MAX_MESSAGE_BYTES)}),) if is_new else (),
        result=text or (said[-1] if said else None),
        error=event.get("error"),
        reason=event.get("reason"),
        usage=usage,
        problems=problems,
        cut_off=bool(event.get("cut_off")),
    )


class _Later:
    """A task that begins after a while, unless it is cancelled before: most turns are over by then."""

    def __init__(self, seconds: float, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._begin = begin
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(seconds, self._start)

    def _start(self) -> None:
        self._task = asyncio.create_task(self._begin())

    def cancel(self) -> None:
        """It is not needed any more."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()


async def _all(tasks: list[asyncio.Task[None]]) -> None:
    """Until all of these are over."""
    await asyncio.gather(*tasks, return_exceptions=True)


async def _first(*waits: Any) -> None:
    """Until one of these is over."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
