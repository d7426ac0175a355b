"""Detecting the kind of a file to import from its beginning."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from moorage.core.codec import NOT_JSON, decode
from moorage.service.histories.letters import decoded
from moorage.service.histories.message_lists import is_list_of_messages
from moorage.service.histories.openai_messages import is_message

MOORAGE = "moorage"
STATE = "state"
CLAUDE_CODE = "claude-code"
OPENAI = "openai"
CONTEXTS = "contexts"
KINDS = (MOORAGE, STATE, CLAUDE_CODE, OPENAI, CONTEXTS)
LOOK_AT = 200  # lines: a transcript may begin with many internal lines of the host


_values = msgspec.json.Decoder(Any)


def kind_of_lines(lines: Iterable[bytes]) -> str | None:
    """Return one of KINDS, by the first line that shows it; None if none does."""
    return next((kind for line in lines if (kind := _kind_of(_object(line))) is not None), None)


def _kind_of(value: dict[str, Any]) -> str | None:
    if value.get("type") == "moorage":
        return MOORAGE
    if _is_state(value):
        return STATE
    if isinstance(value.get("type"), str) and any(map(value.get, ("sessionId", "parentUuid", "leafUuid"))):
        return CLAUDE_CODE  # each relevant line names its session or another line
    message = {name: value.get(name) for name in ("role", "type", "messages")}
    if is_message(message) or is_list_of_messages(message):
        return OPENAI
    is_row = isinstance(value.get("session_id"), str) and isinstance(value.get("context"), (str, dict))
    return CONTEXTS if is_row else None


def _is_state(value: dict[str, Any]) -> bool:
    """Return whether this is the state of a session, as scripts store it."""
    return value.get("agent_id") is not None and value.get("phase") is not None


def is_state(text: bytes) -> bool:
    """Return whether a whole file, indented or not, is a session's state."""
    return _is_state(_object(text))


def is_json(text: bytes) -> bool:
    """Return whether a whole file is JSON."""
    try:
        decode(text)
    except NOT_JSON:
        return False
    return True


def _object(text: bytes) -> dict[str, Any]:
    """Return the object in a text, or an empty one."""
    try:
        value = decoded(_values, text)
    except NOT_JSON:
        return {}
    return value if isinstance(value, dict) else {}
