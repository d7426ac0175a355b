"""The interface between launcher and agent: the job, the agent's events, and the commands to it.

Events are JSON objects, in order; each has a `type`::

    message     role, content                      a complete message for the log
    chunk       text                               a piece of a message: streamed, not stored
    phase       phase, metadata?                   the agent's current phase
    metadata    metadata                           metadata for the session
    error       error                              an error after which the agent continued
    checkpoint  checkpoint                         state for its next turn
    context     values                             values to store in the session, by key; stored if the agent is
                                                   called by name with a session id (gRPC, MCP)
    approval    id, question, plan?, options?, expires_in?, wait
                                                   a question to a person; with `wait` the turn waits for the answer
    usage       input_tokens?, output_tokens?, total_tokens?
                                                   usage since the last of these; stored with the turn's end
    note        note, data?                        for watchers only: it is not stored in the log
    problem     expected, field?, line?, text?     an output line that does not validate
    result      outcome, text, said, error?, reason?, metadata?, problems?, cut_off?
                                                   exactly one, the last event; `cut_off` if it died without a report

`result.text` is the answer. With `said` it is in the log already, as the last messages of this
turn; without it the launcher has to store it (the partial output of a stopped agent, or an
answer too short for a message of its own). Outcomes are completed, failed and stopped.

Commands to the agent::

    renewed     at?                                the launcher runs and has the turn
    pause       /  go_on                           pause limits while the agent waits for a sync child, and resume
    decision    id, decision, note?                the answer to an approval; `expired` and `withdrawn` are answers too
    stop                                           end the turn
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from msgspec import Struct, field

from moorage.agents.allowance import IDLE_TIMEOUT as IDLE_TIMEOUT
from moorage.agents.allowance import TIMED_OUT as TIMED_OUT
from moorage.core.agent import AgentDefinition

AgentEvent = dict[str, Any]
AgentCommand = dict[str, Any]
Emit = Callable[[AgentEvent], Awaitable[None]]
Secret = Callable[[str], str | None]  # returns the value of an environment variable by its name

# Reasons for an incomplete turn. An agent may give its own reason; these and the two limits are ours.
AGENT_FAILED = "agent_failed"
OUTPUT_TOO_LARGE = "output_too_large"
STOPPED = "stopped"
NO_ANSWER = "no_answer"
NOT_FOUND = "not_found"
CANNOT_START = "cannot_start"
REFUSED = "refused"
BAD_OUTPUT = "bad_output"
LAUNCHER_SILENT = "launcher_silent"
LAUNCHER_GONE = "launcher_gone"
SUPERVISOR_LOST = "supervisor_lost"
SUPERVISOR_FAILED = "supervisor_failed"
NOT_STARTED = "not_started"
NOT_KEPT = "not_kept"


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of an agent in seconds and bytes; None means no limit."""

    timeout: float | None = None  # wall time; waiting for an approval or a child does not count
    idle_timeout: float | None = None  # time without output on either pipe
    max_output_bytes: int | None = None

    @classmethod
    def of(cls, agent: AgentDefinition) -> Limits:
        """Return the limits of a definition."""
        return cls(
            timeout=None if agent.timeout is None else agent.timeout.total_seconds(),
            idle_timeout=None if agent.idle_timeout is None else agent.idle_timeout.total_seconds(),
            max_output_bytes=agent.max_output_bytes,
        )


class Job(Struct, frozen=True, kw_only=True):
    """One turn for one agent, with all its input."""

    agent: AgentDefinition
    session_id: str
    turn_id: str
    epoch: int
    prompt: str  # everything new for this turn, as one text
    owner: str = "local"
    session_name: str | None = None
    task_id: str | None = None
    run_id: str | None = None
    items: list[dict[str, Any]] = field(default_factory=list)  # the same as separate items: kind and body
    history: list[dict[str, Any]] = field(default_factory=list)  # role and content of earlier messages
    parameters: dict[str, Any] = field(default_factory=dict)  # named values besides the prompt, if the door has them
    tools: list[str] = field(default_factory=list)  # named by the caller
    turns: int = 0  # number of earlier requests in the session, as far as the door knows
    streams: bool = False  # whether a caller receives partial output
    system_prompt: str | None = None
    checkpoint: dict[str, Any] | None = None
    context: dict[str, Any] = field(default_factory=dict)
    cut_off: bool = False  # whether the turn before was lost during its work
    env: dict[str, str] = field(default_factory=dict)  # to set for the agent
    cwd: str | None = None
    limits: Limits = Limits()
    lost_after: float = 300.0


class Commands(Protocol):
    """The source of commands for an agent inside the launcher; an asyncio.Queue fits."""

    async def get(self) -> AgentCommand:
        """Return the next command, as soon as there is one."""


class InProcess(Protocol):
    """An agent that runs in the launcher."""

    async def run(self, job: Job, emit: Emit, commands: Commands) -> None:
        """Do the job: emit events, the result last. Cancelled when its time is up or it is stopped."""


def completed(text: str, **more: Any) -> AgentEvent:
    """Return the last event of a completed turn."""
    return {"type": "result", "outcome": "completed", "text": text, "said": False, **more}


def stopped(reason: str = STOPPED) -> AgentEvent:
    """Return the last event of a stopped turn."""
    return {"type": "result", "outcome": "stopped", "text": "", "said": False, "reason": reason}


def failed(reason: str, error: str, *, text: str = "", **more: Any) -> AgentEvent:
    """Return the last event of a failed turn, with its output so far."""
    told = {"text": text, "said": False, "error": error, "reason": reason}
    return {"type": "result", "outcome": "failed", **told, **more}
