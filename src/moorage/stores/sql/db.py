"""The database as a job sees it.

Both dialects understand most statements as they are written. Each translates a few words, once for each statement:

- `moor.` stands for the schema, `?` or `?1` for a value.
- `IN LIST(?1::bigint)` is a condition on a column: its value is in the list that `listed` made; or `NOT IN LIST`.
- `json_agg` and `json_build_array` make JSON.
- `ORDERED JOIN` joins in the order as written, `INDEXED BY` walks an index: hints for SQLite. PostgreSQL needs none.
- `FOR UPDATE SKIP LOCKED` and casts of values (`?1::bigint`) are for PostgreSQL alone.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from moorage.stores.rows import Row

if TYPE_CHECKING:
    from moorage.core.once import Once
    from moorage.core.session import Change, Stamp, View
    from moorage.stores.sealing import Sealer

T = TypeVar("T")

FEED_ROOM = 1 << 40  # cursors that an owner has in the feed
FEED_CHUNK = 500  # entries one row of the feed stands for, so that reading a page of it stays small

Guard = tuple[int, int]  # the key and the revision of a session that must not change before the commit
Segment = tuple[int, int, int, int]  # root, segment, and the numbers of it that count: after, upto


class Target(NamedTuple):
    """A session to delete."""

    pk: int
    root_id: str  # of the tree it goes with
    reason: str
    revision: int  # at which this was decided; PostgreSQL refuses if it has moved


class SessionPlace(NamedTuple):
    """Where a new session stands: in its family, and as a fork behind what it shares."""

    parent: int | None = None
    root: int | None = None
    source: int | None = None  # of a fork: whose entries it shares
    segments: Sequence[Segment] = ()  # where those are
    is_copied: bool = False  # whether its records are the source's, as they are

    @property
    def shared_upto(self) -> int:
        """The last number that it shares."""
        return self.segments[-1][3] if self.segments else 0


class Written(NamedTuple):
    """The changes of a commit to one session."""

    change: Change
    view: View  # what was decided on
    pk: int | None = None  # None: a new session that gets one
    revision: int = 0  # at which it was read; PostgreSQL refuses if it has moved
    place: SessionPlace | None = None  # of a new session


class Commit(NamedTuple):
    """Changes of one owner that are written together, and what must still hold then."""

    owner: str
    changes: Sequence[Written]
    once: Once | None = None
    open_at_most: int | None = None  # sessions of a family
    guard: Guard | None = None


class Db(Protocol):
    """One connection, used by one job at a time."""

    path: str  # names the database in messages
    is_postgres: bool
    is_locking: bool  # whether data that was read cannot change before the commit
    opener: Sealer | None  # opens what is sealed, whether or not new bodies are
    sealer: Sealer | None

    async def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        """Return the first row, or None."""

    async def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return all rows."""

    async def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Write something; return how many rows it touched."""

    async def many(self, sql: str, values: Sequence[Sequence[Any]]) -> None:
        """Write the same for several values."""

    async def commit_changes(self, commit: Commit) -> None:
        """Commit all of it or nothing, or add it to the present transaction.

        Raises AlreadyDone, KeyReused, IdTaken or NameTaken; and Stale if a concurrent change won, if the session of its
        guard has changed, or if a family may have more open sessions than it says.
        """

    async def new_key(self) -> int:
        """Return a key for a new session."""

    async def delete_sessions(self, owner: str, targets: list[Target], stamp: Stamp) -> None:
        """Delete sessions, leaves first, leaving a tombstone and an event for each."""

    def lock(self) -> str:
        """Return what locks the rows that a statement reads: nothing, unless others can write meanwhile."""

    async def feed_start(self, owner: str) -> int | None:
        """Return the id in the feed that an owner's cursors count from; None if nothing was ever written for them."""

    async def feed_end(self, owner: str) -> int:
        """Return the newest cursor of an owner; 0 if there is none."""

    def listed(self, values: Sequence[Any]) -> Any:
        """Return a list as one value of a statement."""


SqlJob = Callable[[Db], Coroutine[Any, Any, T]]
