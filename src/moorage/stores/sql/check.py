"""Consistency checks of stored data. Checks of one database alone are in its `care` module."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from moorage.core.errors import MoorageError, StoreCorrupt
from moorage.stores import SEALED
from moorage.stores.rows import WHOLE_ITEM_OF_T, Row
from moorage.stores.session_rows import head_columns, session_of
from moorage.stores.sql.db import Db, Migration, Query, Walk
from moorage.stores.sql.lookup import OF_SESSION
from moorage.stores.sql.sealed import unopened
from moorage.stores.work_rows import item_of, run_of, turn_of

_GAPS, _NOT_JSON = Query("gaps"), Query("not_json")
_SAYS_GAPS = "session {} should have {} entries of its own, numbered without gaps, and has {}"
_SAYS_NOT_JSON = "entry {} of session {} is not JSON"
# By whether it is PostgreSQL: the condition that a text is JSON, and a body as JSON.
_WORDS = {False: {"is_json": "json_valid", "body": "t.body"}, True: {"is_json": "moor.is_json", "body": "t.body::json"}}
_SAYS = "CASE WHEN {{is_json}}(t.body) THEN {{body}} ->> '{}' END"
_EPOCH, _STATE = _SAYS.format("epoch"), _SAYS.format("state")
_RUNNING = "(SELECT id FROM moor.turns t WHERE t.owner = s.owner AND t.session = s.pk AND t.state = 'running')"
# Denormalized values must agree, and final states must have no open work.
_CONTRADICTIONS = {
    "session {} says its live turn is {}, and {} is": (
        f"SELECT s.id, coalesce(s.live_turn, 'none'), coalesce({_RUNNING}, 'none') FROM moor.sessions s "
        f"WHERE s.live_turn IS DISTINCT FROM {_RUNNING} LIMIT 20"
    ),
    "session {} says wrongly whether something waits for a turn of it": (
        "SELECT s.id FROM moor.sessions s WHERE s.waits <> (s.launched AND EXISTS (SELECT 1 FROM moor.inbox t "
        "WHERE t.owner = s.owner AND t.session = s.pk AND t.state = 'waiting' AND t.state <> 'consumed')) LIMIT 20"
    ),
    "turn {} has an epoch that its session has not reached": (
        f"SELECT t.id FROM moor.turns t {OF_SESSION} WHERE CAST({_EPOCH} AS bigint) > s.epoch LIMIT 20"
    ),
    "run {} is {} in a list, and says otherwise itself": (
        f"SELECT t.id, t.state FROM moor.runs t WHERE t.state <> {_STATE} LIMIT 20"
    ),
    "turn {} is {} in a list, and says otherwise itself": (
        f"SELECT t.id, t.state FROM moor.turns t WHERE t.state <> {_STATE} LIMIT 20"
    ),
    "run {} is open in session {}, which is closed": (
        f"SELECT t.id, s.id FROM moor.runs t {OF_SESSION} "
        "WHERE t.state IN ('queued', 'running') AND s.finalized_at IS NOT NULL LIMIT 20"
    ),
    "item {} of session {} is given to a turn that does not run": (
        f"SELECT t.id, s.id FROM moor.inbox t {OF_SESSION} "
        "WHERE t.state = 'given' AND t.turn IS DISTINCT FROM s.live_turn LIMIT 20"
    ),
}


async def check(db: Db, migrations: Iterable[Migration]) -> list[str]:
    """Return the problems found, as text; `migrations` are those of this release."""
    known = {migration.number: migration.checksum for migration in migrations}
    applied = await db.all("SELECT number, name, checksum FROM moor.migrations")
    edited = [name for number, name, checksum in applied if known.get(number, checksum) != checksum]
    problems = [f"migration {name} was edited after it was applied" for name in edited]
    for text, sql in {_SAYS_GAPS: _GAPS(db), _SAYS_NOT_JSON: _NOT_JSON(db), **_CONTRADICTIONS}.items():
        problems += [text.format(*row) for row in await db.all(sql.format(**_WORDS[db.is_postgres]))]
    return problems + await _unreadable(db) + await unopened(db)


CHUNK = 1000  # rows read at a time

Read = Callable[[Db, Row], Any]
_READERS: dict[str, tuple[str, Read]] = {  # by table, its columns behind id and state, and how they are read
    "sessions": (head_columns("t", "moor."), lambda db, row: session_of(row, db.opener)),
    "runs": ("t.body, t.id, s.id", run_of),
    "turns": ("t.body, t.id, s.id", turn_of),
    "inbox": (f"{WHOLE_ITEM_OF_T}, s.id", lambda db, row: item_of(db, row[:-1], row[-1])),
}


async def _unreadable(db: Db) -> list[str]:
    """Return the sessions, runs, turns and items that cannot be read, as text."""
    problems = []
    for table, (columns, read) in _READERS.items():
        source, key = ("sessions t", "t.pk") if table == "sessions" else (f"{table} t {OF_SESSION}", "t.n")
        walk = Walk(f"moor.{source}", key, f"t.id, t.state, {columns}")
        after, limit = None, CHUNK
        while True:
            try:
                rows = await walk.rows(db, after, limit)
            except StoreCorrupt:  # a text is not UTF-8: find its row
                if limit == 1:
                    [(after, (id_,))] = await walk._replace(columns="t.id").rows(db, after, 1)
                    problems.append(f"{table.removesuffix('s')} {id_} has a text that is not UTF-8")
                limit = CHUNK if limit == 1 else 1
                continue
            problems += [problem for key, row in rows if (problem := _problem(db, table, key, row, read))]
            if not rows:
                break
            after = rows[-1][0]
    return problems


def _problem(db: Db, table: str, key: Row, row: Row, read: Read) -> str | None:
    place = "" if table == "sessions" else f"row {key[-1]} of {table}: "
    try:
        value = read(db, row[2:])
    except MoorageError as error:
        return f"{place}{error.message}"
    if place and value.state.value != row[1] and row[2].startswith(SEALED):  # plain bodies are checked by a statement
        return f"{place}is {row[1]} in a list, and says otherwise itself"
    return None
