"""Content as hosts write it: JSON, and the blocks of a message, converted into our parts.

Hosts write half characters where a long text was cut. Half a character (a lone surrogate) cannot be stored. It is
replaced by the replacement character, so that the text around it is kept.

Of blocks, thoughts are left out, images and files become references, everything else is kept. Texts that are too long
for a message are cut, and the cut is marked.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from moorage.core.entry import check_message
from moorage.core.errors import TooLarge
from moorage.service.transfer import Notes

Block = dict[str, Any]
Part = dict[str, Any]
Content = str | list[Part]

THOUGHTS = ("thinking", "redacted_thinking")
MEDIA = ("image", "document", "audio")
TIES = ("type", "id", "name", "call_id")
CUTS = (256 * 1024, 32 * 1024, 1024, 64)  # length kept of each text, tried in order until the message fits


class NotOurs(ValueError):
    """Something that the host does not write."""


def decoded(data: bytes, kind: Any = Any) -> Any:
    """Return the value. Raises msgspec.DecodeError for invalid JSON or another type."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if b"\\u" not in data:
            raise
    import json  # it can decode lone surrogates; few files have one

    try:
        text = json.dumps(json.loads(data), ensure_ascii=False)
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from None
    return msgspec.json.decode(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), type=kind)


def parts_of(content: str | list[Block] | None, uuid: str | None, notes: Notes) -> list[Part]:
    """Return a message's blocks as parts. Raises NotOurs if they are invalid."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    parts = [_part(block, uuid, notes) for block in blocks]
    return [part for part in parts if part is not None]


def _part(block: Block, uuid: str | None, notes: Notes) -> Part | None:
    kind = _text(block, "type")
    if kind in THOUGHTS:
        notes.pass_over("thinking")
        return None
    if kind in MEDIA:
        notes.pass_over(kind)
        return _reference(kind, block, uuid)
    if kind == "text":
        return {"type": "text", "text": block["text"]} if _text(block, "text") else None
    if kind == "tool_use":
        call = {"id": _text(block, "id"), "name": _text(block, "name"), "input": block.get("input", {})}
        return {"type": "tool_call", **call}
    if kind == "tool_result":
        output = output_of(block.get("content"), uuid, notes)
        failed = block.get("is_error") is True
        return {"type": "tool_result", "call_id": _text(block, "tool_use_id"), "output": output, "is_error": failed}
    if kind == "tool_call":
        raise NotOurs("a block of the type 'tool_call', which is reserved")
    return block


def _text(block: Block, name: str) -> str:
    value = block.get(name)
    if not isinstance(value, str):
        raise NotOurs(f"a block has no {name!r} that is text")
    return value


def _reference(kind: str, block: Block, uuid: str | None) -> Part:
    """Return a reference to an image or file, without its bytes."""
    source = block.get("source")
    known = source if isinstance(source, dict) else {}
    data = known.get("data")
    facts = {name: known.get(name) for name in ("media_type", "url", "file_id")}
    facts["size"] = len(data) * 3 // 4 if isinstance(data, str) else None  # in bytes; the transcript has base64
    facts["transcript_uuid"] = uuid
    return {"type": kind, **{name: value for name, value in facts.items() if value is not None}}


def by_speaker(role: str, parts: list[Part]) -> list[tuple[str, list[Part]]]:
    """Split parts by speaker: tool results belong to the tool."""
    results = [part for part in parts if part["type"] == "tool_result"]
    words = [part for part in parts if part["type"] != "tool_result"]
    return [(speaker, said) for speaker, said in (("tool", results), (role, words)) if said]


def output_of(content: object, uuid: str | None, notes: Notes) -> Any:
    """Return the output of a tool: its text, or parts if it is more than text."""
    if not isinstance(content, list):
        return "" if content is None else content
    if not all(isinstance(block, dict) for block in content):
        raise NotOurs("the result of a tool is not a list of blocks")
    parts = parts_of(content, uuid, notes)
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def plain(parts: list[Part]) -> Content:
    """Return a text if the parts are only text."""
    return parts[0]["text"] if [part["type"] for part in parts] == ["text"] else parts


def fitting(role: str, parts: list[Part]) -> tuple[Content, bool]:
    """Return the parts as the content of a message, and whether a text was cut. Raises InvalidRequest."""
    with suppress(TooLarge):
        return check_message({"role": role, "content": plain(parts)}).content, False
    for limit in CUTS[:-1]:
        with suppress(TooLarge):
            return check_message({"role": role, "content": _shortened(parts, limit)}).content, True
    return check_message({"role": role, "content": _shortened(parts, CUTS[-1])}).content, True


def _shortened(parts: list[Part], limit: int) -> Content:
    """Return the parts with their long texts cut; ids stay whole."""
    return plain([{key: item if key in TIES else _cut(item, limit) for key, item in part.items()} for part in parts])


def cut_text(text: str, limit: int) -> str:
    """Return the beginning of a long text, with a mark of the cut."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]} … [{len(text) - limit} of {len(text)} characters left out]"


def _cut(value: Any, limit: int) -> Any:
    if isinstance(value, str):
        return cut_text(value, limit)
    if isinstance(value, dict):
        return {key: _cut(item, limit) for key, item in value.items()}
    return [_cut(item, limit) for item in value] if isinstance(value, list) else value
