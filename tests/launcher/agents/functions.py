"""Functions as agents, for tests."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

from moorage.agents.python import AsyncTurn, Turn

assert sys.stdin.read() == ""  # what a module reads when it is loaded is not our line


def greet(turn: Turn) -> str:
    print("this is not the answer")
    os.write(1, b"and neither is this\n")
    turn.phase("planning", step=1)
    turn.chunk("Hel")
    turn.say(f"Hello {turn.prompt}, number {len(turn.history)}")
    turn.metadata(mood="good")
    turn.error("a small one")
    turn.save({"seen": turn.context["seen"] + 1})
    turn.usage(input_tokens=1)
    return "bye"


def told(turn: Turn) -> dict[str, Any]:
    names = ("session_id", "session_name", "task_id", "run_id", "turn_id", "agent_name", "cut_off", "parameters")
    return {name: getattr(turn, name) for name in names} | {"servers": turn.mcp_servers, "cwd": str(Path.cwd())}


def ask(turn: Turn) -> str:
    first = turn.ask("First?", plan={"a": 1}, options=["later"], expires_in=60)
    second = turn.ask("Second?")
    return f"{first.decision} {first.note} {first.approved}, {second.decision} {second.approved}"


async def ask_twice(turn: AsyncTurn) -> str:
    one, two = await asyncio.gather(turn.ask("One?"), turn.ask("Two?"))
    return f"{one.decision} {two.decision}"


def fail(turn: Turn) -> None:
    turn.say("so far")
    raise ValueError("no luck")


def says_only(turn: Turn) -> None:
    turn.say("that is all")


def stay(turn: Turn) -> None:
    turn.chunk("here")
    try:
        time.sleep(600)
    finally:
        _tidy_up(turn.prompt)


def _tidy_up(path: str) -> None:
    Path(path).write_text("tidied up")


async def stay_async(turn: AsyncTurn) -> None:
    turn.chunk("here")
    try:
        await asyncio.sleep(600)
    finally:
        _tidy_up(turn.prompt)


def leave(turn: Turn) -> None:
    sys.exit(4)


class Basket:
    """Functions may be in classes, too."""

    @staticmethod
    def find(turn: Turn) -> str:
        return "found"
