"""The interface of a database for jobs.

Both dialects understand most statements unchanged. Each translates a few words, once per statement:

- `moor.` stands for the schema, `?` or `?1` for a value.
- `IN LIST(?1::bigint)` is a condition on a column: its value is in the list that `listed` made; or `NOT IN LIST`.
- `instr` is the place of one text in another; `json_agg` and `json_build_array` make JSON.
- `ORDERED JOIN` joins in the written order, `INDEXED BY` walks an index: hints for SQLite. PostgreSQL needs none.
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

FEED_ROOM = 1 << 40  # cursors reserved for an owner in the feed
FEED_CHUNK = 500  # entries that one row of the feed stands for, so that reading a page of it stays small

Guard = tuple[int, int]  # the key and the revision of a session that must not change before the commit
Segment = tuple[int, int, int, int]  # root, segment, and the numbers of its entries that belong: after, upto


class Target(NamedTuple):
    """A session to delete."""

    pk: int
    root_id: str  # of the tree it is deleted with
    reason: str
    revision: int  # at the decision; PostgreSQL refuses the deletion if it has changed


class SessionPlace(NamedTuple):
    """The place of a new session: in its family, and for a fork after the shared entries."""

    parent: int | None = None
    root: int | None = None
    source: int | None = None  # of a fork: the session whose entries it shares
    segments: Sequence[Segment] = ()  # the segments with those entries
    is_copied: bool = False  # whether its records are unchanged copies of the source's

    @property
    def shared_upto(self) -> int:
        """Return the number of the last shared entry."""
        return self.segments[-1][3] if self.segments else 0


class Written(NamedTuple):
    """The changes of a commit to one session."""

    change: Change
    view: View  # that the decision was based on
    pk: int | None = None  # None: a new session without a key yet
    revision: int = 0  # when it was read; PostgreSQL refuses the commit if it has changed
    place: SessionPlace | None = None  # of a new session


class Commit(NamedTuple):
    """Changes of one owner that are written together, and the conditions for the commit."""

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
    opener: Sealer | None  # opens sealed bodies, whether or not new bodies are sealed
    sealer: Sealer | None

    async def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        """Return the first row, or None."""

    async def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return all rows."""

    async def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Run a writing statement; return the number of affected rows."""

    async def many(self, sql: str, values: Sequence[Sequence[Any]]) -> None:
        """Run a writing statement for several values."""

    async def commit_changes(self, commit: Commit) -> None:
        """Commit all of it or nothing, or add it to the current transaction.

        Raises AlreadyDone, KeyReused, IdTaken, SessionGone or NameTaken; and Stale if a concurrent change won, if the
        session of its guard has changed, or if a family has more open sessions than it allows.
        """

    async def new_key(self) -> int:
        """Return a key for a new session."""

    async def delete_sessions(self, owner: str, targets: list[Target], stamp: Stamp) -> None:
        """Delete sessions, leaves first; write a tombstone and an event for each."""

    def lock(self) -> str:
        """Return the clause that locks the rows of a statement; an empty one if no other writer is possible."""

    async def feed_start(self, owner: str) -> int | None:
        """Return the feed id that an owner's cursors count from; None if nothing was ever written for them."""

    async def feed_end(self, owner: str) -> int:
        """Return the newest cursor of an owner; 0 if there is none."""

    def listed(self, values: Sequence[Any]) -> Any:
        """Return a list as one value of a statement."""


SqlJob = Callable[[Db], Coroutine[Any, Any, T]]
