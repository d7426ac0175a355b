"""Changes as the SQL function `commit_changes` takes them: one JSON value, one statement, one round trip."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from moorage.core.approval import Approval
from moorage.core.context import ContextItem
from moorage.core.entry import Entry
from moorage.core.errors import IdTaken, KeyReused, NameTaken
from moorage.core.session import Change, Session, View
from moorage.stores.postgres.connection import Connection, Refused
from moorage.stores.rows import ENTRY, Row, entry_row, instant, json_text, kept, micros, micros_or_none
from moorage.stores.session_rows import ALL, CHANGING, PLACE, place_of
from moorage.stores.sql import context
from moorage.stores.sql.db import Stale

TYPE_CHECKING = False
if TYPE_CHECKING:
    from moorage.core.once import Once

FEED_CHUNK = 500  # entries one row of the feed stands for, so that reading a page of it stays small
_ENTRY = ENTRY.split(", ")
_CONTENT = _ENTRY.index("content")  # and `data` right behind it
_encode = msgspec.json.Encoder().encode

Written = dict[str, Any]  # one session's part of a commit


Guard = tuple[int, int]  # the key and the revision of a session that must not change before the commit

_WRITE = "SELECT moor.commit_changes(?1)"
# The lock waits for whoever is changing the session, and finds no row if they do.
_GUARDED = f"""
{_WRITE} FROM (SELECT FROM moor.sessions WHERE owner = ?2 AND pk = ?3 AND revision = ?4 FOR SHARE) unchanged
"""


async def commit(
    db: Connection,
    owner: str,
    changes: list[Written],
    once: Once | None = None,
    *,
    room: Written | None = None,
    guard: Guard | None = None,
) -> int:
    """Commit all of it or nothing; the key of the first session.

    Raises Stale if somebody was faster, if the session of `guard` has changed, or if there might not be `room` for
    another session in a family.
    """
    payload: dict[str, Any] = {"owner": owner, "changes": changes}
    if room is not None:
        payload["room"] = room
    if once is not None:
        payload["once"] = _once(once)
    try:
        body = _encode(payload).decode()
        rows = await (
            db.commit_one(_WRITE, (body,)) if guard is None else db.commit_one(_GUARDED, (body, owner, *guard))
        )
    except Refused as refusal:
        raise _refusal(refusal, changes, once) from refusal
    if not rows:
        raise Stale("the session that asks has changed")
    return int(rows[0][0])


def _refusal(refusal: Refused, changes: list[Written], once: Once | None) -> Exception:
    new: dict[str, Any] = changes[0].get("new", {})
    if refusal.code == "MR003":
        return IdTaken(new["id"], spent=refusal.detail == "spent")
    if refusal.code == "MR004":
        return NameTaken(new["name"], refusal.detail)
    if refusal.code == "MR005":
        return KeyReused(refusal.detail)
    assert refusal.code == "MR002"
    assert once is not None
    return _repeated(refusal.detail, once)


def _repeated(detail: str, once: Once) -> Exception:
    from moorage.core.once import Once

    row = msgspec.json.decode(detail)
    known = Once(row["operation"], row["key"], row["digest"], row["ref"], instant(row["at"]))
    try:
        known.check_repeats(once)
    except Exception as error:
        return error
    raise AssertionError("a request that repeats another is always told so")


def _once(once: Once) -> dict[str, Any]:
    from moorage.core.once import KEPT_FOR

    return {
        "operation": once.operation, "key": once.key, "digest": once.digest, "ref": once.ref, "at": micros(once.at),
        "old": micros(once.at - KEPT_FOR),
    }  # fmt: skip


# Sessions ---------------------------------------------------------------------------------------


def changed(db: Connection, pk: int, revision: int, view: View, change: Change) -> Written:
    """A session that was there, with all that comes with its change."""
    written = head(db, pk, revision, change.session) if change.session != view.session else unmoved(pk, revision)
    return with_pins(written | came_with(db, view, change))


def head(db: Connection, pk: int, revision: int, new: Session) -> Written:
    """A session's head as it is now."""
    columns = zip(CHANGING.names, CHANGING.values(new, db.sealer), strict=True)
    return {"pk": pk, "revision": revision, "head": {**dict(columns), "has_pins": False}}


def unmoved(pk: int, revision: int) -> Written:
    """A session whose head stays as it is."""
    return {"pk": pk, "revision": revision}


def made(
    db: Connection, new: Session, *, family: tuple[int | None, int | None] = (None, None), shared_upto: int = 0
) -> Written:
    """A session that was not there."""
    place = zip(PLACE, place_of(new, family, shared_upto), strict=True)
    columns = zip(ALL.names, ALL.values(new, db.sealer), strict=True)
    return {"new": {**dict(columns), **dict(place), "has_pins": False}}


def came_with(db: Connection, view: View, change: Change) -> Written:
    """Entries, approvals, runs, turns and items of a change."""
    written: Written = {}
    if change.entries:
        written |= entries(db, change.entries)
    if change.approvals:
        written["approvals"] = approvals(db, change.approvals)
    if change.runs or change.turns or change.items:
        from moorage.stores.postgres import work  # only sessions that a launcher has to do with need it

        written["work"] = work.written(db, view, change)
    return written


def with_pins(written: Written) -> Written:
    """Let the head say that there may be something to look for; where the head stays, its other columns do."""
    head = written.get("new") or written.get("head")
    if head is not None:
        head["has_pins"] = head["has_pins"] or _has_pins(written.get("entries", ()))
    return written


def _has_pins(rows: Iterable[Mapping[str, Any]]) -> bool:
    return any(row["kind"] in ("system", "summary") for row in rows)


def entries(db: Connection, new: Sequence[Entry]) -> Written:
    """Entries with consecutive numbers, and their place in the feed."""
    rows = [dict(zip(_ENTRY, row_of(entry, db), strict=True)) for entry in new]
    chunks = [new[start : start + FEED_CHUNK] for start in range(0, len(new), FEED_CHUNK)]
    return {"entries": rows, "arrivals": [(chunk[-1].number, len(chunk)) for chunk in chunks]}


def row_of(entry: Entry, db: Connection) -> Row:
    """An entry as the columns of ENTRY. PostgreSQL has no text with NUL in it: where one comes, it is kept as JSON."""
    row = entry_row(entry, 0, micros(entry.at), db.sealer)[1:]
    if row[_CONTENT] is not None and "\0" in row[_CONTENT]:
        row = (*row[:_CONTENT], None, json_text(row[_CONTENT]), *row[_CONTENT + 2 :])
    return row


def approvals(db: Connection, changed: Iterable[Approval]) -> list[dict[str, Any]]:
    """Approvals as they stand now."""
    return [
        {
            "id": approval.approval_id,
            "state": approval.state.value,
            "expires_at": micros_or_none(approval.expires_at),
            "body": kept(db.sealer, json_text(approval), "approval", approval.approval_id),
        }
        for approval in changed
    ]


def context_items(db: Connection, pk: int, values: Mapping[str, ContextItem]) -> list[dict[str, Any]]:
    """Items of a context as they are."""
    names = ("key", "value", "version", "updated_at", "expires_at")
    return [dict(zip(names, context.row_of(db, pk, key, item), strict=True)) for key, item in values.items()]
