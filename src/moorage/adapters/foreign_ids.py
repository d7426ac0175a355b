"""Convert session ids of frameworks, which may contain anything, to ids of sessions; reversible.

An id that fits our pattern is unchanged. Otherwise each byte outside `A-Z a-z 0-9 . _ -` becomes `:` and two hex
digits, and the parts of an id that has several (app, user, session) are joined by `::`. An id that would be too long
becomes a digest; `as_text` is its readable form, to be stored beside the session.

The id of a deleted session is never reused. A framework may use its own id again, so each later generation of a session
has a different id: `g2:` and the id, and so on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from moorage.core.errors import InvalidField
from moorage.core.ids import looks_like_ref

ESCAPED, HASHED = "x:", "h:"  # prefixes of ids that are not the framework's own
SEPARATOR = "::"
MAX_LENGTH = 128

_outside = re.compile(rb"[^A-Za-z0-9._-]")
_escape = re.compile(r":([0-9a-f]{2})")
_token = re.compile(r"(:[0-9a-f]{2}|::)")
_marked = re.compile(rf"{ESCAPED}|{HASHED}|g[0-9]+:").match
_generation = re.compile(r"g[0-9]+:")


def session_id_of(*parts: str, generation: int = 1) -> str:
    """Return the id of the session that a framework identifies by these parts. Raises InvalidField."""
    text = as_text(*parts) if generation == 1 else f"g{generation}:{as_text(*parts)}"
    return text if len(text) <= MAX_LENGTH else HASHED + sha256(text.encode()).hexdigest()


def required_id(ids: Any, name: str) -> Any:
    """Return an id that a framework passes with each call, from its mapping of ids. Raises InvalidField without it."""
    if not isinstance(ids, Mapping) or name not in ids:
        raise InvalidField(name, "is missing; give it with each call")
    return ids[name]


def as_text(*parts: str) -> str:
    """Return the parts as one text of plain characters, of any length. Raises InvalidField if one is no text."""
    for part in parts:
        if not isinstance(part, str):
            raise InvalidField("session_id", f"is {part!r}; a session id of a framework must be text")
    if len(parts) == 1 and _is_plain(parts[0]):
        return parts[0]
    text = SEPARATOR.join(map(escaped, parts))
    return text if len(parts) > 1 and text[:1].isalnum() and not _marked(text) else ESCAPED + text


def parts_of(session_id: str) -> tuple[str, ...]:
    """Return the parts of a session id or of an `as_text`. Raises InvalidField for a digest."""
    if session_id.startswith(HASHED):
        raise InvalidField("session_id", f"{session_id} is a digest; its parts are in the metadata of the session")
    session_id = _generation.sub("", session_id, count=1) if _generation.match(session_id) else session_id
    if session_id.startswith(ESCAPED):
        return _parts(session_id.removeprefix(ESCAPED))
    return _parts(session_id) if SEPARATOR in session_id else (session_id,)


def _is_plain(part: str) -> bool:
    return looks_like_ref(part) and SEPARATOR not in part and not _marked(part)


def escaped(part: str) -> str:
    """Return any text in plain characters, reversibly."""
    return _outside.sub(lambda found: b":%02x" % found[0][0], part.encode(errors="surrogatepass")).decode()


def _parts(text: str) -> tuple[str, ...]:
    plain = text.split(SEPARATOR)
    if not any(":" in part for part in plain):  # the usual case, in a third of the time
        return tuple(plain)
    # An escape is `:` and two digits, so a following `::` cannot be mistaken for a part of it.
    tokens = _token.split(text)
    parts = [""]
    for token in tokens:
        if token == SEPARATOR:
            parts.append("")
        else:
            parts[-1] += token
    return tuple(unescaped(part) for part in parts)


def unescaped(part: str) -> str:
    """Return the text that was escaped."""
    data = _escape.sub(lambda found: chr(int(found[1], 16)), part)
    return data.encode("latin-1").decode(errors="surrogatepass")
