"""Events of Claude Code, told apart by `hook_event_name`.

::

    SessionStart      the host's session is opened or woken; told: what waits here
    UserPromptSubmit  a message
    PreToolUse        of Agent (once Task): a delegation; told: earlier work that could be picked up
    PostToolUse       of Agent: which call started which sub-agent; of SendMessage: what it was asked later
    SubagentStart     the sub-agent's session, under the host's
    SubagentStop      its last words; closed, or suspended if a person is still to be asked
    Stop              a turn ended: errors no longer count
    StopFailure       a turn went wrong: one error more
    PreCompact        a checkpoint
    SessionEnd        the host's session is suspended, or closed if it was cleared

A sub-agent runs in the background, so the events of several are mixed, and PostToolUse
may come before SubagentStart or after. Agents that the host uses for itself have no type:
nothing is kept of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any
from zlib import crc32

from msgspec.structs import replace

from moorage.core.delegation import Delegation
from moorage.core.errors import InvalidField, utc_text
from moorage.core.session import Session
from moorage.doors.hooks import words
from moorage.doors.hooks.desk import Answer, Desk, Json
from moorage.service import hosts
from moorage.service.delegation import Place, Question, decide
from moorage.service.hosts import Ending, Hosted

INTERFACE = "claude-code"
DELEGATION_TOOLS = ("Agent", "Task")
FOLLOW_UP_TOOL = "SendMessage"  # to an agent that has stopped: it goes on
DEFAULT_AGENT = "general-purpose"  # what the host starts when no kind is named
NOT_A_PERSON = ("<task-notification>",)  # prompts the host writes itself, of what its sub-agents' sessions tell
TRANSCRIPT_WITHIN = 0.25  # seconds
PROMPT_BYTES = 256 * 1024  # of a transcript, to find the prompt it begins with
DENIED = 2  # the only exit code that stops the host


def concerns_us(name: str, event: Json) -> bool:
    """Whether there is something to do."""
    if name not in HANDLERS:
        return False
    if name == "PreToolUse":
        return event.get("tool_name") in DELEGATION_TOOLS
    if name == "PostToolUse":
        return event.get("tool_name") in (*DELEGATION_TOOLS, FOLLOW_UP_TOOL)
    return name != "SubagentStart" or bool(event.get("agent_type"))


def handle(desk: Desk, name: str, event: Json) -> Answer:
    """Do what the event asks for; what the host is told."""
    return HANDLERS[name](_Case(desk, event))


class _Case:
    """One event at one desk: its fields, each checked when it is read, and who is speaking."""

    def __init__(self, desk: Desk, fields: Json) -> None:
        self.desk, self.deps, self.fields = desk, desk.deps, fields
        self.session_id = self.needed("session_id")
        self.caller = desk.caller(INTERFACE, self._holder())

    def needed(self, name: str) -> str:
        """A text that must be there."""
        if not (text := self.text(name)):
            raise InvalidField(name, "is missing in the host's event")
        return text

    def text(self, name: str) -> str:
        """A text, or nothing."""
        return _text(self.fields, name)

    def table(self, name: str) -> Json:
        """An object, or an empty one."""
        value = self.fields.get(name)
        return value if isinstance(value, dict) else {}

    def agent_id(self, given: str) -> str:
        """A sub-agent's id: never the host's own, whose session would be closed with the sub-agent's."""
        if hosts.session_id_of(given) == hosts.session_id_of(self.session_id):
            raise InvalidField("agent_id", "is the session_id of the host; a sub-agent has an id of its own")
        return given

    def key(self, what: str, text: str) -> str:
        """A key that makes telling the same thing twice harmless."""
        prompt = self.text("prompt_id")
        when = prompt[:100] if prompt.strip() and prompt.isprintable() else utc_text(self.deps.clock.now())
        return f"{when}:{what}:{crc32(text.encode()):08x}"

    @property
    def host(self) -> Hosted:
        """The host's conversation."""
        agent = "" if self.text("agent_id") else self.text("agent_type")  # within a sub-agent it is that one's
        about = _given(host=INTERFACE, transcript_path=self.text("transcript_path"))
        return Hosted(
            host_id=self.session_id,
            agent=agent or INTERFACE,
            project_dir=_folder(self.fields),
            metadata=about,
            works_for=self.desk.parent,
        )

    def session(self) -> Session:
        """The host's session, to write to."""
        return self.desk.do(hosts.open_for_writing(self.deps, self.caller, self.host))

    def known(self, host_id: str) -> Session | None:
        """The session that an id of the host's stands for now."""
        return self.desk.do(hosts.current(self.deps, self.caller, host_id))

    def is_told(self, session: Session, key: str) -> bool:
        """Whether a session has what is said with that key."""
        return self.desk.do(hosts.is_told(self.deps, self.caller, session.session_id, key))

    def open_subagent(self, agent_id: str, agent: str, *, told_late: bool = False) -> Session:
        """A sub-agent's session, held in its name: while it works, nobody else should pick its work up."""
        about = _given(host=INTERFACE, host_session_id=self.session_id)
        wanted = Hosted(
            host_id=agent_id,
            agent=agent or None,
            project_dir=_folder(self.fields),
            metadata=about,
            holder=f"{self._holder()}/{hosts.session_id_of(agent_id)}",
            told_late=told_late,
        )
        return self.desk.do(hosts.open_session(self.deps, self.caller, wanted, self.host))

    def _holder(self) -> str:
        return f"{INTERFACE}:{hosts.session_id_of(self.session_id)}"


def _text(fields: Json, name: str) -> str:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidField(name, "must be text in the host's event")
    return value or ""


def _folder(fields: Json) -> str | None:
    """Where the host works, if that can be told."""
    cwd = _text(fields, "cwd")
    return cwd if cwd and cwd.isprintable() and len(cwd) <= 4096 else None


def _given(**fields: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _told(name: str, context: str, complaint: str = "") -> Answer:
    said = {"hookSpecificOutput": {"hookEventName": name, "additionalContext": context}} if context else {}
    return Answer(said, complaint)


# The host's conversation ------------------------------------------------------------------------


def session_start(case: _Case) -> Answer:
    """Open the host's session, or wake it; tell what waits in this folder."""
    host = replace(case.host, told_late=case.desk.is_late)
    session = case.desk.do(hosts.open_session(case.deps, case.caller, host))
    outlook = case.desk.do(hosts.outlook(case.deps, case.caller, _folder(case.fields), session.session_id))
    return _told("SessionStart", words.what_waits(outlook, case.deps.clock.now()))


def user_prompt_submit(case: _Case) -> Answer:
    """Keep what the user said."""
    prompt = case.text("prompt")
    if not prompt.startswith(NOT_A_PERSON) and case.text("source") != "system":
        case.desk.do(hosts.say(case.deps, case.caller, case.session(), "user", prompt, case.key("prompt", prompt)))
    return Answer({})


def stop(case: _Case) -> Answer:
    """A turn ended; the session goes on."""
    said, session = case.text("last_assistant_message"), case.session()
    case.desk.do(hosts.say(case.deps, case.caller, session, "assistant", said, case.key("stop", said)))
    case.desk.do(hosts.end_turn(case.deps, case.caller, session))
    return Answer({})


def stop_failure(case: _Case) -> Answer:
    """A turn went wrong."""
    error = ": ".join(filter(None, (str(case.fields.get("error") or "failed"), case.text("error_details"))))
    case.desk.do(hosts.fail_turn(case.deps, case.caller, case.session(), error))
    return Answer({})


def pre_compact(case: _Case) -> Answer:
    """The host is about to forget most of its conversation: keep what leads back to it."""
    names = ("trigger", "custom_instructions", "transcript_path")
    state = _given(reason="pre_compact", **{name: case.text(name) for name in names})
    case.desk.do(hosts.checkpoint(case.deps, case.caller, case.session(), state))
    return Answer({})


def session_end(case: _Case) -> Answer:
    """Suspend the host's session, and what still runs under it; close it if the user cleared it."""
    session = case.known(case.session_id)
    if session is None or session.is_final:
        return Answer({})
    if case.text("reason") == "clear":
        case.desk.do(hosts.finalize(case.deps, case.caller, session, "cleared"))
    else:
        case.desk.do(hosts.suspend(case.deps, case.caller, session, "host_ended"))
        case.desk.do(hosts.suspend_children(case.deps, case.caller, session, "host_ended"))
    return Answer({})


# Delegations and sub-agents ---------------------------------------------------------------------


def pre_tool_use(case: _Case) -> Answer:
    """Before delegating: tell of earlier work that could be picked up; refuse only if configured so."""
    own = case.known(case.session_id)
    place = Place(
        agent=_agent_asked_for(case.fields),
        host=None if own is None else own.session_id,
        project_dir=_folder(case.fields),
    )
    question = Question(place=place, delegation_id=_delegation_id(case.fields))
    decided = case.desk.do(decide(case.deps, case.caller, question))
    complaint = case.desk.record(decided.delegation)
    if decided.session is None:
        return Answer({}, complaint)
    is_here = place.host is not None and decided.session.parent_session_id == place.host
    offer = words.resumable(decided.session, _last_words(case, decided.session), case.deps.clock.now(), is_here=is_here)
    if is_here and case.deps.settings.hooks.deny_if_resumable:
        return Answer({}, offer, DENIED)
    return _told("PreToolUse", offer, complaint)


def _last_words(case: _Case, session: Session) -> str:
    last = case.desk.do(case.deps.store.tail(case.caller.owner, session.session_id, 1)).messages
    return last[0].text if last else ""


def _agent_asked_for(fields: Json) -> str:
    wanted = fields.get("tool_input")
    agent = wanted.get("subagent_type") if isinstance(wanted, dict) else None
    return agent if isinstance(agent, str) and agent.strip() else DEFAULT_AGENT


def _delegation_id(fields: Json) -> str | None:
    """One delegation for one call of the tool, however often we are told."""
    host, call = _text(fields, "session_id"), _text(fields, "tool_use_id")
    return f"{host[:100]}:{call[:100]}" if call and f"{host}{call}".isprintable() else None


def unanswered(fields: Json, at: datetime, reason: str) -> Delegation:
    """The delegation of a PreToolUse that could not be answered."""
    host = _text(fields, "session_id")
    return Delegation(
        delegation_id=_delegation_id(fields) or f"{host[:100]}:{at.timestamp()}",
        at=at,
        resumed=False,
        reason=reason,
        agent_name=_agent_asked_for(fields),
        project_dir=_folder(fields),
        host_session_id=hosts.session_id_of(host),
    )


def post_tool_use(case: _Case) -> Answer:
    """Tie a sub-agent to the call that started it: nothing else tells which was which, and what it was asked."""
    response = case.table("tool_response")
    is_follow_up = case.text("tool_name") == FOLLOW_UP_TOOL
    agent_id = response.get("resumedAgentId" if is_follow_up else "agentId")
    if not isinstance(agent_id, str) or not agent_id or response.get("status") == "completed":
        return Answer({})  # one that ran in the foreground is over: SubagentStop has told
    session = case.known(case.agent_id(agent_id))
    if session is None and not is_follow_up:  # this event came before SubagentStart
        session = case.open_subagent(agent_id, _agent_asked_for(case.fields))
    if session is None or session.is_final:
        return Answer({})
    call, asked = case.text("tool_use_id"), case.table("tool_input")
    texts = {name: value for name, value in asked.items() if isinstance(value, str)}
    prompt = texts.get("message" if is_follow_up else "prompt", "")
    about = _given(tool_use_id=call, description=texts.get("description", ""), called_by=case.text("agent_id"))
    case.desk.do(hosts.bridge(case.deps, case.caller, session, prompt=prompt, key=call[:200] or None, metadata=about))
    return Answer({})


def subagent_start(case: _Case) -> Answer:
    """The sub-agent's session, under the host's; a closed one goes on in a fork."""
    agent_id = case.agent_id(case.needed("agent_id"))
    session = case.open_subagent(agent_id, case.text("agent_type"), told_late=case.desk.is_late)
    return _told("SubagentStart", words.own_session(session))


def subagent_stop(case: _Case) -> Answer:
    """Keep the sub-agent's last words and close its session, or suspend it."""
    agent_id, agent, path = case.needed("agent_id"), case.text("agent_type"), case.text("agent_transcript_path")
    session = case.known(case.agent_id(agent_id))
    if session is None and not agent:
        return Answer({})
    said = case.text("last_assistant_message")
    key = case.key("stop", said)
    if session is None or (session.is_final and said.strip() and not case.is_told(session, key)):
        session = case.open_subagent(agent_id, agent)  # its start was not told
    is_asked = hosts.CALL in session.metadata or session.forked_from is not None
    asked = "" if is_asked else _first_prompt(path)
    ending = Ending(said=said, asked=asked, key=key, metadata=_given(transcript_path=path))
    case.desk.do(hosts.end_session(case.deps, case.caller, session.session_id, ending))
    return Answer({})


def _first_prompt(path: str) -> str:
    """What a sub-agent was asked, as its transcript begins; nothing if that cannot be read.

    The host writes transcripts when it has time: one that is not there yet is waited for, a little.
    """
    if not path:
        return ""
    deadline = time.monotonic() + TRANSCRIPT_WITHIN
    while not (line := _first_line(path)) and time.monotonic() < deadline:
        time.sleep(0.01)
    from msgspec import json

    try:
        first = json.decode(line)
        content = first["message"]["content"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return content if isinstance(content, str) and first.get("type") == "user" else ""


def _first_line(path: str) -> bytes:
    """The first line, if all of it is there."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            line = file.readline(PROMPT_BYTES)
    except OSError:
        return b""
    return line if line.endswith(b"\n") else b""


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting for anybody: a pipe would let us wait for its other end."""
    return os.open(path, flags | os.O_NONBLOCK)


HANDLERS: dict[str, Callable[[_Case], Answer]] = {
    "SessionStart": session_start,
    "UserPromptSubmit": user_prompt_submit,
    "PreToolUse": pre_tool_use,
    "PostToolUse": post_tool_use,
    "SubagentStart": subagent_start,
    "SubagentStop": subagent_stop,
    "Stop": stop,
    "StopFailure": stop_failure,
    "PreCompact": pre_compact,
    "SessionEnd": session_end,
}
