"""The interface of a database for jobs, and their statements.

Longer statements are files, `queries/<name>.sql`, or one for each dialect if they differ. A file is read at its first
use: hooks start in milliseconds.

Both dialects understand most statements unchanged. Each translates a few words, once per statement:

- `moor.` stands for the schema, `?` or `?1` for a value.
- `IN LIST(?1::bigint)` is a condition on a column: its value is in the list that `listed` made; or `NOT IN LIST`.
- `instr` is the place of one text in another; `json_agg` and `json_build_array` make JSON.
- `ORDERED JOIN` joins in the written order, `INDEXED BY` walks an index: hints for SQLite. PostgreSQL needs none.
- `FOR UPDATE SKIP LOCKED` and casts of values (`?1::bigint`) are for PostgreSQL alone.
"""

from __future__ import annotations

import os
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

# Statements -------------------------------------------------------------------------------------

_FOLDER = os.path.join(os.path.dirname(__file__), "queries")
# Conditions for the entries `e` that a session `s` wrote itself, and for an owner's rows of the feed.
_CONDITIONS = {
    "sqlite": {"own_entries": "e.segment = s.pk", "of_owner": ""},
    "postgres": {
        "own_entries": "e.owner = s.owner AND e.root = coalesce(s.root, s.pk) AND e.segment = s.pk",
        "of_owner": "owner = ?1 AND",
    },
}


class Query:
    """A statement. `parts` replace their names in braces."""

    __slots__ = ("_name", "_parts", "_texts")

    def __init__(self, name: str, **parts: str) -> None:
        self._name, self._parts = name, parts
        self._texts: dict[bool, str] = {}

    def __call__(self, db: Db) -> str:
        """Return it in the dialect of a database."""
        if (known := self._texts.get(db.is_postgres)) is not None:
            return known
        dialect = "postgres" if db.is_postgres else "sqlite"
        path = os.path.join(_FOLDER, f"{self._name}.{dialect}.sql")
        if not os.path.exists(path):
            path = os.path.join(_FOLDER, f"{self._name}.sql")
        with open(path, encoding="utf-8") as file:
            text = "".join(line for line in file if not line.startswith("--"))
        self._texts[db.is_postgres] = text = text.format(**_CONDITIONS[dialect], **self._parts)
        return text


class Walk(NamedTuple):
    """A walk through a whole table along its key, some rows at a time."""

    tables: str  # with conditions, if there are any
    key: str  # columns that identify and order rows
    columns: str
    leads: str = "t.owner"  # prefix of the key on PostgreSQL only: SQLite's keys span all owners

    def key_on(self, db: Db) -> list[str]:
        """Return the key in a database's form."""
        return (f"{self.leads}, {self.key}" if self.leads and db.is_postgres else self.key).split(", ")

    async def rows(self, db: Db, after: Row | None, limit: int) -> list[tuple[Row, Row]]:
        """Return keys and rows after a key."""
        key = self.key_on(db)
        names, sql = ", ".join(key), f"SELECT {', '.join(key)}, {self.columns} FROM {self.tables}"
        if after is not None:
            sql += f" {'AND' if ' WHERE ' in self.tables else 'WHERE'} ({names}) > ({', '.join('?' * len(key))})"
        rows = await db.all(f"{sql} ORDER BY {names} LIMIT ?{db.lock()}", (*(after or ()), limit))
        return [(tuple(row[: len(key)]), tuple(row[len(key) :])) for row in rows]


class Migration(NamedTuple):
    """One numbered file of the schema of a store."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> int:
        """Return a checksum of the file."""
        from zlib import crc32  # few processes create a store

        return crc32(self.sql.encode())

    @property
    def needs(self) -> int:
        """Return the oldest schema that a release must know to work with the migrated one."""
        first = self.sql.partition("\n")[0]
        return int(first.removeprefix("-- needs ")) if first.startswith("-- needs ") else self.number


def read_migrations(module: str) -> list[Migration]:
    """Return the migrations beside a module, in order."""
    folder, found = os.path.join(os.path.dirname(module), "migrations"), []
    for name in sorted(name for name in os.listdir(folder) if name.endswith(".sql")):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            found.append(Migration(int(name[:4]), name[5:-4], file.read()))
    return found
