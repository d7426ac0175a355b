"""Summaries by an agent: it is asked to sum up what was said, bite by bite.

Each bite is a run of its own, in a child of the session, and gives a summary of everything up to there: it is told the
summary before. Every one of them is kept, so what was interrupted goes on where it was, and no more of a long log is
in memory than one bite.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from moorage.api import Moorage
from moorage.core.entry import Entry, Kind
from moorage.core.errors import InvalidField, SummaryFailed
from moorage.core.inbox import as_line
from moorage.core.query import each_item
from moorage.core.session import Session
from moorage.core.window import bytes_of, whole_upto

BITE = 256 * 1024  # bytes of messages that one run is given, or one message if that is more
PAGE = 200
PURPOSE = "summary"
TASK = (
    "Sum up the conversation below, so that a reader who goes on with it needs nothing else: what is wanted, what was "
    "found, decided and done, what is still open, and the names, paths and numbers that will be needed. Answer with "
    "the summary alone. Each line is a JSON object; a line with a summary stands for what came before."
)


async def summed_up(
    moor: Moorage, ref: str, agent: str, *, upto: int | None = None, token: str | None = None, bite: int = BITE
) -> Entry:
    """Let an agent sum up what no summary stands for yet; the last summary that this added.

    Raises InvalidField if there is nothing of the kind, SummaryFailed if the agent did not answer.
    """
    session = await moor.get(ref)
    session.check_open()
    end = session.last_entry if upto is None else min(upto, session.last_entry)
    page = await moor.log(session.session_id, kinds=(Kind.SUMMARY.value,), newest_first=True, limit=1)
    known, entry = next((each.data or {} for each in page.items), {}), None
    while said := await _next_bite(moor, session.session_id, int(known.get("upto", 0)), end, bite):
        text = await _asked(moor, session, agent, known, said)
        entry = await moor.compact(session.session_id, text, upto=said[-1].number, token=token)
        known = entry.data or {}
    if entry is None:
        raise InvalidField("upto", "is not after the newest summary; there is nothing new to sum up")
    return entry


async def _next_bite(moor: Moorage, session_id: str, after: int, end: int, size: int) -> list[Entry]:
    """The next messages, as many as fit, but one at least; no call without its result, if that is there."""
    said: list[Entry] = []
    async for entry in each_item(partial(moor.messages, session_id, limit=PAGE), after, by="after"):
        if entry.number > end:
            break
        size -= bytes_of(entry)
        if size < 0 and (whole := _whole(said)):
            return whole
        said.append(entry)
    return said


def _whole(said: list[Entry]) -> list[Entry]:
    """These messages up to where no call lacks its result."""
    if not said:
        return said
    cut = whole_upto(said, said[-1].number)
    return [entry for entry in said if entry.number <= cut]


async def _asked(moor: Moorage, session: Session, agent: str, known: dict[str, Any], said: list[Entry]) -> str:
    reply = await moor.run(agent, _prompt(known, said), parent=session.session_id, purpose=PURPOSE)
    text = (reply.result or "").strip()
    if reply.status != "completed" or not text:
        raise SummaryFailed(session.session_id, agent, reply.error or f"its run is {reply.status}")
    await moor.finalize(reply.session.session_id, "completed", summary=f"summed up to entry {said[-1].number}")
    return text


def _prompt(known: dict[str, Any], said: list[Entry]) -> str:
    """The task, then a line of JSON for each message: nothing said can pass for another line."""
    before = [as_line({"summary": known["summary"]})] if known else []
    return "\n".join([TASK, *before, *(as_line({"role": each.role, "content": each.content}) for each in said)])
