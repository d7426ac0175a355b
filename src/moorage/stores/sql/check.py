"""Looking whether what is stored agrees with itself. What only one of the databases can say is in its `transfer`."""

from __future__ import annotations

from moorage.stores.sql.db import Db
from moorage.stores.sql.lookup import OF_SESSION
from moorage.stores.sql.query import Query

_GAPS, _NOT_JSON = Query("gaps"), Query("not_json")
# By whether it is PostgreSQL: how it is asked whether a text is JSON, and a body as JSON.
_WORDS = {
    False: {"is_json": "json_valid", "body": "t.body"},
    True: {"is_json": "moor.is_json", "body": "t.body::json"},
}
_SAYS = "CASE WHEN {{is_json}}(t.body) THEN {{body}} ->> '{}' END"
_EPOCH, _STATE = _SAYS.format("epoch"), _SAYS.format("state")
_RUNNING = "(SELECT id FROM moor.turns t WHERE t.owner = s.owner AND t.session = s.pk AND t.state = 'running')"
# What is said twice, so that it is found quickly, must be said alike; and what is over must be over.
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


async def contradictions(db: Db) -> list[str]:
    """Return what is wrong, in words."""
    words, problems = _WORDS[db.is_postgres], list[str]()
    for session_id, expected, found in await db.all(_GAPS(db)):
        missing = f"{expected} entries of its own, numbered without gaps, and has {found}"
        problems.append(f"session {session_id} should have {missing}")
    for number, session_id in await db.all(_NOT_JSON(db)):
        problems.append(f"entry {number} of session {session_id} is not JSON")
    for text, sql in _CONTRADICTIONS.items():
        problems += [text.format(*row) for row in await db.all(sql.format(**words))]
    return problems
