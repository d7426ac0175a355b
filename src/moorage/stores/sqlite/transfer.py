"""Bringing whole sessions in, and looking whether what is stored is whole."""

from __future__ import annotations

from moorage.core.bundle import Bundle, as_restored
from moorage.core.errors import MoorageError, ParentNotFound
from moorage.stores.session_rows import HEAD_WITH_PK, session_of
from moorage.stores.sql import lookup
from moorage.stores.sqlite import context, heads
from moorage.stores.sqlite.connection import BrokenText, Connection
from moorage.stores.sqlite.driven import Driven, drive
from moorage.stores.sqlite.migrate import edited_migrations

FEED_CHUNK = 500  # entries one row of the feed stands for, so that reading a page of it stays small


def restore(db: Connection, owner: str, bundle: Bundle) -> bool:
    """Insert a session as it was; False if it is there already."""
    new = as_restored(bundle.session, owner)
    if db.one("SELECT 1 FROM sessions WHERE owner = ? AND id = ?", (owner, new.session_id)):
        return False
    drive(lookup.check_not_spent(Driven(db), owner, new.session_id))
    family = _family(db, owner, new.parent_session_id)
    heads.check_names(db, owner, new)
    pk = heads.insert(db, new, family=family)
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

# Tables of an older orchestrator are kept as they were, whatever they refer to.
_DANGLING = r"""
SELECT "table", rowid, parent FROM pragma_foreign_key_check WHERE "table" NOT LIKE 'legacy\_%' ESCAPE '\'
"""


def check(db: Connection) -> list[str]:
    """Return what is wrong, in words."""
    from moorage.stores.sql.check import contradictions  # who looks at everything has the time

    problems = [f"integrity: {row[0]}" for row in db.all("PRAGMA integrity_check(20)") if row[0] != "ok"]
    problems += [f"{table} row {row} refers to a missing row of {target}" for table, row, target in db.all(_DANGLING)]
    problems += [f"migration {name} was edited after it was applied" for name in edited_migrations(db)]
    problems += drive(contradictions(Driven(db)))
    return problems + _unreadable(db) + _unreadable_work(db) + _unopened(db)


def _unreadable(db: Connection) -> list[str]:
    problems = []
    for (pk,) in db.execute("SELECT pk FROM sessions"):
        try:
            row = db.one(f"SELECT {HEAD_WITH_PK} FROM sessions WHERE pk = ?", (pk,))
            assert row is not None
            session_of(row, db.opener)
        except BrokenText:
            row = db.one("SELECT id FROM sessions WHERE pk = ?", (pk,))
            problems.append(f"session {row[0] if row else pk} has a text that is not UTF-8")
        except MoorageError as error:
            problems.append(error.message)
    return problems


def _unreadable_work(db: Connection) -> list[str]:
    if not any(db.one(f"SELECT 1 FROM {table} LIMIT 1") for table in ("runs", "turns", "inbox")):
        return []
    from moorage.stores.sqlite import work  # only stores that a launcher had to do with need it

    return work.unreadable(db)


def _unopened(db: Connection) -> list[str]:
    from moorage.stores.sqlite import sealed  # who looks at everything has the time

    return sealed.unreadable(db)
