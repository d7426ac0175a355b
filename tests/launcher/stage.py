"""A stage for launchers: a real store, agents that are functions of a test, and clocks as short as it wants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from moorage import config
from moorage.agents.interface import Commands, Emit, Job, completed, failed
from moorage.core.agent import AgentDefinition, AgentKind
from moorage.core.answer import RunAnswer
from moorage.core.entry import Entry
from moorage.core.inbox import ItemState
from moorage.core.query import LogQuery
from moorage.core.run import Run, RunQuery
from moorage.core.session import Session
from moorage.core.turn import LEASE, LOST_AFTER, Launcher
from moorage.launcher.attending import Dispatcher
from moorage.launcher.handles import StarterByKind
from moorage.launcher.loop import Loop
from moorage.remote.dispatcher import RemoteDispatcher
from moorage.remote.transport import Requester
from moorage.service import runs
from moorage.service.deps import Caller, Deps
from moorage.service.runs import Wish
from moorage.service.turns import TurnDispatcher
from tests.launcher.serving import serving

Part = Callable[["Stage", Job, Emit, Commands], Awaitable[str | None]]
PATIENCE = 60.0


class Stage:
    """A store with launchers on it. Agents are called by their names, and played by functions."""

    def __init__(self, deps: Deps, folder: Path) -> None:
        self.deps, self.folder = deps, folder
        self.caller = Caller(by="tester", interface="test", holder="tester")
        self.parts: dict[str, Part] = {}
        self.definitions: dict[str, AgentDefinition] = {}
        self.jobs: list[Job] = []  # in the order they were begun
        self.server: str | None = None  # the server that launchers speak to; their own store without one
        deps.find_agent = self.definitions.get

    def plays(self, name: str, part: Part, **definition: Any) -> None:
        """An agent of that name does this."""
        self.parts[name] = part
        self.definitions[name] = AgentDefinition(name=name, kind=AgentKind.BUILTIN, **definition)

    def prompts(self, agent: str) -> list[str]:
        """Return the prompts of an agent, turn by turn."""
        return [job.prompt for job in self.jobs if job.agent.name == agent]

    @asynccontextmanager
    async def launcher(
        self,
        *,
        slots: int = 8,
        lease: timedelta = LEASE,
        lost_after: timedelta = LOST_AFTER,
        agents: dict[str, AgentDefinition] | None = None,
    ) -> AsyncIterator[Launcher]:
        """A launcher at work, for all agents or for some."""
        now = self.deps.clock.now()
        launcher = Launcher(
            launcher_id=self.deps.new_id(), name="test", registered_at=now, seen_at=now, slots=slots, owners=("local",)
        )
        stop = asyncio.Event()
        dispatcher = self.dispatcher(launcher, lease=lease, lost_after=lost_after)
        starter = StarterByKind(str(self.folder / launcher.launcher_id), self._play)
        loop = Loop(dispatcher, launcher, starter, lambda: dict(self.definitions) if agents is None else agents)
        task = asyncio.create_task(loop.run(stop))
        try:
            yield launcher
        finally:
            stop.set()
            await asyncio.wait_for(task, PATIENCE)
            if isinstance(dispatcher, RemoteDispatcher):
                await dispatcher.close()

    def dispatcher(
        self, launcher: Launcher, *, lease: timedelta = LEASE, lost_after: timedelta = LOST_AFTER
    ) -> Dispatcher:
        """Where a launcher gets its turns."""
        if self.server is None:
            return TurnDispatcher(self.deps, lease=lease, lost_after=lost_after)
        return RemoteDispatcher(Requester(self.server), launcher, lease=lease, lost_after=lost_after)

    async def _play(self, job: Job, emit: Emit, commands: Commands) -> None:
        """Do the job of an agent, played by a function."""
        self.jobs.append(job)
        try:
            said = await self.parts[job.agent.name](self, job, emit, commands)
        except Exception as error:
            await emit(failed("agent_failed", str(error)))
        else:
            await emit(completed(said or ""))

    async def ask(self, agent: str, prompt: str = "go", **wish: Any) -> RunAnswer:
        """Ask an agent, in a session of its own."""
        return await runs.start_run(self.deps, self.caller, agent, prompt, wish=Wish(**wish))

    async def child_of(self, job: Job, agent: str, prompt: str = "go", **wish: Any) -> RunAnswer:
        """Ask an agent from within another's turn."""
        wish = {"mode": "async_callback", **wish}
        return await self.ask(agent, prompt, parent=job.session_id, parent_run=job.run_id, **wish)

    async def settled(self, run: Run) -> Run:
        """A run, once it has settled."""
        over = await runs.wait_for_run(self.deps, self.caller, run.run_id, timeout=PATIENCE)
        assert over.is_settled, over
        return over

    async def session(self, session_id: str) -> Session:
        return await self.deps.store.get(self.caller.owner, session_id)

    async def log(self, session_id: str, *kinds: str) -> list[Entry]:
        return await self.deps.store.log(self.caller.owner, session_id, LogQuery(limit=1000, kinds=kinds or None))

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Until this holds: looked at again whenever something was committed."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while True:
            seen = self.deps.store.pulse()
            if await holds():
                return
            assert asyncio.get_running_loop().time() < deadline, "it never came to that"
            await self.deps.store.wait(seen, 0.5)

    async def quiet(self) -> None:
        """Nothing runs and nothing waits any more."""
        await self.until(self._is_quiet)

    async def _is_quiet(self) -> bool:
        owner, states = self.caller.owner, (ItemState.HELD.value, ItemState.WAITING.value, ItemState.GIVEN.value)
        open_runs = (await self.deps.store.runs(owner, RunQuery(open_only=True))).items
        return not open_runs and not (await self.deps.store.inbox(owner, states=states, limit=1)).items


class Failed(Exception):
    """The exception of a failing agent."""


async def echo(_: Stage, job: Job, _emit: Emit, _commands: Commands) -> str:
    """Say what was said."""
    return f"echo: {job.prompt}"


@asynccontextmanager
async def on(url: str, folder: Path, *, over_http: bool = False) -> AsyncIterator[Stage]:
    """A stage on a store of its own, which its launchers may have to reach through a server."""
    store = config.open_store(url, threaded=True)
    stage = Stage(Deps(store, config.SystemClock(), config.entropy), folder)
    try:
        if not over_http:
            yield stage
            return
        async with serving(stage.deps) as stage.server:
            yield stage
    finally:
        await store.close()
