"""Detecting the kind of a file to import from its beginning."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moorage.core.codec import NOT_JSON
from moorage.service.histories.blocks import decoded
from moorage.service.histories.message_lists import is_list_of_messages, is_message

MOORAGE = "moorage"
STATE = "state"
CLAUDE_CODE = "claude-code"
OPENAI = "openai"
CONTEXTS = "contexts"
KINDS = (MOORAGE, STATE, CLAUDE_CODE, OPENAI, CONTEXTS)
LOOK_AT = 200  # lines: a transcript may begin with many internal lines of the host
NOTHING = object()  # the value of a text that is not JSON


def kind_of_lines(lines: Iterable[bytes]) -> str | None:
    """Return one of KINDS, by the first line that shows it; None if none does."""
    return next((kind for line in lines if (kind := _kind_of(_value(line))) is not None), None)


def kind_of_document(text: bytes) -> str | None:
    """Return the kind of a file that is one value over many lines."""
    value = _value(text)
    return STATE if _is_state(value) else OPENAI if is_list_of_messages(value) else None


def _kind_of(value: object) -> str | None:
    if not isinstance(value, dict):
        return None
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


def _is_state(value: object) -> bool:
    """Return whether this is the state of a session, as scripts store it."""
    return isinstance(value, dict) and value.get("agent_id") is not None and value.get("phase") is not None


def may_be_state(text: bytes) -> bool:
    """Return whether a file named like a state is one, possibly damaged: other programs have such files too."""
    value = _value(text)
    return value is NOTHING or _is_state(value)


def _value(text: bytes) -> Any:
    try:
        return decoded(text)
    except NOT_JSON:
        return NOTHING
