"""Moving in: sessions of the OpenAI Agents SDK's SQLiteSession and, from PostgreSQL, of its SQLAlchemySession."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from moorage.adapters.channel import ConnectTarget
from moorage.adapters.foreign_ids import session_id_of
from moorage.adapters.moving import Tables, leave_out, tables_of
from moorage.adapters.openai_agents import MoorageSession
from moorage.core.record import MAX_MESSAGES
from moorage.service.transfer import ImportReport

SESSIONS = "SELECT session_id FROM agent_sessions ORDER BY created_at, session_id"
ITEMS = "SELECT id, message_data FROM agent_messages WHERE session_id = $1 ORDER BY id"


def move_in(target: ConnectTarget, source: str, *, dry_run: bool = False) -> ImportReport:
    """Import all sessions of a file or of a PostgreSQL URL.

    Of a session imported before, import only later items.
    """
    report = ImportReport()
    with tables_of(source, "OpenAI's sessions", {"agent_sessions", "agent_messages"}) as tables:
        for (session_id,) in tables.stream(SESSIONS):
            asyncio.run(_move(target, tables, session_id, report, dry_run))
    return report


async def _move(target: ConnectTarget, tables: Tables, session_id: str, report: ImportReport, dry_run: bool) -> None:
    items = _items(tables, session_id, report)
    async with MoorageSession(session_id, target) as session:
        held = await session.get_items()
        if items[: len(held)] != held:
            leave_out(report, tables, f"session {session_id}: one with this id is there and has other items")
            return
        new = items[len(held) :]
        for start in range(0, 0 if dry_run else len(new), MAX_MESSAGES):
            await session.add_items(new[start : start + MAX_MESSAGES])
    (report.imported if new else report.already_there).append(session_id_of(session_id))
    report.entries += len(new)


def _items(tables: Tables, session_id: str, report: ImportReport) -> list[Any]:
    items = []
    for number, text in tables.rows(ITEMS, session_id):
        try:
            items.append(json.loads(text))
        except ValueError as error:
            leave_out(report, tables, f"session {session_id}, message {number}: {error}")
    return items
