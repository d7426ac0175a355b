"""Appending, the hot path: four statements for a history of any length."""

from __future__ import annotations

from moorage.core.entry import Entry, Message
from moorage.core.errors import HoldLost, SessionClosed, VersionConflict
from moorage.core.session import FINAL_STATES, HOLD_FOR, Stamp, State, as_said, message_entries, unsaid
from moorage.stores import sql
from moorage.stores.rows import micros
from moorage.stores.sql.lookup import SessionColumns, key_of, may_be_ref
from moorage.stores.sqlite.driven import Driven
from moorage.stores.sqlite.writes import add_entries

_HEAD = "SELECT pk, id, task, state, last_entry, hold_token, version FROM sessions WHERE owner = ? AND id = ?"
# With a live turn, the hold ends with its lease.
_RENEW = "UPDATE sessions SET hold_until = ? WHERE pk = ? AND live_turn IS NULL"
_ADVANCE = "UPDATE sessions SET last_entry = ?, last_activity_at = ?, updated_at = ? WHERE pk = ?"


async def append(
    owner: str, ref: str, messages: list[Message], stamp: Stamp, token: str | None, expected: int | None, jobs: Driven
) -> list[Entry]:
    """Append messages; for those whose client key was seen, return the earlier entries."""
    db = jobs.connection
    row = db.one(_HEAD, (owner, ref)) if may_be_ref(ref) else None
    if row is None:
        row = db.one(_HEAD, (owner, (await key_of(jobs, owner, ref)).session_id))
        assert row is not None
    pk, session_id, task, state, last, hold_token, version = row
    if expected is not None and expected != version:
        raise VersionConflict(session_id, expected, version)
    if state in FINAL_STATES:
        raise SessionClosed(session_id, state)
    if token is not None and token != hold_token:
        raise HoldLost(session_id)
    keys = [message.client_key for message in messages if message.client_key is not None]
    known = await sql.history.said_under(jobs, owner, SessionColumns(pk, session_id, task), keys) if keys else {}
    fresh = unsaid(messages, known) if known else messages
    entries = message_entries(fresh, stamp, last + 1, session_id, task)
    if entries:
        at = micros(stamp.at)
        db.execute(_ADVANCE, (last + len(entries), at, at, pk))
        if state == State.CREATED:
            db.execute("UPDATE sessions SET state = 'active' WHERE pk = ?", (pk,))
        if token is not None:
            db.execute(_RENEW, (micros(stamp.at + HOLD_FOR), pk))
        add_entries(db, pk, owner, entries)
    return as_said(messages, known, entries) if known else entries
