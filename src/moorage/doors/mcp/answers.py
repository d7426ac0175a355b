"""What tools answer, as types. Long texts are cut where everybody sees it, with the place from which to read on."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

from moorage.core.run import Run
from moorage.core.session import Session
from moorage.core.status import Because, LastRun, WaitingFor

MAX_TEXT = 40_000  # characters of a text in one answer
MAX_SHORT = 4_000  # of each, where there are many

NextOffset = Annotated[int, Meta(description="The text goes on here: ask again with this `offset`")]


class Brief(Struct, frozen=True, kw_only=True):
    """A session in short."""

    session_id: str
    session_name: str | None
    agent_name: str | None
    task_id: str
    state: str
    status: str
    waiting_for: WaitingFor | None
    because: Because | None
    phase: str
    purpose: str | None
    parent_session_id: str | None
    parent_session_name: str | None
    root_session_id: str
    depth: int
    last_entry: int
    error_count: int
    last_error: str | None
    pending_approvals: int
    created_at: datetime
    last_activity_at: datetime
    finalized_at: datetime | None
    summary: str | None
    last_run: LastRun | None

    @classmethod
    def of(cls, session: Session) -> Brief:
        """The session in short."""
        told = {name: getattr(session, name) for name in cls.__struct_fields__}
        return cls(**{**told, "state": session.state.value, "phase": session.phase.value})


class Work(Struct, frozen=True, kw_only=True):
    """A run: what was asked of a session, and what came of it."""

    run_id: str
    session_id: str
    agent_name: str | None
    state: str
    mode: str
    settled: bool
    retry_of: str | None = None
    result: str | None = None
    next_offset: NextOffset | UnsetType = UNSET
    error: str | None = None
    reason: str | None = None
    because: Because | None = None
    problems: int = 0  # lines of the agent that did not validate
    correlation: Any = None
    parent_session_id: str | None = None
    created_at: datetime
    settled_at: datetime | None = None

    @classmethod
    def of(cls, run: Run, limit: int = MAX_TEXT, offset: int = 0) -> Work:
        """The run, with its result from `offset` on, up to `limit` characters."""
        result = run.result
        whole = "" if result is None else result
        return cls(
            run_id=run.run_id,
            session_id=run.session_id,
            agent_name=run.agent_name,
            state=run.state.value,
            mode=run.mode.value,
            settled=run.is_settled,
            retry_of=run.retry_of,
            result=None if result is None else whole[offset : offset + limit],
            next_offset=next_offset(whole, offset, limit),
            error=run.error,
            reason=run.reason,
            because=run.because,
            problems=run.problems,
            correlation=run.correlation,
            parent_session_id=run.parent_session_id,
            created_at=run.created_at,
            settled_at=run.settled_at,
        )


def next_offset(text: str, offset: int, limit: int) -> int | UnsetType:
    """Where a text goes on that is cut there; UNSET if nothing is left."""
    return offset + limit if len(text) > offset + limit else UNSET


class AgentBrief(Struct, frozen=True, kw_only=True):
    """An agent or a worker."""

    name: str
    kind: str
    role: str
    description: str
    enabled: bool


class ToolBrief(Struct, frozen=True, kw_only=True):
    """A tool."""

    name: str
    description: str
    operations: list[str]


class AgentsAnswer(Struct, frozen=True, kw_only=True):
    """Whom there is to ask."""

    agents: list[AgentBrief]
    tools: list[ToolBrief]


class RunAnswer(Struct, frozen=True, kw_only=True):
    """A run and its session."""

    session_id: str
    session: Brief
    run: Work

    @property
    def failed(self) -> bool:
        """Whether it is over and nothing came of it."""
        return self.run.settled and self.run.state != "completed"


class ResumeAnswer(Struct, frozen=True, kw_only=True):
    """A session to go on with: the run that was asked of it, or all that whoever drives it needs."""

    session_id: str | None = None
    session: Brief | None = None
    run: Work | UnsetType = UNSET
    hold: dict[str, Any] | UnsetType = UNSET
    checkpoint: dict[str, Any] | UnsetType | None = UNSET
    context: dict[str, Any] | UnsetType = UNSET
    messages: list[dict[str, Any]] | UnsetType = UNSET
    suggestions: list[Brief] | UnsetType = UNSET

    @property
    def failed(self) -> bool:
        """Whether a run was asked, is over, and nothing came of it."""
        return not isinstance(self.run, UnsetType) and self.run.settled and self.run.state != "completed"


class SentAnswer(Struct, frozen=True, kw_only=True):
    """What became of a message."""

    session_id: str
    number: Annotated[int, Meta(description="Of the message in the log")]
    run: Annotated[Work | None, Meta(description="The work it asked for; null if no agent can be started")] = None

    @property
    def failed(self) -> bool:
        """Whether it asked for work and nothing came of it."""
        return self.run is not None and self.run.settled and self.run.state != "completed"


class StatusAnswer(Struct, frozen=True, kw_only=True):
    """Where a session stands."""

    session_id: str
    session: Brief
    run: Annotated[Work | None, Meta(description="The newest run; null if there was none")]


class ResultAnswer(Struct, frozen=True, kw_only=True):
    """The newest answer of a session's agent, or a piece of it."""

    session_id: str
    status: str
    settled: bool
    result: str | None
    length: Annotated[int, Meta(description="Characters of the whole result")]
    next_offset: NextOffset | UnsetType = UNSET
    error: str | None = None
    reason: str | None = None
    because: Because | None = None
    run_id: str | None = None

    @property
    def failed(self) -> bool:
        """Whether it is over and nothing came of it."""
        return self.settled and self.status in ("failed", "stopped", "expired")


class SessionsAnswer(Struct, frozen=True, kw_only=True):
    """A page of sessions."""

    sessions: list[Brief]
    next: Annotated[str | None, Meta(description="Pass it as `cursor` for what follows; null at the end")] = None


class ChildrenAnswer(Struct, frozen=True, kw_only=True):
    """What children came to."""

    session_id: str
    settled: list[Work]
    open: Annotated[int, Meta(description="How many runs are not over yet")]
    all_settled: bool
    next: Annotated[str | None, Meta(description="Pass it as `cursor` for older runs; null at the end")] = None


class SessionAnswer(Struct, frozen=True, kw_only=True):
    """A session as it is now."""

    session_id: str
    session: Brief


class ApprovalAnswer(Struct, frozen=True, kw_only=True):
    """A question that waits for a person."""

    session_id: str
    approval_id: str
    question: str
    state: str
    options: list[str] = field(default_factory=list)
    plan_hash: str | None = None
    expires_at: datetime | None = None


class StoppedAnswer(Struct, frozen=True, kw_only=True):
    """Who was told to stop."""

    session_id: str
    stopped: Annotated[list[str], Meta(description="Sessions that had work, children first")]


class ContextAnswer(Struct, frozen=True, kw_only=True):
    """A session's memory, or one value of it."""

    session_id: str
    context: dict[str, Any] = field(default_factory=dict)
    left_out: Annotated[dict[str, int], Meta(description="Keys whose values are too long to be here, and how long")] = (
        field(default_factory=dict)
    )
    text: Annotated[str, Meta(description="A piece of one long value, as JSON")] | UnsetType = UNSET
    next_offset: NextOffset | UnsetType = UNSET


class ContextWrittenAnswer(Struct, frozen=True, kw_only=True):
    """What was remembered."""

    session_id: str
    version: int
    keys: list[str]
    redacted: list[str] = field(default_factory=list)


class Found(Struct, frozen=True, kw_only=True):
    """An entry that has the words."""

    session_id: str
    number: int
    kind: str
    role: str | None
    at: datetime
    snippet: str


class SearchAnswer(Struct, frozen=True, kw_only=True):
    """What was found."""

    hits: list[Found]
