"""Answers of tools, as types. Long texts are cut with a visible mark and the offset to continue from."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Self

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct, field
from msgspec.structs import fields

from moorage.core.entry import Hit
from moorage.core.render import like
from moorage.core.run import Run
from moorage.core.session import PUBLIC_FIELDS, Session
from moorage.core.status import Because, WaitingFor

MAX_TEXT = 40_000  # characters of a text in one answer
MAX_SHORT = 4_000  # of each, where there are many

NextOffset = Annotated[int, Meta(description="Where the text continues: pass it as `offset`")]
OmittedKeys = Annotated[
    dict[str, int], Meta(description="Keys whose values are left out because they are long, with their length")
]
TextPiece = Annotated[str, Meta(description="A piece of one long value, as JSON")]

_LEFT_OUT = {
    "project_dir", "owner", "resume_ready", "interface", "forked_from", "version", "metadata", "updated_at",
    "expires_at", "duration_seconds", "hold",
}  # fmt: skip
_TYPES: dict[str, Any] = {each.name: each.type for each in fields(Session)}
_TYPES |= {"state": str, "phase": str, "status": str, "waiting_for": WaitingFor | None}
_Brief: Any = defstruct(
    "_Brief", [(name, _TYPES[name]) for name in PUBLIC_FIELDS if name not in _LEFT_OUT], frozen=True, kw_only=True
)


class Brief(_Brief, frozen=True, kw_only=True):  # type: ignore[misc, call-arg]  # made of the public fields of a session
    """A session in short."""


class RunBrief(Struct, frozen=True, kw_only=True):
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
    def of(cls, run: Run, limit: int = MAX_TEXT) -> RunBrief:
        """The run, with up to `limit` characters of its result."""
        result = None if run.result is None else run.result[:limit]
        following = next_offset(run.result or "", 0, limit)
        return like(cls, run, settled=run.is_settled, result=result, next_offset=following)


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
    """The agents that can be asked."""

    agents: list[AgentBrief]
    tools: list[ToolBrief]


class AskedAnswer(Struct, frozen=True, kw_only=True):
    """An answer that may have a run."""

    @property
    def failed(self) -> bool:
        """Whether a run was asked for, is over, and nothing came of it."""
        run = getattr(self, "run", None)
        return isinstance(run, RunBrief) and run.settled and run.state != "completed"


class BriefAnswer(Struct, frozen=True, kw_only=True):
    """A session as it is now."""

    session_id: str
    session: Brief

    @classmethod
    def of(cls, session: Session, **others: Any) -> Self:
        """Return the answer about this session."""
        return cls(session_id=session.session_id, session=like(Brief, session), **others)


class StartedAnswer(BriefAnswer, AskedAnswer, frozen=True, kw_only=True):
    """A run and its session."""

    run: RunBrief


class ResumeAnswer(BriefAnswer, AskedAnswer, frozen=True, kw_only=True):
    """A session to go on with: the run that was asked of it, or all that its driver needs."""

    session_id: str | None = None  # type: ignore[assignment]  # there is none with suggestions
    session: Brief | None = None  # type: ignore[assignment]
    run: RunBrief | UnsetType = UNSET
    hold: dict[str, Any] | UnsetType = UNSET
    checkpoint: dict[str, Any] | UnsetType | None = UNSET
    context: dict[str, Any] | UnsetType = UNSET
    messages: list[dict[str, Any]] | UnsetType = UNSET
    suggestions: list[Brief] | UnsetType = UNSET


class SentAnswer(AskedAnswer, frozen=True, kw_only=True):
    """The outcome of a message."""

    session_id: str
    number: Annotated[int, Meta(description="Number of the message in the log")]
    run: Annotated[RunBrief | None, Meta(description="The run it requested; null if no agent can be started")] = None


class StatusAnswer(BriefAnswer, frozen=True, kw_only=True):
    """Where a session stands."""

    run: Annotated[RunBrief | None, Meta(description="The newest run; null if there was none")]


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
    next: Annotated[str | None, Meta(description="Pass it as `cursor` for the next page; null at the end")] = None


class ChildrenAnswer(Struct, frozen=True, kw_only=True):
    """The results of children."""

    session_id: str
    settled: list[RunBrief]
    open: Annotated[int, Meta(description="Number of open runs")]
    all_settled: bool
    next: Annotated[str | None, Meta(description="Pass it as `cursor` for older runs; null at the end")] = None


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
    stopped: Annotated[list[str], Meta(description="Sessions with stopped runs, children first")]


class ContextAnswer(Struct, frozen=True, kw_only=True):
    """A session's memory, or one value of it."""

    session_id: str
    context: dict[str, Any] = field(default_factory=dict)
    left_out: OmittedKeys = field(default_factory=dict)
    text: TextPiece | UnsetType = UNSET
    next_offset: NextOffset | UnsetType = UNSET


class MemoryAnswer(Struct, frozen=True, kw_only=True):
    """Values of a namespace, or one of them."""

    namespace: str
    values: dict[str, Any] = field(default_factory=dict)
    left_out: OmittedKeys = field(default_factory=dict)
    text: TextPiece | UnsetType = UNSET
    next_offset: NextOffset | UnsetType = UNSET
    next: Annotated[str, Meta(description="The key to pass as `after` for more")] | UnsetType = UNSET


class SearchAnswer(Struct, frozen=True, kw_only=True):
    """The search hits."""

    hits: list[Hit]
