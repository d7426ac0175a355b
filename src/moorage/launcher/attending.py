"""A running turn: store the agent's output, renew the lease, report the end.

A separate task renews the lease, so an agent that floods its output does not lose its turn. A report that fails because
the store is unreachable is repeated, as long as the turn is ours.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from msgspec import to_builtins

from moorage.agents.interface import NO_ANSWER, NOT_KEPT, AgentEvent
from moorage.core.approval import Approval, ApprovalState
from moorage.core.entry import MAX_MESSAGE_BYTES, Problem, check_message, problem_in, problem_of
from moorage.core.errors import Conflict, InvalidRequest, MoorageError, NotFound, SessionCorrupt, StoreError, TurnLost
from moorage.core.run import Usage, summed, usage_of
from moorage.core.session import Session
from moorage.core.turn import Launcher, Retry, Turn, TurnState
from moorage.core.work import TurnEnd, cut
from moorage.launcher.drivers.base import KEPT_PROBLEMS
from moorage.launcher.processes import clock
from moorage.ports import Claimed
from moorage.service.turns import Given

log = logging.getLogger(__name__)

LOOK_AT_APPROVALS = 0.2
LOOK_FOR_STOPS = 1.0
BACKOFF = (0.05, 5.0)  # seconds between attempts to reach an unavailable store
NEVER_STORED = ("chunk", "result")  # events that are shown at once; all others only after they are stored

T = TypeVar("T")
TurnListener = Callable[[Turn, AgentEvent], None]
SendReport = Callable[[], Awaitable[Any]]


class Dispatcher(Protocol):
    """Gives turns to a launcher and takes its reports, on a store or over HTTP.

    Every report carries the turn and its epoch, and is refused with TurnLost once another launcher has the turn. A
    launcher repeats a report whose answer got lost; the repetition has no further effect. StoreError means that the
    store could not be reached, which is no refusal.
    """

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


class AgentHandle:
    """The running agent of one turn. One that ends with its launcher keeps nothing, and is never adopted."""

    dies_with_us = True  # whether it ends with the launcher

    def events(self) -> Any:
        """Return its events as an asynchronous iterator; the last one is its result."""
        raise NotImplementedError

    async def tell(self, command: AgentEvent) -> None:
        """Send the agent a command: renewed, stop, decision."""

    async def kept(self, entry: int) -> None:
        """Note that its last event is in the log, at this entry or before it."""

    async def adopting(self, turn: Turn, launcher_id: str) -> None:
        """Prepare the adoption under the next epoch."""

    async def adopted(self, turn: Turn) -> None:
        """Continue under another epoch."""

    async def close(self) -> None:
        """Release everything: the turn has ended and is reported."""


class TurnAtWork:
    """Runs one turn of a launcher and reports its events."""

    def __init__(
        self, dispatcher: Dispatcher, launcher_id: str, owner: str, turn: Turn, listener: TurnListener | None = None
    ) -> None:
        self._dispatcher, self._launcher_id, self._owner, self._listener = dispatcher, launcher_id, owner, listener
        self.turn = turn
        self.end: TurnEnd | None = None  # as it was reported and accepted
        self._said: list[str] = []
        self._usage: Usage = {}
        self._context: dict[str, Any] = {}
        self._kept = 0  # the newest entry stored before the next report
        self._refused = 0  # events that the dispatcher has refused
        self._asking: list[asyncio.Task[None]] = []

    async def attend(self, handle: AgentHandle) -> bool:
        """Store the output of a started agent until it ends; return False if the turn is lost or deleted.

        When cancelled, return the turn of an agent that ends with the launcher, and leave other agents running.
        """
        renewing = asyncio.create_task(self._renew(handle))
        try:
            end = await self._listen(handle)
            renewing.cancel()
            is_ours = end is None or await self.finish(end)
        except (TurnLost, NotFound):  # it went to another launcher, or the session was deleted
            log.warning("turn %s is no longer ours; its agent is told to stop", self.turn.turn_id)
            await stop_agent(handle)
            return False
        except asyncio.CancelledError:
            if handle.dies_with_us:
                await undisturbed(self.give_back(handle))
            return True  # other agents keep running and are adopted at the next start
        except Exception as error:  # an event that cannot be stored, or a session that cannot be read any more
            log.exception("turn %s cannot go on", self.turn.turn_id)
            await stop_agent(handle)
            is_ours = await self.finish(failing(NOT_KEPT, error))
        finally:
            renewing.cancel()
        await handle.close()
        return is_ours

    async def give_back(self, handle: AgentHandle) -> None:
        """Stop an agent that depends on this launcher, and then return its turn."""
        await stop_agent(handle)
        await self.release()

    async def release(self) -> None:
        """Return the turn unfinished."""
        with suppress(MoorageError):
            await self._dispatcher.release(self._owner, self.turn)

    async def finish(self, end: TurnEnd) -> bool:
        """Report the end; return False if the turn was not ours any more, or the end cannot be reported."""
        try:
            await insist(lambda: self._dispatcher.finish(self._owner, self.turn, end))
        except (TurnLost, NotFound, SessionCorrupt):
            return False
        self.end = end
        log.info("%s ended its turn: %s", self.turn.agent_name, end.outcome.value)
        return True

    # The lease ----------------------------------------------------------------------------------

    async def _renew(self, handle: AgentHandle) -> None:
        """Renew after each third of the lease, or as soon as the turn is to stop; tell the agent if it is.

        While the agent waits for a child, its limits are paused.
        """
        is_told, is_paused, third = False, False, self.turn.lease.total_seconds() / 3
        first = min(third, LOOK_FOR_STOPS)
        await asyncio.sleep(first)  # most turns end within it, so the store is not asked about them
        await self._sleep_unless_unwanted(third - first)
        while True:
            asked_at = clock()
            try:
                now = await self._dispatcher.renew(self._owner, self.turn)
                waits = self.turn.turn_id in await self._dispatcher.waiting(self._launcher_id)
            except (TurnLost, NotFound):
                await handle.tell({"type": "stop"})
                return
            except MoorageError as error:  # the store is unreachable, which is no refusal
                log.warning("turn %s could not be renewed: %s", self.turn.turn_id, error)
            else:
                await handle.tell({"type": "renewed", "at": asked_at})  # the lease counts from the time of the request
                if waits is not is_paused:
                    is_paused = waits
                    await handle.tell({"type": "pause" if waits else "go_on"})
                if now.stop_requested:
                    await handle.tell({"type": "stop"})
                    is_told = True
            await (asyncio.sleep(third) if is_told else self._sleep_unless_unwanted(third))

    async def _sleep_unless_unwanted(self, seconds: float) -> None:
        """Sleep; wake early if the turn is to stop."""
        dispatcher, seen = self._dispatcher, None  # check at once: the stop may be older than this sleep
        while seen == (seen := dispatcher.pulse()) or not await dispatcher.is_unwanted(self._owner, self.turn):
            if seconds <= 0:
                return
            await asyncio.sleep(step := min(seconds, LOOK_FOR_STOPS))
            seconds -= step

    # Events of the agent ------------------------------------------------------------------------

    async def _listen(self, handle: AgentHandle) -> TurnEnd | None:
        try:
            async with aclosing(handle.events()) as events:
                async for event in events:
                    if event["type"] in NEVER_STORED:
                        self._show(event)
                    if event["type"] == "result":
                        problems = _untold(event.get("problems", 0)) + _untold(self._refused)
                        return turn_end(event, self._said, self._usage, self._context, problems)
                    try:
                        is_news = await self._keep(handle, event)
                    except InvalidRequest as error:  # the turn continues without this event
                        await self._refuse(event, error)
                    else:
                        if is_news and event["type"] not in NEVER_STORED:
                            self._show(event)
        finally:
            for task in self._asking:
                task.cancel()
        why = "the agent ended without output"
        return TurnEnd(outcome=TurnState.FAILED, error=why, reason=NO_ANSWER, usage=self._usage)

    def _show(self, event: AgentEvent) -> None:
        if self._listener is not None:
            self._listener(self.turn, event)

    async def _keep(self, handle: AgentHandle, event: AgentEvent) -> bool:
        """Store one event; return False for a question that was answered before, so that no person has to answer."""
        kind = event["type"]
        if kind == "usage":
            self._usage = summed(self._usage, usage_of(event))
        elif kind == "context":
            self._context.update(event["values"])
        elif kind == "chunk":
            await self._dispatcher.speak(self._owner, self.turn, event["text"])
        elif kind == "problem":
            await self._keep_problem(problem_in(event))
        elif kind == "approval":
            approval = await self._ask(handle, event)
            if approval is not None and event.get("wait"):
                self._asking.append(asyncio.create_task(self._answer(approval, handle, event)))
            return approval is not None and approval.state is ApprovalState.PENDING
        elif kind == "message":
            message = {"role": event.get("role", "assistant"), "content": event["content"], "client_key": event["key"]}
            await insist(lambda: self._dispatcher.say(self._owner, self.turn, [message]))
            if isinstance(event["content"], str):
                self._said.append(event["content"])
        elif kind in ("phase", "metadata", "error", "checkpoint"):
            await self._keep_fact(event)
            await handle.kept(self._kept)
        return True

    async def _refuse(self, event: AgentEvent, error: InvalidRequest) -> None:
        self._refused += 1
        if self._refused <= KEPT_PROBLEMS:
            problem = problem_of(event, error)
            await self._keep_problem(problem)
            self._show({"type": "problem", **to_builtins(problem)})

    async def _keep_problem(self, problem: Problem) -> None:
        await insist(lambda: self._dispatcher.misspoken(self._owner, self.turn, problem))

    async def _keep_fact(self, event: AgentEvent) -> None:
        """Store an event without a key; a repeated one is first searched for in the log, after the previous event."""
        if event["type"] == "checkpoint":
            report = partial(self._dispatcher.checkpoint, self._owner, self.turn, event["checkpoint"])
        else:
            facts = {name: event.get(name) for name in ("phase", "metadata", "error")}
            report = partial(self._dispatcher.update, self._owner, self.turn, **facts)
        doubtful = event.get("doubtful")
        again = partial(report, since=self._kept if doubtful is None else max(self._kept, doubtful))
        session = await insist(report if doubtful is None else again, again)
        self._kept = int(session.last_entry)

    async def _ask(self, handle: AgentHandle, event: AgentEvent) -> Approval | None:
        """Ask a person the agent's question before later events of the agent are stored: its end may be next."""
        options = {name: event[name] for name in ("plan", "options", "expires_in") if event.get(name)}
        question = str(event.get("question") or "").strip() or "May I?"
        options |= {"key": event["key"], "waits": bool(event.get("wait"))}
        request = partial(self._dispatcher.request_approval, self._owner, self.turn, question, **options)
        try:
            approval: Approval = await insist(request)
        except (TurnLost, NotFound):
            raise
        except MoorageError as error:  # an invalid question is never answered
            await handle.tell({**_told(event), "decision": "withdrawn", "note": str(error)})
            if isinstance(error, InvalidRequest):
                raise
            return None
        log.info("%s asks for an approval", self.turn.agent_name)
        return approval

    async def _answer(self, approval: Approval, handle: AgentHandle, event: AgentEvent) -> None:
        """Send the answer to a waiting agent, as soon as there is one."""
        look = partial(self._dispatcher.approval, self._owner, approval.approval_id)
        with suppress(TurnLost, NotFound):
            while approval.state is ApprovalState.PENDING:
                await asyncio.sleep(LOOK_AT_APPROVALS)
                approval = await insist(look)
            decision = approval.decision or approval.state.value
            await handle.tell({**_told(event), "decision": decision, "note": approval.note})


def turn_end(event: AgentEvent, said: list[str], usage: Usage, context: dict[str, Any], problems: int = 0) -> TurnEnd:
    """Return the end of a turn from a result; its text becomes a message unless the log has it."""
    text = event.get("text") or ""
    is_new = bool(text.strip()) and not event.get("said")
    return TurnEnd(
        outcome=TurnState(event.get("outcome", "completed")),
        messages=(check_message({"role": "assistant", "content": cut(text, MAX_MESSAGE_BYTES)}),) if is_new else (),
        result=text or (said[-1] if said else None),
        error=event.get("error"),
        reason=event.get("reason"),
        usage=usage,
        problems=problems,
        metadata=event.get("metadata") or {},
        context=context,
        cut_off=bool(event.get("cut_off")),
    )


def failing(reason: str, error: Exception) -> TurnEnd:
    """Return the end of a turn that failed in its launcher."""
    return TurnEnd(outcome=TurnState.FAILED, error=f"{type(error).__name__}: {error}", reason=reason)


async def stop_agent(handle: AgentHandle) -> None:
    """Stop an agent, and wait until all of its processes have ended."""
    await handle.tell({"type": "stop"})
    async with aclosing(handle.events()) as events:
        async for event in events:
            if event["type"] == "result":
                break
    await handle.close()


async def insist(report: SendReport, again: SendReport | None = None) -> Any:
    """Repeat a report until it is accepted or refused, while the store is unreachable.

    A report may have been accepted despite an error; then call `again`, if given.
    """
    pause, longest = BACKOFF
    while True:
        try:
            return await report()
        except SessionCorrupt:
            raise  # a permanent error
        except StoreError as error:
            log.warning("could not report, trying again: %s", error)
            await asyncio.sleep(pause)
            pause, report = min(pause * 2, longest), again or report
        except Conflict as error:
            if error.code == "hold_lost":
                raise TurnLost("", 0) from error
            raise


async def undisturbed(work: Coroutine[Any, Any, T]) -> T:
    """Finish the work even if the caller is cancelled: a closing terminal both ends the input and sends a signal."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    return task.result()


async def first_of(*waits: Any) -> None:
    """Wait until one of these has ended; cancel the others, except for the futures among them."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    own = [task for task, each in zip(tasks, waits, strict=True) if task is not each]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in own:
            task.cancel()
        await asyncio.gather(*own, return_exceptions=True)


def _told(event: AgentEvent) -> AgentEvent:
    """Return the ids of the question that an answer belongs to: the agent's id and ours."""
    return {"type": "decision", "id": event.get("id"), "key": event["key"]}


def _untold(problems: int) -> int:
    """Return how many problems were counted but not stored."""
    return max(0, problems - KEPT_PROBLEMS)
