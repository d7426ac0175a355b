"""Servers on one store, and the network to them: messages are lost, duplicated and late, servers die at any commit."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from moorage.core.errors import StoreError, StoreUnavailable, TurnLost
from moorage.core.turn import Launcher
from moorage.ports import Claimed, Store
from moorage.service import leases
from moorage.service.deps import Deps
from moorage.service.leases import note_launcher
from moorage.service.turns import TurnDispatcher

if TYPE_CHECKING:
    from moorage.testing.simulation.world import World

DEADLINE = 10.0  # virtual seconds after which a caller gives up a request

ServerCall = Callable[["Server"], Awaitable[Any]]


class Life:
    """One life of a process: its tasks stop when it is over."""

    def __init__(self) -> None:
        self.is_over = False
        self.frozen_until = 0.0  # virtual time

    async def check(self) -> None:
        """Wait while the process is frozen, and for ever if it is dead."""
        loop = asyncio.get_running_loop()
        while loop.time() < self.frozen_until:  # noqa: ASYNC110  it may be frozen again meanwhile
            await asyncio.sleep(self.frozen_until - loop.time())
        if self.is_over:
            await loop.create_future()


class CommitPoints:
    """A server's view of the store: before and after each call the server may be late or dead, or the call may fail."""

    def __init__(self, store: Store, life: Life, world: World) -> None:
        self._store, self._life, self._world = store, life, world

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)
        if not inspect.iscoroutinefunction(real):
            return real

        async def call(*args: Any, **named: Any) -> Any:
            await self._pause()
            answer = await real(*args, **named)
            if isinstance(answer, Claimed):
                self._world.note_claim(answer)
            await self._pause()
            if self._world.weather.ambiguous():
                raise StoreUnavailable("the answer of the store got lost")
            return answer

        self.__dict__[name] = call
        return call

    async def _pause(self) -> None:
        await self._life.check()
        if (pause := self._world.weather.at_store()) > 0:
            await asyncio.sleep(pause)
            await self._life.check()


class Server:
    """One life of a server."""

    def __init__(self, name: str, world: World) -> None:
        self.name, self.life, self._world = name, Life(), world
        store: Any = CommitPoints(world.store, self.life, world)
        agents = world.agents
        self.deps = Deps(store, world.clock, world.entropy, find_agent=agents.get, defined_agents=lambda: agents)
        self.dispatcher = TurnDispatcher(self.deps)

    async def serve(self) -> None:
        """Send heartbeats until this life is over."""
        while not self.life.is_over:
            try:
                await leases.arrive(self.deps, self.name)
            except StoreError:
                continue
            await asyncio.sleep(leases.BEAT_EVERY.total_seconds())


class Weather:
    """Faults of the network and the store; their rates differ between worlds."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.is_calm = False
        self._loss, self._doubles, self._ambiguity = chance.choice([(0, 0, 0), (0.02, 0.02, 0.01), (0.1, 0.05, 0.03)])
        self._delay = chance.choice([0.002, 0.05, 1.0])

    def loses(self) -> bool:
        return not self.is_calm and self._chance.random() < self._loss

    def doubles(self) -> bool:
        return not self.is_calm and self._chance.random() < self._doubles

    def ambiguous(self) -> bool:
        return not self.is_calm and self._chance.random() < self._ambiguity

    def delay(self) -> float:
        return self._chance.expovariate(1 / (0.002 if self.is_calm else self._delay))

    def at_store(self) -> float:
        return 0.0 if self.is_calm or self._chance.random() < 0.8 else self._chance.expovariate(10)


class Network:
    """Carries requests to any live server, and answers back."""

    def __init__(self, world: World) -> None:
        self._world, self._weather = world, world.weather
        self.servers: list[Server] = []

    async def call(self, life: Life, request: ServerCall) -> Any:
        """Send a request to a server; raise StoreUnavailable if no answer comes, whether or not it was done."""
        await life.check()
        self._world.step()
        await asyncio.sleep(self._weather.delay())
        await life.check()
        lost = self._weather.loses()
        server = self._world.chance.choice(self.servers) if self.servers else None
        if lost or server is None:
            await asyncio.sleep(DEADLINE if lost else 0.1)
            await life.check()
            raise StoreUnavailable("no server answers")
        if self._weather.doubles():
            self._world.begin(self._again(server, request))
        task = self._world.begin(self._serve(server, request))
        await asyncio.wait([task], timeout=DEADLINE)
        await life.check()
        if not task.done() or self._weather.loses():
            raise StoreUnavailable("no answer came")
        return task.result()

    async def _serve(self, server: Server, request: ServerCall) -> Any:
        answer = await request(server)
        await asyncio.sleep(self._weather.delay())
        await server.life.check()
        return answer

    async def _again(self, server: Server, request: ServerCall) -> None:
        await asyncio.sleep(self._weather.delay())
        await self._serve(server, request)


class RemoteEnd:
    """A launcher's dispatcher at the other end of the network."""

    def __init__(self, world: World, life: Life) -> None:
        self._world, self._life, self._seen = world, life, 0

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, name)

    async def _call(self, name: str, *args: Any, **named: Any) -> Any:
        return await self._ask(lambda server: getattr(server.dispatcher, name)(*args, **named))

    async def _ask(self, request: ServerCall) -> Any:
        if self._world.is_over:
            raise TurnLost("", 0)
        return await self._world.network.call(self._life, request)

    async def register(self, launcher: Launcher) -> bool:
        return bool((await self._ask(lambda server: note_launcher(server.deps, launcher))).drain)

    async def is_unwanted(self, owner: str, turn: Any) -> bool:
        try:
            return bool(await self._call("is_unwanted", owner, turn))
        except StoreError:
            return False

    async def speak(self, owner: str, turn: Any, text: str) -> None:
        """Do nothing: there are no listeners."""

    def pulse(self) -> int:
        """Return a hint that may get lost."""
        if self._world.chance.random() < 0.8:
            self._seen = self._world.store.pulse()
        return self._seen

    async def wait(self, seen: int, timeout: float) -> None:
        await asyncio.sleep(self._world.chance.uniform(0.05, 3 * timeout))
