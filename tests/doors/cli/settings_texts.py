"""Settings files as people, programs and accidents write them."""

import json
from typing import Any

from hypothesis import strategies as st

from moorage.doors.cli.settings import BYTE_ORDER_MARK

EVENTS = ("SessionStart", "SessionEnd", "PreToolUse", "PostToolUse", "Stop")

blanks = st.sampled_from(["", "", "", " ", "  ", "\n", "\r\n", "\t", "\n\n  ", "\r", "\n\t\t", " \r\n "])
words = st.text(st.characters(codec="utf-8"), max_size=6)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=6
)


def _entry(command: str, matcher: str | None) -> dict[str, Any]:
    return {**({} if matcher is None else {"matcher": matcher}), "hooks": [{"type": "command", "command": command}]}


others_commands = st.sampled_from(["prettier --write", "/x/moorage-hook pre-delegate", "echo 'open", ""])
others_entries = st.builds(_entry, others_commands, st.sampled_from([None, "Agent|Task", "*"]))
event_lists = st.lists(others_entries | values, max_size=3)
hooks_objects = st.dictionaries(st.sampled_from([*EVENTS, "Notification"]), event_lists, max_size=4)


@st.composite
def settings(draw: st.DrawFn) -> dict[str, Any]:
    """Settings of any kind, with or without hooks, at any place among the keys."""
    members = draw(st.dictionaries(words, values, max_size=3))
    if draw(st.booleans()):
        members["hooks"] = draw(hooks_objects)
    else:
        members.pop("hooks", None)
    return dict(draw(st.permutations(list(members.items()))))


@st.composite
def odd_texts(draw: st.DrawFn, value: Any) -> str:
    """A value with blanks wherever they are allowed, and its characters written in any way."""

    def text(value: Any) -> str:
        if isinstance(value, dict):
            return f"{{{parts([f'{word(key)}{draw(blanks)}:{spaced(item)}' for key, item in value.items()])}}}"
        if isinstance(value, list):
            return f"[{parts([text(item) for item in value])}]"
        return word(value) if isinstance(value, str) else json.dumps(value)

    def parts(texts: list[str]) -> str:
        return ",".join(f"{draw(blanks)}{part}{draw(blanks)}" for part in texts) or draw(blanks)

    def spaced(value: Any) -> str:
        return draw(blanks) + text(value)

    def word(value: str) -> str:
        return json.dumps(value, ensure_ascii=draw(st.booleans()))

    mark = draw(st.sampled_from(["", BYTE_ORDER_MARK]))
    return f"{mark}{draw(blanks)}{text(value)}{draw(blanks)}"


@st.composite
def neat_texts(draw: st.DrawFn, value: Any) -> str:
    """A value as programs write it."""
    indent = draw(st.sampled_from([None, 0, 2, 4, "\t"]))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (",", ": ")]))
    text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=draw(st.booleans()))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    return text.replace("\n", end) + draw(st.sampled_from(["", end]))


texts = settings().flatmap(lambda value: odd_texts(value) | neat_texts(value)) | st.text(" \t\r\n", max_size=4)
