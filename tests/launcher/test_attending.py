"""One turn at work, without the loop of a launcher around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from moorage.core.turn import Retry, Turn
from moorage.launcher.attending import TurnAtWork
from moorage.service import runs
from moorage.service.turns import TurnDispatcher
from moorage.testing.work import a_launcher
from tests.launcher.stage import echo, on


class UntilStopped:
    """An agent that works until it is told to stop."""

    dies_with_us = True

    def __init__(self) -> None:
        self._is_stopped = asyncio.Event()

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        await self._is_stopped.wait()
        yield {"type": "result", "outcome": "stopped"}

    async def tell(self, command: dict[str, Any]) -> None:
        if command["type"] == "stop":
            self._is_stopped.set()

    async def kept(self, entry: int) -> None:
        pass

    async def adopting(self, turn: Turn, launcher_id: str) -> None:
        pass

    async def adopted(self, turn: Turn) -> None:
        pass

    async def close(self) -> None:
        pass


async def test_stop_that_comes_while_the_agent_starts_does_not_wait_for_a_renewal(tmp_path: Path) -> None:
    async with on(f"sqlite:///{tmp_path / 'moorage.db'}", tmp_path) as stage:
        stage.plays("echo", echo)
        dispatcher = TurnDispatcher(stage.deps, lease=timedelta(hours=1))
        asked = await stage.ask("echo", "hello")
        claimed = await dispatcher.claim(a_launcher("one", "local"), {"echo": Retry.RESUME})
        assert claimed is not None
        await dispatcher.started("local", claimed.turn)
        await runs.stop_run(stage.deps, stage.caller, asked.run.run_id)

        work = asyncio.create_task(TurnAtWork(dispatcher, "one", "local", claimed.turn).attend(UntilStopped()))
        done, _ = await asyncio.wait([work], timeout=30)  # nothing else is committed: the renewal is 20 minutes away
        assert done, "the stop was not seen"
        assert (await stage.settled(asked.run)).state.value == "stopped"
