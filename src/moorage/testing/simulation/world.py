"""One world: its events, by its seed, and its invariants."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple
from unittest import mock

from moorage.core.agent import AgentDefinition, AgentKind
from moorage.core.errors import Conflict, NotFound, StoreError
from moorage.core.ids import uuid7
from moorage.core.run import RunQuery
from moorage.core.turn import Retry
from moorage.launcher import attending, loop
from moorage.ports import Claimed
from moorage.service import family, runs
from moorage.service.deps import Caller
from moorage.testing.history import OPEN, problems_in
from moorage.testing.model_store import ModelStore
from moorage.testing.simulation.machines import CHILD, Machine, SimulatedAgent
from moorage.testing.simulation.network import Life, Network, Server, Weather
from moorage.testing.simulation.time import VirtualLoop, WallClock

log = logging.getLogger(__name__)

OWNER = "local"
STEPS = 2_000  # of one world until its storm is over; a larger one is slower, because its store is searched
SERVERS, MACHINES, CLIENTS = 3, 3, 4
QUIET_WITHIN = 3600.0  # virtual seconds after the last fault in which every run ends
AGENTS = {
    "always": AgentDefinition(name="always", kind=AgentKind.COMMAND, command=("x",), retry=Retry.ALWAYS),
    "resume": AgentDefinition(name="resume", kind=AgentKind.COMMAND, command=("x",), retry=Retry.RESUME),
    "inside": AgentDefinition(name="inside", kind=AgentKind.BUILTIN, retry=Retry.ALWAYS),
}


class Outcome(NamedTuple):
    """The result of a simulated world."""

    seed: int
    steps: int
    runs: int
    faults: int
    digest: str  # of all events: the same for the same seed
    problems: list[str]


def simulate(seed: int, steps: int = STEPS) -> Outcome:
    """Simulate one world, and return violations of its invariants."""
    virtual = VirtualLoop()
    with mock.patch.object(loop, "clock", virtual.time), mock.patch.object(attending, "clock", virtual.time):
        world = World(seed, steps, virtual)
        try:
            virtual.run_until_complete(world.play())
        finally:
            world.close()
    return Outcome(seed, world.steps, len(world.runs), world.faults, world.digest.hexdigest(), world.problems)


class World:
    """Servers, machines, clients and the faults in them."""

    def __init__(self, seed: int, steps: int, virtual: VirtualLoop) -> None:
        self.loop, self.chance, self.clock = virtual, random.Random(seed), WallClock(virtual)
        self.entropy = self.chance.randbytes
        self.agents, self.store = AGENTS, ModelStore()
        self.weather = Weather(self.chance)
        self.network = Network(self)
        self.machines = [Machine(self, f"machine-{number}") for number in range(MACHINES)]
        self.steps, self._steps_wanted, self.faults, self.is_over = 0, steps, 0, False
        self.runs: dict[str, str] = {}  # acknowledged: with the root of their session
        self.stopped: set[str] = set()  # runs whose stop was acknowledged
        self.deleted: set[str] = set()  # roots whose deletion was asked for
        self.working: dict[str, SimulatedAgent] = {}  # by session
        self.problems: list[str] = []
        self.digest = sha256()
        self._tasks: list[asyncio.Task[Any]] = []  # those of dead processes, too: the loop itself refers to none
        virtual.set_task_factory(self._new_task)
        virtual.set_exception_handler(self._failed)

    # Observation --------------------------------------------------------------------------------

    def note(self, what: str) -> None:
        """Record an event, for the digest and for readers of one seed."""
        line = f"{self.loop.time():.6f} {what}"
        self.digest.update(line.encode())
        log.debug("%s", line)

    def step(self) -> None:
        self.steps += 1

    def new_id(self) -> str:
        return uuid7(int(self.clock.now().timestamp() * 1000), self.entropy(10))

    def note_claim(self, claimed: Claimed) -> None:
        """Check that no run is claimed again after its stop."""
        self.note(f"claimed {claimed.turn.turn_id} {claimed.turn.epoch}")
        for run in claimed.runs:
            if run.run_id in self.stopped:
                self.problems.append(f"turn {claimed.turn.turn_id} is given out for {run.run_id}, which was stopped")

    def note_start(self, process: SimulatedAgent) -> None:
        """Check that only one agent works in a session at a time."""
        self.note(f"agent of {process.job.turn_id} {process.job.epoch} starts")
        other = self.working.get(process.job.session_id)
        if other is not None:
            self.problems.append(
                f"at {self.loop.time():.1f} two agents are at work in {process.job.session_id}: "
                f"{other.job.turn_id} (epoch {other.job.epoch}) and {process.job.turn_id} (epoch {process.job.epoch})"
            )
        self.working[process.job.session_id] = process

    def note_end(self, process: SimulatedAgent) -> None:
        self.note(f"agent of {process.job.turn_id} ends: {process.said[-1]['outcome']}")
        if self.working.get(process.job.session_id) is process:
            del self.working[process.job.session_id]

    def note_run(self, asked: Any) -> str:
        """Record an acknowledged run."""
        run = asked.run
        self.runs[run.run_id] = asked.session.root_session_id
        self.note(f"run {run.run_id} acknowledged")
        return str(run.run_id)

    # Tasks --------------------------------------------------------------------------------------

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self.loop.create_task(work)
        task.add_done_callback(self._done)
        return task

    def _new_task(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, **options)
        self._tasks.append(task)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()  # the caller has given up

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not self.is_over:
            self.problems.append(f"unhandled: {context['message']} {error!r}")

    def close(self) -> None:
        """End the remaining tasks, dead or alive."""
        self.is_over = True
        for _ in range(20):
            if not (left := asyncio.all_tasks(self.loop)):
                break
            for task in left:
                task.cancel()
            self.loop.run_until_complete(asyncio.wait(left, timeout=60))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    # Events -------------------------------------------------------------------------------------

    async def play(self) -> None:
        """Run the storm, then the calm; then check that everything has ended."""
        for number in range(SERVERS):
            self._start_server(f"server-{number}")
        for machine in self.machines:
            machine.start()
        clients = [self.begin(self._client(number)) for number in range(CLIENTS)]
        await self._storm()
        self.weather.is_calm = True
        self.note("the storm is over")
        await asyncio.gather(*clients)
        if not await self._becomes_quiet():
            self.problems.append(f"not quiet {QUIET_WITHIN:.0f} s after the last fault: {await self._open_runs()}")
            return
        self.note("quiet")
        self.problems += [f"an agent of {process.job.turn_id} is left" for process in self.working.values()]
        acknowledged = [run_id for run_id, root in self.runs.items() if root not in self.deleted]
        self.problems += await problems_in(self.store, OWNER, acknowledged)

    async def _storm(self) -> None:
        faults = [
            *(self._kill_server, self._kill_launcher, self._freeze_launcher, self._freeze_server),
            *(self._restart_launcher, self._lose_machine, self._step_clock),
        ]
        while self.steps < self._steps_wanted:
            await asyncio.sleep(self.chance.expovariate(0.1))
            if self.steps < self._steps_wanted:
                self.faults += 1
                self.chance.choice(faults)()

    def _start_server(self, name: str) -> None:
        server = Server(name, self)
        self.network.servers.append(server)
        self.begin(server.serve())

    def _kill_server(self) -> None:
        if self.network.servers:
            server = self.network.servers.pop(self.chance.randrange(len(self.network.servers)))
            server.life.is_over = True
            self.note(f"{server.name} killed")
            self._later(lambda: self._start_server(server.name))

    def _kill_launcher(self) -> None:
        machine = self.chance.choice(self.machines)
        self.note(f"launcher of {machine.name} killed")
        if not machine.life.is_over:
            machine.kill()
            self._later(machine.start)

    def _freeze_launcher(self) -> None:
        machine = self.chance.choice(self.machines)
        self.note(f"launcher of {machine.name} frozen")
        machine.life.frozen_until = self.loop.time() + self.chance.choice([1, 40, 400])

    def _freeze_server(self) -> None:
        if self.network.servers:
            server = self.chance.choice(self.network.servers)
            self.note(f"{server.name} frozen")
            server.life.frozen_until = self.loop.time() + self.chance.choice([1, 9, 40])

    def _restart_launcher(self) -> None:
        machine = self.chance.choice(self.machines)
        self.note(f"launcher of {machine.name} told to stop")
        if not machine.life.is_over:
            machine.ask_to_stop()
            self.begin(self._come_back(machine, machine.life))

    async def _come_back(self, machine: Machine, life: Life) -> None:
        await asyncio.sleep(60)  # longer than it may take to drain
        if not life.is_over:
            machine.kill()
            machine.start()

    def _lose_machine(self) -> None:
        machine = self.chance.choice(self.machines)
        self.note(f"{machine.name} loses its power")
        if not machine.life.is_over:
            machine.kill()
            machine.lose_power()
            self._later(machine.start)

    def _step_clock(self) -> None:
        by = timedelta(seconds=self.chance.choice([-600, -20, -3, 3, 20, 600]))
        self.note(f"the clock steps by {by}")
        self.clock.step(by)

    def _later(self, start: Any) -> None:
        self.loop.call_later(
            self.chance.choice([0.01, 1, 20, 400]), start
        )  # the last: longer than a turn lives without renewals

    # Clients ------------------------------------------------------------------------------------

    async def _client(self, number: int) -> None:
        """Ask, stop and delete until the storm is over."""
        asked, count = list[tuple[str, str]](), 0
        while not self.weather.is_calm:
            await asyncio.sleep(self.chance.expovariate(0.2))
            count += 1
            what = self.chance.random()
            with suppress(NotFound, Conflict):  # deleted or settled meanwhile
                if what < 0.6 or not asked:
                    asked.append(await self._ask(f"{number}-{count}", None))
                elif what < 0.75:
                    asked.append(await self._ask(f"{number}-{count}", self.chance.choice(asked)[1]))
                elif what < 0.9:
                    await self._stop(*self.chance.choice(asked))
                else:
                    await self._delete(self.chance.choice(asked)[1])

    async def _ask(self, key: str, session: str | None) -> tuple[str, str]:
        agent, prompt = self.chance.choice(sorted(AGENTS)), self.chance.choice(["do it", f"{CHILD}'s work"])
        wish = runs.Wish(idempotency_key=key, queue=True)
        if session is None:
            ask = partial(runs.start_run, agent=agent, prompt=prompt, wish=wish)
        else:
            ask = partial(runs.ask, ref=session, prompt=prompt, wish=wish)
        answer = await self._insist(lambda server: ask(server.deps, Caller()))
        self.note_run(answer)
        return answer.run.run_id, answer.run.session_id

    async def _stop(self, run_id: str, session: str) -> None:
        if self.chance.random() < 0.5:
            await self._insist(lambda server: runs.stop_run(server.deps, Caller(), run_id))
            self.stopped.add(run_id)
        else:
            await self._insist(lambda server: runs.stop_session(server.deps, Caller(), session))
        self.note(f"stop of {run_id} acknowledged")

    async def _delete(self, session: str) -> None:
        self.deleted.add(session)
        await self._insist(lambda server: family.delete_session(server.deps, Caller(), session, force=True))
        self.note(f"deletion of {session} acknowledged")

    async def _insist(self, request: Any) -> Any:
        while True:
            try:
                return await self.network.call(Life(), request)
            except StoreError:
                await asyncio.sleep(1)

    # The end ------------------------------------------------------------------------------------

    async def _becomes_quiet(self) -> bool:
        until = self.loop.time() + QUIET_WITHIN
        while self.loop.time() < until:
            await asyncio.sleep(20)
            waiting = (await self.store.inbox(OWNER, states=OPEN, limit=1)).items
            if not waiting and not self.working and not await self._open_runs():
                return True
        return False

    async def _open_runs(self) -> list[str]:
        page = await self.store.runs(OWNER, RunQuery(open_only=True, limit=100))
        return [run.run_id for run in page.items]
