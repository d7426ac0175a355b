"""Sessions and their logs as resources, read by their URIs.

moorage://sessions/{session_id}
moorage://sessions/{session_id}/log{?after,limit}
moorage://sessions/{session_id}/messages{?before,limit}
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

from moorage.core.codec import encode, encode_text
from moorage.core.entry import Entry
from moorage.core.errors import InvalidField, NotFound
from moorage.core.key import Scope
from moorage.core.query import Page
from moorage.core.render import to_json
from moorage.core.session import Session
from moorage.doors.mcp.calls import ToolCall

ROOT = "moorage://sessions"
PAGE = 50  # sessions on one page of the list
ENTRIES = 100  # entries of a log in one answer
MAX_PAGE_BYTES = 256 * 1024
JSON = "application/json"

TEMPLATES = (
    ("session", f"{ROOT}/{{session_id}}", "A session: state, phase, metadata, family"),
    ("log", f"{ROOT}/{{session_id}}/log{{?after,limit}}", "Its log, in pages"),
    ("messages", f"{ROOT}/{{session_id}}/messages{{?before,limit}}", "Its newest messages, and older ones before them"),
)
_address = re.compile(re.escape(ROOT) + r"/([^/?#]+)(?:/(log|messages))?(?:\?([^#]*))?").fullmatch


class NoSuchResource(NotFound):
    """A URI that names no resource here."""

    code = "resource_not_found"

    def __init__(self, uri: str) -> None:
        super().__init__(f"{uri[:200]!r} is not the address of a session; see the resource templates", uri=uri[:200])


async def list_page(call: ToolCall, cursor: str | None) -> Page[Session]:
    """Return the sessions whose resources are listed: all, newest first; for a session's token, its children."""
    call.check_scope(Scope.READ)
    if call.token is not None:
        return await call.moor.children(call.token, limit=PAGE, cursor=cursor)
    return await call.moor.list(limit=PAGE, cursor=cursor)


def uri_of(session_id: str, part: str = "") -> str:
    """Return the URI of a session, or of a part of it."""
    return f"{ROOT}/{quote(session_id, safe=':')}" + (f"/{part}" if part else "")


async def read(call: ToolCall, uri: str) -> str:
    """Return the resource at a URI as JSON. Raise NoSuchResource, SessionNotFound or OutOfReach."""
    ref = await session_at(call, uri)
    _, part, query = _parts(uri)
    if part is None:
        return encode_text(to_json(await call.moor.get(ref)))
    limit = _number(query, "limit", ENTRIES)
    if not 1 <= limit <= ENTRIES:
        raise InvalidField("limit", f"is {limit}; give a number from 1 to {ENTRIES}")
    if part == "log":
        log = await call.moor.log(ref, after=_number(query, "after", 0), limit=limit)
        kept = _fitting(log.items)
        follows = log.next if len(kept) == len(log.items) else str(kept[-1].number)
        return _page(ref, part, "entries", kept, "after", follows)
    page = await call.moor.messages(ref, last=limit, before=_number(query, "before", None))
    return _page(ref, part, "messages", page.items, "before", page.next)


async def session_at(call: ToolCall, uri: str) -> str:
    """Return the session of a URI. Raise NoSuchResource or OutOfReach."""
    call.check_scope(Scope.READ)
    return await call.session(_parts(uri)[0])


def _parts(uri: str) -> tuple[str, str | None, dict[str, str]]:
    found = _address(uri)
    if found is None:
        raise NoSuchResource(uri)
    return unquote(found[1]), found[2], dict(parse_qsl(found[3] or ""))


def _fitting(entries: list[Entry]) -> list[Entry]:
    """Return as many items as fit into one answer, and at least one."""
    kept: list[Entry] = []
    size = 0
    for entry in entries:
        size += len(encode(entry))
        if kept and size > MAX_PAGE_BYTES:
            break
        kept.append(entry)
    return kept


def _page(ref: str, part: str, name: str, entries: list[Entry], onwards: str, follows: str | None) -> str:
    following = None if follows is None else f"{uri_of(ref, part)}?{onwards}={follows}"
    return encode_text({"session_id": ref, name: to_json(entries), "next": following})


def _number(query: dict[str, str], name: str, usual: Any) -> Any:
    text = query.get(name)
    if text is None:
        return usual
    if not re.fullmatch(r"\d{1,18}", text, re.ASCII):
        raise InvalidField(name, f"is {text[:40]!r}; give a number")
    return int(text)
