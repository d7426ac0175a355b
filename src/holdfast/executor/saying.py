"""What becomes of messages: entries of the log, the work they ask for, and what the agent said to it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from holdfast.client import Holdfast
from holdfast.core.entry import Entry, Message, check_messages
from holdfast.core.errors import AgentNotFound, InvalidDefinition
from holdfast.core.run import Run


class Posted(Struct, frozen=True, kw_only=True):
    """What became of messages: the entries they are, and the work they asked for."""

    session_id: str
    entries: list[Entry]
    run_id: str | None = None
    run: Run | None = None  # as it is when the answer is sent
    reply: Entry | None = None  # what the agent said last, if the run has completed


async def post(hf: Holdfast, ref: str, messages: Any, *, token: str | None, run: bool) -> Posted:
    """Say something: a user's message asks for a run if the agent can be started, unless told not to.

    Of several messages the last one asks; those before it are what it goes with.
    """
    said = check_messages(messages)
    if run and token is None and said[-1].role == "user" and (len(said) == 1 or await _is_answered(hf, ref)):
        return await _ask(hf, ref, said)
    entries = await hf.append(ref, said, token=token)
    return Posted(session_id=str(entries[0].session_id), entries=entries)


async def _is_answered(hf: Holdfast, ref: str) -> bool:
    """Whether the session has an agent that can be started: else all of the messages come in at once."""
    name = (await hf.get(ref)).agent_name
    return name is not None and await can_start(hf, name)


async def can_start(hf: Holdfast, agent: str) -> bool:
    """Whether an agent is known and switched on; one whose file is wrong is known, and whoever asks it is told."""
    try:
        return bool((await hf.agent(agent)).get("enabled", True))
    except AgentNotFound:
        return False
    except InvalidDefinition:
        return True


async def _ask(hf: Holdfast, ref: str, said: list[Message]) -> Posted:
    before, last = said[:-1], said[-1]
    entries = await hf.append(ref, before) if before else []
    reply = await hf.send(ref, last.content, client_key=last.client_key)
    return Posted(session_id=reply.session_id, entries=[*entries, reply.message], run_id=reply.run_id)


async def reply_of(hf: Holdfast, run: Run) -> Entry | None:
    """The entry that a settled run's result is."""
    if run.result_entry is None:
        return None
    page = await hf.log(run.session_id, after=run.result_entry - 1, before=run.result_entry + 1)
    return page.items[0] if page.items else None
