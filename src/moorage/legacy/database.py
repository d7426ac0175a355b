"""Bring the database of an older orchestrator in: its sessions become ours, in the same file.

Such a file has a table `sessions` whose parent link is a name, or an id that a deletion set to NULL.
One transaction renames its tables to `legacy_…` and leaves them otherwise as they are, creates ours, and
writes each of its sessions as one of ours. A crash half way leaves the file as it was. A parent that cannot
be found stays as a name, and its child is marked as `orphaned`: no parent is ever guessed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from itertools import islice
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import apsw
from msgspec import Struct

from moorage.core.errors import StoreUnavailable
from moorage.core.ids import looks_like_ref, uuid7
from moorage.core.session import FINAL_STATES, Session
from moorage.legacy.rows import ORPHANED, LegacyLog, Planned, given, micros_of, session_of, state_of
from moorage.stores.rows import micros
from moorage.stores.sqlite import heads
from moorage.stores.sqlite.connection import (
    APPLICATION_ID,
    BrokenText,
    Connection,
    check_ours,
    check_usable,
    translating,
)
from moorage.stores.sqlite.migrate import apply_missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from moorage.stores.sealing import Sealer

PREFIX = "legacy_"

# Columns of an orchestrator's table, in one version or another. Many a web site has a `session_id`, too.
_TELLING = frozenset({"session_name", "agent_name", "project_dir", "parent_session_id", "parent_session_name"})
_CHUNK = 500  # entries written at once, so that a long log needs no more memory than a short one
_CACHE = -32 * 1024  # KiB of pages kept in memory meanwhile: indexes of many sessions are written to all over


class BroughtIn(Struct):
    """What was brought in, in numbers."""

    tables: dict[str, str]  # their old names and their new ones
    sessions: int = 0
    children: int = 0  # sessions with a parent
    orphaned: int = 0  # sessions whose parent was not found, or was their own descendant
    cycles: int = 0  # parent links that were cut because they led back to their session
    messages: int = 0
    events: int = 0  # entries that are no messages
    left_events: int = 0  # events of unknown sessions; they stay in their table
    new_ids: int = 0  # sessions whose id breaks our rules; metadata has the old one
    left_names: int = 0  # names that are not allowed or that another open session has; metadata has them

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
    """Return what bringing in would do. Works on a copy: the file stays as it is."""
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
    """Make an older orchestrator's file ours; return None if it was ours before. Raises ForeignDatabase."""
    with translating(path), closing(Connection(path, patience, sealer, _check_older)) as db:
        db.raw.pragma("cache_size", _CACHE)
        return _bring_in_once(db)


def bring_in_and_log(path: str, sealer: Sealer | None, patience: float | None) -> None:
    """Make an older orchestrator's file ours, if it is one, and log what was done."""
    if (done := bring_in_file(path, sealer, patience)) is not None:
        import logging  # five milliseconds that only this costs

        logging.getLogger(__name__).warning("%s was an older orchestrator's database; brought in: %s", path, done)


def _bring_in_once(db: Connection) -> BroughtIn | None:
    try:
        with db.transaction():  # whoever gets the lock first does the work; the others find it done
            return _bring_in(db) if is_older(db.raw) else None
    except UnicodeDecodeError as error:
        raise BrokenText(db.path) from error
    except apsw.SQLError as error:
        why = f"{db.path} is an older orchestrator's database and cannot be brought in ({error}); nothing was changed"
        raise StoreUnavailable(why, store=db.path) from error


def _bring_in(db: Connection) -> BroughtIn:
    db.execute("PRAGMA defer_foreign_keys = ON")  # a session may have been given to a parent younger than itself
    renamed = _set_aside_tables(db)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute("PRAGMA user_version = 0")
    apply_missing(db)
    sessions, events = _Table.of(db, renamed["sessions"]), _Table.of(db, renamed.get("events"))
    _plan(db, sessions)
    _find_parents(db)
    db.execute(_KEEP_NAMES)
    done = BroughtIn(renamed)
    _write_all(db, sessions, events if "session_id" in events.keys else NO_TABLE, done)
    db.execute("DROP TABLE moorage_plan")
    return done


_TABLES = r"""
SELECT name FROM pragma_table_list
WHERE schema = 'main' AND type IN ('table', 'virtual')
    AND name NOT LIKE 'sqlite\_%' ESCAPE '\' AND name NOT LIKE 'legacy\_%' ESCAPE '\'
ORDER BY name
"""


def _set_aside_tables(db: Connection) -> dict[str, str]:
    """Rename all tables, and what refers to them; return the new name of each."""
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
    """One of their tables: its name now, and its columns."""

    name: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, db: Connection, name: str | None) -> _Table:
        """Return the table of that name, or none."""
        return NO_TABLE if name is None else cls(_quoted(name), tuple(column for column, _ in _columns(db.raw, name)))

    @property
    def keys(self) -> tuple[str, ...]:
        """Return its columns in lower case."""
        return tuple(name.lower() for name in self.names)

    def columns(self, alias: str) -> str:
        """Return all columns for a SELECT."""
        return ", ".join(f"{alias}.{_quoted(name)}" for name in self.names)


NO_TABLE = _Table("", ())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# The plan says which of our sessions each of theirs becomes. It is a table: a million sessions need no memory.

_PLAN = """
CREATE TABLE moorage_scan (
    source INTEGER PRIMARY KEY, old_id, name, at INTEGER, is_open INTEGER, parent_ref, parent_name
);
CREATE TABLE moorage_plan (
    n INTEGER PRIMARY KEY,    -- the key of ours: in order of creation
    source INTEGER, old_id, name, at INTEGER, is_open INTEGER, parent_ref, parent_name,
    id TEXT, kept_name TEXT, parent INTEGER, root INTEGER, depth INTEGER, is_cut INTEGER NOT NULL DEFAULT 0
);
"""
_PLAN_INDEXES = """
CREATE INDEX moorage_plan_old ON moorage_plan (old_id);
CREATE INDEX moorage_plan_name ON moorage_plan (name, n);
CREATE INDEX moorage_plan_open ON moorage_plan (name, n) WHERE is_open = 1;
CREATE INDEX moorage_plan_id ON moorage_plan (id);
"""
_SORT = """
INSERT INTO moorage_plan (source, old_id, name, at, is_open, parent_ref, parent_name)
    SELECT source, old_id, name, at, is_open, parent_ref, parent_name FROM moorage_scan ORDER BY at, source;
DROP TABLE moorage_scan;
"""


def _plan(db: Connection, table: _Table) -> None:
    """Put their sessions in the order of creation, each with its future id."""
    db.raw.create_scalar_function("moorage_is_id", _is_ref, 1, deterministic=True)
    db.raw.create_scalar_function("moorage_new_id", _new_id, 1)
    db.execute(_PLAN).fetchall()
    db.executemany("INSERT INTO moorage_scan VALUES (?, ?, ?, ?, ?, ?, ?)", _scanned(db, table))
    db.execute(
        "UPDATE moorage_scan SET at = coalesce((SELECT min(at) FROM moorage_scan), ?) WHERE at IS NULL", (_now(),)
    )
    db.execute(_SORT).fetchall()
    db.execute(_PLAN_INDEXES).fetchall()
    # A new id is for one that breaks our rules, and for the second session with the same id.
    db.execute(
        "UPDATE moorage_plan SET id = old_id WHERE moorage_is_id(old_id) "
        "AND n = (SELECT min(same.n) FROM moorage_plan same WHERE same.old_id = moorage_plan.old_id)"
    )
    db.execute("UPDATE moorage_plan SET id = moorage_new_id(at) WHERE id IS NULL")


_WANTED = ("session_id", "session_name", "created_at", "status", "parent_session_id", "parent_session_name")


def _scanned(db: Connection, table: _Table) -> Iterator[tuple[Any, ...]]:
    """Yield what the plan needs of each session, in the order of their rows."""
    columns = ", ".join(name if name in table.keys else "NULL" for name in _WANTED)
    last: int | None = None  # one without a time was made right after the one before it
    for source, id_, name, created_at, status, parent_ref, parent_name in db.execute(
        f"SELECT rowid, {columns} FROM {table.name} ORDER BY rowid"
    ):
        last = micros_of(created_at) or last
        is_open = int(state_of(status) not in FINAL_STATES)
        yield source, id_, name, last, is_open, given(parent_ref), given(parent_name)


def _now() -> int:
    return micros(datetime.now(UTC))


def _is_ref(*values: Any) -> bool:
    return looks_like_ref(values[0])


def _new_id(*values: Any) -> str:
    return uuid7(values[0] // 1000, os.urandom(10))


# Families ---------------------------------------------------------------------------------------

# An id means one session: if that is gone, another of the same name is no replacement.
_BY_ID = """
UPDATE moorage_plan SET parent = (SELECT p.n FROM moorage_plan p WHERE p.old_id = moorage_plan.parent_ref LIMIT 1)
WHERE parent_ref IS NOT NULL
"""
_BY_NAME = """
UPDATE moorage_plan SET parent = (
    SELECT max(p.n) FROM moorage_plan p WHERE p.name = moorage_plan.parent_name AND p.n < moorage_plan.n
)
WHERE parent_ref IS NULL AND parent_name IS NOT NULL
"""
_FAMILY_INDEXES = """
CREATE INDEX moorage_plan_parent ON moorage_plan (parent, depth);
CREATE INDEX moorage_plan_undone ON moorage_plan (n) WHERE depth IS NULL;
"""
_DESCEND = """
WITH RECURSIVE below (n, root, depth) AS (
    SELECT n, n, 0 FROM moorage_plan WHERE parent IS NULL AND depth IS NULL
    UNION ALL SELECT c.n, b.root, b.depth + 1 FROM below b CROSS JOIN moorage_plan c ON c.parent = b.n
)
UPDATE moorage_plan SET root = below.root, depth = below.depth FROM below WHERE moorage_plan.n = below.n
"""


def _find_parents(db: Connection) -> None:
    """Find each session's parent, root and depth. Cut cycles: no root leads to what is in one or below it."""
    for statements in (_BY_ID, _BY_NAME, _FAMILY_INDEXES, _DESCEND):
        db.execute(statements).fetchall()
    cut = [(n,) for n in _oldest_of_cycles(db)]
    if cut:
        db.executemany("UPDATE moorage_plan SET parent = NULL, is_cut = 1 WHERE n = ?", cut)
        db.execute(_DESCEND)


def _oldest_of_cycles(db: Connection) -> Iterator[int]:
    """Yield the oldest session of each cycle: go up from every session without a root until one was met before."""
    met: dict[int, int] = {}  # a session, and from which one the way led there
    for (start,) in db.all("SELECT n FROM moorage_plan WHERE depth IS NULL ORDER BY n"):
        line, n = [], start
        while n not in met:
            met[n] = start
            line.append(n)
            n = _parent_of(db, n)
        if met[n] == start and line:
            yield min(line[line.index(n) :])


def _parent_of(db: Connection, n: int) -> int:
    row = db.one("SELECT parent FROM moorage_plan WHERE n = ?", (n,))
    assert row is not None
    return int(row[0])


# A name belongs to one open session and is no other session's id: the newest keeps it.
_KEEP_NAMES = """
UPDATE moorage_plan SET kept_name = name WHERE moorage_is_id(name) AND (
    is_open = 0 OR (
        n = (SELECT max(same.n) FROM moorage_plan same WHERE same.name = moorage_plan.name AND same.is_open = 1)
        AND NOT EXISTS (SELECT 1 FROM moorage_plan o WHERE o.id = moorage_plan.name AND o.n <> moorage_plan.n)
    )
)
"""


# Writing ----------------------------------------------------------------------------------------

_PLANNED = """
SELECT p.n, p.id, p.kept_name, p.at, p.parent, p.root, p.depth, p.is_cut, up.id, up.name, top.id, {columns}
FROM moorage_plan p CROSS JOIN {table} o ON o.rowid = p.source
LEFT JOIN moorage_plan up ON up.n = p.parent LEFT JOIN moorage_plan top ON top.n = p.root
ORDER BY p.n
"""


def _write_all(db: Connection, sessions: _Table, events: _Table, done: BroughtIn) -> None:
    """Write all sessions with their logs, oldest first, and count them."""
    split = len(Planned._fields)
    if events is not NO_TABLE:
        db.execute(f"CREATE INDEX moorage_events ON {events.name} (session_id)")
    for row in db.execute(_PLANNED.format(columns=sessions.columns("o"), table=sessions.name)):
        planned, old = Planned(*row[:split]), dict(zip(sessions.keys, row[split:], strict=True))
        session = session_of(planned, old)
        done.count(planned, old, session, _write(db, planned, session, LegacyLog(session, old), events))
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


def _write(db: Connection, planned: Planned, session: Session, log: LegacyLog, events: _Table) -> LegacyLog:
    pk = heads.insert(db, session, family=planned.family)
    assert pk == planned.n, "keys are given out in order"
    entries = log.entries(_events_of(db, log.old_id, events))
    while chunk := list(islice(entries, _CHUNK)):
        heads.add_entries(db, pk, session.owner, chunk)
    db.execute(_FINISH, (log.number, log.last_at, round((log.last_at - planned.at) / 1e6, 3), pk))
    return log


def _events_of(db: Connection, old_id: Any, table: _Table) -> Iterator[dict[str, Any]]:
    """Yield a session's events in the order of their rows."""
    if table is NO_TABLE:
        return
    sql = f"SELECT {table.columns('e')} FROM {table.name} e WHERE e.session_id = ? ORDER BY e.rowid"
    for row in db.execute(sql, (old_id,)):
        yield dict(zip(table.keys, row, strict=True))
