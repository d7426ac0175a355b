"""The launcher's protocol as it travels: what is asked and reported, and what comes back.

The door and the remote dispatcher read and write these same values, so they cannot drift apart.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from moorage.core.agent import AgentRole
from moorage.core.approval import Approval
from moorage.core.entry import Problem
from moorage.core.run import Usage
from moorage.core.session import Session
from moorage.core.turn import Retry, Turn, TurnState
from moorage.service.turns import Given

LONGEST_WAIT = 30.0  # seconds one request waits for something new
MOST_AT_ONCE = 64  # turns in one answer
MOST_KNOWN = 2000  # turns a launcher has
MOST_WORDS = 64 * 1024  # characters of a piece

Epoch = Annotated[int, Meta(ge=0, le=2**53)]
_Id = Annotated[str, Meta(min_length=1, max_length=256)]
_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_EndedSession = Annotated[str, Meta(min_length=1, max_length=400)]  # owner and session
_Seconds = Annotated[float, Meta(gt=0, le=86400.0)]
_Wait = Annotated[float, Meta(ge=0, le=LONGEST_WAIT)]


class LauncherRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request of a launcher."""


class LauncherRegistration(LauncherRequest, frozen=True, kw_only=True):
    """A launcher says that it is there. With an id of its own it may say so again."""

    name: _Name
    launcher_id: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")] | None = None
    slots: Annotated[int, Meta(ge=0, le=100_000)] = 0
    agents: Annotated[list[_Name], Meta(max_length=1000)] = field(default_factory=list)
    host: _Name | None = None
    pid: Annotated[int, Meta(ge=0, le=2**31)] | None = None


class Claiming(LauncherRequest, frozen=True, kw_only=True):
    """A wish for turns, and for news of those that the launcher has; answered when there is either, or after `wait`."""

    agents: dict[str, Retry] = field(default_factory=dict)  # those it can start, and what happens if a turn gets lost
    full: list[str] = field(default_factory=list)  # those of which it can start no more now
    room: Annotated[int, Meta(ge=0, le=MOST_AT_ONCE)] = 1  # turns it has room for; 0: it wants news only
    wait: _Wait = 0.0
    known: Annotated[dict[str, Epoch], Meta(max_length=MOST_KNOWN)] = field(default_factory=dict)  # its turns, by epoch
    owners: dict[str, str] = field(default_factory=dict)  # of known turns, where it is not the caller's own
    stopping: list[str] = field(default_factory=list)  # known turns that it has heard are unwanted
    waiting: list[str] = field(default_factory=list)  # known turns that it has heard wait for a child
    lease: _Seconds | None = None
    lost_after: _Seconds | None = None


class News(Struct, frozen=True, kw_only=True):
    """Turns for a launcher, and what it should know of those it has."""

    turns: list[Given] = field(default_factory=list)
    stop: list[str] = field(default_factory=list)  # known turns that are to stop, or that are gone
    waiting: list[str] = field(default_factory=list)  # known turns that wait for a sync child


class Held(LauncherRequest, frozen=True, kw_only=True):
    """A turn that a launcher has, or had in a former life."""

    turn_id: _Id
    epoch: Epoch
    former: _Id | None = None  # a life that may have adopted it and died before it could write that down
    owner: _Name | None = None  # the caller's own, if not given


class Heartbeat(LauncherRequest, frozen=True, kw_only=True):
    """A launcher lives, and so do its turns."""

    running: Annotated[int, Meta(ge=0)] = 0
    draining: bool = False
    ended_sessions: Annotated[list[_EndedSession], Meta(max_length=MOST_KNOWN)] = field(default_factory=list)
    turns: Annotated[list[Held], Meta(max_length=MOST_KNOWN)] = field(default_factory=list)


class Beat(Struct, frozen=True, kw_only=True):
    """The state of one turn: renewed, or lost to the launcher."""

    turn_id: str
    lost: bool = False
    stop_requested: bool = False
    turn: Turn | None = None


class Beaten(Struct, frozen=True, kw_only=True):
    """The answer to a heartbeat."""

    turns: list[Beat]
    waiting: list[str]
    drain: bool = False  # whether the launcher is to take no more turns


class AgentUpdate(LauncherRequest, frozen=True, kw_only=True):
    """Phase, metadata or error of an agent; with `since`, stored unless the log has it after that entry already."""

    since: int | None = None
    phase: str | None = None
    metadata: dict[str, Any] | None = None
    error: str | None = None


class Handover(LauncherRequest, frozen=True, kw_only=True):
    """State for the next turn; with `since`, unless the log has it after that entry already."""

    state: dict[str, Any]
    since: int | None = None


class QuestionRequest(LauncherRequest, frozen=True, kw_only=True):
    """A question to a person; asked again with the same key, it is the same."""

    question: str
    key: _Id | None = None
    plan: Any = None
    options: list[str] = field(default_factory=list)
    expires_in: float | str | None = None
    waits: bool = False


class Report(LauncherRequest, frozen=True, kw_only=True):
    """The events of a turn, in this order: its start, output of its agent, its release."""

    epoch: Epoch
    owner: _Name | None = None
    started: bool = False
    messages: list[dict[str, Any]] = field(default_factory=list)
    update: AgentUpdate | None = None
    problem: Problem | None = None
    checkpoint: Handover | None = None
    approval: QuestionRequest | None = None
    release: bool = False


class Saying(LauncherRequest, frozen=True, kw_only=True):
    """A piece of a message while it is being said."""

    epoch: Epoch
    text: Annotated[str, Meta(max_length=MOST_WORDS)]
    owner: _Name | None = None


class Reported(Struct, frozen=True, kw_only=True):
    """The answer to a report: the session as it is then, and the question that was put."""

    turn_id: str
    session: Session | None = None
    approval: Approval | None = None


class TurnEnding(LauncherRequest, frozen=True, kw_only=True):
    """How a turn ended."""

    epoch: Epoch
    owner: _Name | None = None
    outcome: TurnState = TurnState.COMPLETED
    messages: list[dict[str, Any]] = field(default_factory=list)
    result: str | None = None
    error: str | None = None
    reason: str | None = None
    usage: Usage = field(default_factory=dict)
    problems: Annotated[int, Meta(ge=0, le=2**53)] = 0  # lines that did not validate, besides those reported
    cut_off: bool = False


class Defined(Struct, frozen=True, kw_only=True):
    """A definition as it travels."""

    role: AgentRole
    definition: dict[str, Any]
    text: str | None = None  # of its file, if requested


class Definitions(Struct, frozen=True, kw_only=True):
    """All definitions of a server."""

    items: list[Defined]
