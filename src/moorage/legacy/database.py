"""Import the database of an older orchestrator: its sessions become ours, in the same file.

Such a file has a table `sessions` whose parent link is a name, or an id that a deletion set to NULL.
One transaction renames its tables to `legacy_…` and otherwise leaves them unchanged, creates ours, and
converts each of its sessions. A crash midway leaves the file unchanged. A parent that cannot
be found is kept as a name, and its child is marked as `orphaned`: a parent is never guessed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from itertools import islice
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw
from msgspec import Struct

from moorage.core.errors import StoreUnavailable
from moorage.core.session import FINAL_STATES, Session
from moorage.legacy.rows import ORPHANED, LegacyLog, Planned, given, micros_of, planned, session_of, state_of
from moorage.stores.rows import micros
from moorage.stores.sql.db import SessionPlace
from moorage.stores.sqlite import writes
from moorage.stores.sqlite.connection import (
    APPLICATION_ID,
    BrokenText,
    SqliteConnection,
    check_ours,
    check_usable,
    translating,
)
from moorage.stores.sqlite.store import apply_missing

if TYPE_CHECKING:
    from moorage.stores.sealing import Sealer

PREFIX = "legacy_"

# Columns of an orchestrator's table, in some version. Many web sites have a `session_id` too.
_TELLING = frozenset({"session_name", "agent_name", "project_dir", "parent_session_id", "parent_session_name"})
_CHUNK = 500  # entries written at once, so that a long log needs no more memory than a short one
_CACHE = -32 * 1024  # KiB of pages kept in memory meanwhile: writes to the indexes of many sessions are scattered


class BroughtIn(Struct):
    """Counts of what was imported."""

    tables: dict[str, str]  # their old names and their new ones
    sessions: int = 0
    children: int = 0  # sessions with a parent
    orphaned: int = 0  # sessions whose parent was not found, or was their own descendant
    cycles: int = 0  # parent links that were cut because they formed a cycle
    messages: int = 0
    events: int = 0  # entries that are no messages
    left_events: int = 0  # events of unknown sessions; they stay in their table
    new_ids: int = 0  # sessions whose id breaks our rules; metadata keeps the old one
    left_names: int = 0  # names that are not allowed or that another open session has; metadata keeps them

    def count(self, planned: Planned, old: dict[str, Any], session: Session, log: LegacyLog) -> None:
        """Add one session."""
        self.sessions += 1
        self.children += planned.parent is not None
        self.orphaned += ORPHANED in session.metadata
        self.cycles += planned.is_cut
        self.new_ids += session.session_id != old["session_id"]
        self.left_names += session.session_name is None and given(old.get("session_name")) is not None
        self.messages += log.messages
        self.events += log.events

    def __str__(self) -> str:
        return (
            f"{self.sessions} sessions ({self.children} with their parent, {self.orphaned} orphaned), "
            f"{self.messages} messages and {self.events} other events; its own tables are kept as {PREFIX}…"
        )


# Looking ----------------------------------------------------------------------------------------


def is_older(raw: apsw.Connection) -> bool:
    """Return whether this is the file of an older orchestrator, and not of any other program."""
    if raw.pragma("application_id") != 0:
        return False
    table = raw.execute("SELECT type, wr FROM pragma_table_list('sessions') WHERE schema = 'main'").fetchone()
    if table != ("table", 0):
        return False
    types = {name.lower(): type_.upper() for name, type_ in _columns(raw, "sessions")}
    has_id = types.get("session_id") is not None and not types["session_id"].startswith(("INT", "REAL", "BLOB"))
    return has_id and not _TELLING.isdisjoint(types)


def is_older_file(path: str) -> bool:
    """Return the same for a file that may not exist. Changes nothing."""
    check_usable(path)
    if not os.path.exists(path):
        return False
    with translating(path), closing(_read_only(path)) as raw:
        return is_older(raw)


def _check_older(raw: apsw.Connection, path: str) -> None:
    if not is_older(raw):
        check_ours(raw, path)


def _read_only(path: str) -> apsw.Connection:
    return apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)


def _columns(raw: apsw.Connection, table: str) -> list[tuple[str, str]]:
    """Return names and types, of generated columns too."""
    rows = raw.execute("SELECT name, type FROM pragma_table_xinfo(?) WHERE hidden <> 1", (table,))
    return [(str(name), str(type_)) for name, type_ in rows]


# Bringing in ------------------------------------------------------------------------------------


def rehearse(path: str) -> BroughtIn | None:
    """Return the counts of an import without doing it. Works on a copy: the file is unchanged."""
    with TemporaryDirectory(prefix="moorage-") as folder, translating(path):
        copy = os.path.join(folder, "copy.db")
        with (
            closing(_read_only(path)) as source,
            closing(apsw.Connection(copy)) as target,
            target.backup("main", source, "main") as backup,
        ):
            backup.step()
        return bring_in_file(copy)


def bring_in_file(path: str, sealer: Sealer | None = None, patience: float | None = None) -> BroughtIn | None:
    """Convert an older orchestrator's file; return None if it is ours already. Raises ForeignDatabase."""
    with translating(path), closing(SqliteConnection(path, patience, sealer, _check_older)) as db:
        db.raw.pragma("cache_size", _CACHE)
        try:
            with db.transaction():  # the first process to get the lock does the work; the others find it done
                return _bring_in(db) if is_older(db.raw) else None
        except UnicodeDecodeError as error:
            raise BrokenText(path) from error
        except apsw.SQLError as error:
            why = f"{path} is an older orchestrator's database and cannot be brought in ({error}); nothing was changed"
            raise StoreUnavailable(why, store=path) from error


def bring_in_and_log(path: str, sealer: Sealer | None, patience: float | None) -> None:
    """Convert an older orchestrator's file, if it is one, and log the result."""
    if (done := bring_in_file(path, sealer, patience)) is not None:
        import logging  # 5 ms, only here

        logging.getLogger(__name__).warning("%s was an older orchestrator's database; brought in: %s", path, done)


def _bring_in(db: SqliteConnection) -> BroughtIn:
    db.execute("PRAGMA defer_foreign_keys = ON")  # a session may have a parent that was created after it
    renamed = _rename_old_tables(db)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute("PRAGMA user_version = 0")
    apply_missing(db)
    sessions, events = _Table.of(db, renamed["sessions"]), _Table.of(db, renamed.get("events"))
    done = BroughtIn(renamed)
    plan = planned(_scanned(db, sessions), micros(datetime.now(UTC)))
    _write_all(db, plan, sessions, events if "session_id" in events.keys else NO_TABLE, done)
    return done


_TABLES = r"""
SELECT name FROM pragma_table_list
WHERE schema = 'main' AND type IN ('table', 'virtual')
    AND name NOT LIKE 'sqlite\_%' ESCAPE '\' AND name NOT LIKE 'legacy\_%' ESCAPE '\'
ORDER BY name
"""


def _rename_old_tables(db: SqliteConnection) -> dict[str, str]:
    """Rename all tables and the references to them; return the new name of each."""
    renamed: dict[str, str] = {}
    for (name,) in db.all(_TABLES):
        target, tries = f"{PREFIX}{name}", 1
        while db.one("SELECT 1 FROM sqlite_schema WHERE lower(name) = lower(?)", (target,)):
            tries += 1
            target = f"{PREFIX}{name}_{tries}"
        db.execute(f"ALTER TABLE {_quoted(name)} RENAME TO {_quoted(target)}")
        renamed[name.lower()] = target
    return renamed


class _Table(NamedTuple):
    """One of the old tables: its current name, and its columns."""

    name: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, db: SqliteConnection, name: str | None) -> _Table:
        """Return the table of that name, or an empty one."""
        return NO_TABLE if name is None else cls(_quoted(name), tuple(column for column, _ in _columns(db.raw, name)))

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(name.lower() for name in self.names)

    def rows(self, db: SqliteConnection, column: str, value: Any) -> Iterator[dict[str, Any]]:
        """Yield the rows with that value in a column, in their order."""
        if self is NO_TABLE:
            return
        columns = ", ".join(_quoted(name) for name in self.names)
        for row in db.execute(f"SELECT {columns} FROM {self.name} WHERE {column} = ? ORDER BY rowid", (value,)):
            yield dict(zip(self.keys, row, strict=True))


NO_TABLE = _Table("", ())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_WANTED = ("session_id", "session_name", "created_at", "status", "parent_session_id", "parent_session_name")


def _scanned(db: SqliteConnection, table: _Table) -> Iterator[Planned]:
    """Yield the data that the plan needs of each session, in the order of their rows."""
    columns = ", ".join(name if name in table.keys else "NULL" for name in _WANTED)
    last: int | None = None  # a session without a time was created right after the one before it
    for source, id_, name, created_at, status, parent_ref, parent_name in db.execute(
        f"SELECT rowid, {columns} FROM {table.name} ORDER BY rowid"
    ):
        last = micros_of(created_at) or last
        is_open = state_of(status) not in FINAL_STATES
        yield Planned(source, id_, name, last, is_open, given(parent_ref), given(parent_name))


# Writing ----------------------------------------------------------------------------------------


def _write_all(db: SqliteConnection, plan: list[Planned], sessions: _Table, events: _Table, done: BroughtIn) -> None:
    """Write all sessions with their logs, oldest first, and count them."""
    if events is not NO_TABLE:
        db.execute(f"CREATE INDEX moorage_events ON {events.name} (session_id)")
    for each in plan:
        [old] = sessions.rows(db, "rowid", each.source)
        session = session_of(each, old)
        done.count(each, old, session, _write(db, each, session, LegacyLog(session, old), events))
    if events is not NO_TABLE:
        db.execute("DROP INDEX moorage_events")
        (total,) = db.one(f"SELECT count(*) FROM {events.name}") or (0,)
        done.left_events = total - done.messages - done.events


# A final session ends with its log. Until that is written it must not count as open, or it would keep its name.
_FINISH = """
UPDATE sessions SET last_entry = ?1, updated_at = ?2, last_activity_at = ?2,
    finalized_at = iif(finalized_at IS NULL, NULL, ?2), duration_seconds = iif(finalized_at IS NULL, NULL, ?3)
WHERE pk = ?4
"""


def _write(db: SqliteConnection, planned: Planned, session: Session, log: LegacyLog, events: _Table) -> LegacyLog:
    pk = writes.insert(db, session, None, SessionPlace(*planned.family))
    assert pk == planned.n, "keys are given out in order"
    entries = log.entries(events.rows(db, "session_id", log.old_id))
    while chunk := list(islice(entries, _CHUNK)):
        writes.add_entries(db, pk, session.owner, chunk)
    duration = round((log.last_at - (planned.at or 0)) / 1e6, 3)
    db.execute(_FINISH, (log.number, log.last_at, duration, pk))
    return log
