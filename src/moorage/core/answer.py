"""The answer of an agent, the same for every kind of request. Doors render it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from moorage.core.brief import brief
from moorage.core.entry import Entry
from moorage.core.render import like
from moorage.core.run import Run, RunState, Usage
from moorage.core.session import Session
from moorage.core.status import Because


@brief("status", "result", "error", "because", "session_id", "run_id")
class Answer(Struct, frozen=True, kw_only=True):
    """The result of a prompt. A failure of the agent itself is an answer, not an error."""

    session_id: str = ""  # empty: nothing was stored
    status: str | None = None  # the run's state, or what a conversation waits for; None: nothing was requested
    result: str | None = None  # the agent's answer; None: none yet
    error: str | None = None
    reason: str | None = None  # code of a failure
    because: Because | None = None  # why the run has not started
    usage: Usage = {}  # the tokens used, if the agent reports them
    metadata: dict[str, Any] = {}  # the agent's metadata of its answer
    context: dict[str, Any] = {}  # values for the context, where nothing is stored
    run_id: str | None = None
    run: Run | None = None
    session: Session | None = None  # set if it was read
    entries: list[Entry] = []  # the messages of the request
    reply: Entry | None = None  # the entry with the answer, if it was read
    approvals: list[dict[str, Any]] = []  # the agent's questions to a person

    @property
    def text(self) -> str:
        """Return the text of the agent's answer; empty if there is none yet."""
        return self.result or ""

    @property
    def message(self) -> Entry:
        """Return the message that is the prompt."""
        return self.entries[-1]

    @property
    def success(self) -> bool:
        """Return whether the agent has answered."""
        return self.status == RunState.COMPLETED

    @property
    def facts(self) -> dict[str, Any]:
        """Return the facts of the answer besides its text: the agent's metadata, its run, and why it has no answer."""
        if self.run is None:
            return self.metadata
        waits = {} if self.because is None else {"because": self.because.facts}
        return {"agent_id": self.run.agent_name, **self.metadata, "run_id": self.run_id, **waits}

    @property
    def failure(self) -> str:
        """Return why there is no answer, in words."""
        if self.success:
            return ""
        if self.because is not None and self.error is None:
            return f"the run waits {self.because.in_words} ({self.because.reason.value})"
        return self.error or f"the run is {self.status}"


if TYPE_CHECKING:

    class SessionAnswer(Answer, frozen=True, kw_only=True):
        """An answer to a caller that has read the session."""

        session: Session

    class RunAnswer(SessionAnswer, frozen=True, kw_only=True):
        """An answer of a request for a run."""

        status: str
        run_id: str
        run: Run

else:
    SessionAnswer = RunAnswer = Answer


def answer_of(run: Run, session: Session, *, text: str | None = None, entries: list[Entry] | None = None) -> RunAnswer:
    """Return the current answer of a run; pass `text` if it is longer than the run stores."""
    result, status = text or run.result, run.state.value
    return like(RunAnswer, run, result=result, status=status, run=run, session=session, entries=entries or [])


def as_it_stands(answer: Answer, run: Run, reply: Entry | None = None) -> Answer:
    """Return the answer to the same messages, with the present state of the run."""
    given = {"session": answer.session, "entries": answer.entries, "reply": reply}
    return like(Answer, run, status=run.state.value, run=run, **given)


def kept(entries: list[Entry]) -> Answer:
    """Return the answer to messages that request nothing."""
    return Answer(session_id=entries[-1].session_id or "", entries=entries)
