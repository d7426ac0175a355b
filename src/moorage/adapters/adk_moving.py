"""Moving in: sessions and state of Google ADK's own services, from SQLite or PostgreSQL.

Databases from before ADK wrote events as JSON contain pickled events, which are never opened here: `adk migrate
session` converts them.
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

from google.adk.events.event import Event

from moorage.adapters.adk import MoorageSessionService, Parts
from moorage.adapters.channel import ConnectTarget
from moorage.adapters.foreign_ids import session_id_of
from moorage.adapters.moving import Tables, leave_out, tables_of
from moorage.core.errors import InvalidField
from moorage.service.transfer import ImportReport

SESSIONS = "SELECT app_name, user_id, id, state, update_time FROM sessions ORDER BY update_time"
EVENTS = """
    SELECT id, event_data FROM events WHERE app_name = $1 AND user_id = $2 AND session_id = $3 ORDER BY timestamp, {tie}
"""
STATES = "SELECT app_name, NULL, state FROM app_states UNION ALL SELECT app_name, user_id, state FROM user_states"


def move_in(target: ConnectTarget, source: str, *, dry_run: bool = False) -> ImportReport:
    """Import all sessions of a file or of a PostgreSQL URL, and states of apps and users that do not exist yet."""
    with tables_of(source, "Google ADK", {"sessions", "events", "app_states", "user_states"}) as tables:
        if "event_data" not in tables.columns("events"):
            raise InvalidField(
                "import", f"{tables.shown!r} has events of an older ADK; run `adk migrate session` first"
            )
        return asyncio.run(_move_all(target, tables, dry_run))


async def _move_all(target: ConnectTarget, tables: Tables, dry_run: bool) -> ImportReport:
    report = ImportReport()
    async with MoorageSessionService(target) as service:
        for app, user, name, state, at in tables.stream(SESSIONS):
            parts = (app, user, name)
            if await service.get_session(app_name=app, user_id=user, session_id=name) is not None:
                report.already_there.append(session_id_of(*parts))
                continue
            events = _events(tables, parts, report)
            if not dry_run:
                await service.restore(parts, json.loads(state), _seconds(at), events)
            report.imported.append(session_id_of(*parts))
            report.entries += len(events)
        for app, user, state in [] if dry_run else tables.stream(STATES):
            await service.restore_state(app, user, json.loads(state))
    return report


def _events(tables: Tables, parts: Parts, report: ImportReport) -> list[Event]:
    events = []
    sql = EVENTS.format(tie="id" if tables.is_postgres else "rowid")  # ADK's own order of events with the same time
    for event_id, text in tables.rows(sql, *parts):
        try:
            events.append(Event.model_validate_json(text))
        except ValueError as error:
            leave_out(report, tables, f"session {parts[2]}, event {event_id}: {error}")
    return events


def _seconds(at: Any) -> float:
    """Return a time since 1970: ADK's SQLite service writes seconds, the one for databases a time in UTC."""
    if isinstance(at, (int, float)):
        return float(at)
    return (datetime.fromisoformat(at) if isinstance(at, str) else at).replace(tzinfo=UTC).timestamp()
