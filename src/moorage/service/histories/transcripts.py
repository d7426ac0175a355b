"""Transcripts of Claude Code: the conversations of the host and of its sub-agents.

A conversation is a file named after its session. Each sub-agent has a file beside it
(`SESSION/subagents/agent-ID.jsonl`, with `agent-ID.meta.json`). Older hosts wrote the messages of
sub-agents into the session's file, as sidechains. In both cases the host's session becomes a session,
and every sub-agent a child of the session that called it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from moorage.core.codec import NOT_JSON
from moorage.core.errors import InvalidField, InvalidRequest
from moorage.core.ids import check_label
from moorage.service.histories.blocks import cut_text
from moorage.service.histories.conversations import Conversation, SubAgentCall
from moorage.service.histories.reading import Reading
from moorage.service.histories.scribe import INTERFACE, Scribe, Speaker
from moorage.service.importing import History

AGENT = INTERFACE  # agent name of the host's own sessions
DEFAULT_AGENT = "general-purpose"  # the host's default kind of sub-agent
MAX_PURPOSE = 1000
MAX_VERSION = 64


class About(Struct, rename="camel"):
    """The host's notes beside a sub-agent's transcript."""

    agent_type: str | None = None
    description: str | None = None
    tool_use_id: str | None = None
    spawn_depth: int | None = None


class Transcripts:
    """Reads transcripts; the host's must come before those of its sub-agents, because it names their callers."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._calls: dict[tuple[str, str | None], tuple[str, SubAgentCall]] = {}  # with the caller, by host and call id
        self._launched: dict[tuple[str, str], str] = {}  # the call, by host and sub-agent
        self._asked: dict[tuple[str, str], list[str]] = {}  # calls, by host and prompt

    def read(
        self,
        file: str,
        lines: Iterable[str | bytes],
        *,
        session_id: str | None = None,
        agent_id: str | None = None,
        about: bytes | None = None,
    ) -> History:
        """Return the sessions of one file.

        Its name and place give the host's `session_id` and, for a sub-agent, its `agent_id`;
        `about` is the content of the file beside it.
        """
        history = History(file=file)
        reading = Reading(history, agent_id)
        reading.read(lines)
        host = reading.host(session_id)
        if host is not None:
            self._learn(reading, host)
            facts = _about(about, history)
            for birth, conversation in self._births(reading, host, facts):
                _write(history, birth, conversation, self._now)
        return history

    def _learn(self, reading: Reading, host: str) -> None:
        """Remember which agent called which."""
        for conversation in (reading.main, *reading.sides.values()):
            for call in conversation.calls:
                self._calls[host, call.call_id] = (conversation.session_id or host, call)
                if call.prompt is not None and call.call_id not in reading.launched.values():
                    self._asked.setdefault((host, call.prompt), []).append(call.call_id)
        for agent, call_id in reading.launched.items():
            self._launched[host, agent] = call_id

    def _births(self, reading: Reading, host: str, about: About) -> list[tuple[Speaker, Conversation]]:
        """Return the speakers of a file: the host, then its sub-agents."""
        births = []
        if reading.main.drafts:
            purpose = None if reading.title is None else cut_text(reading.title, MAX_PURPOSE)
            births.append((_birth(reading.main, host, host, agent=AGENT, purpose=purpose), reading.main))
        for session_id, side in reading.sides.items():
            if side.drafts:
                births.append((self._child(session_id, side, host, about), side))
        return births

    def _child(self, session_id: str, side: Conversation, host: str, about: About) -> Speaker:
        call_id = about.tool_use_id or self._launched.get((host, session_id)) or self._call_for(side, host)
        caller, call = self._calls.get((host, call_id), (host, None))
        parent = caller if caller != session_id else host
        agent = _label(about.agent_type) or (_label(call.agent) or DEFAULT_AGENT if call else None)
        description = about.description or (call.description if call else None)
        purpose = None if description is None else cut_text(description, MAX_PURPOSE)
        birth = _birth(side, session_id, host, parent=parent, agent=agent, purpose=purpose)
        known = {"host_session_id": host, "tool_use_id": call_id, "description": purpose}
        birth.metadata |= {name: value for name, value in known.items() if value is not None}
        return birth

    def _call_for(self, side: Conversation, host: str) -> str | None:
        """Return the call with exactly this prompt, if nothing names the call: older hosts did not write it."""
        same = self._asked.get((host, side.asked)) if side.asked is not None else None
        return same.pop(0) if same else None


def _about(data: bytes | None, history: History) -> About:
    if data is None:
        return About()
    try:
        return msgspec.json.decode(data, type=About)
    except NOT_JSON as error:
        history.leave_out(f"what is noted about it cannot be read ({error})")
        return About()


def spawn_depth(about: bytes | None) -> int:
    """Return how many sub-agents are above this one; files of callers must be read first."""
    return _about(about, History(file="")).spawn_depth or 0


def _birth(conversation: Conversation, session_id: str, host: str, **fields: Any) -> Speaker:
    metadata: dict[str, Any] = {"host": INTERFACE, "usage": conversation.usage}
    if conversation.version is not None:
        metadata["host_version"] = cut_text(conversation.version, MAX_VERSION)
    return Speaker(session_id=session_id, task_id=host, metadata=metadata, **fields)


def _label(text: str | None) -> str | None:
    try:
        return None if text is None else check_label("agent_name", text)
    except InvalidField:
        return None


def _write(history: History, birth: Speaker, conversation: Conversation, now: datetime) -> None:
    try:
        bundle = Scribe(conversation, birth, history).bundle(now)
    except InvalidRequest as error:
        history.leave_out(f"session {birth.session_id}: {error.message}")
    else:
        history.bundles.append(bundle)
