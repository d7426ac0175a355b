"""The desk: where a launcher gets its turns and reports of them, on a store of its own or over HTTP.

Every report carries the turn and its epoch and is refused with TurnLost once somebody else has
the turn. Each may be repeated: an answer that got lost on the way is asked for again, and what
was done is not done twice. StoreError means that nobody could be asked: that is no refusal.
"""

from __future__ import annotations

from typing import Any, Protocol

from moorage.core.approval import Approval
from moorage.core.problem import Problem
from moorage.core.session import Session
from moorage.core.turn import Launcher, Retry, Turn
from moorage.core.work import TurnEnd
from moorage.ports import Claimed
from moorage.service.turns import Given


class Desk(Protocol):
    """What a launcher asks and reports."""

    async def register(self, launcher: Launcher) -> bool:
        """Say that this launcher is there, or still there; whether it is to drain."""

    async def claim(
        self,
        launcher_id: str,
        owners: tuple[str, ...],
        agents: dict[str, Retry],
        *,
        full: tuple[str, ...] = (),
        root: str | None = None,
    ) -> Claimed | None:
        """The next turn of one of these agents and none that is `full`, if there is one."""

    async def given(self, claimed: Claimed) -> Given:
        """All that the agent of a claimed turn needs to go on."""

    async def started(self, owner: str, turn: Turn) -> None:
        """The agent is about to be started."""

    async def renew(self, owner: str, turn: Turn) -> Turn:
        """The launcher is at it; the turn as it is now: somebody may want it stopped."""

    async def is_unwanted(self, owner: str, turn: Turn) -> bool:
        """Whether somebody wants the turn to stop, or it is gone; False if that cannot be told now."""

    async def adopt(self, owner: str, turn: Turn, launcher_id: str) -> Turn:
        """Go on with a turn of a former life of this launcher, under a new epoch."""

    async def speak(self, owner: str, turn: Turn, text: str) -> None:
        """Show what the agent is just saying to whoever watches, if that is possible; it is not kept."""

    async def say(self, owner: str, turn: Turn, messages: object) -> None:
        """Keep what the agent said; a message whose client key came before is kept once."""

    async def update(
        self,
        owner: str,
        turn: Turn,
        *,
        phase: object = None,
        metadata: dict[str, Any] | None = None,
        error: str | None = None,
        since: int | None = None,
    ) -> Session:
        """Keep what the agent says of itself; with `since`, unless the log has it after that entry already."""

    async def misspoken(self, owner: str, turn: Turn, problem: Problem) -> None:
        """Keep a line of the agent that does not validate; told again, it is kept once."""

    async def checkpoint(self, owner: str, turn: Turn, state: object, *, since: int | None = None) -> Session:
        """Keep a checkpoint of the agent's; with `since`, unless the log has it after that entry already."""

    async def request_approval(
        self, owner: str, turn: Turn, question: str, *, key: str | None = None, **options: Any
    ) -> Approval:
        """Ask a person in the agent's name; asked again with the same key, the same approval answers."""

    async def approval(self, owner: str, approval_id: str) -> Approval:
        """An approval as it stands, maybe after a while if nobody has decided yet."""

    async def finish(self, owner: str, turn: Turn, end: TurnEnd) -> Session:
        """The turn is over: all of it is kept, settled and called back at once."""

    async def release(self, owner: str, turn: Turn) -> None:
        """Give a turn back unfinished, for whoever comes next."""

    async def waiting(self, launcher_id: str) -> set[str]:
        """Turns that wait for a sync child, and need no slot meanwhile."""

    def pulse(self) -> int:
        """Changes when there may be something new."""

    async def wait(self, seen: int, timeout: float) -> None:
        """Until there may be something new, or time is up."""
