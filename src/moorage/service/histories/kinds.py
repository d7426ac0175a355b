"""What a file to import is, told from how it begins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct, field

from moorage.core.codec import decode
from moorage.service.histories.letters import decoded
from moorage.service.histories.message_lists import is_list_of_messages
from moorage.service.histories.openai_messages import is_message

MOORAGE = "moorage"
STATE = "state"
CLAUDE_CODE = "claude-code"
OPENAI = "openai"
CONTEXTS = "contexts"
KINDS = (MOORAGE, STATE, CLAUDE_CODE, OPENAI, CONTEXTS)
LOOK_AT = 200  # lines: a transcript may begin with much that the host keeps for itself


class _Sign(Struct, rename="camel"):
    """The fields by which one is told from another; what else stands there is not looked at."""

    type: Any = None
    agent_id: Any = field(default=None, name="agent_id")
    phase: Any = None
    session_id: Any = None
    parent_uuid: Any = None
    leaf_uuid: Any = None
    role: Any = None
    messages: Any = None
    row_id: Any = field(default=None, name="session_id")
    context: Any = field(default=None)

    @property
    def is_state(self) -> bool:
        """Whether this is the state of a session, as scripts keep it."""
        return self.agent_id is not None and self.phase is not None

    @property
    def is_transcript(self) -> bool:
        """Whether this is a line of a transcript; each that matters names its session or another line."""
        return isinstance(self.type, str) and any((self.session_id, self.parent_uuid, self.leaf_uuid))

    @property
    def is_message(self) -> bool:
        """Whether this is a message of a chat API, or a conversation of such."""
        return is_message(as_item := {"role": self.role, "type": self.type}) or is_list_of_messages(
            {**as_item, "messages": self.messages}
        )

    @property
    def is_context(self) -> bool:
        """Whether this is a row of a table that keeps contexts by session."""
        return isinstance(self.row_id, str) and isinstance(self.context, (str, dict))


_signs = msgspec.json.Decoder(_Sign)
_NOT_JSON = (msgspec.DecodeError, UnicodeError, RecursionError)


def kind_of_lines(lines: Iterable[str | bytes]) -> str | None:
    """One of KINDS, by the first line that tells; None if none does."""
    for line in lines:
        sign = _sign(line)
        if sign.type == "moorage":
            return MOORAGE
        if sign.is_state:
            return STATE
        if sign.is_transcript:
            return CLAUDE_CODE
        if sign.is_message:
            return OPENAI
        if sign.is_context:
            return CONTEXTS
    return None


def is_state(text: str | bytes) -> bool:
    """Whether a whole file, indented or not, is a session's state."""
    return _sign(text).is_state


def is_json(text: str | bytes) -> bool:
    """Whether a whole file reads as JSON, whatever it says."""
    try:
        decode(text)
    except _NOT_JSON:
        return False
    return True


def _sign(text: str | bytes) -> _Sign:
    try:
        return decoded(_signs, text.encode() if isinstance(text, str) else text)
    except _NOT_JSON:
        return _Sign()
