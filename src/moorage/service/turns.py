"""Turns: the requests and reports of launchers, on a store or through a server.

Every report has the turn and its epoch, and is refused with TurnLost once another launcher has the turn. Reports may
be repeated, because an answer may get lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from hashlib import sha256
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field, to_builtins

from moorage.core import work
from moorage.core.approval import Approval
from moorage.core.entry import Kind, Problem, check_messages
from moorage.core.errors import NotFound, SessionCorrupt, StoreError
from moorage.core.ids import uuid8
from moorage.core.inbox import Item, ItemKind, with_final_counts
from moorage.core.query import LogQuery
from moorage.core.render import like
from moorage.core.run import Run
from moorage.core.session import Change, Needs, Session, Stamp, View, check_checkpoint, check_said
from moorage.core.turn import LEASE, LOST_AFTER, Launcher, Retry, Turn
from moorage.core.window import unanswered_calls
from moorage.core.work import Claim, TurnEnd
from moorage.ports import Claimed, Decision
from moorage.service import approvals
from moorage.service.conversation import repair, window
from moorage.service.deps import Caller, Deps, stamp_of
from moorage.service.leases import judgement, note_launcher, trusted_now
from moorage.service.records import remember
from moorage.service.sessions import checked_update, context_for_agent

if TYPE_CHECKING:
    from moorage.service.words import Words

log = logging.getLogger(__name__)

EXPIRE_EVERY = 0.2  # seconds
LOOK_FOR_OWNERS = 0.05
EXPIRE_AT_ONCE = 50  # sessions that one claim checks for deadlines
APPROVALS_EVERY = 1.0  # seconds
OWNERS_AT_ONCE = 50  # whose approvals one claim checks for deadlines; the next claims check the others
DOUBTFUL = 100  # entries searched for a report that may have been stored already


class Given(Struct, frozen=True, kw_only=True):
    """A claimed turn with everything that its agent needs."""

    owner: str
    session: Session
    turn: Turn
    items: tuple[Item, ...]
    runs: tuple[Run, ...]
    history: list[dict[str, Any]]
    checkpoint: dict[str, Any] | None = None
    context: dict[str, Any] = field(default_factory=dict)
    token: str | None = None  # token with which the agent acts for its session, if access is guarded


class TurnDispatcher:
    """The dispatcher of a launcher that opens the store itself."""

    def __init__(
        self,
        deps: Deps,
        *,
        lease: timedelta = LEASE,
        lost_after: timedelta = LOST_AFTER,
        tokens: bool = False,
        words: Words | None = None,
        interface: str = "launcher",
    ) -> None:
        """With `tokens`, agents get a session token if there are keys, because they use a server.

        `words` takes the partial output of agents. `interface` is the interface of the entries of turns.
        """
        self._deps, self._lease, self._lost_after, self._tokens = deps, lease, lost_after, tokens
        self._words, self._interface = words, interface
        self._expire_at = self._owners_at = deps.clock.monotonic()
        self._owners: tuple[str, ...] = ()
        self._approvals_at, self._owners_checked = 0.0, 0

    async def register(self, launcher: Launcher) -> bool:
        deps = self._deps
        (deps.launchers.discard if launcher.has_left else deps.launchers.add)(launcher.launcher_id)
        return (await note_launcher(deps, launcher)).drain

    async def claim(
        self, launcher: Launcher, agents: dict[str, Retry], *, full: tuple[str, ...] = ()
    ) -> Claimed | None:
        """Apply deadlines from time to time, before the claim."""
        now = self._deps.clock.monotonic()
        if now >= self._expire_at:
            self._expire_at = now + EXPIRE_EVERY
            await self.expire()
        if not launcher.owners and now >= self._owners_at:
            self._owners_at = now + LOOK_FOR_OWNERS
            self._owners = tuple(await self._deps.store.owners())
        whose = launcher.owners or self._owners
        if now >= self._approvals_at:
            self._approvals_at = now + APPROVALS_EVERY
            await self._expire_approvals(whose)
        wish = Claim(
            launcher_id=launcher.launcher_id,
            lease=self._lease,
            lost_after=self._lost_after,
            token=self._deps.new_token(),
            retries=agents,
            of_family=launcher.root is not None,
        )
        stamp = stamp_of(self._deps, Caller(by=f"launcher:{launcher.launcher_id}", interface="launcher"))
        free = tuple(agent for agent in agents if agent not in full)
        return await self._deps.store.claim(whose, free, wish, stamp, root=launcher.root)

    async def given(self, claimed: Claimed) -> Given:
        caller = self._caller(claimed.owner, claimed.turn)
        return like(
            Given,
            claimed,
            items=with_final_counts(claimed.items),
            history=await self._history(caller, claimed),
            checkpoint=await self._checkpoint(caller, claimed),
            context=await context_for_agent(self._deps, caller, claimed.session),
            token=await self._token(claimed) if self._tokens else None,
        )

    async def _checkpoint(self, caller: Caller, claimed: Claimed) -> dict[str, Any] | None:
        """Return the newest checkpoint, unless another agent saved it."""
        if claimed.session.last_checkpoint is None:
            return None
        query = LogQuery(kinds=(Kind.CHECKPOINT.value,), newest_first=True, limit=DOUBTFUL)
        kept = await self._deps.store.log(caller.owner, claimed.session.session_id, query)
        fitting = (each for each in kept if each.interface != self._interface or each.by == claimed.turn.agent_name)
        return next((each.data["checkpoint"] for each in fitting if each.data), None)

    async def _token(self, claimed: Claimed) -> str | None:
        from moorage.service.keys import token_where_guarded

        run_id = claimed.runs[0].run_id if claimed.runs else None  # its environment names the same run
        return await token_where_guarded(self._deps, claimed.owner, claimed.session.session_id, run_id)

    async def _history(self, caller: Caller, claimed: Claimed) -> list[dict[str, Any]]:
        """Return the history without the items of this turn, its calls repaired unless this turn may answer them."""
        session, items = claimed.session, claimed.items
        if items and items[0].created_at == session.created_at and session.last_entry == len(items) + 1:
            return []  # the log has only the prompt that the session was created with
        read = partial(window, self._deps, caller, session.session_id, self._deps.settings.window)
        messages = (await read()).items
        is_asked = all(item.kind is ItemKind.MESSAGE for item in items)  # or else answered what a call asked
        if unanswered_calls(messages) and (is_asked or claimed.turn.cut_off):
            await repair(self._deps, caller, session.session_id)
            messages = (await read()).items
        new = {item.entry for item in items}
        return [{"role": each.role, "content": each.content} for each in messages if each.number not in new]

    async def expire(self) -> int:
        """Requeue turns that were not started, give up silent ones, and return the number of changed sessions."""
        judge = judgement(self._deps)
        due = await self._deps.store.overdue(await trusted_now(self._deps), EXPIRE_AT_ONCE)
        for owner, session_id in due:
            try:
                await self._deps.store.apply(owner, session_id, judge)
            except NotFound:
                continue
            except SessionCorrupt as error:  # an unreadable session must not block the others
                log.warning("%s", error.message)
        return len(due)

    async def _expire_approvals(self, owners: tuple[str, ...]) -> None:
        """Close approvals that were not answered in time: their sessions continue, even if no caller looks at them."""
        begin = self._owners_checked % max(1, len(owners))
        self._owners_checked = begin + OWNERS_AT_ONCE
        for owner in owners[begin : begin + OWNERS_AT_ONCE]:
            await approvals.expire_approvals(self._deps, Caller(owner=owner, by="moorage", interface="launcher"))

    async def started(self, owner: str, turn: Turn) -> None:
        await self._report(owner, turn, work.started)
        self._is_kept_now(owner, turn)  # drop the partial output of an earlier, cut-off turn

    async def renew(self, owner: str, turn: Turn) -> Turn:
        return (await self._report(owner, turn, work.renewed)).turns[0]

    async def is_unwanted(self, owner: str, turn: Turn) -> bool:
        try:
            return (await self._deps.store.find_turn(owner, turn.turn_id)).stop_requested
        except NotFound:
            return True
        except StoreError:
            return False

    async def adopt(self, owner: str, turn: Turn, launcher_id: str) -> Turn:
        how = {"launcher_id": launcher_id, "token": self._deps.new_token(), "former": turn.launcher_id}
        return (await self._report(owner, turn, work.adopted, **how)).turns[0]

    async def speak(self, owner: str, turn: Turn, text: str) -> None:
        if self._words is not None:
            self._words.add(owner, turn.session_id, text)

    def _is_kept_now(self, owner: str, turn: Turn) -> None:
        if self._words is not None:
            self._words.over(owner, turn.session_id)

    async def say(self, owner: str, turn: Turn, messages: object) -> None:
        said = check_messages(messages)
        token = (await self._deps.store.get(owner, turn.session_id)).token_of(turn)
        await self._deps.store.append(owner, turn.session_id, said, self._stamp(owner, turn), token=token)
        self._is_kept_now(owner, turn)

    async def update(self, owner: str, turn: Turn, *, since: int | None = None, **facts: Any) -> Session:
        (update, _), stamp = checked_update(self._deps, **facts), self._stamp(owner, turn)
        is_about_metadata = bool(update.metadata)
        kind = Kind.METADATA if is_about_metadata else Kind.ERROR
        told = {"metadata": update.metadata} if is_about_metadata else {"error": update.error}
        if since is not None and await self._is_kept(owner, turn, kind, told, since):
            return await self._deps.store.get(owner, turn.session_id)
        change = await self._apply(
            owner, turn, lambda view: view.session.update(update, stamp, token=view.session.token_of(turn))
        )
        return change.session

    async def misspoken(self, owner: str, turn: Turn, problem: Problem) -> None:
        if not await self._is_kept(owner, turn, Kind.PROBLEM, to_builtins(problem), 0):
            await self._report(owner, turn, work.misspoken, problem=problem)

    async def checkpoint(self, owner: str, turn: Turn, state: object, *, since: int | None = None) -> Session:
        kept, stamp = check_checkpoint(state), self._stamp(owner, turn)
        if since is not None and await self._is_kept(owner, turn, Kind.CHECKPOINT, {"checkpoint": kept}, since):
            return await self._deps.store.get(owner, turn.session_id)
        change = await self._apply(
            owner, turn, lambda view: view.session.save_checkpoint(kept, stamp, token=view.session.token_of(turn))
        )
        return change.session

    async def _is_kept(self, owner: str, turn: Turn, kind: Kind, data: dict[str, Any], since: int) -> bool:
        """Return whether the log has this entry of the turn after `since`: the answer to its report may be lost."""
        kinds = (Kind.TURN_STARTED.value, kind.value)
        query = LogQuery(after=since, kinds=kinds, newest_first=True, limit=DOUBTFUL)
        of_turn = takewhile(lambda entry: entry.kind == kind, await self._deps.store.log(owner, turn.session_id, query))
        return any(entry.data == data for entry in of_turn)

    async def request_approval(
        self, owner: str, turn: Turn, question: str, *, key: str | None = None, **options: Any
    ) -> Approval:
        approval_id = None if key is None else uuid8(sha256(f"{turn.turn_id} {key}".encode()).digest())
        caller = self._caller(owner, turn)
        return await approvals.request_approval(
            self._deps, caller, turn.session_id, question, approval_id=approval_id, turn=turn, **options
        )

    async def approval(self, owner: str, approval_id: str) -> Approval:
        caller = Caller(owner=owner, by="moorage", interface="launcher")
        return await approvals.get_approval(self._deps, caller, approval_id)

    async def finish(self, owner: str, turn: Turn, end: TurnEnd) -> Session:
        change = await self._report(owner, turn, work.finished, end=end)
        if end.context:
            await remember(self._deps, self._caller(owner, turn), turn.session_id, end.context)
        self._is_kept_now(owner, turn)
        return change.session

    async def release(self, owner: str, turn: Turn) -> None:
        await self._report(owner, turn, work.released)
        self._is_kept_now(owner, turn)

    async def waiting(self, launcher_id: str) -> set[str]:
        return {each.turn.turn_id for each in await self._deps.store.turns_of(launcher_id) if each.is_waiting}

    def pulse(self) -> int:
        return self._deps.store.pulse()

    async def wait(self, seen: int, timeout: float) -> None:
        await self._deps.store.wait(seen, timeout)

    async def _report(self, owner: str, turn: Turn, rule: Callable[..., Change], **facts: Any) -> Change:
        """Apply a rule about a live turn, which is refused if another launcher has the turn."""

        def decide(view: View) -> Change:
            return rule(view, turn_id=turn.turn_id, epoch=turn.epoch, stamp=self._stamp(owner, turn), **facts)

        return await self._apply(owner, turn, decide)

    async def _apply(self, owner: str, turn: Turn, decide: Decision) -> Change:
        return await self._deps.store.apply(owner, turn.session_id, decide, needs=Needs(turn=turn.turn_id))

    def _caller(self, owner: str, turn: Turn) -> Caller:
        return Caller(owner=owner, by=turn.agent_name, interface=self._interface, holder=f"launcher:{turn.launcher_id}")

    def _stamp(self, owner: str, turn: Turn) -> Stamp:
        self._deps.watch.look()  # detect a step of the clock now: it may step back before leases are judged
        return stamp_of(self._deps, self._caller(owner, turn))


async def suspend_with_turn(
    deps: Deps,
    caller: Caller,
    ref: str,
    launcher_id: str,
    *,
    checkpoint: dict[str, Any] | None = None,
    reason: str | None = None,
) -> Session:
    """Suspend a session for the person who leaves it with its launcher; the launcher gives back the turn next.

    Raises SessionRunning if another launcher has the turn.
    """
    kept = None if checkpoint is None else check_checkpoint(checkpoint)
    why = None if reason is None else check_said("reason", reason)
    stamp = stamp_of(deps, caller)

    def decide(view: View) -> Change:
        turn, hold = view.work.running, view.session.hold
        is_ours = turn is not None and turn.launcher_id == launcher_id
        token = str(hold.token) if is_ours and hold is not None else None
        return work.after(view, view.session.suspend(stamp, checkpoint=kept, reason=why, token=token), stamp)

    return (await deps.store.apply(caller.owner, ref, decide)).session
