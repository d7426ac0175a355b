"""Read the main thread of the page from a browser trace.

Only the thread's own time counts, because other programs share the machine.
"""

from __future__ import annotations

import json
from typing import Any

CATEGORIES = ["toplevel", "disabled-by-default-devtools.timeline"]


def longest_task(trace: bytes) -> float:
    """Return the longest task of the main thread, in milliseconds of its own time."""
    events: list[dict[str, Any]] = json.loads(trace)["traceEvents"]
    mains = {
        (each["pid"], each["tid"])
        for each in events
        if each["name"] == "thread_name" and each["args"]["name"] == "CrRendererMain"
    }
    tasks = [
        each.get("tdur", each["dur"])
        for each in events
        if each["name"].endswith("RunTask") and (each["pid"], each["tid"]) in mains and "dur" in each
    ]
    assert tasks, "the trace has no tasks"
    return float(max(tasks)) / 1000
