"""Launchers over HTTP: with a launcher's key they register, claim turns, renew them and report on them.

The definitions of agents, which launchers need, are stored and listed here, beyond the table of operations.

Turns of owners that the key does not cover count as unknown. A report with an old epoch is refused (409 `turn_lost`); a
repeated report is recognised. A claim names the turns that the launcher knows, so a turn whose answer never arrived is
given out again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from moorage import config
from moorage.agents.registry import read_definition
from moorage.core import errors
from moorage.core.approval import Approval
from moorage.core.codec import encode
from moorage.core.entry import check_messages
from moorage.core.key import Scope
from moorage.core.render import like
from moorage.core.turn import LEASE, LOST_AFTER, Launcher, Turn, TurnState
from moorage.core.work import TurnEnd
from moorage.doors.http.app import Door, Handler, document
from moorage.doors.http.exchange import Exchange
from moorage.doors.http.visit import Visitor
from moorage.launcher.attending import first_of
from moorage.ports import Claimed
from moorage.remote import launching as wire
from moorage.remote.launching import Defined, Definitions
from moorage.service.approvals import get_approval
from moorage.service.launchers import all_launchers
from moorage.service.leases import note_launcher
from moorage.service.turns import Given, TurnDispatcher

LOOK_AGAIN = 1.0  # a wake-up is a hint and may get lost
ENDS = (TurnState.COMPLETED, TurnState.FAILED, TurnState.STOPPED)


def add_to(door: Door, stop: asyncio.Event | None = None) -> None:
    """Add the routes of launchers and of agents' definitions; long polls end when the server is told to stop."""
    own, one, turn = LauncherEndpoints(door, stop or asyncio.Event()), "/launchers/{launcher_id}", "/turns/{turn_id}"

    def add(endpoint: Handler, path: str, name: str, *, verb: str = "POST", **told: Any) -> None:
        door.route(verb, path, Scope.LAUNCH, to_token=False, name=name, **told)(endpoint)

    add(own.register, "/launchers", "register_launcher", body=wire.LauncherRegistration, answer=Launcher, status=201)
    add(own.claim, f"{one}/claim", "turn_claim", body=wire.Claiming, answer=wire.News)
    add(own.heartbeat, f"{one}/heartbeat", "turn_heartbeat", body=wire.Heartbeat, answer=wire.Beaten)
    add(own.adopt, f"{one}/adopt", "turn_adopt", body=wire.Held, answer=Turn)
    add(own.entries, f"{turn}/entries", "turn_entries", body=wire.Report, answer=wire.Reported)
    add(own.words, f"{turn}/words", "turn_words", body=wire.Saying, answer=wire.Reported)
    add(own.finish, f"{turn}/finish", "turn_finish", body=wire.TurnEnding, answer=wire.Reported)
    question = f"{turn}/approvals/{{approval_id}}"
    add(own.approval, question, "turn_approval", verb="GET", query=Awaiting, answer=Approval)

    @door.route("PUT", "/agents/{name}", Scope.ADMIN, body=Definition, answer=dict[str, Any])
    async def put_agent(exchange: Exchange, visitor: Visitor, told: Definition) -> None:
        """Create or replace an agent."""
        name, moor = exchange.params["name"], door.visit(exchange, visitor)
        agent = read_definition(told.definition)
        if agent.name != name:
            why = f"is {agent.name!r} in the definition and {name!r} in the path; make them agree"
            raise errors.InvalidField("name", why)
        await exchange.answer(document(await moor.define_agent(told.definition, replace=True, dry_run=told.dry_run)))

    @door.route("GET", "/definitions", Scope.LAUNCH, to_token=False, query=DefinitionsRequest, answer=Definitions)
    async def definitions(exchange: Exchange, _: Visitor, asked: DefinitionsRequest) -> None:
        """Return all definitions, for launchers."""
        await door.deps.registered.look()
        texts = config.registry().texts() if asked.text else {}
        items = [
            Defined(role=agent.role, definition=agent.table(), text=texts.get(agent.name))
            for agent in config.agents_of(door.deps).values()
        ]
        await exchange.answer(encode(Definitions(items=items)))


class Definition(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A definition: the text of a TOML file, or its table."""

    definition: str | dict[str, Any]
    dry_run: bool = False


class DefinitionsRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The form of the requested definitions."""

    text: Annotated[bool, Meta(description="with their files as they were written")] = False


class LauncherEndpoints:
    """Serves all launchers that connect over HTTP."""

    def __init__(self, door: Door, stop: asyncio.Event) -> None:
        self._deps, self.stop, self._words = door.deps, stop, door.words
        self._dispatcher = TurnDispatcher(door.deps, words=door.words)
        self._known: dict[str, Launcher] = {}
        self._claims, self._reports = Turnstile(), Turnstile()

    # Launchers ----------------------------------------------------------------------------------

    async def register(self, exchange: Exchange, visitor: Visitor, told: wire.LauncherRegistration) -> None:
        """Register a launcher."""
        now, launcher_id = self._deps.clock.now(), told.launcher_id or self._deps.new_id()
        before = await self._found(launcher_id)
        if before is not None and before.owners != owners_of(visitor):
            raise errors.IdTaken(launcher_id)
        launcher = like(
            Launcher,
            told,
            launcher_id=launcher_id,
            registered_at=now if before is None else before.registered_at,
            seen_at=now,
            agents=tuple(told.agents),
            owners=owners_of(visitor),
        )
        await exchange.answer(document(await self._save(launcher)), status=201)

    async def heartbeat(self, exchange: Exchange, visitor: Visitor, told: wire.Heartbeat) -> None:
        """Renew the leases of a launcher's turns."""
        launcher = await self._launcher(exchange, visitor)
        beats = await asyncio.gather(*(self._renewed(visitor, held) for held in told.turns))
        ended_sessions = tuple(name for name in told.ended_sessions if launcher.works_for(name.rpartition(" ")[0]))
        facts = {"running": told.running, "draining": told.draining, "ended_sessions": ended_sessions}
        kept = await self._save(replace(launcher, seen_at=self._deps.clock.now(), **facts))
        waiting = await self._waiting(launcher, {held.turn_id for held in told.turns})
        await exchange.answer(encode(wire.Beaten(turns=beats, waiting=waiting, drain=kept.drain)))

    async def _renewed(self, visitor: Visitor, held: wire.Held) -> wire.Beat:
        try:
            turn = await self._dispatcher.renew(*await self._turn(visitor, held.turn_id, held.epoch, held.owner))
        except (errors.TurnLost, errors.NotFound):
            return wire.Beat(turn_id=held.turn_id, lost=True)
        return wire.Beat(turn_id=held.turn_id, stop_requested=turn.stop_requested, turn=turn)

    async def _waiting(self, launcher: Launcher, among: Iterable[str]) -> list[str]:
        return sorted(await self._dispatcher.waiting(launcher.launcher_id) & set(among))

    async def _launcher(self, exchange: Exchange, visitor: Visitor) -> Launcher:
        """Return the launcher if it has the owners of this key. Raise LauncherNotFound."""
        launcher_id = exchange.params["launcher_id"]
        found = await self._found(launcher_id)
        if found is None or found.owners != owners_of(visitor):
            raise errors.LauncherNotFound(launcher_id)
        return found

    async def _found(self, launcher_id: str) -> Launcher | None:
        if launcher_id not in self._known:
            self._known.update({each.launcher_id: each for each in await all_launchers(self._deps.store)})
        return self._known.get(launcher_id)

    async def _save(self, launcher: Launcher) -> Launcher:
        kept = self._known[launcher.launcher_id] = await note_launcher(self._deps, launcher)
        return kept

    # Claiming -----------------------------------------------------------------------------------

    async def claim(self, exchange: Exchange, visitor: Visitor, wish: wire.Claiming) -> None:
        """Wait for turns, or for news of the launcher's turns, and return them."""
        launcher = await self._launcher(exchange, visitor)
        gone = asyncio.ensure_future(exchange.disconnected())
        try:
            async with self._claims.enter(launcher.launcher_id) as superseded:
                news = await _Claim(self, launcher, visitor, wish).news(gone, superseded)
                await exchange.answer(encode(news))
        finally:
            gone.cancel()

    async def adopt(self, exchange: Exchange, visitor: Visitor, held: wire.Held) -> None:
        """Let a restarted launcher continue a turn of its former process."""
        launcher = await self._launcher(exchange, visitor)
        owner, turn = await self._turn(visitor, held.turn_id, held.epoch, held.owner)
        turn = replace(turn, launcher_id=held.former)
        await exchange.answer(encode(await self._dispatcher.adopt(owner, turn, launcher.launcher_id)))

    # Turns --------------------------------------------------------------------------------------

    async def entries(self, exchange: Exchange, visitor: Visitor, told: wire.Report) -> None:
        """Store the events of a turn."""
        owner, turn = await self._turn(visitor, exchange.params["turn_id"], told.epoch, told.owner)
        async with self._reports.enter(f"{owner} {turn.turn_id}"):  # a repeated report waits for the first one
            try:
                reported = await self._keep(owner, turn, told)
            except errors.HoldLost:
                raise errors.TurnLost(turn.turn_id, turn.epoch) from None
        await exchange.answer(encode(reported))

    async def _keep(self, owner: str, turn: Turn, told: wire.Report) -> wire.Reported:
        dispatcher, reported = self._dispatcher, wire.Reported(turn_id=turn.turn_id)
        if told.started:
            await dispatcher.started(owner, turn)
        if told.messages:
            await dispatcher.say(owner, turn, told.messages)
        if told.update is not None:
            reported = replace(reported, session=await dispatcher.update(owner, turn, **asdict(told.update)))
        if told.problem is not None:
            await dispatcher.misspoken(owner, turn, told.problem)
        if told.checkpoint is not None:
            kept = await dispatcher.checkpoint(owner, turn, told.checkpoint.state, since=told.checkpoint.since)
            reported = replace(reported, session=kept)
        if told.approval is not None:
            approval = await dispatcher.request_approval(owner, turn, **asdict(told.approval))
            reported = replace(reported, approval=approval)
        if told.release:
            await dispatcher.release(owner, turn)
        return reported

    async def words(self, exchange: Exchange, visitor: Visitor, told: wire.Saying) -> None:
        """Show partial output of a turn's agent without storing it."""
        owner, turn = await self._turn(visitor, exchange.params["turn_id"], told.epoch, told.owner)
        now = await self._deps.store.find_turn(owner, turn.turn_id)
        if now.epoch != told.epoch or now.state is not TurnState.RUNNING:
            raise errors.TurnLost(turn.turn_id, told.epoch)
        await self._dispatcher.speak(owner, turn, told.text)
        await exchange.answer(encode(wire.Reported(turn_id=turn.turn_id)))

    async def finish(self, exchange: Exchange, visitor: Visitor, told: wire.TurnEnding) -> None:
        """Report the end of a turn."""
        if told.outcome not in ENDS:
            raise errors.InvalidField("outcome", f"is {told.outcome.value!r}; use one of {', '.join(ENDS)}")
        end = like(TurnEnd, told, messages=tuple(check_messages(told.messages)) if told.messages else ())
        owner, turn = await self._turn(visitor, exchange.params["turn_id"], told.epoch, told.owner)
        async with self._reports.enter(f"{owner} {turn.turn_id}"):
            session = await self._dispatcher.finish(owner, turn, end)
        await exchange.answer(encode(wire.Reported(turn_id=turn.turn_id, session=session)))

    async def approval(self, exchange: Exchange, visitor: Visitor, asked: Awaiting) -> None:
        """Wait for the answer to a question of a turn."""
        owner, turn = await self._turn(visitor, exchange.params["turn_id"], asked.epoch, asked.owner)
        until = asyncio.get_running_loop().time() + asked.wait
        while True:
            seen = self._dispatcher.pulse()
            caller = replace(visitor.caller, owner=owner)
            approval = await get_approval(self._deps, caller, exchange.params["approval_id"])
            if approval.session_id != turn.session_id:
                raise errors.ApprovalNotFound(approval.approval_id)
            left = until - asyncio.get_running_loop().time()
            if approval.state.value != "pending" or left <= 0 or self.stop.is_set():
                break
            await first_of(self._dispatcher.wait(seen, min(left, LOOK_AGAIN)), self.stop.wait())
        await exchange.answer(document(approval))

    async def _turn(self, visitor: Visitor, turn_id: str, epoch: int, owner: str | None) -> tuple[str, Turn]:
        """Return the owner of a turn, and the turn as the reporting launcher knows it. Raises TurnNotFound."""
        owner = owner or default_owner(visitor)
        if owner not in owners_of(visitor):
            raise errors.TurnNotFound(turn_id)
        return owner, replace(await self._deps.store.find_turn(owner, turn_id), epoch=epoch)


class Awaiting(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The turn that waits for an answer, and the time limit of the request."""

    epoch: Annotated[wire.Epoch, Meta(description="the epoch of the turn that waits")]
    owner: Annotated[str, Meta(description="whose turn it is, if not the caller's")] = ""
    wait: Annotated[float, Meta(ge=0, le=wire.LONGEST_WAIT, description="seconds to wait for the answer")] = 0.0


class _Claim:
    """One request for turns and news, while it waits."""

    def __init__(self, launching: LauncherEndpoints, launcher: Launcher, visitor: Visitor, wish: wire.Claiming) -> None:
        self._launching, self._launcher, self._visitor, self._wish = launching, launcher, visitor, wish
        lease = LEASE if wish.lease is None else timedelta(seconds=wish.lease)
        lost_after = LOST_AFTER if wish.lost_after is None else timedelta(seconds=wish.lost_after)
        deps, words = launching._deps, launching._words
        self._dispatcher = TurnDispatcher(deps, lease=lease, lost_after=lost_after, tokens=True, words=words)

    async def news(self, gone: asyncio.Future[None], superseded: asyncio.Event) -> wire.News:
        """Wait for new turns; return nothing if the launcher has disconnected."""
        await self._take_back_unknown()
        loop, stop = asyncio.get_running_loop(), self._launching.stop
        until = loop.time() + self._wish.wait
        while not (gone.done() or superseded.is_set() or stop.is_set()):
            seen = self._dispatcher.pulse()
            news = await self._look()
            left = until - loop.time()
            if self._is_worth_telling(news) or left <= 0:
                return await self._taken_back(news) if gone.done() else news
            await first_of(self._dispatcher.wait(seen, min(left, LOOK_AGAIN)), superseded.wait(), stop.wait(), gone)
        return wire.News(stop=self._wish.stopping, waiting=self._wish.waiting)

    async def _take_back_unknown(self) -> None:
        """Release turns whose answer never arrived: they were not started, so other launchers may claim them."""
        for one in await self._launching._deps.store.turns_of(self._launcher.launcher_id):
            is_unknown = one.turn.started_at is None and self._wish.known.get(one.turn.turn_id) != one.turn.epoch
            if is_unknown and one.owner in owners_of(self._visitor):
                with suppress(errors.TurnLost, errors.NotFound):
                    await self._dispatcher.release(one.owner, one.turn)

    async def _look(self) -> wire.News:
        claimed = await self._claimed() if self._wish.room and self._wish.agents else []
        waiting = await self._launching._waiting(self._launcher, self._wish.known)
        return wire.News(turns=await self._given(claimed), stop=await self._unwanted(), waiting=waiting)

    async def _claimed(self) -> list[Claimed]:
        """Claim one turn if there is one; then claim as many as there is room for, concurrently."""
        first = await self._claim_one()
        if first is None:
            return []
        more = await asyncio.gather(*(self._claim_one() for _ in range(self._wish.room - 1)))
        return [first, *(each for each in more if each is not None)]

    async def _claim_one(self) -> Claimed | None:
        return await self._dispatcher.claim(self._launcher, self._wish.agents, full=tuple(self._wish.full))

    async def _given(self, claimed: list[Claimed]) -> list[Given]:
        given = []
        for each in claimed:
            with suppress(errors.NotFound):  # deleted meanwhile
                given.append(await self._dispatcher.given(each))
        return given

    async def _unwanted(self) -> list[str]:
        wish, own, unwanted = self._wish, default_owner(self._visitor), []
        for turn_id, epoch in wish.known.items():
            owner = wish.owners.get(turn_id, own)
            turn = Turn(turn_id=turn_id, session_id="", agent_name=None, queued_at=self._launcher.seen_at, epoch=epoch)
            if owner not in owners_of(self._visitor) or await self._dispatcher.is_unwanted(owner, turn):
                unwanted.append(turn_id)
        return unwanted

    def _is_worth_telling(self, news: wire.News) -> bool:
        unheard = set(news.stop) - set(self._wish.stopping)
        return bool(news.turns) or bool(unheard) or set(news.waiting) != set(self._wish.waiting)

    async def _taken_back(self, news: wire.News) -> wire.News:
        """Release the claimed turns of a launcher that has disconnected."""
        for taken in news.turns:
            with suppress(errors.TurnLost, errors.NotFound):
                await self._dispatcher.release(taken.owner, taken.turn)
        return replace(news, turns=[])


class Turnstile:
    """Allows one claim of a launcher at a time: a newer claim ends the previous one, whose client has gone."""

    def __init__(self) -> None:
        self._ends: dict[str, asyncio.Event] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def enter(self, name: str) -> AsyncIterator[asyncio.Event]:
        """Enter when the previous claim has left; the event tells when to leave."""
        mine, before = asyncio.Event(), self._ends.get(name)
        self._ends[name] = mine
        if before is not None:
            before.set()
        async with self._locks.setdefault(name, asyncio.Lock()):
            try:
                yield mine
            finally:
                if self._ends[name] is mine:
                    del self._ends[name], self._locks[name]


def owners_of(visitor: Visitor) -> tuple[str, ...]:
    """Return the owners that a launcher with this key works for."""
    return visitor.owners or (visitor.caller.owner,)


def default_owner(visitor: Visitor) -> str:
    """Return the owner of a turn if the request names none."""
    owners = owners_of(visitor)
    return visitor.caller.owner if visitor.caller.owner in owners else owners[0]
