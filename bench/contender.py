"""The interface of a store in the benchmarks.

A contender is a thin hand around one store: the floor, moorage, or a peer. It says how the store
creates, appends, reads and deletes; `stages.py` decides what is timed. An operation that a store does not have stays
`NotOffered` and shows as a dash, never as a zero.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

from bench import material
from bench.material import Message

TASKS = 64
_FILL_CHUNK = 500


class NotOffered(Exception):
    """The store has no such operation; the message says what it has instead."""


class Contender:
    """One store in one folder. Methods may be coroutines when `awaits` is true."""

    awaits: ClassVar[bool] = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._runner: asyncio.Runner | None = None

    # Timed calls.

    def create(self, *, agent: str = "agent-00", name: str | None = None, parent: Any = None) -> Any:
        """Make a session and return the handle the other methods take."""
        raise NotOffered("sessions are not created by a call of their own")

    def append(self, session: Any, messages: Sequence[Message]) -> Any:
        """Add the messages durably, all in one call where the store can."""
        raise NotOffered("no append")

    def last(self, session: Any, count: int) -> Any:
        """The newest `count` messages, oldest first."""
        raise NotOffered("no reading of the last messages")

    def newest(self, agent: str, count: int) -> Any:
        """The newest `count` sessions of one agent with all their fields."""
        raise NotOffered("no page of sessions")

    def verdict(self, session: Any) -> Any:
        """May this session be resumed?"""
        raise NotOffered("no resume verdict")

    def find(self, name: str) -> Any:
        """The session with this name."""
        raise NotOffered("no names")

    def delete(self, session: Any) -> Any:
        """Delete the session and everything below it."""
        raise NotOffered("no delete")

    def search(self, words: str) -> Any:
        """Find text, after catching up with what was appended."""
        raise NotOffered("no search")

    def cleanup(self) -> Any:
        """Delete every final session, however young."""
        raise NotOffered("no cleanup")

    # Calls that are not timed.

    def begin(self) -> Any:
        """A session to work on; the same as `create`, unless the store only writes it with its first message."""
        return self.create()

    def fill(self, session: Any, messages: Sequence[Message]) -> Any:
        """Give the session a history, as fast as the store allows."""
        for start in range(0, len(messages), _FILL_CHUNK):
            self.settle(self.append(session, messages[start : start + _FILL_CHUNK]))

    def stored(self, session: Any) -> Any:
        """How many messages the session really has, read back from the file."""
        raise NotOffered("no counting")

    def make_ready(self, session: Any) -> Any:
        """Bring the session into a phase in which the verdict is yes."""
        raise NotOffered("no phases")

    def finalize(self, session: Any) -> Any:
        """Close the session, so that cleanup may take it."""
        raise NotOffered("no finalization")

    @classmethod
    def seed(cls, folder: Path, count: int) -> None:
        """Leave a closed store with sessions 0 … count-1 of `material` in the folder, made in that order."""
        raise NotOffered("no seeding")

    def seeded(self, number: int) -> Any:
        """The handle of a seeded session."""
        return material.seeded_id(number)

    def grow_tree(self, parents: Sequence[int | None]) -> Any:
        """Make one session with a turn per item of `parents` (indexes into the same list); return the root's handle."""
        made: list[Any] = []
        for number, parent in enumerate(parents):
            made.append(self.settle(self.create(parent=None if parent is None else made[parent])))
            self.settle(self.append(made[-1], material.turn(number)))
        return made[0]

    def close(self) -> None:
        """Leave the file closed; subclasses close their store first."""
        if self._runner:
            self._runner.close()

    def weigh(self) -> int:
        """Bytes of the closed store on disk."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    # How coroutines are driven.

    @property
    def runner(self) -> asyncio.Runner:
        """One event loop for the contender's whole life; threads enough for every task."""
        if self._runner is None:
            self._runner = asyncio.Runner()
            self._runner.get_loop().set_default_executor(ThreadPoolExecutor(TASKS))
        return self._runner

    def settle(self, answer: Any) -> Any:
        """The answer itself, awaited first if it is a coroutine."""
        return self.runner.run(answer) if inspect.iscoroutine(answer) else answer
