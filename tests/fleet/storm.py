"""A storm over servers, launchers, supervisors, agents, their network, their clocks and the store itself.

Families work, and others grow until they are stopped, go on and are deleted meanwhile. Afterwards the history must be
whole, everything that was acknowledged must be there, and everything must have come to its end.

MOORAGE_STORM makes a storm that many times as long, MOORAGE_SEED another one:
`MOORAGE_STORM=20 python -m pytest tests/postgres/test_storm.py`.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from moorage.config import open_store
from moorage.core.errors import Conflict, NotFound
from moorage.testing.history import problems_in
from moorage.testing.proxy import Proxy
from tests.counting import count
from tests.fleet.clock import Faketime, NoFaketime
from tests.fleet.machines import Fleet, Writer, said_in, until

LENGTH = int(os.environ.get("MOORAGE_STORM", "1"))
SEED = int(os.environ.get("MOORAGE_SEED", "20261117"))
STEPS = (1200, 20, 3, -3, -5)  # seconds; a launcher that dies is noticed later by as much as the clock was set back


class Growing:
    """Families that grow until they are stopped, and what their client was told."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self.begun = fleet, 0
        self._grows: dict[str, str] = {}  # sessions with the run that makes them grow
        self._rests: list[str] = []  # sessions whose stop was acknowledged
        self.stopped: list[str] = []  # runs whose stop was acknowledged
        self.deleted: list[str] = []  # sessions whose deletion was asked for

    def begin(self) -> None:
        self.begun += 1
        key = f"growing-{self.begun}"
        asked = self._fleet.insist(
            lambda moor: moor.run("grower", "grow", mode="async_poll", idempotency_key=key), self.begun
        )
        self._grows[asked.session.session_id] = asked.run.run_id

    def stop(self, chance: random.Random) -> None:
        session = chance.choice(sorted(self._grows))
        self._fleet.insist(lambda moor: moor.stop(session))
        self.stopped.append(self._grows.pop(session))
        self._rests.append(session)

    def resume(self, chance: random.Random) -> None:
        """Let a family that was stopped grow again."""
        session = self._rests.pop(chance.randrange(len(self._rests)))
        self.begun += 1
        key = f"again-{self.begun}"
        asked = self._fleet.insist(
            lambda moor: moor.run(None, "grow", session=session, mode="async_poll", idempotency_key=key), self.begun
        )
        self._grows[session] = asked.run.run_id

    def delete(self, chance: random.Random) -> None:
        session = chance.choice(sorted(self._grows))
        self.deleted.append(session)
        with suppress(NotFound):  # it is gone, and the answer got lost
            self._fleet.insist(lambda moor: moor.delete(session, force=True))
        del self._grows[session]

    def change(self, chance: random.Random) -> None:
        """Stop a family, delete one, or let one go on; there are always two that grow."""
        chance.choice([self.stop, self.delete, self.resume if self._rests else self.stop])(chance)
        while len(self._grows) < 2:
            self.begin()

    def end(self, chance: random.Random) -> None:
        while self._grows:
            self.stop(chance)

    def problems(self) -> list[str]:
        """Return sessions that exist although they were deleted, and stopped runs that ended otherwise."""
        found = []
        for session in self.deleted:
            with suppress(NotFound):
                self._fleet.insist(lambda moor, session=session: moor.get(session))  # type: ignore[misc]
                found.append(f"session {session} was deleted and is there")
        for run_id in self.stopped:
            with suppress(NotFound):  # deleted later
                run = self._fleet.insist(lambda moor, run_id=run_id: moor.result(run_id))  # type: ignore[misc]
                if run.state.value not in ("stopped", "failed"):
                    found.append(f"run {run_id} was stopped and is {run.state.value}")
        return found


class Storm:
    """Faults in an order that its seed decides: each kind once before any comes again."""

    def __init__(self, fleet: Fleet, growing: Growing, wire: Proxy | None, clocks: list[Faketime]) -> None:
        self.chance = random.Random(SEED)
        self._fleet, self._growing, self._wire, self._clocks = fleet, growing, wire, clocks
        self._ahead = dict.fromkeys(range(len(clocks)), 0)

    def deck(self) -> list[tuple[str, Callable[[], None]]]:
        """All faults, each once or twice, in any order."""
        every = [
            *[("servers and launchers killed", self._kill)] * 2,
            ("servers and launchers frozen", self._freeze),
            ("connections cut", self._cut),
            ("networks that pass nothing on", self._deafen),
            ("agents killed or frozen", self._hit_agent),
            ("supervisors killed or frozen", self._hit_supervisor),
            *[("growing families stopped, resumed or deleted", self._change)] * 3,
            *([("clock steps", self._step)] * 2 if self._clocks else ()),
            *([("connections to the store cut", self._cut_store)] if self._wire else ()),
            *([("stores that do not answer", self._deafen_store)] if self._wire else ()),
        ]
        self.chance.shuffle(every)
        return every

    def _kill(self) -> None:
        self.chance.choice(self._fleet.machines).kill()

    def _freeze(self) -> None:
        self.chance.choice(self._fleet.machines).freeze(self.chance.uniform(0.2, 2.0))

    def _cut(self) -> None:
        self.chance.choice(self._fleet.networks).reset()

    def _deafen(self) -> None:
        self._swallow(self.chance.choice(self._fleet.networks))

    def _deafen_store(self) -> None:
        assert self._wire is not None
        self._swallow(self._wire)

    def _swallow(self, network: Proxy) -> None:
        network.swallow(self.chance.choice(["up", "down"]))
        time.sleep(self.chance.uniform(0.2, 1.5))
        network.mend()

    def _cut_store(self) -> None:
        assert self._wire is not None
        self._wire.delay(0.05)
        time.sleep(0.3)
        self._wire.reset()
        self._wire.mend()

    def _hit_agent(self) -> None:
        self._hit(self._one_of(self._fleet.left_behind))

    def _hit_supervisor(self) -> None:
        self._hit(self._one_of(self._fleet.supervisors))

    def _one_of(self, processes: Callable[[], list[int]]) -> int:
        """One of these processes; growing families soon have some."""
        while not (found := processes()):
            time.sleep(0.02)
        return self.chance.choice(found)

    def _hit(self, process: int) -> None:
        """Kill it, or freeze it for a while."""
        with suppress(ProcessLookupError):
            if self.chance.random() < 0.5:
                os.kill(process, signal.SIGKILL)
                return
            os.kill(process, signal.SIGSTOP)
            time.sleep(self.chance.uniform(0.2, 1.0))
            os.kill(process, signal.SIGCONT)

    def _step(self) -> None:
        """Set the clock of all servers, or that of all launchers."""
        number = self.chance.randrange(len(self._clocks))
        self._ahead[number] += self.chance.choice(STEPS)
        self._clocks[number].set(f"{self._ahead[number]:+d}")

    def _change(self) -> None:
        with suppress(Conflict):  # a turn that is just ending
            self._growing.change(self.chance)


def rage(
    url: Callable[[int], str],
    port: int | None,
    folder: Path,
    *,
    crash: Callable[[], None] = lambda: None,
    start: Callable[[], None] = lambda: None,
) -> list[str]:
    """Let a storm pass over a store that is killed again and again; return what is wrong afterwards.

    `url` is that of the store behind a port; `crash` and `start` are of its server. Without a port it has none.
    """
    print(f"storm: MOORAGE_SEED={SEED} MOORAGE_STORM={LENGTH}")  # pytest shows it if the test fails
    clocks = _clocks(folder)
    with ExitStack() as used:
        wire = used.enter_context(Proxy(("127.0.0.1", port))) if port else None
        environments = tuple(clock.env for clock in clocks) or ({}, {})
        fleet = used.enter_context(Fleet(url(wire.port if wire else 0), folder, clocks=environments))  # type: ignore[arg-type]
        growing = Growing(fleet)
        storm = Storm(fleet, growing, wire, clocks)
        session = fleet.insist(lambda moor: moor.create("talker").id)
        writer = Writer(fleet.urls, session, pause=0.05)
        writer.start()
        growing.begin()
        growing.begin()
        asked = [fleet.ask(number) for number in range(4 * LENGTH)]
        for _ in range(LENGTH):
            for number, (name, strike) in enumerate(storm.deck()):
                time.sleep(storm.chance.uniform(0.1, 0.6))
                if number % 5 == 2:
                    crash()
                    fleet.servers[number % 3].kill()
                    time.sleep(storm.chance.uniform(0.0, 1.0))
                    start()
                    count("storms: servers and their stores killed", 1)
                strike()
                count(f"storms: {name}", 1)
        writer.stop.set()
        growing.end(storm.chance)
        until(fleet.is_quiet)
        writer.join()
        count("storms: messages acknowledged to clients and found", len(writer.acknowledged))
        count("storms: families asked for", len(asked) + growing.begun)
        wrong = growing.problems() + _unsaid(writer.acknowledged, said_in(fleet.urls[0], session))
    left = [f"agent {pid} still lives" for pid in fleet.left_behind()]
    return wrong + asyncio.run(_problems(url(port or 0), asked)) + left


def _clocks(folder: Path) -> list[Faketime]:
    """One clock for servers, one for launchers; none where they cannot be set."""
    try:
        return [Faketime(folder / f"clock-{number}") for number in range(2)]
    except NoFaketime as missing:
        print(f"no clock steps: {missing}")
        return []


def _unsaid(acknowledged: list[str], said: list[str]) -> list[str]:
    """Messages that were acknowledged and are missing, and messages that are there twice."""
    there = set(said)
    missing = [f"{each!r} was acknowledged and is missing" for each in acknowledged if each not in there]
    return missing + ([] if len(there) == len(said) else ["a message is there twice"])


async def _problems(url: str, asked: list[str]) -> list[str]:
    store = open_store(url, threaded=True)
    try:
        return await problems_in(store, "local", asked)
    finally:
        await store.close()
