"""What becomes of messages: entries of the log, the work they ask for, and what the agent said to it."""

from __future__ import annotations

from moorage.client import Moorage
from moorage.core.entry import Entry
from moorage.core.run import Run
from moorage.service.runs import Posted as Posted


async def reply_of(moor: Moorage, run: Run) -> Entry | None:
    """The entry that a settled run's result is."""
    if run.result_entry is None:
        return None
    page = await moor.log(run.session_id, after=run.result_entry - 1, before=run.result_entry + 1)
    return page.items[0] if page.items else None
