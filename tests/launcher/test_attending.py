"""One turn at work, without the loop of a launcher around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from moorage.core.approval import Approval, ApprovalState
from moorage.core.entry import Problem
from moorage.core.session import Session
from moorage.core.turn import Retry, Turn
from moorage.launcher.attending import AgentHandle, TurnAtWork
from moorage.service import runs
from moorage.service.turns import TurnDispatcher
from moorage.testing.work import a_launcher
from tests.launcher.stage import echo, on


class UntilStopped(AgentHandle):
    """An agent that works until it is told to stop."""

    def __init__(self) -> None:
        self._is_stopped = asyncio.Event()

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        await self._is_stopped.wait()
        yield {"type": "result", "outcome": "stopped"}

    async def tell(self, command: dict[str, Any]) -> None:
        if command["type"] == "stop":
            self._is_stopped.set()


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


class Saying(UntilStopped):
    """An agent that prints these events and ends."""

    def __init__(self, *said: dict[str, Any]) -> None:
        super().__init__()
        self._said = said

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        for event in self._said:
            yield event
        yield {"type": "result", "outcome": "completed", "text": "done"}


class Noting(TurnDispatcher):
    """Notes what it has stored."""

    def __init__(self, *known: Any, steps: list[str]) -> None:
        super().__init__(*known)
        self._steps = steps

    async def say(self, owner: str, turn: Turn, messages: object) -> None:
        await super().say(owner, turn, messages)
        self._steps.append("stored message")

    async def update(self, owner: str, turn: Turn, *, since: int | None = None, **facts: Any) -> Session:
        session = await super().update(owner, turn, since=since, **facts)
        self._steps.append("stored phase")
        return session

    async def misspoken(self, owner: str, turn: Turn, problem: Problem) -> None:
        await super().misspoken(owner, turn, problem)
        self._steps.append("stored problem")

    async def request_approval(
        self, owner: str, turn: Turn, question: str, *, key: str | None = None, **options: Any
    ) -> Approval:
        approval = await super().request_approval(owner, turn, question, key=key, **options)
        self._steps.append("stored approval")
        return approval


async def test_events_are_shown_after_they_are_stored(tmp_path: Path) -> None:
    """A question that a person has read must survive a crash of the process that showed it."""
    async with on(f"sqlite:///{tmp_path / 'moorage.db'}", tmp_path) as stage:
        stage.plays("echo", echo)
        steps: list[str] = []
        dispatcher = Noting(stage.deps, steps=steps)
        asked = await stage.ask("echo", "hello")
        claimed = await dispatcher.claim(a_launcher("one", "local"), {"echo": Retry.RESUME})
        assert claimed is not None
        await dispatcher.started("local", claimed.turn)
        agent = Saying(
            {"type": "chunk", "text": "hel"},
            {"type": "message", "content": "hello", "key": "1"},
            {"type": "phase", "phase": "planning"},
            {"type": "phase", "phase": "completed"},  # only finalize enters it
            {"type": "approval", "question": "May I?", "key": "2"},
        )

        def show(_: Turn, event: dict[str, Any]) -> None:
            steps.append(f"shown {event['type']}")

        await TurnAtWork(dispatcher, "one", "local", claimed.turn, show).attend(agent)
        assert steps == [
            "shown chunk",
            *("stored message", "shown message"),
            *("stored phase", "shown phase"),
            *("stored problem", "shown problem"),
            *("stored approval", "shown approval"),
            "shown result",
        ]
        assert (await stage.session(asked.session_id)).pending_approvals == 1


class Replaying(TurnDispatcher):
    """Answers every question with a recorded answer, as after a crash."""

    async def request_approval(
        self, owner: str, turn: Turn, question: str, *, key: str | None = None, **options: Any
    ) -> Approval:
        approval = await super().request_approval(owner, turn, question, key=key, **options)
        return replace(approval, state=ApprovalState.APPROVED, decision="approve")


async def test_question_with_a_recorded_answer_is_not_shown(tmp_path: Path) -> None:
    async with on(f"sqlite:///{tmp_path / 'moorage.db'}", tmp_path) as stage:
        stage.plays("echo", echo)
        dispatcher, shown = Replaying(stage.deps), list[str]()
        await stage.ask("echo", "hello")
        claimed = await dispatcher.claim(a_launcher("one", "local"), {"echo": Retry.RESUME})
        assert claimed is not None
        await dispatcher.started("local", claimed.turn)
        work = TurnAtWork(dispatcher, "one", "local", claimed.turn, lambda _, event: shown.append(event["type"]))
        await work.attend(Saying({"type": "approval", "question": "May I?", "key": "1", "wait": True}))
        assert shown == ["result"]
