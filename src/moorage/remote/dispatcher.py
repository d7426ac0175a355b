"""A launcher's dispatcher on a server: the same questions and reports as on a local store, over HTTP.

One request is always open that waits for turns and for news of the launcher's turns; its results are handed out when
the launcher asks. Concurrent renewals share one request. A server that cannot be reached is retried; only a refusal is
final.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import quote

from msgspec.structs import replace

from moorage.core.agent import AgentDefinition, definition_of
from moorage.core.approval import Approval
from moorage.core.entry import Message, Problem
from moorage.core.errors import (
    AccessError,
    InvalidField,
    LauncherNotFound,
    MoorageError,
    NotFound,
    StoreError,
    TurnLost,
)
from moorage.core.render import like
from moorage.core.run import MAX_RESULT_BYTES
from moorage.core.session import Session
from moorage.core.turn import Launcher, Retry, Turn
from moorage.core.work import TurnEnd, cut
from moorage.launcher.attending import Dispatcher
from moorage.ports import Claimed
from moorage.remote import launching as wire
from moorage.remote.transport import Requester
from moorage.service.turns import Given

log = logging.getLogger(__name__)

T = TypeVar("T")
Agents = dict[str, AgentDefinition]

SEND_WORDS_EVERY = 0.1  # seconds between two pieces of an agent's partial output
TOGETHER = 0.02  # seconds in which renewals join one request
BACKOFF = (0.1, 5.0)  # seconds between attempts to reach an unreachable server
MAX_ERROR_BYTES = 64 * 1024
LOOK_FOR_AGENTS_EVERY = 2.0  # seconds


class RemoteDispatcher(Dispatcher):
    """Turns of a server, by its URL and a launcher's key. Close it in the end."""

    def __init__(
        self,
        line: Requester,
        launcher: Launcher,
        *,
        lease: timedelta | None = None,
        lost_after: timedelta | None = None,
    ) -> None:
        """Set up. By default, the lease and the time after which a silent turn is lost are the server's."""
        self._line, self._launcher, self._is_registered = line, launcher, False
        self._lease = None if lease is None else lease.total_seconds()
        self._lost_after = None if lost_after is None else lost_after.total_seconds()
        self._turns: dict[str, tuple[str, int]] = {}  # owned turns: owner and epoch
        self._ahead: deque[Given] = deque()  # turns not requested yet
        self._given: dict[str, Given] = {}
        self._asked: dict[str, Turn] = {}  # the turns of approvals
        self._stopping: set[str] = set()
        self._waiting: set[str] = set()
        self._poll = Poll(self._ask, self._tell)
        self._beats = Together(self._beat)
        self._words = WordSender(line)
        self._pulse, self._news = 0, asyncio.Event()

    async def close(self) -> None:
        """Stop asking."""
        await self._poll.stop()
        await self._words.stop()
        await self._line.close()

    # Launchers ----------------------------------------------------------------------------------

    async def register(self, launcher: Launcher) -> bool:
        self._is_registered = self._is_registered and launcher.agents == self._launcher.agents
        self._launcher = launcher
        return (await self._send_beat(launcher.running)).drain

    async def _at_launcher(self, what: str, body: Any, kind: type[T], *, wait: float = 0.0) -> T:
        """Send a request of this launcher. A server with another store does not know it, so register it first."""
        path = f"/launchers/{quote(self._launcher.launcher_id, safe='')}/{what}"
        if self._is_registered:
            with suppress(LauncherNotFound):
                return await self._line.post(path, body, kind, wait=wait)
        told = like(wire.LauncherRegistration, self._launcher, agents=list(self._launcher.agents))
        await self._line.post("/launchers", told, Launcher)
        self._is_registered = True
        return await self._line.post(path, body, kind, wait=wait)

    # Claiming -----------------------------------------------------------------------------------

    async def claim(
        self, launcher: Launcher, agents: dict[str, Retry], *, full: tuple[str, ...] = ()
    ) -> Claimed | None:
        """Return a turn if one has come; else request one: `wait` tells when it is there.

        The key says for which owners a launcher works.
        """
        if self._ahead:
            given = self._ahead.popleft()
            self._given[given.turn.turn_id] = given
            return like(Claimed, given)
        self._poll.want(wire.Claiming(agents=agents, full=sorted(full), lease=self._lease, lost_after=self._lost_after))
        return None

    async def given(self, claimed: Claimed) -> Given:
        """Return all facts for the agent of a claimed turn; they came with the turn."""
        return self._given.pop(claimed.turn.turn_id)

    def pulse(self) -> int:
        return self._pulse

    async def wait(self, seen: int, timeout: float) -> None:
        self._poll.go_on()
        if self._pulse == seen:
            self._news.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), timeout)

    async def _ask(self, wish: wire.Claiming) -> None:
        """Send one request for turns and news."""
        wish = replace(
            wish,
            wait=wire.LONGEST_WAIT,
            known={turn_id: epoch for turn_id, (_, epoch) in self._turns.items()},
            owners={turn_id: owner for turn_id, (owner, _) in self._turns.items()},
            stopping=sorted(self._stopping),
            waiting=sorted(self._waiting),
        )
        news = await self._at_launcher("claim", wish, wire.News, wait=wire.LONGEST_WAIT)
        for taken in news.turns:
            self._turns[taken.turn.turn_id] = (taken.owner, taken.turn.epoch)
            self._ahead.append(taken)
        self._stopping, self._waiting = set(news.stop), set(news.waiting)

    def _tell(self) -> None:
        self._pulse += 1
        self._news.set()

    # Turns --------------------------------------------------------------------------------------

    async def started(self, owner: str, turn: Turn) -> None:
        await self._report(owner, turn, started=True)

    async def speak(self, owner: str, turn: Turn, text: str) -> None:
        """Show the agent's partial output, sent in the background; lost pieces are not repeated."""
        self._words.add(owner, turn, text)

    async def say(self, owner: str, turn: Turn, messages: object) -> None:
        self._words.drop(owner, turn)
        await self._report(owner, turn, messages=messages)

    async def update(self, owner: str, turn: Turn, *, since: int | None = None, **facts: Any) -> Session:
        told = wire.AgentUpdate(since=since, **facts)  # checked there
        return _session(await self._report(owner, turn, update=told))

    async def misspoken(self, owner: str, turn: Turn, problem: Problem) -> None:
        await self._report(owner, turn, problem=problem)

    async def checkpoint(self, owner: str, turn: Turn, state: object, *, since: int | None = None) -> Session:
        kept = wire.Handover(state=state, since=since)  # type: ignore[arg-type]  # likewise
        return _session(await self._report(owner, turn, checkpoint=kept))

    async def request_approval(
        self, owner: str, turn: Turn, question: str, *, key: str | None = None, **options: Any
    ) -> Approval:
        reported = await self._report(owner, turn, approval=wire.QuestionRequest(question=question, key=key, **options))
        assert reported.approval is not None
        self._asked[reported.approval.approval_id] = turn
        return reported.approval

    async def approval(self, owner: str, approval_id: str) -> Approval:
        """Return the current state of an approval; retry if the server has no answer yet."""
        turn = self._asked[approval_id]
        path = f"{_path(turn)}/approvals/{quote(approval_id, safe='')}"
        query = {"owner": owner, "epoch": turn.epoch, "wait": wire.LONGEST_WAIT}
        return await self._line.get(path, Approval, query, wait=wire.LONGEST_WAIT)

    async def release(self, owner: str, turn: Turn) -> None:
        await self._report(owner, turn, release=True)
        self._forget(turn)

    async def finish(self, owner: str, turn: Turn, end: TurnEnd) -> Session:
        self._words.drop(owner, turn)
        told = like(
            wire.TurnEnding,
            end,
            epoch=turn.epoch,
            owner=owner,
            messages=[_message(each) for each in end.messages],
            result=None if end.result is None else cut(end.result, MAX_RESULT_BYTES),
            error=None if end.error is None else cut(end.error, MAX_ERROR_BYTES),
        )
        reported = await self._about(turn, "finish", told)
        self._forget(turn)
        return _session(reported)

    async def adopt(self, owner: str, turn: Turn, launcher_id: str) -> Turn:
        held = wire.Held(turn_id=turn.turn_id, epoch=turn.epoch, owner=owner, former=turn.launcher_id)
        adopted = await self._at_launcher("adopt", held, Turn)
        self._turns[turn.turn_id] = (owner, adopted.epoch)
        return adopted

    async def _report(self, owner: str, turn: Turn, **told: Any) -> wire.Reported:
        return await self._about(turn, "entries", wire.Report(epoch=turn.epoch, owner=owner, **told))

    async def _about(self, turn: Turn, what: str, told: Any) -> wire.Reported:
        try:
            return await self._line.post(f"{_path(turn)}/{what}", told, wire.Reported)
        except (TurnLost, NotFound):
            self._forget(turn)
            raise

    def _forget(self, turn: Turn) -> None:
        if self._turns.get(turn.turn_id, ("", -1))[1] == turn.epoch:
            del self._turns[turn.turn_id]
        self._asked = {name: other for name, other in self._asked.items() if other.turn_id != turn.turn_id}

    # Renewal ------------------------------------------------------------------------------------

    async def renew(self, owner: str, turn: Turn) -> Turn:
        """Renew a turn, together with all others that are due, in one request."""
        self._turns[turn.turn_id] = (owner, turn.epoch)
        beaten = await self._beats.join(wire.Held(turn_id=turn.turn_id, epoch=turn.epoch, owner=owner))
        for beat in beaten.turns:
            if beat.turn_id == turn.turn_id and beat.turn is not None and beat.turn.epoch == turn.epoch:
                return beat.turn
        self._forget(turn)
        raise TurnLost(turn.turn_id, turn.epoch)

    async def _beat(self, turns: list[wire.Held]) -> wire.Beaten:
        beaten = await self._send_beat(len(self._turns), turns)
        named = {held.turn_id for held in turns}
        self._waiting = (self._waiting - named) | set(beaten.waiting)
        return beaten

    async def _send_beat(self, running: int, turns: Sequence[wire.Held] = ()) -> wire.Beaten:
        ended = list(self._launcher.ended_sessions)
        beat = like(wire.Heartbeat, self._launcher, running=running, turns=list(turns), ended_sessions=ended)
        return await self._at_launcher("heartbeat", beat, wire.Beaten)

    async def is_unwanted(self, owner: str, turn: Turn) -> bool:
        """Return whether the server said that the turn should stop, or that it is gone."""
        return turn.turn_id in self._stopping

    async def waiting(self, launcher_id: str) -> set[str]:
        """Return the turns known to wait for a sync child."""
        return set(self._waiting)


class Poll:
    """The request that is always open. It is replaced before its answer only if something else is wanted."""

    def __init__(self, ask: Callable[[wire.Claiming], Awaitable[None]], tell: Callable[[], None]) -> None:
        self._ask, self._tell = ask, tell
        self._wish, self._room = wire.Claiming(room=0), 0
        self._asked: wire.Claiming | None = None
        self._refusal: MoorageError | None = None
        self._task: asyncio.Task[None] | None = None

    def want(self, wish: wire.Claiming) -> None:
        """Ask for one more turn, in addition to concurrent requests. Raise the server's refusal."""
        if self._refusal is not None:
            raise self._refusal
        if self._task is not None and self._asked is not None:
            if self._asked.room and replace(wish, room=self._asked.room) == self._asked:
                return  # turns come without a request
            self._task.cancel()
            self._task, self._asked = None, None
        self._wish, self._room = wish, min(self._room + 1, wire.MOST_AT_ONCE)
        self.go_on()

    def go_on(self) -> None:
        """Keep a request open, if only for news."""
        if self._task is None and self._refusal is None:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop asking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        await asyncio.sleep(0)  # callers in the same step of the loop share this request
        wish = self._asked = replace(self._wish, room=self._room)
        self._room = 0
        try:
            await self._insist(wish)
        except MoorageError as refusal:
            self._refusal = refusal
        self._task, self._asked = None, None
        self._tell()

    async def _insist(self, wish: wire.Claiming) -> None:
        """Repeat a request until there is an answer, even if the server is away meanwhile."""
        pause, longest = BACKOFF
        while True:
            try:
                await self._ask(wish)
            except StoreError as error:
                log.warning("no turns at present, trying again: %s", error.message)
                await asyncio.sleep(pause)
                pause = min(pause * 2, longest)
            else:
                return


class WordSender:
    """Sends partial output to the server: one request at a time for each turn, at most ten in a second."""

    def __init__(self, line: Requester) -> None:
        self._line = line
        self._pieces: dict[tuple[str, str, int], list[str]] = {}  # by owner, turn and epoch
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, owner: str, turn: Turn, text: str) -> None:
        """Add a piece of output."""
        key = (owner, turn.turn_id, turn.epoch)
        if key in self._pieces:
            self._pieces[key].append(text)
            return
        self._pieces[key] = [text]
        task = asyncio.create_task(self._send(*key))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def drop(self, owner: str, turn: Turn) -> None:
        """Drop unsent output: the complete message follows."""
        key = (owner, turn.turn_id, turn.epoch)
        if key in self._pieces:
            self._pieces[key] = []

    async def stop(self) -> None:
        """Cancel all requests."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send(self, owner: str, turn_id: str, epoch: int) -> None:
        key = (owner, turn_id, epoch)
        try:
            while text := "".join(self._pieces[key])[: wire.MOST_WORDS]:
                self._pieces[key] = []
                told = wire.Saying(epoch=epoch, owner=owner, text=text)
                with suppress(MoorageError):  # the message itself comes later, and is retried
                    await self._line.post(f"/turns/{quote(turn_id, safe='')}/words", told, wire.Reported)
                await asyncio.sleep(SEND_WORDS_EVERY)
        finally:
            del self._pieces[key]


class Together:
    """Concurrent requests that are sent together."""

    def __init__(self, send: Callable[[list[wire.Held]], Awaitable[wire.Beaten]]) -> None:
        self._send = send
        self._next: tuple[list[wire.Held], asyncio.Task[wire.Beaten]] | None = None

    async def join(self, held: wire.Held) -> wire.Beaten:
        """Join the next request; return its answer."""
        if self._next is None:
            turns: list[wire.Held] = []
            self._next = (turns, asyncio.create_task(self._leave(turns)))
        turns, leaving = self._next
        turns.append(held)
        return await asyncio.shield(leaving)  # cancelling one caller does not cancel the answer of the others

    async def _leave(self, turns: list[wire.Held]) -> wire.Beaten:
        await asyncio.sleep(TOGETHER)
        self._next = None
        return await self._send(turns)


class ServerAgents:
    """The agents that a server defines, and those of this machine; a local definition takes precedence."""

    def __init__(self, line: Requester, local: Callable[[], Agents]) -> None:
        self._line, self._local = line, local
        self._theirs: Agents = {}

    def __call__(self) -> Agents:
        """Return all agents known now."""
        local = self._local()
        defined_here = {name: agent for name, agent in local.items() if agent.source is not None}
        return {**local, **self._theirs, **defined_here}

    async def watch(self) -> None:
        """Poll for changes until cancelled; while the server does not answer, nothing changes."""
        while True:
            try:
                await self.look()
            except AccessError:
                return  # the request for turns gets the same error, and ends
            except MoorageError as error:
                log.debug("the server's agents are not known: %s", error.message)
            await asyncio.sleep(LOOK_FOR_AGENTS_EVERY)

    async def look(self) -> None:
        """Request the server's definitions."""
        told = await self._line.get("/definitions", wire.Definitions)
        self._theirs = {agent.name: agent for each in told.items if (agent := self._read(each)) is not None}

    def _read(self, defined: wire.Defined) -> AgentDefinition | None:
        try:
            return definition_of(defined.definition, defined.role, source=self._line.url)
        except InvalidField as error:  # from a newer version, perhaps
            log.warning("an agent of %s makes no sense here: %s", self._line.url, error.message)
            return None


def _session(reported: wire.Reported) -> Session:
    assert reported.session is not None
    return reported.session


def _path(turn: Turn) -> str:
    return f"/turns/{quote(turn.turn_id, safe='')}"


def _message(message: Message) -> dict[str, Any]:
    told = {"role": message.role, "content": message.content}
    return told if message.client_key is None else {**told, "client_key": message.client_key}
