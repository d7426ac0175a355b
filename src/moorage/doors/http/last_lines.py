"""`GET /last-lines`: the beginning of the newest message of each of several sessions, for lists."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from moorage.core.codec import encode
from moorage.core.entry import Entry, Kind, text_of
from moorage.core.errors import InvalidField, NotFound
from moorage.core.key import Scope
from moorage.core.query import LogQuery, Page
from moorage.doors.http.app import Door
from moorage.doors.http.exchange import Exchange
from moorage.doors.http.visit import Visitor

PATH = "/last-lines"
MOST = 100  # sessions at once
LENGTH = 200  # characters


class LastLinesRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """The sessions to look at."""

    sessions: Annotated[list[str], Meta(description="ids or names; several, or separated by commas")]


class LastLine(Struct, frozen=True, kw_only=True):
    """The newest message of a session, on one line."""

    session_id: str
    number: int
    role: str | None
    at: datetime
    line: str


def add_to(door: Door) -> None:
    """Answer the route."""

    @door.route("GET", PATH, Scope.READ, to_token=False, query=LastLinesRequest, answer=Page[LastLine])
    async def last_lines(exchange: Exchange, visitor: Visitor, asked: LastLinesRequest) -> None:
        """Return the beginning of the newest message of each of these sessions; sessions without one are left out."""
        found = [await _newest(door, visitor.caller.owner, ref) for ref in _refs(asked.sessions)]
        await exchange.answer(encode(Page([_line(entry) for entry in found if entry is not None])))


def _refs(named: list[str]) -> list[str]:
    refs = list(filter(None, named))
    if not 0 < len(refs) <= MOST:
        raise InvalidField("sessions", f"names {len(refs)}; give 1 to {MOST}, separated by commas")
    return list(dict.fromkeys(refs))


async def _newest(door: Door, owner: str, ref: str) -> Entry | None:
    try:
        entries = await door.deps.store.log(owner, ref, LogQuery(limit=1, kinds=(Kind.MESSAGE,), newest_first=True))
    except NotFound:  # deleted since the list was made
        return None
    return entries[0] if entries else None


def _line(entry: Entry) -> LastLine:
    text = " ".join(text_of(entry.content)[: LENGTH * 4].split()) or _tool(entry)
    line = text if len(text) <= LENGTH else f"{text[:LENGTH]}…"
    return LastLine(session_id=str(entry.session_id), number=entry.number, role=entry.role, at=entry.at, line=line)


def _tool(entry: Entry) -> str:
    """Describe a message that has tool calls and no text."""
    parts = entry.content if isinstance(entry.content, list) else []
    return ", ".join(str(part.get("name") or part["type"]) for part in parts)
