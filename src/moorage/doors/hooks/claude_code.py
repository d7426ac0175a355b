"""Events of Claude Code, told apart by `hook_event_name`.

::

    SessionStart      the host's session is opened or resumed; the reply lists what waits here
    UserPromptSubmit  a message
    PreToolUse        of Agent (once Task): a delegation; the reply lists earlier work that could be resumed
    PostToolUse       of Agent: which call started which sub-agent; of SendMessage: a later prompt for it
    SubagentStart     the sub-agent's session, under the host's
    SubagentStop      its last message; closed, or suspended if a question to a person is open
    Stop              a turn ended: the count of errors starts again
    StopFailure       a turn failed: one error more
    PreCompact        a checkpoint
    SessionEnd        the host's session is suspended, or closed if it was cleared

A sub-agent runs in the background, so the events of several are mixed, and PostToolUse may come before SubagentStart or
after. The host's internal agents have no type: nothing of them is stored.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any
from zlib import crc32

from msgspec import json
from msgspec.structs import replace

from moorage.core.errors import InvalidField, utc_text
from moorage.core.session import Phase, Session
from moorage.doors.hooks.context import HookContext, HookReply, Json, caller_as
from moorage.service import hosts
from moorage.service.delegation import DelegationQuestion, WorkPlace, decide
from moorage.service.hosts import Ending, Hosted, Outlook
from moorage.service.inline import drive

INTERFACE = "claude-code"
DELEGATION_TOOLS = ("Agent", "Task")
FOLLOW_UP_TOOL = "SendMessage"  # to an agent that has stopped: it continues
DEFAULT_AGENT = "general-purpose"  # the host's default kind of agent
NOT_A_PERSON = ("<task-notification>",)  # prompts that the host writes itself to report its sub-agents' results
TRANSCRIPT_WITHIN = 0.25  # seconds
PROMPT_BYTES = 256 * 1024  # of a transcript, to find its first prompt
DENIED = 2  # the only exit code that stops the host
MOST = 4000  # characters of a reply
LAST_WORDS = 1000
OWN_KEYS = ("host", hosts.HOST, "transcript_path", hosts.CALL, "called_by")  # of metadata: not the agent's


def concerns_us(name: str, event: Json) -> bool:
    """Return whether an event needs any work."""
    if name not in HANDLERS:
        return False
    if name == "PreToolUse":
        return event.get("tool_name") in DELEGATION_TOOLS
    if name == "PostToolUse":
        return event.get("tool_name") in (*DELEGATION_TOOLS, FOLLOW_UP_TOOL)
    return name != "SubagentStart" or bool(event.get("agent_type"))


def handle(context: HookContext, name: str, event: Json) -> HookReply:
    """Handle the event, and return the reply to the host."""
    return HANDLERS[name](_Case(context, event)) or HookReply()


class _Case:
    """One event in its context: its fields, each checked when it is read, and its sender."""

    def __init__(self, context: HookContext, fields: Json) -> None:
        self.context, self.deps, self.fields = context, context.deps, fields
        self.session_id = self.needed("session_id")
        self.context.caller = caller_as(INTERFACE, self._holder())
        self.run = context.run

    def needed(self, name: str) -> str:
        if not (text := self.text(name)):
            raise InvalidField(name, "is missing in the host's event")
        return text

    def text(self, name: str) -> str:
        return _text(self.fields, name)

    def table(self, name: str) -> Json:
        value = self.fields.get(name)
        return value if isinstance(value, dict) else {}

    def agent_id(self, given: str) -> str:
        """Check a sub-agent's id: the host's own id would close the host's session with the sub-agent's."""
        if hosts.session_id_of(given) == hosts.session_id_of(self.session_id):
            raise InvalidField("agent_id", "is the session_id of the host; a sub-agent has an id of its own")
        return given

    def key(self, what: str, text: str) -> str:
        """Return a client key, so that a repeated event is stored once."""
        prompt = self.text("prompt_id")
        when = prompt[:100] if prompt.strip() and prompt.isprintable() else utc_text(self.deps.clock.now())
        return f"{when}:{what}:{crc32(text.encode()):08x}"

    @property
    def host(self) -> Hosted:
        agent = "" if self.text("agent_id") else self.text("agent_type")  # within a sub-agent it is that one's
        about = _given(host=INTERFACE, transcript_path=self.text("transcript_path"))
        return Hosted(
            host_id=self.session_id,
            agent=agent or INTERFACE,
            project_dir=_folder(self.fields),
            metadata=about,
            works_for=self.context.parent,
        )

    def session(self) -> Session:
        return self.run(hosts.open_for_writing, self.host)

    def open_subagent(self, agent_id: str, agent: str, *, told_late: bool = False) -> Session:
        """Return a sub-agent's session, held in its name, so that no other agent resumes its work meanwhile."""
        about = _given(host=INTERFACE, **{hosts.HOST: self.session_id})
        wanted = Hosted(
            host_id=agent_id,
            agent=agent or None,
            project_dir=_folder(self.fields),
            metadata=about,
            holder=f"{self._holder()}/{hosts.session_id_of(agent_id)}",
            told_late=told_late,
        )
        return self.run(hosts.open_session, wanted, self.host)

    def _holder(self) -> str:
        return f"{INTERFACE}:{hosts.session_id_of(self.session_id)}"


def _text(fields: Json, name: str) -> str:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidField(name, "must be text in the host's event")
    return value or ""


def _folder(fields: Json) -> str | None:
    """Return the folder of the host, if its path can be stored."""
    cwd = _text(fields, "cwd")
    return cwd if cwd and cwd.isprintable() and len(cwd) <= 4096 else None


def _given(**fields: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _told(name: str, context: str, complaint: str = "") -> HookReply:
    said = {"hookSpecificOutput": {"hookEventName": name, "additionalContext": context}} if context else {}
    return HookReply(said, complaint)


# The host's conversation ------------------------------------------------------------------------


def session_start(case: _Case) -> HookReply:
    """Open or resume the host's session; return what waits in this folder."""
    session = case.run(hosts.open_session, replace(case.host, told_late=case.context.is_late))
    outlook = case.run(hosts.outlook, _folder(case.fields), session.session_id)
    return _told("SessionStart", _what_waits(outlook, case.deps.clock.now()))


def user_prompt_submit(case: _Case) -> None:
    """Store the user's message."""
    prompt = case.text("prompt")
    if not prompt.startswith(NOT_A_PERSON) and case.text("source") != "system":
        case.run(hosts.say, case.session(), "user", prompt, case.key("prompt", prompt))


def stop(case: _Case) -> None:
    """End a turn; the session continues."""
    said, session = case.text("last_assistant_message"), case.session()
    case.run(hosts.say, session, "assistant", said, case.key("stop", said))
    case.run(hosts.end_turn, session)


def stop_failure(case: _Case) -> None:
    """Count the error of a failed turn."""
    error = ": ".join(filter(None, (str(case.fields.get("error") or "failed"), case.text("error_details"))))
    case.run(hosts.fail_turn, case.session(), error)


def pre_compact(case: _Case) -> None:
    """Store a checkpoint that leads back to the conversation before the host compacts it."""
    names = ("trigger", "custom_instructions", "transcript_path")
    state = _given(reason="pre_compact", **{name: case.text(name) for name in names})
    case.run(hosts.checkpoint, case.session(), state)


def session_end(case: _Case) -> None:
    """Suspend the host's session and what still runs under it; close it if the user cleared it."""
    session = case.run(hosts.current, case.session_id)
    if session is None or session.is_final:
        return
    if case.text("reason") == "clear":
        case.run(hosts.finalize, session, "cleared")
    else:
        case.run(hosts.suspend, session, "host_ended")
        case.run(hosts.suspend_children, session, case.session_id, "host_ended")


# Delegations and sub-agents ---------------------------------------------------------------------


def pre_tool_use(case: _Case) -> HookReply:
    """Report earlier work that could be resumed, before a delegation; deny the delegation only if so configured."""
    own = case.run(hosts.current, case.session_id)
    question = _question(case.fields, None if own is None else own.session_id)
    decided = case.run(decide, question)
    complaint = case.context.record(decided.delegation)
    if decided.session is None:
        return HookReply({}, complaint)
    is_here = own is not None and decided.session.parent_session_id == own.session_id
    last = drive(case.deps.store.tail(case.context.caller.owner, decided.session.session_id, 1)).messages
    said = last[0].text if last else ""
    offer = _resumable(decided.session, said, case.deps.clock.now(), is_here=is_here)
    if is_here and case.deps.settings.hooks.deny_if_resumable:
        return HookReply({}, offer, DENIED)
    return _told("PreToolUse", offer, complaint)


def _question(fields: Json, host: str | None) -> DelegationQuestion:
    place = WorkPlace(agent=_agent_asked_for(fields), host=host, project_dir=_folder(fields))
    return DelegationQuestion(place=place, delegation_id=_delegation_id(fields))


def _agent_asked_for(fields: Json) -> str:
    wanted = fields.get("tool_input")
    agent = wanted.get("subagent_type") if isinstance(wanted, dict) else None
    return agent if isinstance(agent, str) and agent.strip() else DEFAULT_AGENT


def _delegation_id(fields: Json) -> str | None:
    """Return the delegation id of a tool call, the same for every repetition of the event."""
    host, call = _text(fields, "session_id"), _text(fields, "tool_use_id")
    return f"{host[:100]}:{call[:100]}" if call and f"{host}{call}".isprintable() else None


def unanswered(fields: Json) -> DelegationQuestion:
    """Return the question of a PreToolUse event that could not be handled."""
    return _question(fields, hosts.session_id_of(_text(fields, "session_id")))


def post_tool_use(case: _Case) -> None:
    """Link a sub-agent to the call that started it and to its prompt: no other event has both."""
    response = case.table("tool_response")
    is_follow_up = case.text("tool_name") == FOLLOW_UP_TOOL
    agent_id = response.get("resumedAgentId" if is_follow_up else "agentId")
    if not isinstance(agent_id, str) or not agent_id or response.get("status") == "completed":
        return  # a sub-agent in the foreground has ended, and SubagentStop has come
    session = case.run(hosts.current, case.agent_id(agent_id))
    if session is None and not is_follow_up:  # this event came before SubagentStart
        session = case.open_subagent(agent_id, _agent_asked_for(case.fields))
    if session is None or session.is_final:
        return
    call, asked = case.text("tool_use_id"), case.table("tool_input")
    texts = {name: value for name, value in asked.items() if isinstance(value, str)}
    prompt = texts.get("message" if is_follow_up else "prompt", "")
    about = _given(tool_use_id=call, description=texts.get("description", ""), called_by=case.text("agent_id"))
    case.run(hosts.bridge, session, prompt=prompt, key=call[:200] or None, metadata=about)


def subagent_start(case: _Case) -> HookReply:
    """Open the sub-agent's session under the host's; a closed one continues in a fork."""
    agent_id = case.agent_id(case.needed("agent_id"))
    session = case.open_subagent(agent_id, case.text("agent_type"), told_late=case.context.is_late)
    return _told("SubagentStart", _own_session(session))


def subagent_stop(case: _Case) -> None:
    """Store the sub-agent's last message and close its session, or suspend it."""
    agent_id, agent, path = case.needed("agent_id"), case.text("agent_type"), case.text("agent_transcript_path")
    session = case.run(hosts.current, case.agent_id(agent_id))
    if session is None and not agent:
        return
    said = case.text("last_assistant_message")
    key = case.key("stop", said)
    if session is None or (session.is_final and said.strip() and not case.run(hosts.is_told, session.session_id, key)):
        session = case.open_subagent(agent_id, agent)  # its start was not reported
    is_asked = hosts.CALL in session.metadata or session.forked_from is not None
    asked = "" if is_asked else _first_prompt(path)
    ending = Ending(said=said, asked=asked, key=key, metadata=_given(transcript_path=path))
    case.run(hosts.end_session, session.session_id, ending)


def _first_prompt(path: str) -> str:
    """Return the prompt of a sub-agent from the first line of its transcript; empty if that cannot be read.

    The host may write the transcript a moment later, so this waits briefly for it.
    """
    if not path:
        return ""
    deadline = time.monotonic() + TRANSCRIPT_WITHIN
    while not (line := _first_line(path)) and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        first = json.decode(line)
        content = first["message"]["content"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return content if isinstance(content, str) and first.get("type") == "user" else ""


def _first_line(path: str) -> bytes:
    """Return the first line if it is complete."""
    try:
        # Without blocking: opening a pipe would wait for its other end.
        with open(path, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as file:
            line = file.readline(PROMPT_BYTES)
    except OSError:
        return b""
    return line if line.endswith(b"\n") else b""


_HANDLERS: tuple[Callable[[_Case], HookReply | None], ...] = (
    *(session_start, user_prompt_submit, pre_tool_use, post_tool_use, subagent_start),
    *(subagent_stop, stop, stop_failure, pre_compact, session_end),
)
HANDLERS = {handler.__name__.title().replace("_", ""): handler for handler in _HANDLERS}  # session_start: SessionStart


# The texts of replies, for a model to read ------------------------------------------------------


def _resumable(session: Session, said: str, now: datetime, *, is_here: bool) -> str:
    lines = ["Moorage: earlier work of this agent can be picked up.", _line(session, now)]
    if known := _known(session):
        lines.append(f"It knows: {known}")
    if said:
        lines.append(f"It last said: {_cut(said, LAST_WORDS)}")
    if is_here:
        lines.append(f"To go on with it, send a message to agent {session.session_id} instead of starting a new one.")
    else:
        lines.append(
            f"`moorage resume {session.session_id}` gives all of it; tell the new agent what it needs of that."
        )
    return _cut("\n".join(lines), MOST)


def _what_waits(outlook: Outlook, now: datetime) -> str:
    lines = [
        f"- session {each.session_id} asks a person: {_cut(each.question, 300)} "
        f"(`moorage approve {each.approval_id}`, or `moorage reject`)"
        for each in outlook.approvals
    ]
    lines += [_line(session, now) for session in outlook.resumable]
    if not lines:
        return ""
    return _cut("\n".join(["Moorage: this waits in this folder.", *lines]), MOST)


def _own_session(session: Session) -> str:
    lines = [
        f"Your work is kept in Moorage session {session.session_id}. Before you stop to wait for a person, run "
        f"`moorage update {session.session_id} --phase {Phase.APPROVAL.value}`: it is then suspended, not closed."
    ]
    if known := _known(session):
        lines.append(f"You noted before: {known}")
    return "\n".join(lines)


def _known(session: Session) -> str:
    """Return the metadata that the agent itself stored, as JSON; empty if there is none."""
    known = {key: value for key, value in session.metadata.items() if key not in OWN_KEYS}
    return _cut(json.encode(known).decode(), LAST_WORDS) if known else ""


def _line(session: Session, now: datetime) -> str:
    parts = [f"phase {session.phase.value}", f"last active {_ago(now, session.last_activity_at)} ago"]
    if session.task_id not in (session.session_id, session.root_session_id):
        parts.append(f"task {session.task_id}")
    if session.purpose:
        parts.append(_cut(session.purpose, 200))
    return f"- session {session.session_id} of {session.agent_name or 'an agent'}: {', '.join(parts)}"


def _ago(now: datetime, then: datetime) -> str:
    seconds = max(0, int((now - then).total_seconds()))
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            count = seconds // size
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return "less than a minute"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
