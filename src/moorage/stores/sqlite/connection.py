"""Connections to the database file: opened the same way every time, checked, and with translated errors.

apsw brings its own SQLite, because versions up to 3.51.2 can corrupt a WAL database written by several processes.
Pragmas are read back after they are set: a setting that was silently ignored is worse than an error.
"""

from __future__ import annotations

import os
import time
from _thread import allocate_lock  # `threading` takes milliseconds to import
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import apsw

from moorage.core.errors import (
    EncryptionKeyMissing,
    MoorageError,
    StoreBusy,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreReplaced,
    StoreUnavailable,
)
from moorage.stores import REFUSED_PLAIN
from moorage.stores.rows import Row, json_text
from moorage.stores.sql.db import FEED_ROOM, T
from moorage.stores.sqlite import writes

if TYPE_CHECKING:
    from moorage.core.session import Stamp
    from moorage.stores.sealing import Sealer
    from moorage.stores.sql.db import Commit, Target

MIN_SQLITE = (3, 51, 3)
APPLICATION_ID = 0x4D6F6F72  # "Moor", so that another program's database is left alone
SMALLEST_PAGE = 512  # bytes; every database file is a multiple of it
BUSY_FOR = 30.0  # seconds that others may keep the file locked before a call fails
_PRAGMAS = (("synchronous", "FULL", 2), ("foreign_keys", "ON", 1), ("temp_store", "MEMORY", 2))

Check = Callable[[apsw.Connection, str], None]  # raises for a file that must not be used

_opening = allocate_lock()  # held while a connection of this process is opened, see `_open`


class FileReplaced(apsw.IOError):
    """The path no longer names the file that this connection has open: writes would go to a lost file."""


_TRANSLATIONS: tuple[tuple[type[apsw.Error], Callable[[str, str], MoorageError]], ...] = (
    (apsw.BusyError, lambda path, _: StoreBusy(path)),
    (apsw.LockedError, lambda path, _: StoreBusy(path)),
    (apsw.FullError, lambda path, _: StoreFull(path)),
    (apsw.ReadOnlyError, lambda path, _: StoreReadOnly(path)),
    (apsw.PermissionsError, lambda path, _: StoreReadOnly(path)),
    (apsw.CorruptError, StoreCorrupt),
    (apsw.NotADBError, StoreCorrupt),
    (FileReplaced, lambda path, _: StoreReplaced(path)),
)


def translated(error: apsw.Error, path: str) -> MoorageError:
    """Return our error for an error of SQLite."""
    if isinstance(error, apsw.ConstraintError) and REFUSED_PLAIN in str(error):
        return EncryptionKeyMissing(None)
    for kind, ours in _TRANSLATIONS:
        if isinstance(error, kind):
            return ours(path, str(error))
    return StoreUnavailable(f"{path} cannot be used ({type(error).__name__}: {error})", store=path)


@contextmanager
def translating(path: str) -> Iterator[None]:
    """Turn SQLite's errors into ours."""
    try:
        yield
    except apsw.Error as error:
        raise translated(error, path) from error


class ForeignDatabase(StoreUnavailable):
    """The file is the database of another program."""

    def __init__(self, path: str, table: str) -> None:
        super().__init__(f"{path} is a database of another program (it has {table!r}); choose another file", store=path)


class BrokenText(StoreCorrupt):
    """A text in the database is not UTF-8: the file was damaged."""

    def __init__(self, where: str) -> None:
        super().__init__(where, "a text in it is not UTF-8")


class SqliteConnection:
    """One connection, used by one thread at a time."""

    def __init__(
        self, path: str, patience: float | None = None, sealer: Sealer | None = None, check: Check | None = None
    ) -> None:
        """Open or create the file. `check` raises for another program's file before anything in it is changed."""
        self.path = path
        self.opener = sealer  # opens sealed bodies, whether or not new bodies are sealed
        self.sealer = sealer if sealer is not None and sealer.seals else None
        with translating(path), _opening:
            self._patience = _Patience(patience)
            self.raw = self._open(patience, check or check_ours)
        self._owners: dict[str, int] = {}
        self.feed_ends: dict[str, int] = {}  # feed ends that this transaction has moved; it has the write lock
        self.execute = self.raw.execute
        self.executemany = self.raw.executemany
        self.driven = Driven(self)  # the interface for the jobs of `stores/sql`

    def _open(self, patience: float | None, check: Check) -> apsw.Connection:
        path, version = self.path, apsw.sqlite_lib_version()
        check_usable(path)
        # Create a missing file, readable by its owner only: it holds conversations and the secret that signs tokens.
        # Closing a file drops the locks that other connections of this process have on it. A file that did not exist
        # has none, as long as no other thread opens it meanwhile: `_opening` ensures that.
        with suppress(OSError):  # the file exists already, or SQLite reports why it cannot be created
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        if tuple(map(int, version.split("."))) < MIN_SQLITE:
            raise StoreUnavailable(f"SQLite {version} is too old for several writers; upgrade apsw")
        try:
            raw = apsw.Connection(path)
        except apsw.CantOpenError as error:
            raise _why_not_open(path, error) from error
        try:
            raw.set_busy_handler(self._patience)
            # A short-lived hook must not pay for the writes of others when it closes.
            raw.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            _switch_to_wal(raw, path, BUSY_FOR if patience is None else patience, check)
            set_options(raw, path)
        except BaseException:
            raw.close()
            raise
        self._file, self._identity = os.path.abspath(path), _identity(path)
        return raw

    def one(self, sql: str, bindings: Iterable[Any] = ()) -> Row | None:
        """Return the first row, or None."""
        try:
            row: Row | None = self.execute(sql, bindings).fetchone()  # type: ignore[arg-type]  # apsw types them narrowly
        except UnicodeDecodeError as error:
            raise BrokenText(self.path) from error
        return row

    def all(self, sql: str, bindings: Iterable[Any] = ()) -> list[Row]:
        """Return all rows."""
        try:
            return self.execute(sql, bindings).fetchall()  # type: ignore[arg-type]
        except UnicodeDecodeError as error:
            raise BrokenText(self.path) from error

    def begin(self) -> None:
        """Start a write transaction. IMMEDIATE, because a read that turns into a write cannot wait for others."""
        self.feed_ends.clear()
        self.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Commit durably. Raises FileReplaced if the path names another file now."""
        self.check_file()
        self.execute("COMMIT")

    def check_file(self) -> None:
        """Raise FileReplaced if the database file was removed or another one put in its place."""
        if _identity(self._file) != self._identity:
            raise FileReplaced(self._file)

    def rollback(self) -> None:
        """Roll back; SQLite may have done so itself."""
        self._owners.clear()  # one of them may have been created in this transaction
        with suppress(apsw.Error):
            if self.raw.in_transaction:
                self.execute("ROLLBACK")

    def owner_no(self, owner: str) -> int | None:
        """Return the number of an owner; None if nothing was ever written for them."""
        if (known := self._owners.get(owner)) is None:
            row = self.one("SELECT no FROM owners WHERE name = ?", (owner,))
            if row is None:
                return None
            known = self._owners[owner] = row[0]
        return known

    def new_owner_no(self, owner: str) -> int:
        """Return the number of an owner, created if needed. Call it within a write transaction."""
        if (known := self.owner_no(owner)) is not None:
            return known
        self.execute("INSERT INTO owners (name) VALUES (?)", (owner,))
        return self.raw.last_insert_rowid()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block in a transaction: all of it or nothing is committed."""
        self.begin()
        try:
            yield
            self.commit()
        except BaseException:
            self.rollback()
            raise

    @contextmanager
    def waiting(self, handler: Callable[[int], bool] | None) -> Iterator[None]:
        """Within the block, wait for locks by another busy handler; None: wait for none."""
        self.raw.set_busy_handler(handler)
        try:
            yield
        finally:
            self.raw.set_busy_handler(self._patience)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let several reads see one instant."""
        self.execute("BEGIN")
        try:
            yield
        finally:
            self.execute("COMMIT")

    def data_version(self) -> int:
        """Return a number that changes when another connection has committed."""
        row = self.one("PRAGMA data_version")
        assert row is not None
        return int(row[0])

    def close(self) -> None:
        """Close the file."""
        self.raw.close()


class _Patience:
    """Waits for locks with jitter: SQLite's own busy timeout is unfair among processes.

    Each wait may take BUSY_FOR; if the caller has less time, that limits all waits together.
    """

    def __init__(self, in_all: float | None) -> None:
        self._end = None if in_all is None else time.monotonic() + in_all
        self._until = 0.0

    def __call__(self, tries: int) -> bool:
        now = time.monotonic()
        if tries == 0:
            self._until = now + BUSY_FOR if self._end is None else self._end
        if now > self._until:
            return False
        time.sleep(_jitter())
        return True


def _jitter() -> float:
    """Return 0.1 to 0.6 milliseconds, about the time of a commit, from the clock's last digits.

    With 0.2 to 2, the lock was free while all waited: four processes appended a tenth fewer turns, and waited up to
    twice as long. `random` takes long to import.
    """
    return 0.0001 + time.perf_counter_ns() % 500 / 1e6


def _identity(path: str) -> tuple[int, int] | None:
    """Return the device and inode of a file; None if there is no such file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _why_not_open(path: str, error: apsw.Error) -> MoorageError:
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        return StoreUnavailable(f"the folder {folder} does not exist; create it first", store=path)
    if not os.access(folder, os.W_OK):
        return StoreReadOnly(path)
    return StoreUnavailable(f"{path} cannot be opened ({error})", store=path)


def set_options(raw: apsw.Connection, path: str) -> None:
    """Set what every connection needs. Raises StoreUnavailable if SQLite does not take it."""
    # Plans must not depend on bound values: SQLite would prepare statements again at every use.
    raw.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    for name, value, read_back in _PRAGMAS:
        raw.execute(f"PRAGMA {name} = {value}").fetchall()
        if raw.pragma(name) != read_back:
            raise StoreUnavailable(f"{path}: SQLite did not take {name} = {value}", store=path)


def _switch_to_wal(raw: apsw.Connection, path: str, patience: float, check: Check) -> None:
    """Switch to WAL with retries: first opens race, and SQLite does not always call the busy handler for it."""
    deadline = time.monotonic() + patience
    while True:
        try:
            if raw.pragma("journal_mode") == "wal":
                return
            check(raw, path)
            if raw.pragma("journal_mode", "wal") == "wal":
                return
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
        except apsw.CantOpenError as error:
            raise _why_not_open(path, error) from error
        else:
            raise StoreUnavailable(f"{path} is on a file system without shared memory; use a local disk", store=path)
        time.sleep(_jitter())


def check_ours(raw: apsw.Connection, path: str) -> None:
    """Raise ForeignDatabase for another program's database, before anything in it is changed."""
    if raw.pragma("application_id") == APPLICATION_ID:
        return
    table = raw.execute("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' LIMIT 1").fetchone()
    # Read the application id again after the tables: a process that creates ours sets both in one transaction.
    if table is not None and raw.pragma("application_id") != APPLICATION_ID:
        raise ForeignDatabase(path, table[0])


def check_usable(path: str) -> None:
    """Raise an error that explains why a file cannot be used, where SQLite's own error does not.

    Never opens the file: closing it again would drop the locks that all other connections
    of this process have on it, and another program could then remove the log while they use it.
    SQLite itself refuses a file that is no database or has fewer pages than its header says.
    """
    if os.path.isdir(path):
        raise StoreUnavailable(f"{path} is a folder; give the path of a database file", store=path)
    try:
        size = os.stat(path).st_size
    except FileNotFoundError:
        return
    except PermissionError:
        raise StoreReadOnly(path) from None
    except OSError as error:
        why = f"{path} cannot be opened ({error.strerror}); check the path and its permissions"
        raise StoreUnavailable(why, store=path) from None
    if not os.access(path, os.R_OK | os.W_OK):
        raise StoreReadOnly(path)
    if size and size % SMALLEST_PAGE == 0:
        return
    has_log = bytes_of(f"{path}-wal") > 0
    # An empty file without a log is new: SQLite writes the first page before the log. It would delete the log, and with
    # it all changes acknowledged since the last checkpoint.
    if size == 0 and has_log and bytes_of(path) == 0:
        raise StoreCorrupt(path, "it is empty but its log is not: the file was truncated")
    if size % SMALLEST_PAGE and not has_log:  # with a log, the page may not be written yet
        why = f"{size:,} bytes are not a whole number of pages: the file was truncated or is not a database"
        raise StoreCorrupt(path, why)


def bytes_of(path: str) -> int:
    """Return the size of a file without opening it; 0 if it does not exist."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


# A database for the jobs of `stores/sql`: coroutines that never suspend -------------------------

_known: dict[str, str] = {}  # statements in SQLite's syntax, by their shared form
MOST_KNOWN = 500


class Driven:
    """A connection whose methods are coroutines that work at once."""

    __slots__ = ("connection", "opener", "path", "sealer")

    is_postgres = False
    is_locking = True  # a job that writes has the write lock

    def __init__(self, connection: SqliteConnection) -> None:
        self.connection, self.path = connection, connection.path
        self.opener, self.sealer = connection.opener, connection.sealer

    async def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        try:
            row: Row | None = self.connection.execute(_known.get(sql) or _plain(sql), values).fetchone()
        except UnicodeDecodeError as error:
            raise BrokenText(self.path) from error
        return row

    async def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self.connection.all(_plain(sql), values)

    async def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        self.connection.execute(_plain(sql), tuple(values))
        return self.connection.raw.changes()

    async def many(self, sql: str, values: Sequence[Sequence[Any]]) -> None:
        self.connection.executemany(_plain(sql), values)

    async def commit_changes(self, commit: Commit) -> None:
        await writes.commit(self, commit)

    async def new_key(self) -> int:
        row = self.connection.one(writes.NEW_KEY)
        assert row is not None
        return int(row[0])

    async def delete_sessions(self, owner: str, targets: list[Target], stamp: Stamp) -> None:
        await writes.delete(self, owner, targets, stamp)

    def lock(self) -> str:
        return ""

    async def feed_start(self, owner: str) -> int | None:
        number = self.connection.owner_no(owner)
        return None if number is None else number * FEED_ROOM

    async def feed_end(self, owner: str) -> int:
        self.connection.check_file()  # a server's health check depends on it
        if (base := await self.feed_start(owner)) is None:
            return 0
        row = await self.one("SELECT max(id) FROM feed WHERE id < ?", (base + FEED_ROOM,))
        return max(0, (row[0] or 0) - base) if row else 0

    def listed(self, values: Sequence[Any]) -> Any:
        return json_text(values)


class GlanceTooLong(Exception):
    """A read on the thread of the event loop took too long: repeat it on another thread."""


class Glance(Driven):
    """A connection that gives up between two rows when a deadline has passed."""

    __slots__ = ("_deadline",)

    def __init__(self, connection: SqliteConnection, deadline: float) -> None:
        super().__init__(connection)
        self._deadline = deadline

    async def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        rows: list[Row] = []
        try:
            for row in self.connection.execute(_plain(sql), values):
                rows.append(row)
                if time.monotonic() > self._deadline:
                    raise GlanceTooLong
        except UnicodeDecodeError as error:
            raise BrokenText(self.path) from error
        return rows


_WORDS = {
    "moor.": "",
    "ORDERED JOIN": "CROSS JOIN",
    "json_agg(": "json_group_array(",
    "json_build_array(": "json_array(",
}


def _plain(sql: str) -> str:
    """Return a statement in SQLite's syntax."""
    if (known := _known.get(sql)) is not None:
        return known
    if len(_known) > MOST_KNOWN:
        _known.clear()
    plain = sql
    if "::" in sql or "LOCKED" in sql:
        from re import sub  # hooks have no such statements

        plain = sub(r"IN LIST\((\?\d*)::\w+\)", r"IN (SELECT value FROM json_each(\1))", plain)
        plain = sub(r"(\?\d*)::\w+| FOR UPDATE SKIP LOCKED", r"\1", plain)
    for ours, theirs in _WORDS.items():
        plain = plain.replace(ours, theirs)
    _known[sql] = plain = " ".join(plain.split())  # statements are looked up by their text at every execution
    return plain


SqliteJob = Callable[[Driven], Coroutine[Any, Any, T]]
