"""The dispatcher: gives turns to a launcher and takes its reports, on a store or over HTTP.

Every report carries the turn and its epoch, and is refused with TurnLost once another launcher has the turn. A
launcher repeats a report whose answer got lost; the repetition has no further effect. StoreError means that the
store could not be reached, which is no refusal.
"""

from __future__ import annotations

from typing import Any, Protocol

from moorage.core.approval import Approval
from moorage.core.entry import Problem
from moorage.core.session import Session
from moorage.core.turn import Launcher, Retry, Turn
from moorage.core.work import TurnEnd
from moorage.ports import Claimed
from moorage.service.turns import Given


class Dispatcher(Protocol):
    """The calls of a launcher."""

    async def register(self, launcher: Launcher) -> bool:
        """Register this launcher or renew its registration; return whether it has to drain."""

    async def claim(
        self, launcher: Launcher, agents: dict[str, Retry], *, full: tuple[str, ...] = ()
    ) -> Claimed | None:
        """Claim the next turn of one of these agents, except those that are `full`; None if there is none."""

    async def given(self, claimed: Claimed) -> Given:
        """Return the input of a claimed turn for its agent."""

    async def started(self, owner: str, turn: Turn) -> None:
        """Report that the agent is about to start."""

    async def renew(self, owner: str, turn: Turn) -> Turn:
        """Renew the lease and return the current turn, which may have a stop request."""

    async def is_unwanted(self, owner: str, turn: Turn) -> bool:
        """Return whether the turn has a stop request or was deleted; False if the store cannot answer now."""

    async def adopt(self, owner: str, turn: Turn, launcher_id: str) -> Turn:
        """Take over a turn from before this launcher's restart, under a new epoch."""

    async def speak(self, owner: str, turn: Turn, text: str) -> None:
        """Stream partial output to readers, if possible; it is not stored."""

    async def say(self, owner: str, turn: Turn, messages: object) -> None:
        """Store messages of the agent; a repeated client key is stored once."""

    async def update(self, owner: str, turn: Turn, *, since: int | None = None, **facts: Any) -> Session:
        """Store `phase`, `metadata` or `error`; with `since`, unless the log has it after that entry already."""

    async def misspoken(self, owner: str, turn: Turn, problem: Problem) -> None:
        """Store the report of an output line that does not validate; a repeated report is stored once."""

    async def checkpoint(self, owner: str, turn: Turn, state: object, *, since: int | None = None) -> Session:
        """Store a checkpoint; with `since`, unless the log has it after that entry already."""

    async def request_approval(
        self, owner: str, turn: Turn, question: str, *, key: str | None = None, **options: Any
    ) -> Approval:
        """Request an approval; a repeated request with the same key returns the same approval."""

    async def approval(self, owner: str, approval_id: str) -> Approval:
        """Return an approval; may wait a while for its decision."""

    async def finish(self, owner: str, turn: Turn, end: TurnEnd) -> Session:
        """End the turn: store its end, settle runs and send callbacks in one commit."""

    async def release(self, owner: str, turn: Turn) -> None:
        """Return an unfinished turn to the queue."""

    async def waiting(self, launcher_id: str) -> set[str]:
        """Return the turns that wait for a sync child and need no slot meanwhile."""

    def pulse(self) -> int:
        """Return a number that changes when there may be new work."""

    async def wait(self, seen: int, timeout: float) -> None:
        """Wait until there may be new work or the timeout has passed."""
