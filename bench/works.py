"""Workloads and their targets: one line of data for each figure.

Targets are multiples of the floor in the same run. A line without one is shown, not judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Face = Literal["inline", "awaited", "tasks"]
UNSYNCED = 3  # times as many rounds where nothing waits for the disk: they are short, and the scheduler is loud in them
_READS = {"last", "newest", "find", "verdict"}


@dataclass(frozen=True)
class Work:
    """One line of the main table."""

    name: str
    title: str
    stage: str
    operations: int  # of the floor and of moorage in one round; a slow peer does fewer
    target: float | None = None
    size: int = 0  # messages in the session, or sessions in the store when `seeded`
    quick_size: int | None = None
    seeded: bool = False
    face: Face = "inline"
    processes: int = 1
    peers: bool = False
    ram: bool = False

    def rounds(self, usual: int) -> int:
        """How many rounds this line needs."""
        return usual * UNSYNCED if self.ram or self.stage in _READS else usual

    def at(self, quick: bool) -> int:
        """The size to measure at."""
        return self.quick_size if quick and self.quick_size else self.size

    def said(self, quick: bool) -> str:
        """The title with its size."""
        return self.title.format(size=self.at(quick))


@dataclass(frozen=True)
class Growth:
    """The same operation in a small and in a large place: how much dearer may it get?"""

    name: str
    title: str
    stage: str
    operations: int
    limit: float
    small: int
    large: int
    quick_large: int
    seeded: bool = True

    def at(self, quick: bool) -> int:
        """How large the large place is."""
        return self.quick_large if quick else self.large

    def said(self, quick: bool) -> str:
        """The title with both sizes."""
        return self.title.format(small=self.small, large=self.at(quick))


WORKS = (
    Work("create", "create a session", "create", 50, 1.5, peers=True),
    Work("append", "append a turn", "append", 50, 1.4, peers=True),
    Work("append-10k", "append a turn at {size:,} messages", "append", 50, 1.4, size=10_000, peers=True),
    Work("create-awaited", "await the creation of a session", "create", 50, 1.3, face="awaited"),
    Work("append-awaited", "await an append of a turn", "append", 50, 1.25, face="awaited"),
    Work("last-20-awaited", "await the last 20 of {size:,} messages", "last", 200, 2.0, size=10_000, face="awaited"),
    Work("append-tasks", "append turns from 64 tasks", "tasks", 512, 1.4, face="tasks", peers=True),
    Work("append-crowd", "append turns from 4 processes of 16 tasks", "crowd", 256, 1.1, face="tasks", processes=4),
    Work("append-processes", "append turns from 4 processes", "append", 100, 1.4, processes=4, peers=True),
    Work("append-ram", "append a turn on a RAM disk", "append", 300, 2.5, ram=True),
    Work("last-20", "last 20 of {size:,} messages", "last", 200, 2.0, size=10_000, peers=True),
    Work(
        "newest-50", "newest 50 of {size:,} sessions", "newest", 50, 2.0, size=100_000, quick_size=10_000, seeded=True
    ),
    Work("resume", "resume verdict", "verdict", 1_000, 4.0, size=1_000, seeded=True),
    Work("delete", "delete a session of 40 messages", "delete", 20, 2.0),
    Work("delete-tree", "delete a tree of 1,000 sessions", "delete-tree", 1, 2.5),
    Work("search", "search index catch-up, per entry", "catch-up", 1_000),
    Work("cleanup", "cleanup of 1,000 sessions", "cleanup", 1),
)

_MESSAGES = "{small:,} and {large:,} messages"
_SESSIONS = "{small:,} and {large:,} sessions"
GROWTH = (
    Growth("append-growth", f"append a turn: {_MESSAGES}", "append", 50, 1.5, 10, 100_000, 10_000, seeded=False),
    Growth("last-20-growth", f"last 20 messages: {_MESSAGES}", "last", 200, 1.5, 20, 100_000, 10_000, seeded=False),
    Growth("list-growth", f"a page of sessions: {_SESSIONS}", "newest", 50, 2.0, 100, 1_000_000, 10_000),
    Growth("find-growth", f"find by name: {_SESSIONS}", "find", 100, 2.0, 100, 1_000_000, 10_000),
    Growth("resume-growth", f"resume verdict: {_SESSIONS}", "verdict", 1_000, 2.0, 100, 1_000_000, 10_000),
    Growth("tree-growth", f"delete a tree of 100: {_SESSIONS}", "delete-small-tree", 2, 2.0, 100, 100_000, 10_000),
)

STARTUP = (
    Work("import", "import moorage", "process", 5, 4.0),
    Work("should-resume", "moorage should-resume", "process", 5, 5.0),
)

SIZE = "size"
SIZE_TITLE = "bytes on disk per small session (10 entries)"
SIZE_SESSIONS = 1_000
SIZE_LIMIT = 5 * 1_024

NAMES = (*(each.name for each in (*WORKS, *GROWTH, *STARTUP)), SIZE)
SECTIONS = {
    "works": tuple(each.name for each in WORKS),
    "growth": tuple(each.name for each in GROWTH),
    "startup": tuple(each.name for each in STARTUP),
}
