"""Projection: convert what a framework stores to messages of the session's log.

The log has messages in the form that every door uses: text, tool calls, tool results. The framework's own form is
stored verbatim as a part of the type `native`, unless the text contains all of it. A message that is too large for the
log loses its native part, then the ends of its long texts. The framework's own records keep all of it, so a projection
never refuses what the framework may store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from moorage.core.codec import check_json, encode
from moorage.core.entry import MAX_MESSAGE_BYTES, NATIVE, Message
from moorage.core.errors import InvalidRequest
from moorage.service.histories.blocks import Part, fitting

__all__ = ["Part", "message", "natives", "with_distinct_keys"]

MAX_KEY = 128  # characters of a framework's own id; a longer one is replaced by its digest
LARGEST_INTEGER = 1 << 63  # beyond the log's integers


def message(framework: str, role: str, parts: Sequence[Part], native: Any = None, *, key: str | None = None) -> Message:
    """Return a message for the log. `key` is the framework's id of the message."""
    content = _content(framework, role, list(parts), native)
    return Message(role, content, None if key is None else _client_key(framework, key, content))


def with_distinct_keys(messages: Iterable[Message]) -> list[Message]:
    """Return messages of one write with distinct keys, even if the framework gave several the same id and content."""
    seen: dict[str, int] = {}
    distinct = []
    for said in messages:
        if (key := said.client_key) is not None:
            seen[key] = seen.get(key, 0) + 1
            said = said if seen[key] == 1 else replace(said, client_key=f"{key}:{seen[key]}")
        distinct.append(said)
    return distinct


def natives(framework: str, content: Any) -> list[Any]:
    """Return the framework's original form of a log message, if it is complete."""
    parts = content if isinstance(content, list) else []
    return [
        part["value"]
        for part in parts
        if part.get("type") == NATIVE and part.get("framework") == framework and "value" in part
    ]


def _content(framework: str, role: str, parts: list[Part], native: Any) -> Any:
    with suppress(InvalidRequest):
        return fitting(role, [*parts, *_native(framework, native)] or EMPTY)[0]
    return fitting(role, _clean(parts) or EMPTY)[0]


def _native(framework: str, native: Any) -> list[Part]:
    """Return the part with the framework's original form, or with its size if it is too large. Raises InvalidJson."""
    if native is None:
        return []
    check_json(native, framework)
    size = len(encode(native))
    held = {"value": native} if size <= MAX_MESSAGE_BYTES // 2 else {"size": size}
    return [{"type": NATIVE, "framework": framework, **held}]


def _client_key(framework: str, key: str, content: Any) -> str:
    """Return the framework's id of a message with a digest: some frameworks give several messages one id."""
    named = key if key.isprintable() and len(key) <= MAX_KEY else _digest(key.encode(errors="surrogatepass"))
    return f"{framework}:{named}:{_digest(encode(content))[:12]}"


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def _clean(value: Any) -> Any:
    """Return a value that the log can store: without broken text, and with large integers as text."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_clean(str(name)): _clean(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item) for item in value]
    is_held = value is None or isinstance(value, bool) or (isinstance(value, int) and abs(value) < LARGEST_INTEGER)
    return value if is_held else str(value)


EMPTY: list[Part] = [{"type": "text", "text": ""}]
