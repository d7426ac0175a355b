"""What the browser's trace says of the page's own thread.

Work counts, not time: what other programs took from the page on a busy machine is not its doing.
"""

from __future__ import annotations

import json
from typing import Any

CATEGORIES = ["toplevel", "disabled-by-default-devtools.timeline"]


def longest_task(trace: bytes) -> float:
    """The most work that any task of the page's main thread did, in milliseconds of its own time."""
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
