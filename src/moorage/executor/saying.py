"""What becomes of messages: entries of the log, the work they ask for, and what the agent said to it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from moorage.client import Moorage
from moorage.core.entry import Entry, Message, check_messages
from moorage.core.errors import AgentNotFound, InvalidDefinition
from moorage.core.run import Run


class Posted(Struct, frozen=True, kw_only=True):
    """What became of messages: the entries they are, and the work they asked for."""

    session_id: str
    entries: list[Entry]
    run_id: str | None = None
    run: Run | None = None  # as it is when the answer is sent
    reply: Entry | None = None  # what the agent said last, if the run has completed


async def post(moor: Moorage, ref: str, messages: Any, *, token: str | None, run: bool) -> Posted:
    """Say something: a user's message asks for a run if the agent can be started, unless told not to.

    Of several messages the last one asks; those before it are what it goes with.
    """
    said = check_messages(messages)
    if run and token is None and said[-1].role == "user" and (len(said) == 1 or await _is_answered(moor, ref)):
        return await _ask(moor, ref, said)
    entries = await moor.append(ref, said, token=token)
    return Posted(session_id=str(entries[0].session_id), entries=entries)


async def _is_answered(moor: Moorage, ref: str) -> bool:
    """Whether the session has an agent that can be started: else all of the messages come in at once."""
    name = (await moor.get(ref)).agent_name
    return name is not None and await can_start(moor, name)


async def can_start(moor: Moorage, agent: str) -> bool:
    """Whether an agent is known and switched on; one whose file is wrong is known, and whoever asks it is told."""
    try:
        return bool((await moor.agent(agent)).get("enabled", True))
    except AgentNotFound:
        return False
    except InvalidDefinition:
        return True


async def _ask(moor: Moorage, ref: str, said: list[Message]) -> Posted:
    before, last = said[:-1], said[-1]
    entries = await moor.append(ref, before) if before else []
    reply = await moor.send(ref, last.content, client_key=last.client_key)
    return Posted(session_id=reply.session_id, entries=[*entries, reply.message], run_id=reply.run_id)


async def reply_of(moor: Moorage, run: Run) -> Entry | None:
    """The entry that a settled run's result is."""
    if run.result_entry is None:
        return None
    page = await moor.log(run.session_id, after=run.result_entry - 1, before=run.result_entry + 1)
    return page.items[0] if page.items else None
