"""Ids and names: their patterns, and how new ids are made.

An id is a label, never a path and never a secret. Randomness and time are
parameters, so that these functions stay pure.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from moorage.core.codec import is_text
from moorage.core.errors import InvalidField, InvalidId, SessionNotFound

ID_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}"
MAX_LABEL = 256
MAX_KEY = 255  # characters of an idempotency key
# Invisible characters: controls, formatting, all spaces but the plain one. `str.isprintable` refuses more: what
# Python's own tables do not know yet, which no document can say.
UNSEEN = (
    r"\x00-\x1f\x7f-\xa0\xad"
    "\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff"
)
LABEL_PATTERN = rf"^ *[^ {UNSEEN}][^{UNSEEN}]*$"
MIN_PREFIX = 4

_is_id = re.compile(ID_PATTERN).fullmatch
_is_label = re.compile(LABEL_PATTERN).fullmatch


def check_session_id(value: object) -> str:
    """Return the id, or raise InvalidId."""
    if not isinstance(value, str) or not _is_id(value):
        raise InvalidId("session_id", value)
    return value


def check_session_name(value: object) -> str:
    """Return the name, or raise InvalidId (code invalid_name)."""
    if not isinstance(value, str) or not _is_id(value):
        raise InvalidId("session_name", value)
    return value


def looks_like_ref(value: object) -> bool:
    """Return whether this could be an id or a name at all; other values need no lookup."""
    return isinstance(value, str) and _is_id(value) is not None


def check_is_text(value: object, field: str) -> None:
    """Raise InvalidField for a name that is no text at all; whether one exists is for others to say."""
    if not isinstance(value, str):
        raise InvalidField(field, "must be text")


def check_ref(ref: Any) -> None:
    """Raise SessionNotFound for what names no session; None would mean all sessions, or the owner's memory."""
    if not isinstance(ref, str):
        raise SessionNotFound(ref)


def check_label(field: str, value: object, limit: int = MAX_LABEL) -> str:
    """Return a short human label (agent, task, key …): not empty, without control characters."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidField(field, "must be some text")
    if len(value) > limit:
        raise InvalidField(field, f"has {len(value)} characters, at most {limit} are allowed")
    if not (_is_label(value) and is_text(value)):
        raise InvalidField(field, "has control characters or broken text in it")
    return value


def uuid7(milliseconds: int, entropy: bytes) -> str:
    """Return a UUIDv7 from a Unix time in milliseconds and ten random bytes."""
    rand_a = int.from_bytes(entropy[:2], "big") & 0x0FFF
    rand_b = int.from_bytes(entropy[2:10], "big") & 0x3FFF_FFFF_FFFF_FFFF
    number = (milliseconds & 0xFFFF_FFFF_FFFF) << 80 | 0x7 << 76 | rand_a << 64 | 0b10 << 62 | rand_b
    digits = f"{number:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def uuid8(digest: bytes) -> str:
    """Return a UUIDv8 from sixteen bytes of a digest: equal for equal digests."""
    number = int.from_bytes(digest[:16], "big")
    number = number & ~(0xF << 76) & ~(0b11 << 62) | 0x8 << 76 | 0b10 << 62
    digits = f"{number:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def dated_id(at: datetime, entropy: bytes) -> str:
    """Return the readable form of `moorage.agent_session`: agent-YYYYMMDD-HHMMSS-xxxxxxxx."""
    return f"agent-{at:%Y%m%d-%H%M%S}-{entropy[:4].hex()}"
