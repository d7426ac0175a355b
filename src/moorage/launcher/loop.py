"""The loop: claim turns, and run each in its own task until it ends (`attending`); `serve` is a process of its own."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

from msgspec.structs import replace

from moorage.agents.interface import NOT_STARTED, Job, Limits
from moorage.core.agent import AgentDefinition
from moorage.core.codec import encode_text
from moorage.core.errors import MoorageError, NotFound, StoreError, StoreUnavailable, TurnLost
from moorage.core.ids import uuid7
from moorage.core.inbox import composed
from moorage.core.turn import Launcher, Turn, name_of
from moorage.launcher.attending import (
    AgentHandle,
    Dispatcher,
    TurnAtWork,
    TurnListener,
    failing,
    first_of,
    insist,
    stop_agent,
    undisturbed,
)
from moorage.launcher.handles import StarterByKind
from moorage.launcher.processes import clock
from moorage.launcher.turn_files import locked
from moorage.ports import Claimed
from moorage.service.about import working_on
from moorage.service.turns import Given

log = logging.getLogger(__name__)

HEARTBEAT = 10.0  # seconds
TELL_ENDED_FOR = 30.0  # seconds for which heartbeats report that the agent of a deleted session has ended
LOOK_FOR_STARTS = 1.0  # seconds between checks whether a turn's agent outlives this process by now
AT_ONCE = 16  # turns claimed concurrently
IDLE_LOOK = 1.0  # seconds; a wake-up is a hint and may get lost
FAREWELL = 2.0  # seconds to report that no turn runs here any more
DRAIN = 30.0  # seconds for turns whose agents end with the launcher, when it is told to drain
SLOTS = 16


class Loop:
    """Takes turns for a launcher until it is told to stop."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        launcher: Launcher,
        starter: StarterByKind,
        find_agent: Callable[[], dict[str, AgentDefinition]],
        *,
        listener: TurnListener | None = None,
        environment: dict[str, str] | None = None,
        ends_when_drained: bool = False,
        beat_every: float = HEARTBEAT,
    ) -> None:
        """Create a loop. With `ends_when_drained`, it stops once the launcher is draining and has no running turns."""
        self._dispatcher, self.launcher, self._starter, self._find_agents = dispatcher, launcher, starter, find_agent
        self._listener, self._environment = listener, environment or {}
        self._ends_when_drained, self._beat_every, self._is_to_drain = ends_when_drained, beat_every, False
        self._turns: dict[str, asyncio.Task[None]] = {}  # a task is called by its agent, and its session's name or id
        self._outliving: set[str] = set()  # turns whose agents outlive this process
        self._agents: Counter[str] = Counter()
        self._ended = asyncio.Event()
        self._ended_sessions: dict[str, float] = {}  # lost sessions, and when their agents had ended
        self._has_news, self._is_draining, self._in_a_hurry = asyncio.Event(), False, asyncio.Event()
        self._claiming = asyncio.Lock()
        self._at_once = 1  # number of turns that the next claim asks for; it doubles while each claim gets a turn

    @property
    def at_work(self) -> set[str]:
        """Return the sessions whose turns run here."""
        return {turn_id.rpartition(":")[0] for turn_id in self._turns}

    async def works_on(self, session_id: str) -> bool:
        """Return whether a turn of a session runs here, or is being claimed."""
        async with self._claiming:  # the store may have given out a turn whose claim is not answered yet
            return session_id in self.at_work

    def hurry(self) -> None:
        """Stop waiting for turns to end."""
        self._in_a_hurry.set()

    async def give_back(self, session_id: str) -> None:
        """Stop the agent of a session, and return its turn for another launcher."""
        tasks = [task for turn_id, task in self._turns.items() if turn_id.rpartition(":")[0] == session_id]
        await undisturbed(_cancelled(tasks))

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop`; then stop what can be stopped, and leave other agents to the next launcher."""
        await self._adopt()
        beat = asyncio.create_task(self._beat())
        try:
            while not stop.is_set():
                if self._ends_when_drained and self._is_to_drain and not self._turns:
                    break
                await self._step(stop)
        finally:
            self._is_draining = True
            self._has_news.set()
            await self._drain()
            beat.cancel()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._register(), FAREWELL)

    async def _step(self, stop: asyncio.Event) -> None:
        """Claim as many turns as there is room for, then wait until something happens."""
        seen = self._dispatcher.pulse()
        self._ended.clear()
        try:
            is_more = True
            while is_more and not stop.is_set():
                room = await self._room()
                async with self._claiming:
                    is_more = await self._claim_some(room)
        except StoreError as error:
            log.warning("the store cannot be reached, trying again: %s", error)
            await first_of(stop.wait(), asyncio.sleep(IDLE_LOOK))
            return
        await first_of(stop.wait(), self._ended.wait(), self._dispatcher.wait(seen, IDLE_LOOK))

    async def _room(self) -> int:
        """Return the number of free slots. A turn that waits for a child takes none."""
        free = self.launcher.slots - len(self._turns)
        if free <= 0:
            waiting = await self._dispatcher.waiting(self.launcher.launcher_id)
            free += len(waiting & self._turns.keys())
        return free

    async def _claim_some(self, room: int) -> bool:
        """Claim several turns concurrently, so that they share a commit; return whether there may be more."""
        agents = self._find_agents()
        self._note_agents(agents)
        retries = {name: agent.retry for name, agent in agents.items()}
        most = {name: agent.max_concurrent for name, agent in agents.items() if agent.max_concurrent is not None}
        full = tuple(name for name, limit in most.items() if self._agents[name] >= limit)
        at_once = 1 if most else self._at_once
        wishes = [self._dispatcher.claim(self.launcher, retries, full=full) for _ in range(min(room, at_once))]
        answers = await asyncio.gather(*wishes, return_exceptions=True)  # a failed claim does not affect the others
        claimed = [each for each in answers if isinstance(each, Claimed)]
        for each in claimed:
            name = each.session.session_name or each.session.session_id
            self._begin(each.turn, name, self._carry(each, agents[str(each.turn.agent_name)]))
        if wishes:
            self._at_once = min(2 * len(wishes), AT_ONCE) if len(claimed) == len(wishes) else 1
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return bool(wishes) and len(claimed) == len(wishes)

    def _note_agents(self, agents: dict[str, AgentDefinition]) -> None:
        """Register the agents that this launcher starts, if they changed; without names, it starts all."""
        if self.launcher.agents and self.launcher.agents != (names := tuple(agents)):
            self.launcher = replace(self.launcher, agents=names)
            self._has_news.set()

    def _begin(self, turn: Turn, session: str, work: Any) -> None:
        task = self._turns[turn.turn_id] = asyncio.create_task(work, name=f"{turn.agent_name} ({session})")
        self._agents[str(turn.agent_name)] += 1

        def done(_: asyncio.Task[None]) -> None:
            if self._turns.get(turn.turn_id) is task:  # a turn that is given out again may run here a second time
                del self._turns[turn.turn_id]
                self._outliving.discard(turn.turn_id)
            self._agents[str(turn.agent_name)] -= 1
            self._ended.set()

        task.add_done_callback(done)

    # One turn -----------------------------------------------------------------------------------

    async def _carry(self, claimed: Claimed, agent: AgentDefinition) -> None:
        """Run a claimed turn to its end."""
        session, run = claimed.session, claimed.runs[0].run_id if claimed.runs else None
        with working_on(session=session.session_id, session_name=session.session_name, task=session.task_id, run=run):
            log.info("%s begins a turn", agent.name)
            await self._start(claimed, agent)

    async def _start(self, claimed: Claimed, agent: AgentDefinition) -> None:
        owner, turn, work = claimed.owner, claimed.turn, self._at_work(claimed.owner, claimed.turn)
        try:
            job = job_for(await insist(lambda: self._dispatcher.given(claimed)), agent, self._environment)
            await insist(lambda: self._dispatcher.started(owner, turn))
            handle = await undisturbed(self._starter.start(job, agent))
        except (TurnLost, NotFound):
            self._confirm(owner, turn)
        except asyncio.CancelledError:
            await undisturbed(work.release())
        except Exception as error:
            log.exception("agent %s could not be started", agent.name)
            await work.finish(failing(NOT_STARTED, error))
        else:
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # while it was undisturbed
                await undisturbed(work.give_back(handle))
            else:
                await self._attend(owner, work, handle)

    def _at_work(self, owner: str, turn: Turn) -> TurnAtWork:
        return TurnAtWork(self._dispatcher, self.launcher.launcher_id, owner, turn, self._listener)

    async def _attend(self, owner: str, work: TurnAtWork, handle: AgentHandle) -> None:
        """Attend a turn whose agent has started until it ends."""
        if not handle.dies_with_us:
            self._outliving.add(work.turn.turn_id)
        if not await work.attend(handle):
            self._confirm(owner, work.turn)

    # Beginning and end --------------------------------------------------------------------------

    async def _adopt(self) -> None:
        """Adopt the running agents of the former process."""
        for job, turn, handle in await self._starter.found():
            self._outliving.add(turn.turn_id)
            self._begin(turn, job.session_name or job.session_id, self._go_on(job, turn, handle))

    async def _go_on(self, job: Any, turn: Turn, handle: AgentHandle) -> None:
        """Adopt a turn of the former process as soon as the server answers, and attend it; its agent keeps running."""
        with working_on(session=job.session_id, session_name=job.session_name, task=job.task_id, run=job.run_id):
            log.info("%s is adopted: it kept running while no launcher was there", turn.agent_name)
            await handle.adopting(turn, self.launcher.launcher_id)
            try:
                mine = await insist(partial(self._dispatcher.adopt, job.owner, turn, self.launcher.launcher_id))
            except (TurnLost, NotFound):
                await stop_agent(handle)
                self._confirm(job.owner, turn)
                return
            await handle.adopted(mine)
            await handle.tell({"type": "renewed"})
            await self._attend(job.owner, self._at_work(job.owner, mine), handle)

    async def _beat(self) -> None:
        while True:
            self._has_news.clear()
            await self._register()
            await first_of(self._has_news.wait(), asyncio.sleep(self._beat_every))

    async def _register(self) -> None:
        """Register this launcher, its load and the sessions it ended lately; learn whether it is to drain."""
        recent = clock() - TELL_ENDED_FOR
        self._ended_sessions = {name: at for name, at in self._ended_sessions.items() if at >= recent}
        told = replace(
            self.launcher,
            running=len(self._turns),
            draining=self._is_draining,
            ended_sessions=tuple(self._ended_sessions),
        )
        try:
            self._is_to_drain = await self._dispatcher.register(told)
        except MoorageError as error:
            if self._is_draining and isinstance(error, StoreUnavailable):
                self.hurry()  # nothing that ends now could be kept

    def _confirm(self, owner: str, turn: Turn) -> None:
        """Report that a lost turn has no process left: the caller that deleted it may wait for that."""
        self._ended_sessions[name_of(owner, turn.session_id)] = clock()
        self._has_news.set()

    async def _drain(self) -> None:
        """Wait for turns that would end with this process; other agents keep running, for the next launcher."""
        if waited := self._names(self._turns.keys() - self._outliving):
            log.info("waiting up to %d seconds for agents inside the launcher: %s", DRAIN, waited)
        with suppress(asyncio.CancelledError):
            await first_of(self._until_none_ends_with_us(), self._in_a_hurry.wait())
        if left := self._names(self._turns.keys() & self._outliving):
            log.info("agents that keep running, for the next start to adopt: %s", left)
        await undisturbed(_cancelled(list(self._turns.values())))

    def _names(self, turn_ids: Iterable[str]) -> str:
        """Return the running agents with their sessions, as text."""
        return ", ".join(self._turns[each].get_name() for each in sorted(turn_ids))

    async def _until_none_ends_with_us(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN):
                while ending := [task for turn_id, task in self._turns.items() if turn_id not in self._outliving]:
                    await asyncio.wait(ending, timeout=LOOK_FOR_STARTS)  # a starting agent may outlive this process


def this_process(launcher_id: str, at: datetime, **facts: Any) -> Launcher:
    """Return this process as a launcher, with these further facts."""
    host, pid = os.uname().nodename, os.getpid()
    return Launcher(launcher_id=launcher_id, registered_at=at, seen_at=at, host=host, pid=pid, **facts)


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel all of these, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def job_for(given: Given, agent: AgentDefinition, environment: dict[str, str]) -> Job:
    """Return the job of a turn. The turn's session is the parent of sessions that the agent starts.

    Only the runs that a lost turn worked on learn that it was cut off: for the turn of another run the log is repaired.
    """
    session, turn = given.session, given.turn
    run = given.runs[0] if given.runs else None
    run_id = None if run is None else run.run_id
    parameters = {} if run is None else run.parameters  # a run with its own parameters has its own turn
    name = session.session_name or session.session_id
    was_cut_off = turn.cut_off and (not given.runs or any(run.cut_off for run in given.runs))
    return Job(
        owner=given.owner,
        session_id=session.session_id,
        session_name=session.session_name,
        task_id=session.task_id,
        agent=agent.for_session(session_id=session.session_id, session_name=name),
        turn_id=turn.turn_id,
        epoch=turn.epoch,
        run_id=run_id,
        prompt=_with_parameters(composed(given.items, cut_off=was_cut_off), agent, parameters),
        parameters=parameters,
        tools=[] if run is None else list(run.tools),
        turns=session.turns - 1,
        items=[{"kind": item.kind.value, **item.body} for item in given.items],
        history=given.history,
        system_prompt=agent.system_prompt,
        checkpoint=given.checkpoint,
        context=given.context,
        cut_off=was_cut_off,
        env={
            **environment,
            "AGENT_SESSION_ID": session.session_id,
            "AGENT_SESSION_NAME": name,
            "AGENT_TASK_ID": session.task_id,
            **({} if run_id is None else {"AGENT_RUN_ID": run_id}),
            **({} if given.token is None else {"MOORAGE_TOKEN": given.token}),
        },
        cwd=session.project_dir,
        limits=Limits.of(agent),
        lost_after=turn.lost_after.total_seconds(),
    )


def _with_parameters(prompt: str, agent: AgentDefinition, parameters: dict[str, Any]) -> str:
    """Return the prompt of a program with the parameters, which it may have no other way to receive."""
    if not parameters or not agent.is_supervised:
        return prompt
    return f"{prompt}\n\nParameters: {encode_text(parameters)}"


# A process of its own ---------------------------------------------------------------------------


async def serve(
    open_dispatcher: Callable[[Launcher], Dispatcher],
    agents: Callable[[], dict[str, AgentDefinition]],
    *,
    folder: str,
    name: str,
    slots: int = SLOTS,
    environment: dict[str, str] | None = None,
    stop: asyncio.Event | None = None,
    beat_every: float = HEARTBEAT,
    on_signal: Callable[[], None] = lambda: None,
) -> None:
    """Take turns until `stop`, or SIGTERM or SIGINT; then finish short turns and leave the rest to the next start.

    The launcher outlives servers, and adopts the agents of its former process.
    A second signal ends it at once. Without a `stop`, it also ends when it is draining and no agent runs any more.
    The caller is `alone_in` the folder.
    """
    now = datetime.now(UTC)
    launcher_id = uuid7(int(now.timestamp() * 1000), os.urandom(10))
    launcher = this_process(launcher_id, now, name=name, slots=slots, agents=tuple(agents()))
    loop = Loop(
        open_dispatcher(launcher),
        launcher,
        StarterByKind(os.path.join(folder, "turns")),
        agents,
        environment=environment,
        ends_when_drained=stop is None,
        beat_every=beat_every,
    )
    await loop.run(_told_by_signals(loop, on_signal) if stop is None else stop)


def _told_by_signals(loop: Loop, on_signal: Callable[[], None]) -> asyncio.Event:
    """Return an event that the first signal sets; a second signal ends the loop at once."""
    stop = asyncio.Event()

    def tell() -> None:
        if stop.is_set():
            loop.hurry()
        stop.set()
        on_signal()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, tell)
    return stop


@contextmanager
def alone_in(folder: str) -> Iterator[None]:
    """Hold the folder's lock: two launchers with one folder would adopt each other's agents."""
    os.makedirs(os.path.join(folder, "turns"), mode=0o700, exist_ok=True)
    lock = locked(os.path.join(folder, "lock"))
    if lock is None:
        raise StoreUnavailable(f"another launcher uses {folder}; give this one another --name", store=folder)
    try:
        yield
    finally:
        os.close(lock)
