"""The floor: what a competent hand writes on plain tables, with the same durability and nothing more.

apsw, WAL, synchronous=FULL, foreign keys on, integer keys, one BEGIN IMMEDIATE … COMMIT and so one
fsync for each acknowledged turn. It keeps to the minimum on purpose: an append inserts the messages
and touches nothing else, an integer key is at hand where a caller of moorage has a text id, and no
rule is checked. A session's row has the columns a caller of moorage gets, so lists compare like with like.
"""

from __future__ import annotations

import asyncio
import queue
import random
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import apsw
import msgspec

from bench import material
from bench.contender import Contender
from bench.material import Message

COLUMNS = (
    "session_id session_name task_id agent_name purpose project_dir owner state status phase resume_ready interface "
    "parent_session_id parent_session_name root_session_id depth forked_from version last_entry error_count last_error "
    "metadata created_at updated_at last_activity_at expires_at finalized_at duration_seconds summary hold "
    "pending_approvals"
).split()
_INTEGERS = {"resume_ready", "depth", "version", "last_entry", "error_count", "duration_seconds", "pending_approvals"}
_INTEGERS |= {name for name in COLUMNS if name.endswith("_at")}
_VERDICT_COLUMNS = "state, phase, resume_ready, last_activity_at, error_count, hold, version, last_entry"
_METADATA = COLUMNS.index("metadata")
_BATCH = 64
_PATIENCE = 20_000  # waits before a writer gives up: some twenty seconds
_SEED_CHUNK = 10_000

SCHEMA = f"""
CREATE TABLE sessions (
    key INTEGER PRIMARY KEY,
    parent INTEGER REFERENCES sessions (key),
    {", ".join(f"{name} {'INTEGER' if name in _INTEGERS else 'TEXT'}" for name in COLUMNS)},
    UNIQUE (session_id)
) STRICT;
CREATE INDEX sessions_by_agent ON sessions (agent_name, key);
CREATE INDEX sessions_by_name ON sessions (session_name) WHERE session_name IS NOT NULL;
CREATE INDEX sessions_by_parent ON sessions (parent) WHERE parent IS NOT NULL;
CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (key),
    number INTEGER NOT NULL,
    role TEXT NOT NULL,
    content TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX messages_by_session ON messages (session, number);
CREATE VIRTUAL TABLE found USING fts5 (content, content='', contentless_delete=1);
CREATE TABLE indexed (last INTEGER NOT NULL) STRICT;
INSERT INTO indexed VALUES (0);
"""

INSERT_SESSION = f"INSERT INTO sessions (parent, {', '.join(COLUMNS)}) VALUES (?, {', '.join('?' for _ in COLUMNS)})"
_INSERT_MESSAGE = "INSERT INTO messages (session, number, role, content, created_at) VALUES (?, ?, ?, ?, ?)"
_TREE = """
WITH RECURSIVE tree (key, depth) AS (
    SELECT ?, 0 UNION ALL SELECT child.key, tree.depth + 1 FROM tree JOIN sessions AS child ON child.parent = tree.key
) SELECT key FROM tree ORDER BY depth DESC
"""


class Handle(NamedTuple):
    """Both names of a session: inside and outside."""

    key: int
    session_id: str


class Floor(Contender):
    """The plain tables on one connection."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.db = connect(folder / "floor.db")

    def create(self, *, agent: str = "agent-00", name: str | None = None, parent: Handle | None = None) -> Handle:
        session_id = str(uuid.uuid4())
        with self.db:
            self.db.execute(INSERT_SESSION, row_of(session_id, agent, name, parent))
        return Handle(self.db.last_insert_rowid(), session_id)

    def append(self, session: Handle, messages: Sequence[Message]) -> Any:
        with self.db:
            insert_messages(self.db, session.key, messages)

    def last(self, session: Handle, count: int) -> list[dict[str, Any]]:
        rows = self.db.execute(
            "SELECT number, role, content, created_at FROM messages WHERE session = ? ORDER BY number DESC LIMIT ?",
            (session.key, count),
        ).fetchall()
        rows.reverse()
        return [{"number": row[0], "role": row[1], "content": row[2], "created_at": row[3]} for row in rows]

    def newest(self, agent: str, count: int) -> list[dict[str, Any]]:
        rows = self.db.execute(
            f"SELECT {', '.join(COLUMNS)} FROM sessions WHERE agent_name = ? ORDER BY key DESC LIMIT ?", (agent, count)
        )
        return [as_dict(row) for row in rows]

    def verdict(self, session: Handle) -> Any:
        return self.db.execute(
            f"SELECT {_VERDICT_COLUMNS} FROM sessions WHERE session_id = ?", (session.session_id,)
        ).fetchone()

    def find(self, name: str) -> Any:
        row = self.db.execute(f"SELECT {', '.join(COLUMNS)} FROM sessions WHERE session_name = ?", (name,)).fetchone()
        return row and as_dict(row)

    def delete(self, session: Handle) -> Any:
        with self.db:
            self._delete([(key,) for (key,) in self.db.execute(_TREE, (session.key,))])

    def _delete(self, keys: Sequence[tuple[Any, ...]]) -> None:
        self.db.executemany("DELETE FROM messages WHERE session = ?", keys)
        self.db.executemany("DELETE FROM sessions WHERE key = ?", keys)

    def search(self, words: str) -> list[Any]:
        while self._index_chunk():
            pass
        return self.db.execute("SELECT rowid FROM found (?) LIMIT 20", (words,)).fetchall()

    def _index_chunk(self) -> int:
        """Index the next 500 messages: small chunks leave the write lock to others in between."""
        with self.db:
            ((last,),) = self.db.execute("SELECT last FROM indexed").fetchall()
            rows = self.db.execute(
                "SELECT id, content FROM messages WHERE id > ? ORDER BY id LIMIT 500", (last,)
            ).fetchall()
            if rows:
                self.db.executemany("INSERT INTO found (rowid, content) VALUES (?, ?)", rows)
                self.db.execute("UPDATE indexed SET last = ?", (rows[-1][0],))
        return len(rows)

    def cleanup(self) -> int:
        with self.db:
            keys = self.db.execute(
                "SELECT key FROM sessions WHERE state IN ('completed', 'failed', 'abandoned') AND updated_at <= ?",
                (_now(),),
            ).fetchall()
            self._delete(keys)
        return len(keys)

    def stored(self, session: Handle) -> Any:
        return self.db.execute("SELECT count(*) FROM messages WHERE session = ?", (session.key,)).get

    def make_ready(self, session: Handle) -> None:
        self.db.execute(
            "UPDATE sessions SET phase = 'planning', resume_ready = 1 WHERE session_id = ?", (session.session_id,)
        )

    def finalize(self, session: Handle) -> None:
        self.db.execute(
            "UPDATE sessions SET state = 'completed', finalized_at = ? WHERE key = ?", (_now(), session.key)
        )

    def seeded(self, number: int) -> Handle:
        return Handle(number + 1, material.seeded_id(number))

    @classmethod
    def seed(cls, folder: Path, count: int) -> None:
        floor = cls(folder)
        now = _now()
        for start in range(0, count, _SEED_CHUNK):
            rows = (_seeded_row(number, count, now) for number in range(start, min(start + _SEED_CHUNK, count)))
            with floor.db:
                floor.db.executemany(INSERT_SESSION, rows)
        floor.close()

    def close(self) -> None:
        self.db.close()
        super().close()


class GroupCommit(Floor):
    """The floor under many tasks: one writer thread commits whatever is waiting, 64 at most, with one fsync."""

    awaits: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._waiting: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    async def create(self, *, agent: str = "agent-00", name: str | None = None, parent: Handle | None = None) -> Handle:
        session_id = str(uuid.uuid4())
        row = row_of(session_id, agent, name, parent)

        def insert() -> Handle:
            self.db.execute(INSERT_SESSION, row)
            return Handle(self.db.last_insert_rowid(), session_id)

        made: Handle = await self._written(insert)
        return made

    async def append(self, session: Handle, messages: Sequence[Message]) -> None:
        await self._written(lambda: insert_messages(self.db, session.key, messages))

    async def last(self, session: Handle, count: int) -> list[dict[str, Any]]:
        """Read on the thread of the loop: plain SQL."""
        return super().last(session, count)

    async def _written(self, job: Callable[[], Any]) -> Any:
        done = asyncio.get_running_loop().create_future()
        self._waiting.put((job, done))
        return await done

    def _write(self) -> None:
        while first := self._waiting.get():
            batch = [first]
            while len(batch) < _BATCH and not self._waiting.empty() and (following := self._waiting.get()):
                batch.append(following)
            with self.db:
                results = [job() for job, _ in batch]
            batch[0][1].get_loop().call_soon_threadsafe(_resolve, [done for _, done in batch], results)

    def close(self) -> None:
        self._waiting.put(None)
        self._writer.join()
        super().close()


def connect(path: Path) -> apsw.Connection:
    """Open with the promised durability, and read every pragma back: a setting that did not take is no floor."""
    db = apsw.Connection(str(path))
    db.set_busy_handler(_wait_a_little)
    db.transaction_mode = "IMMEDIATE"  # what `with db:` begins
    for name, value, expected in (("journal_mode", "wal", "wal"), ("synchronous", "full", 2), ("foreign_keys", 1, 1)):
        db.pragma(name, value)
        if db.pragma(name) != expected:
            raise RuntimeError(f"{name} is {db.pragma(name)!r}, not {expected!r}")
    if not db.execute("SELECT 1 FROM sqlite_schema").fetchone():
        db.execute(SCHEMA).fetchall()
    return db


def _wait_a_little(waits: int) -> bool:
    """Come back after a random while: four processes get a quarter more done than with SQLite's own timeout."""
    time.sleep(random.uniform(0.0002, 0.002))
    return waits < _PATIENCE


def insert_messages(db: apsw.Connection, key: int, messages: Sequence[Message]) -> int:
    """Number the messages after the last one and insert them, inside the caller's transaction; the number before."""
    last: int = db.execute("SELECT coalesce(max(number), 0) FROM messages WHERE session = ?", (key,)).get
    now = _now()
    db.executemany(
        _INSERT_MESSAGE,
        [(key, last + place, each["role"], each["content"], now) for place, each in enumerate(messages, 1)],
    )
    return last


def row_of(
    session_id: str, agent: str, name: str | None, parent: Handle | None, now: int | None = None
) -> tuple[Any, ...]:
    """A new session as its columns, the key of its parent before them."""
    now = now or _now()
    values: dict[str, Any] = {
        "session_id": session_id,
        "session_name": name,
        "task_id": session_id,
        "agent_name": agent,
        "purpose": material.PURPOSE,
        "owner": "local",
        "state": "created",
        "status": "created",
        "phase": "initializing",
        "resume_ready": 0,
        "interface": "python",
        "parent_session_id": parent and parent.session_id,
        "root_session_id": session_id,
        "depth": 0,
        "version": 1,
        "last_entry": 0,
        "error_count": 0,
        "metadata": _encode(material.METADATA),
        "created_at": now,
        "updated_at": now,
        "last_activity_at": now,
        "pending_approvals": 0,
    }
    return (parent and parent.key, *map(values.get, COLUMNS))


def _seeded_row(number: int, total: int, now: int) -> tuple[Any, ...]:
    return row_of(material.seeded_id(number), material.agent(number, total), material.seeded_name(number), None, now)


def as_dict(row: tuple[Any, ...]) -> dict[str, Any]:
    session = dict(zip(COLUMNS, row, strict=True))
    session["metadata"] = _decode(row[_METADATA])
    return session


def _resolve(futures: list[asyncio.Future[Any]], results: list[Any]) -> None:
    for each, result in zip(futures, results, strict=True):
        each.set_result(result)


def _now() -> int:
    return time.time_ns() // 1_000


_decode: Callable[[str], Any] = msgspec.json.Decoder().decode
_encoder = msgspec.json.Encoder()


def _encode(value: Any) -> str:
    return _encoder.encode(value).decode()
