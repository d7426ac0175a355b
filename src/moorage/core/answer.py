"""The answer: what comes of asking an agent, the same from every way to ask. Doors render it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from moorage.core.brief import brief
from moorage.core.entry import Entry
from moorage.core.run import Run, RunState
from moorage.core.session import Session
from moorage.core.status import Because
from moorage.core.usage import Usage


@brief("status", "result", "error", "because", "session_id", "run_id")
class Answer(Struct, frozen=True, kw_only=True):
    """The result of a prompt. A failure of the agent itself is an answer, not an error."""

    session_id: str = ""  # empty: nothing was kept
    status: str | None = None  # the run's state, or what a conversation waits for; None: nothing was asked
    result: str | None = None  # what the agent answered; None: nothing yet
    error: str | None = None
    reason: str | None = None  # of a failure, as a code
    because: Because | None = None  # why the run has not started
    usage: Usage = {}  # the tokens it took, where the agent tells
    metadata: dict[str, Any] = {}  # what the agent told of its answer
    context: dict[str, Any] = {}  # what it wants remembered, where nothing is kept
    run_id: str | None = None
    run: Run | None = None
    session: Session | None = None  # where it was read
    entries: list[Entry] = []  # the messages that asked
    reply: Entry | None = None  # the entry that has the answer, where it was read
    approvals: list[dict[str, Any]] = []  # what the agent asks a person

    @property
    def text(self) -> str:
        """Return the text of the agent's answer; empty if there is none yet."""
        return self.result or ""

    @property
    def message(self) -> Entry:
        """The message that asked."""
        return self.entries[-1]

    @property
    def success(self) -> bool:
        """Whether the agent has answered."""
        return self.status == RunState.COMPLETED

    @property
    def facts(self) -> dict[str, Any]:
        """Return the facts of the answer besides its text: the agent's metadata and its run."""
        if self.run is None:
            return self.metadata
        return {"agent_id": self.run.agent_name, **self.metadata, "run_id": self.run_id}

    @property
    def failure(self) -> str:
        """Why there is no answer, in words."""
        if self.success:
            return ""
        waits = "" if self.because is None else f" ({self.because.reason.value})"
        return self.error or f"the run is {self.status}{waits}"


if TYPE_CHECKING:

    class SessionAnswer(Answer, frozen=True, kw_only=True):
        """Return the answer of a caller that has read the session."""

        session: Session

    class RunAnswer(SessionAnswer, frozen=True, kw_only=True):
        """The same, where a run was asked for."""

        status: str
        run_id: str
        run: Run

else:
    SessionAnswer = RunAnswer = Answer


def answer_of(run: Run, session: Session, *, text: str | None = None, entries: list[Entry] | None = None) -> RunAnswer:
    """Return the current answer of a run; pass `text` if it is longer than the run stores."""
    return RunAnswer(**_told(run, text), session=session, entries=entries or [])


def as_it_stands(answer: Answer, run: Run, reply: Entry | None = None) -> Answer:
    """The answer to the same messages, with the run as it is now."""
    return Answer(**_told(run, None), session=answer.session, entries=answer.entries, reply=reply)


def kept(entries: list[Entry]) -> Answer:
    """Messages that asked nothing."""
    return Answer(session_id=entries[-1].session_id or "", entries=entries)


def _told(run: Run, text: str | None) -> dict[str, Any]:
    return {
        "session_id": run.session_id,
        "status": run.state.value,
        "result": text or run.result,
        "error": run.error,
        "reason": run.reason,
        "because": run.because,
        "usage": run.usage,
        "metadata": run.metadata,
        "run_id": run.run_id,
        "run": run,
    }
