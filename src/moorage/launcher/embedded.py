"""A launcher inside the caller's own process: for scripts, for the command line, and for tests.

It takes the turns of one family, or all turns, while it is open. Agents under a supervisor
that it has started end with it. Its folder is temporary. The folder of a killed process proves
that its turns are lost (`service.presence`), and is removed later by the next launcher.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from datetime import timedelta

from moorage.core.agent import AgentDefinition
from moorage.core.turn import LEASE, LOST_AFTER
from moorage.launcher.attending import TurnListener
from moorage.launcher.handles import StarterByKind
from moorage.launcher.loop import Loop, this_process
from moorage.service import presence
from moorage.service.deps import Deps
from moorage.service.turns import TurnDispatcher

SLOTS = 32


class Embedded(Loop):
    """A launcher for the duration of a block."""

    def __init__(
        self,
        deps: Deps,
        agents: Callable[[], dict[str, AgentDefinition]],
        *,
        owner: str = "local",
        root: str | None = None,
        listener: TurnListener | None = None,
        environment: dict[str, str] | None = None,
        lease: timedelta = LEASE,
        lost_after: timedelta = LOST_AFTER,
    ) -> None:
        self._lock: int | None
        now, launcher_id = deps.clock.now(), deps.new_id()
        self._folder, self._lock = presence.make(launcher_id)
        name = f"embedded:{os.getpid()}"
        launcher = this_process(launcher_id, now, name=name, slots=SLOTS, owners=(owner,), root=root)
        dispatcher = TurnDispatcher(deps, lease=lease, lost_after=lost_after)
        starter = StarterByKind(os.path.join(self._folder, presence.TURNS), dies_with_us=True)
        super().__init__(dispatcher, launcher, starter, agents, listener=listener, environment=environment)
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Embedded:
        await asyncio.to_thread(presence.clear_up)
        self._task = asyncio.create_task(self.run(self._stop), name="moorage-launcher")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, *, drain: bool = True) -> None:
        """Let agents end for a while, or not at all without `drain`; then end the rest and return their turns.

        Cancellation ends the wait, and still leaves no agent behind.
        """
        self._stop.set()
        cancelled: asyncio.CancelledError | None = None
        if not drain:
            self.hurry()
        while self._task is not None and not self._task.done():
            try:
                await asyncio.wait([self._task])
            except asyncio.CancelledError as error:
                cancelled = error
                self.hurry()
        await asyncio.to_thread(shutil.rmtree, self._folder, True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if cancelled is not None:
            raise cancelled
