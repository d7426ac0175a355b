"""Looking whether what is stored agrees with itself. What only one of the databases can say is in its `transfer`."""

from __future__ import annotations

from moorage.stores.sql.db import Db
from moorage.stores.sql.lookup import OF_SESSION

# By whether it is PostgreSQL: how entries are found by their session, whether a text is JSON, and a body as JSON.
_WORDS = {
    False: {"of_session": "", "group": "s.pk", "is_json": "json_valid", "body": "t.body"},
    True: {
        "of_session": "e.owner = s.owner AND e.root = coalesce(s.root, s.pk) AND",
        "group": "s.owner, s.pk",
        "is_json": "moor.is_json",
        "body": "t.body::json",
    },
}
_SAYS = "CASE WHEN {{is_json}}(t.body) THEN {{body}} ->> '{}' END"
_EPOCH, _STATE = _SAYS.format("epoch"), _SAYS.format("state")
_RUNNING = "(SELECT id FROM moor.turns t WHERE t.owner = s.owner AND t.session = s.pk AND t.state = 'running')"
_GAPS = """
SELECT s.id, s.last_entry - s.shared_upto, count(e.number)
FROM moor.sessions s LEFT JOIN moor.entries e ON {of_session} e.segment = s.pk
GROUP BY {group} HAVING count(e.number) <> s.last_entry - s.shared_upto
    OR coalesce(min(e.number), s.shared_upto + 1) <> s.shared_upto + 1
    OR coalesce(max(e.number), s.last_entry) <> s.last_entry
"""
_NOT_JSON = """
SELECT e.number, coalesce(s.id, CAST(e.segment AS text)) FROM moor.entries e
LEFT JOIN moor.sessions s ON {of_session} s.pk = e.segment
WHERE e.data IS NOT NULL AND substr(e.data, 1, 1) <> '~' AND NOT {is_json}(e.data) LIMIT 20
"""
# What is said twice, so that it is found quickly, must be said alike; and what is over must be over.
_PROBLEMS = {
    "session {} should have {} entries of its own, numbered without gaps, and has {}": _GAPS,
    "entry {} of session {} is not JSON": _NOT_JSON,
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
    words = _WORDS[db.is_postgres]
    return [text.format(*row) for text, sql in _PROBLEMS.items() for row in await db.all(sql.format(**words))]
