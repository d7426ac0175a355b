"""Machines: a launcher that dies and comes back, and agents with or without supervisors that outlive it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from moorage.agents.interface import LAUNCHER_SILENT, STOPPED, SUPERVISOR_LOST, Job, failed
from moorage.core.agent import AgentDefinition
from moorage.core.errors import Conflict, NotFound, StoreError
from moorage.core.run import Mode
from moorage.core.turn import Launcher, Turn
from moorage.launcher.attending import AgentHandle
from moorage.launcher.handles import KEYED, REMEMBERED, StarterByKind
from moorage.launcher.loop import Loop
from moorage.launcher.supervisor import patience
from moorage.service import runs
from moorage.service.deps import Caller
from moorage.testing.simulation.network import Life, RemoteEnd

if TYPE_CHECKING:
    from moorage.testing.simulation.world import World

AgentEvent = dict[str, Any]

SLOTS = 3
CHILD = "child"  # in the prompt of an agent without children


class SimulatedAgent:
    """A running agent under its supervisor: it continues without its launcher, but not for ever."""

    def __init__(self, world: World, job: Job) -> None:
        self.world, self.job = world, job
        self.said: list[AgentEvent] = []
        self.kept: AgentEvent = {}
        self.epoch = job.epoch
        self.adopting: str | None = None  # the launcher that is about to adopt it
        self.renewed_at = world.loop.time()
        self.is_over = False
        self._news = asyncio.Event()
        world.note_start(self)
        self._work = world.begin(self._run())
        self._supervisor = world.begin(self._watch())

    async def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            self.say({"type": "result", "outcome": "completed", "said": False, **await Agent(self).work()})

    async def _watch(self) -> None:
        allowed = patience(self.job.lost_after)
        while not self.is_over:
            left = self.renewed_at + allowed - self.world.loop.time()
            if left <= 0:
                self.end(failed(LAUNCHER_SILENT, "the launcher fell silent", cut_off=True))
            else:
                await asyncio.sleep(left)

    def say(self, event: AgentEvent) -> None:
        if not self.is_over:
            self.said.append(event)
            self._news.set()
            if event["type"] == "result":
                self.is_over = True
                self.world.note_end(self)

    def end(self, result: AgentEvent) -> None:
        """End the agent and its watchers."""
        self.say(result)
        self._work.cancel()

    def kill(self) -> None:
        """End everything: its machine or launcher is gone, or it is not needed any more."""
        self.end(failed(STOPPED, "gone"))
        self._supervisor.cancel()

    async def next(self, number: int) -> AgentEvent:
        while len(self.said) <= number:
            self._news.clear()
            await self._news.wait()
        return dict(self.said[number])


class Agent:
    """An agent: sends messages, asks for children, waits for some, answers or fails."""

    def __init__(self, process: SimulatedAgent) -> None:
        self._process, self._world, self._job = process, process.world, process.job

    async def work(self) -> AgentEvent:
        chance = self._world.chance
        for number in range(chance.randrange(3)):
            await asyncio.sleep(chance.expovariate(0.5))
            self._process.say({"type": "message", "content": f"{number} of {self._job.turn_id}"})
        if chance.random() < 0.2:
            self._process.say({"type": "checkpoint", "checkpoint": {"turn": self._job.turn_id}})
        if CHILD not in self._job.prompt and "Callbacks" not in self._job.prompt:
            await self._ask_children()
        longest = 1.0 if self._world.weather.is_calm else chance.choice([0.01, 1.0, 5.0, 30.0, 1000.0])
        await asyncio.sleep(longest * chance.random())
        outcome = "failed" if chance.random() < 0.1 else "completed"
        return {"text": f"did {self._job.turn_id}", "outcome": outcome, "error": outcome}

    async def _ask_children(self) -> None:
        chance = self._world.chance
        for number in range(chance.choice([0, 0, 1, 2])):
            mode = chance.choice([Mode.ASYNC_CALLBACK, Mode.ASYNC_CALLBACK, Mode.ASYNC_POLL, Mode.SYNC])
            key = f"{self._job.run_id}-{number}"
            wish = runs.Wish(mode=mode, parent=self._job.session_id, parent_run=self._job.run_id, idempotency_key=key)
            try:
                run_id = await self._insist(wish, key)
            except (Conflict, NotFound):  # stopped or deleted meanwhile, or the answer belongs to another turn
                return
            if mode is Mode.SYNC:
                await self._wait_for(run_id)

    async def _insist(self, wish: runs.Wish, key: str) -> str:
        job = self._job
        caller = Caller(by="agent", session_id=job.session_id, run_id=job.run_id, scope=f"session:{job.session_id}")
        agent = self._world.chance.choice(sorted(self._world.agents))
        while True:
            try:
                asked = await self._world.network.call(
                    Life(), lambda server: runs.start_run(server.deps, caller, agent, f"{CHILD} {key}", wish=wish)
                )
            except StoreError:
                await asyncio.sleep(1)
                continue
            return self._world.note_run(asked)

    async def _wait_for(self, run_id: str) -> None:
        while not self._process.is_over:
            with suppress(StoreError):
                run = await self._world.network.call(Life(), lambda server: runs.get_run(server.deps, Caller(), run_id))
                if run.is_settled:
                    return
            await asyncio.sleep(2)


class Handle(AgentHandle):
    """A launcher's handle of a process."""

    def __init__(self, machine: Machine, life: Life, process: SimulatedAgent, *, again: bool) -> None:
        self.process, self._machine, self._life, self._again = process, machine, life, again
        self.dies_with_us = not process.job.agent.is_supervised
        self._number = 0

    async def events(self) -> AsyncIterator[AgentEvent]:
        number, kept = 0, self.process.kept
        while True:
            event = await self.process.next(number)
            await self._life.check()
            self._number = number = number + 1
            if self._again and event["type"] in REMEMBERED:
                if number <= kept.get("number", 0):
                    continue
                event["doubtful"] = kept.get("entry", 0)
            if event["type"] in KEYED:
                event["key"] = f"{self.process.job.turn_id}#{self.process.job.epoch}:{number}"
            yield event
            if event["type"] == "result":
                return

    async def tell(self, command: AgentEvent) -> None:
        await self._life.check()
        if command["type"] == "renewed":
            self.process.renewed_at = max(self.process.renewed_at, command.get("at", self._machine.world.loop.time()))
        elif command["type"] == "stop":
            self.process.end({"type": "result", "outcome": "stopped", "text": "", "reason": STOPPED})

    async def kept(self, entry: int) -> None:
        await self._life.check()
        self.process.kept = {"number": self._number, "entry": entry}

    async def adopting(self, turn: Turn, launcher_id: str) -> None:
        self.process.epoch, self.process.adopting = turn.epoch, launcher_id

    async def adopted(self, turn: Turn) -> None:
        await self._life.check()
        self.process.epoch, self.process.adopting = turn.epoch, None

    async def close(self) -> None:
        await self._life.check()
        self.process.kill()
        self._machine.forget(self.process)


class Machine:
    """The home of one launcher through its lives; it starts the launcher's agents."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self._processes: dict[str, SimulatedAgent] = {}  # by turn
        self.life, self._stop = Life(), asyncio.Event()

    def start(self) -> None:
        """Start the launcher again."""
        self.life, self._stop = Life(), asyncio.Event()
        now = self.world.clock.now()
        launcher = Launcher(
            launcher_id=self.world.new_id(),
            name=self.name,
            registered_at=now,
            seen_at=now,
            slots=SLOTS,
            owners=("local",),
        )
        end: Any = RemoteEnd(self.world, self.life)
        loop = Loop(end, launcher, Starter(self, self.life), lambda: self.world.agents)
        self.world.begin(loop.run(self._stop))

    def kill(self) -> None:
        """Kill the launcher as kill -9 does: agents inside it are gone, the others continue."""
        self.life.is_over = True
        for process in list(self._processes.values()):
            if not process.job.agent.is_supervised:
                process.kill()
                self.forget(process)

    def lose_power(self) -> None:
        """End every agent on the machine; the next launcher finds their folders."""
        for process in self._processes.values():
            process.end(failed(SUPERVISOR_LOST, "gone", cut_off=True))

    def ask_to_stop(self) -> None:
        """Stop the launcher as SIGTERM does."""
        self._stop.set()

    def begin(self, job: Job, life: Life) -> Handle:
        process = self._processes[job.turn_id] = SimulatedAgent(self.world, job)
        return Handle(self, life, process, again=False)

    def forget(self, process: SimulatedAgent) -> None:
        if self._processes.get(process.job.turn_id) is process:
            del self._processes[process.job.turn_id]

    def left_behind(self, life: Life) -> list[tuple[Job, Turn, Handle]]:
        """Return the agents that outlived the launcher's last life."""
        return [
            (process.job, _turn_of(process), Handle(self, life, process, again=True))
            for process in self._processes.values()
        ]


def _turn_of(process: SimulatedAgent) -> Turn:
    job = process.job
    return Turn(
        turn_id=job.turn_id,
        session_id=job.session_id,
        agent_name=job.agent.name,
        queued_at=process.world.clock.now(),
        epoch=process.epoch,
        launcher_id=process.adopting,
    )


class Starter(StarterByKind):
    """Starts agents for one life of a launcher."""

    def __init__(self, machine: Machine, life: Life) -> None:
        self._machine, self._life = machine, life

    async def start(self, job: Job, definition: AgentDefinition) -> Handle:
        await self._life.check()
        return self._machine.begin(job, self._life)

    async def found(self) -> list[tuple[Job, Turn, Handle]]:
        return self._machine.left_behind(self._life)
