"""Between launcher and agent: the job that goes in, the events that come out, the commands in between.

Events are JSON objects, in order; each has a `type`::

    message     role, content                      something said, whole: it belongs in the log
    chunk       text                               the same while it is being said: shown, not kept
    phase       phase, metadata?                   what the agent is doing now
    metadata    metadata                           what it wants known of itself
    error       error                              something went wrong, and it went on
    checkpoint  checkpoint                         state for its next turn
    context     values                             what it wants remembered in the session, by key; kept where an agent
                                                   is called by name with a session id (gRPC, MCP)
    approval    id, question, plan?, options?, expires_in?, wait
                                                   a question to a person; with `wait` the turn stays for the answer
    usage       input_tokens?, output_tokens?, total_tokens?
                                                   what it cost since the last of these; kept with the turn's end
    note        note, data?                        for watchers only: it is not kept in the log
    problem     expected, field?, line?, text?     a line of its own that does not validate
    result      outcome, text, said, error?, reason?, metadata?, problems?, cut_off?
                                                   exactly one, the last of all; `cut_off` if it died without a report

`result.text` is the answer. With `said` it stands in the log already, as the last messages of this
turn; without it is the launcher's to keep (what an agent that was stopped had said so far, or an
answer too short for a message of its own). Outcomes are completed, failed and stopped.

Commands go the other way::

    renewed     at?                                the launcher lives and has the turn
    pause       /  go_on                           limits stand still: the agent waits for a sync child
    decision    id, decision, note?                the answer to an approval; `expired` and `withdrawn` are answers too
    stop                                           end it
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from msgspec import Struct, field

from moorage.core.agent import AgentDefinition

AgentEvent = dict[str, Any]
AgentCommand = dict[str, Any]
Emit = Callable[[AgentEvent], Awaitable[None]]
Secret = Callable[[str], str | None]  # an environment variable's name → its value

# Why a turn did not complete. An agent may give a reason of its own; these are ours.
AGENT_FAILED = "agent_failed"
TIMED_OUT = "timed_out"
IDLE_TIMEOUT = "idle_timeout"
STOPPED = "stopped"
NO_ANSWER = "no_answer"
NOT_FOUND = "not_found"
REFUSED = "refused"
LAUNCHER_SILENT = "launcher_silent"
SUPERVISOR_LOST = "supervisor_lost"
NOT_STARTED = "not_started"
NOT_KEPT = "not_kept"


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of an agent in seconds and bytes; None means no limit."""

    timeout: float | None = None  # wall time; waiting for an approval or a child does not count
    idle_timeout: float | None = None  # time without output on either pipe
    max_output_bytes: int | None = None

    @classmethod
    def of(cls, agent: AgentDefinition) -> Limits:
        """The limits that a definition sets."""
        return cls(
            timeout=None if agent.timeout is None else agent.timeout.total_seconds(),
            idle_timeout=None if agent.idle_timeout is None else agent.idle_timeout.total_seconds(),
            max_output_bytes=agent.max_output_bytes,
        )


class Job(Struct, frozen=True, kw_only=True):
    """One turn for one agent, with everything it needs."""

    agent: AgentDefinition
    session_id: str
    turn_id: str
    epoch: int
    prompt: str  # everything new for this turn, as one text
    owner: str = "local"
    session_name: str | None = None
    task_id: str | None = None
    run_id: str | None = None
    items: list[dict[str, Any]] = field(default_factory=list)  # the same one by one: kind and body
    history: list[dict[str, Any]] = field(default_factory=list)  # role and content of what came before
    parameters: dict[str, Any] = field(default_factory=dict)  # named values besides the prompt, where the door has them
    tools: list[str] = field(default_factory=list)  # named by the caller
    turns: int = 0  # how often something was asked in the session before, as far as the door knows
    streams: bool = False  # whether a caller receives partial output
    system_prompt: str | None = None
    checkpoint: dict[str, Any] | None = None
    context: dict[str, Any] = field(default_factory=dict)
    cut_off: bool = False  # whether the turn before was lost in the middle of its work
    env: dict[str, str] = field(default_factory=dict)  # to set for the agent
    cwd: str | None = None
    limits: Limits = Limits()
    lost_after: float = 300.0


class Commands(Protocol):
    """Where an agent inside the launcher hears commands; an asyncio.Queue will do."""

    async def get(self) -> AgentCommand:
        """The next command, as soon as there is one."""


class InProcess(Protocol):
    """An agent that lives in the launcher."""

    async def run(self, job: Job, emit: Emit, commands: Commands) -> None:
        """Do the job: emit events, the result last. Cancelled when its time is up or it is stopped."""


def completed(text: str, **more: Any) -> AgentEvent:
    """The last event of a turn that went well."""
    return {"type": "result", "outcome": "completed", "text": text, "said": False, **more}


def failed(reason: str, error: str, *, text: str = "", **more: Any) -> AgentEvent:
    """The last event of one that did not, with what was said so far."""
    return {
        "type": "result",
        "outcome": "failed",
        "text": text,
        "said": False,
        "error": error,
        "reason": reason,
        **more,
    }
