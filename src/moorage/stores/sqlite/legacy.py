"""The database of an older orchestrator, brought in: its sessions become ours, in the same file.

Such a file has a table `sessions` whose parent link is a name, or an id that a deletion
set to NULL. Everything happens in one transaction: its tables are renamed to `legacy_…`
and stay as they are, ours are made, and each of its sessions becomes one of ours. Whoever
dies half way leaves the file as it was. A parent that cannot be found is kept as a name,
and its child is marked as `orphaned`: nobody is given a parent by guessing.
"""

from __future__ import annotations

import math
import os
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from itertools import islice
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import apsw
from msgspec import DecodeError, Struct
from msgspec.structs import replace

from moorage.core.codec import check_json, decode, encode
from moorage.core.entry import ROLES, Entry, Kind, check_message
from moorage.core.errors import MoorageError, StoreUnavailable
from moorage.core.ids import check_label, looks_like_ref, uuid7
from moorage.core.session import FINAL_STATES, MAX_METADATA_BYTES, Phase, Session, State, check_text
from moorage.stores.rows import instant, micros
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
ORPHANED = "orphaned"  # in a session's metadata
EVENT = "legacy_event"  # the kind of an entry that was no message

# What an orchestrator's table has, in one version or another; a `session_id` alone has many a web site's.
_TELLING = frozenset({"session_name", "agent_name", "project_dir", "parent_session_id", "parent_session_name"})
_STATES = {
    "pending": State.CREATED,
    "created": State.CREATED,
    "suspended": State.SUSPENDED,
    "paused": State.SUSPENDED,
    "finished": State.COMPLETED,
    "completed": State.COMPLETED,
    "complete": State.COMPLETED,
    "error": State.FAILED,
    "failed": State.FAILED,
    "stopped": State.ABANDONED,
    "stopping": State.ABANDONED,
    "cancelled": State.ABANDONED,
    "abandoned": State.ABANDONED,
}
_CHUNK = 500  # entries written at once, so that a long log needs no more memory than a short one
_CACHE = -32 * 1024  # KiB of pages kept in memory meanwhile: indexes of many sessions are written to all over
_LAST = 8_583_753_600_000_000  # microseconds until 2242, up to which instants are told apart exactly


class BroughtIn(Struct, frozen=True, kw_only=True):
    """What bringing in a file did, in numbers."""

    sessions: int
    children: int  # that have their parent
    orphaned: int  # whose parent could not be found, or would have been their own descendant
    cycles: int  # links that were cut, because they led back to where they came from
    messages: int
    events: int  # entries that are no messages
    left_events: int  # of sessions that are not there; they stay in their table
    new_ids: int  # of sessions whose id was none by our rules; metadata has the old one
    left_names: int  # not allowed, or had by another open session; metadata has them
    tables: dict[str, str]  # their names, and what they are called now

    def __str__(self) -> str:
        return (
            f"{self.sessions} sessions ({self.children} with their parent, {self.orphaned} orphaned), "
            f"{self.messages} messages and {self.events} other events; its own tables are kept as {PREFIX}…"
        )


# Looking ----------------------------------------------------------------------------------------


def is_older(raw: apsw.Connection) -> bool:
    """Whether this is the file of an older orchestrator, and not of just any other program."""
    if raw.pragma("application_id") != 0:
        return False
    table = raw.execute("SELECT type, wr FROM pragma_table_list('sessions') WHERE schema = 'main'").fetchone()
    if table != ("table", 0):
        return False
    types = {name.lower(): type_.upper() for name, type_ in _columns(raw, "sessions")}
    has_id = types.get("session_id") is not None and not types["session_id"].startswith(("INT", "REAL", "BLOB"))
    return has_id and not _TELLING.isdisjoint(types)


def is_older_file(path: str) -> bool:
    """The same, for a file that may not be there. Changes nothing."""
    check_usable(path)
    if not os.path.exists(path):
        return False
    with translating(path), closing(_read_only(path)) as raw:
        return is_older(raw)


def _read_only(path: str) -> apsw.Connection:
    return apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)


def _columns(raw: apsw.Connection, table: str) -> list[tuple[str, str]]:
    """Names and types, generated columns among them."""
    rows = raw.execute("SELECT name, type FROM pragma_table_xinfo(?) WHERE hidden <> 1", (table,))
    return [(str(name), str(type_)) for name, type_ in rows]


# Bringing in ------------------------------------------------------------------------------------


def rehearse(path: str) -> BroughtIn | None:
    """What bringing in would do, tried on a copy: the file stays as it is."""
    with TemporaryDirectory(prefix="moorage-") as folder, translating(path):
        copy = os.path.join(folder, "copy.db")
        with (
            closing(_read_only(path)) as source,
            closing(apsw.Connection(copy)) as target,
            target.backup("main", source, "main") as backup,
        ):
            backup.step()
        return bring_in_file(copy)


def bring_in_file(path: str, sealer: Sealer | None = None) -> BroughtIn | None:
    """Bring a file in; None if there is nothing to do."""
    with translating(path), closing(Connection(path, sealer=sealer)) as db:
        return bring_in(db)


def bring_in(db: Connection) -> BroughtIn | None:
    """Make an older orchestrator's file ours; None if somebody else was quicker."""
    usual = db.raw.pragma("cache_size")
    db.raw.pragma("cache_size", _CACHE)
    try:
        with db.transaction():  # whoever gets the lock first does the work; the others find it done
            return _bring_in(db) if check_ours(db.raw, db.path) else None
    except UnicodeDecodeError as error:
        raise BrokenText(db.path) from error
    except apsw.SQLError as error:
        why = f"{db.path} is an older orchestrator's database and cannot be brought in ({error}); nothing was changed"
        raise StoreUnavailable(why, store=db.path) from error
    finally:
        db.raw.pragma("cache_size", usual)


def tell(path: str, done: BroughtIn) -> None:
    """Never silently: a line in the log, which is standard error where nobody set up another."""
    import logging  # five milliseconds that only this costs

    logging.getLogger(__name__).warning("%s was an older orchestrator's database; brought in: %s", path, done)


def _bring_in(db: Connection) -> BroughtIn:
    db.execute("PRAGMA defer_foreign_keys = ON")  # a session may have been given to a parent younger than itself
    renamed = _set_aside_tables(db)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute("PRAGMA user_version = 0")
    apply_missing(db)
    sessions, events = _Table.of(db, renamed["sessions"]), _Table.of(db, renamed.get("events"))
    _plan(db, sessions)
    _find_parents(db)
    _choose_names(db)
    done = _write_all(db, sessions, events if "session_id" in events.keys else NO_TABLE)
    db.execute("DROP TABLE moorage_plan")
    return done.told(renamed)


_TABLES = r"""
SELECT name FROM pragma_table_list
WHERE schema = 'main' AND type IN ('table', 'virtual')
    AND name NOT LIKE 'sqlite\_%' ESCAPE '\' AND name NOT LIKE 'legacy\_%' ESCAPE '\'
ORDER BY name
"""


def _set_aside_tables(db: Connection) -> dict[str, str]:
    """Rename all of them; SQLite does so in whatever refers to them, too. Old names, and new ones."""
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
    """One of theirs: what it is called now, and its columns."""

    name: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, db: Connection, name: str | None) -> _Table:
        """The table of that name."""
        return NO_TABLE if name is None else cls(_quoted(name), tuple(column for column, _ in _columns(db.raw, name)))

    @property
    def keys(self) -> tuple[str, ...]:
        """Its columns as we call them, whatever their case."""
        return tuple(name.lower() for name in self.names)

    def columns(self, alias: str) -> str:
        """All of them, for a SELECT."""
        return ", ".join(f"{alias}.{_quoted(name)}" for name in self.names)


NO_TABLE = _Table("", ())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# The plan: which of ours each of theirs becomes. A table and not a dict: a million sessions take no memory.

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
    """Put their sessions in the order of their creation, each with the id it will have."""
    db.raw.create_scalar_function("moorage_is_id", _is_ref, 1, deterministic=True)
    db.raw.create_scalar_function("moorage_new_id", _new_id, 1)
    db.execute(_PLAN).fetchall()
    db.executemany("INSERT INTO moorage_scan VALUES (?, ?, ?, ?, ?, ?, ?)", _scanned(db, table))
    db.execute(
        "UPDATE moorage_scan SET at = coalesce((SELECT min(at) FROM moorage_scan), ?) WHERE at IS NULL", (_now(),)
    )
    db.execute(_SORT).fetchall()
    db.execute(_PLAN_INDEXES).fetchall()
    # Without its own id: what is no id by our rules, and the second of two that have the same.
    db.execute(
        "UPDATE moorage_plan SET id = old_id WHERE moorage_is_id(old_id) "
        "AND n = (SELECT min(same.n) FROM moorage_plan same WHERE same.old_id = moorage_plan.old_id)"
    )
    db.execute("UPDATE moorage_plan SET id = moorage_new_id(at) WHERE id IS NULL")


_WANTED = ("session_id", "session_name", "created_at", "status", "parent_session_id", "parent_session_name")


def _scanned(db: Connection, table: _Table) -> Iterator[tuple[Any, ...]]:
    """What the plan needs to know of each, in the order they were written."""
    columns = ", ".join(name if name in table.keys else "NULL" for name in _WANTED)
    last: int | None = None  # one without a time was made right after the one before it
    for source, id_, name, created_at, status, parent_ref, parent_name in db.execute(
        f"SELECT rowid, {columns} FROM {table.name} ORDER BY rowid"
    ):
        last = micros_of(created_at) or last
        is_open = int(_state_of(status) not in FINAL_STATES)
        yield source, id_, name, last, is_open, _given(parent_ref), _given(parent_name)


def _now() -> int:
    return micros(datetime.now(UTC))


def _is_ref(*values: Any) -> bool:
    return looks_like_ref(values[0])


def _new_id(*values: Any) -> str:
    return uuid7(values[0] // 1000, os.urandom(10))


def _given(value: object) -> object:
    return None if value in ("", b"") else value


def _state_of(status: object) -> State:
    """What nobody knows the end of is open."""
    return _STATES.get(status.strip().lower(), State.ACTIVE) if isinstance(status, str) else State.ACTIVE


# Families ---------------------------------------------------------------------------------------

# An id says which one it was: if that is gone, a namesake is somebody else.
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
    """Each one's parent, root and depth. Whoever no root leads to is in a cycle or below one: those are cut."""
    for statements in (_BY_ID, _BY_NAME, _FAMILY_INDEXES, _DESCEND):
        db.execute(statements).fetchall()
    cut = [(n,) for n in _oldest_of_cycles(db)]
    if cut:
        db.executemany("UPDATE moorage_plan SET parent = NULL, is_cut = 1 WHERE n = ?", cut)
        db.execute(_DESCEND)


def _oldest_of_cycles(db: Connection) -> Iterator[int]:
    """From everybody that no root leads to, up the line of parents, until it comes to somebody met before."""
    met: dict[int, int] = {}  # and on the way from whom
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


# A name belongs to one open session, and is no other's id: the newest keeps it.
_NAMES = """
UPDATE moorage_plan SET kept_name = name WHERE moorage_is_id(name) AND (
    is_open = 0 OR (
        n = (SELECT max(same.n) FROM moorage_plan same WHERE same.name = moorage_plan.name AND same.is_open = 1)
        AND NOT EXISTS (SELECT 1 FROM moorage_plan o WHERE o.id = moorage_plan.name AND o.n <> moorage_plan.n)
    )
)
"""


def _choose_names(db: Connection) -> None:
    db.execute(_NAMES)


class _Planned(NamedTuple):
    """One row of the plan, with what its family is called."""

    n: int
    id: str
    name: str | None
    at: int
    parent: int | None
    root: int
    depth: int
    is_cut: int
    parent_id: str | None
    parent_name: str | None
    root_id: str

    @property
    def family(self) -> tuple[int | None, int | None]:
        """Keys of parent and root; a root is its own."""
        return self.parent, None if self.root == self.n else self.root


# Writing ----------------------------------------------------------------------------------------

_PLANNED = """
SELECT p.n, p.id, p.kept_name, p.at, p.parent, p.root, p.depth, p.is_cut, up.id, up.name, top.id, {columns}
FROM moorage_plan p CROSS JOIN {table} o ON o.rowid = p.source
LEFT JOIN moorage_plan up ON up.n = p.parent LEFT JOIN moorage_plan top ON top.n = p.root
ORDER BY p.n
"""


def _write_all(db: Connection, sessions: _Table, events: _Table) -> _Tally:
    """All sessions with their logs, oldest first."""
    done, split = _Tally(), len(_Planned._fields)
    if events is not NO_TABLE:
        db.execute(f"CREATE INDEX moorage_events ON {events.name} (session_id)")
    for row in db.execute(_PLANNED.format(columns=sessions.columns("o"), table=sessions.name)):
        planned, old = _Planned(*row[:split]), dict(zip(sessions.keys, row[split:], strict=True))
        session = _session_of(planned, old)
        done.count(planned, old, session, _write(db, planned, session, _Log(session, old), events))
    if events is not NO_TABLE:
        db.execute("DROP INDEX moorage_events")
        (total,) = db.one(f"SELECT count(*) FROM {events.name}") or (0,)
        done.left_events = total - done.messages - done.events
    return done


# The end of a final one is known when its log is; until then it must not count as open, for the sake of its name.
_FINISH = """
UPDATE sessions SET last_entry = ?1, updated_at = ?2, last_activity_at = ?2,
    finalized_at = iif(finalized_at IS NULL, NULL, ?2), duration_seconds = iif(finalized_at IS NULL, NULL, ?3)
WHERE pk = ?4
"""


def _write(db: Connection, planned: _Planned, session: Session, log: _Log, events: _Table) -> _Log:
    pk = heads.insert(db, session, family=planned.family)
    assert pk == planned.n, "keys are given out in order"
    entries = log.entries(_events_of(db, log.old_id, events))
    while chunk := list(islice(entries, _CHUNK)):
        heads.add_entries(db, pk, session.owner, chunk)
    db.execute(_FINISH, (log.number, log.last_at, round((log.last_at - planned.at) / 1e6, 3), pk))
    return log


def _events_of(db: Connection, old_id: Any, table: _Table) -> Iterator[dict[str, Any]]:
    """A session's events in the order they were written."""
    if table is NO_TABLE:
        return
    sql = f"SELECT {table.columns('e')} FROM {table.name} e WHERE e.session_id = ? ORDER BY e.rowid"
    for row in db.execute(sql, (old_id,)):
        yield dict(zip(table.keys, row, strict=True))


class _Tally:
    """Counts along."""

    def __init__(self) -> None:
        self.sessions = self.children = self.orphaned = self.cycles = self.new_ids = self.left_names = 0
        self.messages = self.events = self.left_events = 0

    def count(self, planned: _Planned, old: dict[str, Any], session: Session, log: _Log) -> None:
        """One more session."""
        self.sessions += 1
        self.children += planned.parent is not None
        self.orphaned += ORPHANED in session.metadata
        self.cycles += planned.is_cut
        self.new_ids += session.session_id != old["session_id"]
        self.left_names += session.session_name is None and _given(old.get("session_name")) is not None
        self.messages += log.messages
        self.events += log.events

    def told(self, renamed: dict[str, str]) -> BroughtIn:
        """The numbers."""
        return BroughtIn(tables=renamed, **vars(self))


# Heads ------------------------------------------------------------------------------------------


def _session_of(planned: _Planned, old: dict[str, Any]) -> Session:
    state, at = _state_of(old.get("status")), instant(planned.at)
    is_final = state in FINAL_STATES
    session = Session(
        session_id=planned.id,
        task_id=planned.id,
        root_session_id=planned.root_id,
        created_at=at,
        updated_at=at,
        last_activity_at=at,
        session_name=planned.name,
        agent_name=_passing(lambda text: check_label("agent_name", text), old.get("agent_name")),
        project_dir=_passing(lambda text: check_text("project_dir", text), old.get("project_dir")),
        state=state,
        phase=Phase(state.value) if is_final else Phase.INITIALIZING,
        parent_session_id=planned.parent_id,
        parent_session_name=_name_of_parent(planned, old),
        depth=planned.depth,
        version=2 if is_final else 1,
        finalized_at=at if is_final else None,
    )
    return replace(session, metadata=_metadata(session, old))


def _passing(check: Callable[[str], str], value: object) -> str | None:
    """The value, if it is a text that the check lets through."""
    try:
        return check(value) if isinstance(value, str) else None
    except MoorageError:
        return None


def _parent_given(old: dict[str, Any]) -> object:
    """What the row says of its parent: its name, or else its id."""
    return _given(old.get("parent_session_name")) or _given(old.get("parent_session_id"))


def _name_of_parent(planned: _Planned, old: dict[str, Any]) -> str | None:
    name = _parent_given(old) if planned.parent is None else planned.parent_name
    return name if isinstance(name, str) and looks_like_ref(name) else None


_SHOWN = ("session_id", "session_name", "agent_name", "project_dir", "parent_session_id", "parent_session_name")


def _metadata(session: Session, old: dict[str, Any]) -> dict[str, Any]:
    """Every column that the session does not show by itself, and whether its parent is missing."""
    rest = {name: _plain(value) for name, value in old.items() if _given(value) is not None}
    for name in _SHOWN:
        if name in rest and rest[name] == getattr(session, name):
            del rest[name]
    if micros_of(old.get("created_at")) is not None:
        del rest["created_at"]
    metadata: dict[str, Any] = {"legacy": _within_limit(rest)}
    if session.parent_session_id is None and _parent_given(old) is not None:
        metadata[ORPHANED] = True
    return metadata


def _within_limit(values: dict[str, Any]) -> dict[str, Any]:
    """As much as metadata may hold, short ones first; what is too long stays in its table, and is named."""
    kept: dict[str, Any] = {}
    room = MAX_METADATA_BYTES // 2
    for name, value in sorted(values.items(), key=lambda item: len(encode(item[1]))):
        room -= len(encode({name: value}))
        if room < 0:
            return {**kept, "too_long": True}
        kept[name] = value
    return kept


def _plain(value: Any) -> Any:
    """A value of SQLite's as JSON."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


# Logs -------------------------------------------------------------------------------------------


class _Log:
    """A session's log, numbered as it is written."""

    def __init__(self, session: Session, old: dict[str, Any]) -> None:
        self.old_id = old["session_id"]
        self.number = self.messages = self.events = 0
        self._session = session
        self._at = micros(session.created_at)
        self.last_at = max(self._at, micros_of(old.get("last_resumed_at")) or 0)

    def entries(self, events: Iterator[dict[str, Any]]) -> Iterator[Entry]:
        """How it began, what happened, how it ended."""
        yield self._entry(Kind.CREATED, data={"agent_name": self._session.agent_name, "purpose": None})
        for event in events:
            self._at = micros_of(event.get("timestamp")) or self._at  # one without a time: right after the last
            self.last_at = max(self.last_at, self._at)
            yield self._entry_of(event)
        if self._session.is_final:
            self._at = self.last_at
            outcome = self._session.state.value
            yield self._entry(Kind.FINALIZED, data={"outcome": outcome, "summary": None})

    def _entry_of(self, event: dict[str, Any]) -> Entry:
        if (said := _message(event)) is not None:
            self.messages += 1
            return self._entry(Kind.MESSAGE, role=said[0], content=said[1])
        self.events += 1
        data = {name: _readable(value) for name, value in event.items() if value is not None and name != "session_id"}
        return self._entry(EVENT, data=data)

    def _entry(self, kind: str, **what: Any) -> Entry:
        self.number += 1
        return Entry(self.number, str(kind), instant(self._at), **what)


def _message(event: dict[str, Any]) -> tuple[str, str | list[dict[str, Any]]] | None:
    """Role and content of an event that is something said; None for anything else."""
    role, content = event.get("role"), event.get("content")
    if role not in ROLES or not isinstance(content, str):
        return None
    content = _decoded(content, '["')
    if isinstance(content, list) and len(content) == 1 and _is_plain_text(content[0]):
        content = content[0]["text"]
    try:
        message = check_message({"role": role, "content": content})
    except MoorageError:
        return None
    return message.role, message.content


def _is_plain_text(part: object) -> bool:
    return isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "text"


def _readable(value: Any) -> Any:
    """A column of an event: an object or a list, if it is JSON of one."""
    return _decoded(value, "{[") if isinstance(value, str) else _plain(value)


def _decoded(text: str, begins: str) -> Any:
    """What JSON that begins so stands for; the text itself if it is none, or more than we store."""
    if not text or text[0] not in begins:
        return text
    try:
        value = decode(text)
        check_json(value, "content")
    except (DecodeError, MoorageError, RecursionError):
        return text
    return value


# Times ------------------------------------------------------------------------------------------

_SCALES = ((1e11, 1_000_000), (1e14, 1_000), (1e17, 1))  # below which a number counts seconds, milli-, microseconds


def micros_of(value: object) -> int | None:
    """An instant as others write it: ISO 8601 in any shape, UTC if it says no zone; or a number since 1970."""
    try:
        found = _from_text(value.strip()) if isinstance(value, str) else _from_number(value)
    except (ValueError, OverflowError):
        return None
    return found if found is not None and 0 < found < _LAST else None


def _from_text(text: str) -> int:
    if "-" not in text[1:] and "/" not in text:
        return _from_number(float(text)) or 0
    at = datetime.fromisoformat(text.replace("/", "-").replace(" UTC", "+00:00").replace(" +", "+"))
    return micros(at if at.tzinfo is not None else at.replace(tzinfo=UTC))


def _from_number(number: object) -> int | None:
    if not isinstance(number, (int, float)):
        return None
    return int(number * next((scale for below, scale in _SCALES if number < below), 1e-3))
