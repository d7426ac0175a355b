"""Bringing whole sessions in, and looking whether what is stored is whole."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.core.bundle import Bundle
from holdfast.core.errors import HoldfastError, ParentNotFound
from holdfast.stores.sqlite import context, heads
from holdfast.stores.sqlite.connection import BrokenText, Connection
from holdfast.stores.sqlite.migrate import edited_migrations
from holdfast.stores.sqlite.rows import HEAD_WITH_PK, session_of

FEED_CHUNK = 500  # entries one row of the feed stands for, so that reading a page of it stays small


def restore(db: Connection, owner: str, bundle: Bundle) -> bool:
    """Insert a session as it was; False if it is there already."""
    new = replace(bundle.session, owner=owner)
    if db.one("SELECT 1 FROM sessions WHERE owner = ? AND id = ?", (owner, new.session_id)):
        return False
    heads.check_not_spent(db, owner, new.session_id)
    heads.check_names(db, owner, new)
    pk = heads.insert(db, new, family=_family(db, owner, new.parent_session_id))
    for start in range(0, len(bundle.entries), FEED_CHUNK):
        heads.add_entries(db, pk, owner, bundle.entries[start : start + FEED_CHUNK])
    context.put(db, pk, bundle.context)
    for approval in bundle.approvals:
        heads.write_approval(db, pk, owner, approval)
    return True


def _family(db: Connection, owner: str, parent_id: str | None) -> tuple[int | None, int | None]:
    if parent_id is None:
        return None, None
    sql = "SELECT pk, coalesce(root, pk) FROM sessions WHERE owner = ? AND id = ?"
    row = db.one(sql, (owner, parent_id))
    if row is None:
        raise ParentNotFound(parent_id)
    return row[0], row[1]


# Looking after it -------------------------------------------------------------------------------

_GAPS = """
SELECT s.id, s.last_entry - s.shared_upto, count(e.id)
FROM sessions s LEFT JOIN entries e ON e.segment = s.pk
GROUP BY s.pk HAVING count(e.id) <> s.last_entry - s.shared_upto
    OR coalesce(min(e.number), s.shared_upto + 1) <> s.shared_upto + 1
    OR coalesce(max(e.number), s.last_entry) <> s.last_entry
"""


def check(db: Connection) -> list[str]:
    """What is wrong, in words."""
    problems = [f"integrity: {row[0]}" for row in db.all("PRAGMA integrity_check(20)") if row[0] != "ok"]
    problems += [
        f"{row[0]} row {row[1]} refers to a missing row of {row[2]}" for row in db.all("PRAGMA foreign_key_check")
    ]
    problems += [f"migration {name} was edited after it was applied" for name in edited_migrations(db)]
    problems += [
        f"session {session_id} should have {expected} entries of its own, numbered without gaps, and has {found}"
        for session_id, expected, found in db.all(_GAPS)
    ]
    problems += [f"entry {number} of session {session_id} is not JSON" for session_id, number in db.all(_NOT_JSON)]
    return problems + _unreadable(db)


_NOT_JSON = """
SELECT coalesce(s.id, e.segment), e.number FROM entries e LEFT JOIN sessions s ON s.pk = e.segment
WHERE e.data IS NOT NULL AND NOT json_valid(e.data) LIMIT 20
"""


def _unreadable(db: Connection) -> list[str]:
    problems = []
    for (pk,) in db.execute("SELECT pk FROM sessions"):
        try:
            row = db.one(f"SELECT {HEAD_WITH_PK} FROM sessions WHERE pk = ?", (pk,))
            assert row is not None
            session_of(row)
        except BrokenText:
            row = db.one("SELECT id FROM sessions WHERE pk = ?", (pk,))
            problems.append(f"session {row[0] if row else pk} has a text that is not UTF-8")
        except HoldfastError as error:
            problems.append(error.message)
    return problems
