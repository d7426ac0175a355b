"""The works: what is prepared, what exactly is timed, and what must be true afterwards.

Written once for every contender, so that all are timed by the same rules. `round` returns the
seconds between two readings of the clock around the operations alone; preparing is never inside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, ClassVar, NamedTuple

from bench import material
from bench.contender import TASKS, Contender

SAMPLE = 100  # sessions that reads rotate over
DELETED_MESSAGES = 40
BREAK_IN = 6_000  # messages of 1 KB: more than the 4 MB at which a log is written back
TREE_FAN = 10
CLEANED = 1_000
SMALL_TURNS = 5  # ten messages: the small session of the size figure
ABSENT = "quicksilver"  # a word no message has: the search itself finds nothing to fetch


class Spent(NamedTuple):
    """When a round began and ended by the system-wide monotonic clock, and how much it did."""

    began: float
    ended: float
    operations: int


class Stage:
    """One work, set up for one contender."""

    writes: ClassVar[bool] = False  # is the file written while the clock runs?

    def __init__(self, contender: Contender, size: int) -> None:
        self.contender = contender
        self.size = size
        if self.writes:
            self._break_in()

    def _break_in(self) -> None:
        """Write until a write-ahead log has come round once.

        A log that still grows makes every fsync dearer than one that is written over, and a large
        store would look faster than a small one merely for having been filled.
        """
        session = self.contender.settle(self.contender.begin())
        self.contender.settle(self.contender.fill(session, material.messages(BREAK_IN)))

    def round(self, operations: int) -> Spent:
        """Do the operations and say how long they took."""
        raise NotImplementedError

    def check(self) -> str | None:
        """Return a problem, if any: lost turns or swallowed errors."""
        return None


def timed(contender: Contender, call: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> Spent:
    """Call once per tuple, one after another. Coroutines run inside one loop: starting it costs nothing here."""
    prepared = list(arguments)
    if contender.awaits:
        return contender.runner.run(_timed_awaiting(call, prepared))
    began = perf_counter()
    for each in prepared:
        call(*each)
    return Spent(began, perf_counter(), len(prepared))


async def _timed_awaiting(call: Callable[..., Any], prepared: list[tuple[Any, ...]]) -> Spent:
    began = perf_counter()
    for each in prepared:
        await call(*each)
    return Spent(began, perf_counter(), len(prepared))


class Create(Stage):
    """Create a session."""

    writes: ClassVar[bool] = True

    def round(self, operations: int) -> Spent:
        return timed(self.contender, self.contender.create, [()] * operations)


class Append(Stage):
    """Append turns one after another: to a new session each round, or to one with a history."""

    writes: ClassVar[bool] = True

    def __init__(self, contender: Contender, size: int) -> None:
        super().__init__(contender, size)
        self.sessions: list[tuple[Any, int]] = []  # handle, messages it must have
        if size:
            self._begin(size)

    def _begin(self, history: int) -> None:
        session = self.contender.settle(self.contender.begin())
        if history:
            self.contender.settle(self.contender.fill(session, material.messages(history)))
        self.sessions.append((session, history))

    def round(self, operations: int) -> Spent:
        if not self.size:
            self._begin(0)
        session, expected = self.sessions.pop()
        spent = timed(self.contender, self.contender.append, [(session, material.turn(n)) for n in range(operations)])
        self.sessions.append((session, expected + 2 * operations))
        return spent

    def check(self) -> str | None:
        expected = sum(count for _, count in self.sessions)
        stored = sum(self.contender.settle(self.contender.stored(session)) for session, _ in self.sessions)
        return None if stored == expected else f"{stored} messages stored of {expected} acknowledged"


class Tasks(Stage):
    """Append turns from 64 tasks at once, each to its own session. A round is a multiple of that."""

    writes: ClassVar[bool] = True
    tasks: ClassVar[int] = TASKS

    def __init__(self, contender: Contender, size: int) -> None:
        super().__init__(contender, size)
        self.sessions = [contender.settle(contender.begin()) for _ in range(self.tasks)]
        self.acknowledged = 0
        self.errors: list[str] = []

    def round(self, operations: int) -> Spent:
        each = max(1, operations // self.tasks)
        return self.contender.runner.run(self._all(each))

    async def _all(self, each: int) -> Spent:
        began = perf_counter()
        await asyncio.gather(*(self._one(session, each) for session in self.sessions))
        return Spent(began, perf_counter(), each * self.tasks)

    async def _one(self, session: Any, each: int) -> None:
        for number in range(each):
            try:
                await self._append(session, material.turn(number))
                self.acknowledged += 1
            except Exception as exc:
                self.errors.append(f"{type(exc).__name__}: {str(exc).splitlines()[0] if str(exc) else ''}")

    async def _append(self, session: Any, turn: list[material.Message]) -> None:
        if self.contender.awaits:
            await self.contender.append(session, turn)
        else:
            await asyncio.to_thread(self.contender.append, session, turn)

    def check(self) -> str | None:
        stored = sum(self.contender.settle(self.contender.stored(session)) for session in self.sessions)
        problems = []
        if stored < 2 * self.acknowledged:
            problems.append(f"lost {2 * self.acknowledged - stored} of {2 * self.acknowledged} acknowledged messages")
        if self.errors:
            tried = self.acknowledged + len(self.errors)
            problems.append(f"{len(self.errors)} of {tried} turns failed ({self.errors[0]})")
        return "; ".join(problems) or None


class Crowd(Tasks):
    """The same from 16 tasks of one of several processes."""

    tasks: ClassVar[int] = 16


class Last(Stage):
    """Read the last 20 messages of a session with `size` messages."""

    def __init__(self, contender: Contender, size: int) -> None:
        super().__init__(contender, size)
        self.session = contender.settle(contender.begin())
        contender.settle(contender.fill(self.session, material.messages(size)))

    def round(self, operations: int) -> Spent:
        return timed(self.contender, self.contender.last, [(self.session, 20)] * operations)

    def check(self) -> str | None:
        answered = len(self.contender.settle(self.contender.last(self.session, 20)))
        wanted = min(20, self.size)
        return None if answered == wanted else f"{answered} messages answered instead of {wanted}"


class Newest(Stage):
    """List the newest 50 sessions of one agent in a seeded store."""

    def round(self, operations: int) -> Spent:
        return timed(
            self.contender,
            self.contender.newest,
            [(material.agent(n, self.size), material.PAGE) for n in range(operations)],
        )

    def check(self) -> str | None:
        answered = len(self.contender.settle(self.contender.newest(material.agent(0, self.size), material.PAGE)))
        return None if answered == material.PAGE else f"{answered} sessions answered instead of {material.PAGE}"


class Find(Stage):
    """Find sessions by name in a seeded store."""

    def round(self, operations: int) -> Spent:
        numbers = material.spread(operations, self.size)
        return timed(self.contender, self.contender.find, [(material.seeded_name(n),) for n in numbers])

    def check(self) -> str | None:
        return None if self.contender.settle(self.contender.find(material.seeded_name(0))) else "not found by name"


class Verdict(Stage):
    """Ask whether a session may be resumed, over 100 sessions of a seeded store in a resumable phase."""

    def __init__(self, contender: Contender, size: int) -> None:
        super().__init__(contender, size)
        self.sessions = [contender.seeded(number) for number in material.spread(SAMPLE, size)]
        for session in self.sessions:
            contender.settle(contender.make_ready(session))

    def round(self, operations: int) -> Spent:
        chosen = [(self.sessions[n % len(self.sessions)],) for n in range(operations)]
        return timed(self.contender, self.contender.verdict, chosen)


class Delete(Stage):
    """Delete sessions of 40 messages; they are made before the clock starts."""

    writes: ClassVar[bool] = True

    def round(self, operations: int) -> Spent:
        return timed(self.contender, self.contender.delete, [(self._made(),) for _ in range(operations)])

    def _made(self) -> Any:
        session = self.contender.settle(self.contender.begin())
        self.contender.settle(self.contender.fill(session, material.messages(DELETED_MESSAGES)))
        return session


class DeleteTree(Stage):
    """Delete a tree of `tree` sessions with a turn each; every session has up to ten children."""

    writes: ClassVar[bool] = True

    tree = 1_000

    def round(self, operations: int) -> Spent:
        parents = [None, *((number - 1) // TREE_FAN for number in range(1, self.tree))]
        roots = [(self.contender.grow_tree(parents),) for _ in range(operations)]
        return timed(self.contender, self.contender.delete, roots)


class DeleteSmallTree(DeleteTree):
    """The tree of 100 used to show that the cost follows the tree, not the store."""

    tree = 100


class CatchUp(Stage):
    """Bring the search index up to date: the first search after `operations` new entries, per entry."""

    writes: ClassVar[bool] = True

    def __init__(self, contender: Contender, size: int) -> None:
        super().__init__(contender, size)
        self.session = contender.settle(contender.begin())
        contender.settle(contender.search(ABSENT))

    def round(self, operations: int) -> Spent:
        self.contender.settle(self.contender.fill(self.session, material.messages(operations)))
        spent = timed(self.contender, self.contender.search, [(ABSENT,)])
        return spent._replace(operations=operations)


class Cleanup(Stage):
    """Clean up 1,000 final sessions of ten messages each in one call; the time is that of the call."""

    writes: ClassVar[bool] = True

    def round(self, operations: int) -> Spent:
        for _ in range(CLEANED):
            session = small_session(self.contender)
            self.contender.settle(self.contender.finalize(session))
        return timed(self.contender, self.contender.cleanup, [()])


class Size(Stage):
    """Nothing timed: fills the store with small sessions, whose files are weighed after closing."""

    def __init__(self, contender: Contender, size: int) -> None:
        super().__init__(contender, size)
        for _ in range(size):
            small_session(contender)


def small_session(contender: Contender) -> Any:
    """A session with ten messages of 120 bytes."""
    session = contender.settle(contender.begin())
    for number in range(SMALL_TURNS):
        contender.settle(contender.append(session, material.small_turn(number)))
    return session


STAGES: dict[str, type[Stage]] = {
    "create": Create,
    "append": Append,
    "tasks": Tasks,
    "crowd": Crowd,
    "last": Last,
    "newest": Newest,
    "find": Find,
    "verdict": Verdict,
    "delete": Delete,
    "delete-tree": DeleteTree,
    "delete-small-tree": DeleteSmallTree,
    "catch-up": CatchUp,
    "cleanup": Cleanup,
    "size": Size,
}
