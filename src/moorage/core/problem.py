"""Problems: lines of an agent that violate its protocol.

A problem is an entry of the log, shown to all followers of the session and counted in the run. It never ends a
turn. The first problems of each turn are kept as entries; all of them are counted.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, convert

from moorage.core.codec import encode_text
from moorage.core.errors import InvalidRequest

MAX_TEXT = 200  # characters of a line
_OURS = ("line", "key", "doubtful")  # added to an event by a launcher


class Problem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line that does not validate."""

    expected: str
    field: str | None = None  # where in the line; None for the line as a whole
    line: int | None = None  # the line's number in the turn's output; None if the agent prints no lines
    text: str | None = None  # the beginning of the line

    def __str__(self) -> str:
        named = (("line", self.line), ("field", self.field))
        place = ", ".join(f"{name} {value}" for name, value in named if value is not None)
        got = f"; got {self.text}" if self.text else ""
        return f"{place or 'event'}: expected {self.expected}{got}"


def problem_in(data: dict[str, Any]) -> Problem:
    """Return the problem in the data of an entry or an event, without its other fields."""
    return convert({name: data.get(name) for name in Problem.__struct_fields__}, Problem)


def problem_of(event: dict[str, Any], error: InvalidRequest) -> Problem:
    """Return the problem of an event that a rule refused."""
    kind, facts = event["type"], error.facts
    field = str(facts.get("field", "content" if kind == "message" else kind)).removeprefix("messages[0].")
    expected = error.message
    if "allowed" in facts:
        expected = f"one of {', '.join(facts['allowed'])}"
    elif "limit" in facts:
        expected = f"at most {facts['limit']:,} bytes"
    told = encode_text({name: value for name, value in event.items() if name not in _OURS})
    text = told if len(told) <= MAX_TEXT else f"{told[:MAX_TEXT]}…"
    return Problem(expected=expected, field=field, line=event.get("line"), text=text)
