"""The plan of an approval as text, and how it differs from an earlier one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import unified_diff
from typing import Any

import msgspec

from moorage.core.approval import Approval
from moorage.core.codec import encode
from moorage.doors.cli.output import printable
from moorage.doors.cli.terminal import paint

SHOWN = 30  # lines of a plan beside a question; `approvals show` has all of them
_COLOURS = {"+": "green", "-": "red"}


def plan_lines(plan: Any) -> list[str]:
    """Return the lines of a plan: a text as it is, anything else as indented JSON."""
    if plan is None:
        return []
    text = plan if isinstance(plan, str) else msgspec.json.format(encode(plan), indent=2).decode()
    return printable(text).splitlines()


def short_plan(plan: Any) -> list[str]:
    """Return the first lines of a plan, indented; a last line tells how many are missing."""
    lines = plan_lines(plan)
    missing = [f"  … {len(lines) - SHOWN} more lines"] if len(lines) > SHOWN + 1 else []
    return [f"  {line}" for line in (lines[:SHOWN] if missing else lines)] + missing


def earlier_plan(asked: Approval, others: Iterable[Approval]) -> Approval | None:
    """Return the last earlier approval of the same session that has a plan."""
    before = [
        other
        for other in others
        if other.plan is not None
        and other.session_id == asked.session_id
        and (other.asked_at, other.approval_id) < (asked.asked_at, asked.approval_id)
    ]
    return max(before, key=lambda other: (other.asked_at, other.approval_id), default=None)


def difference(before: Any, after: Any) -> Iterator[str]:
    """Yield the lines that differ between two plans, with their neighbours, in colour."""
    lines = unified_diff(plan_lines(before), plan_lines(after), lineterm="", n=2)
    for line in lines:
        if not line.startswith(("---", "+++")):
            yield paint(line, "dim" if line.startswith("@@") else _COLOURS.get(line[:1]))
