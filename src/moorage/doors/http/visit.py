"""A caller at the door: `Moorage` as one visitor sees it, called from the sessions that their headers name."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from moorage import values
from moorage.client import LocalMoorage, OpenStore
from moorage.core.answer import RunAnswer
from moorage.core.errors import NotFound, OutOfReach, SessionNotFound
from moorage.core.family import Deletion
from moorage.core.key import Scope, check_held
from moorage.executor import AgentExecutor
from moorage.remote.operations import Arguments, Operation
from moorage.service import keys
from moorage.service.agents import AgentList, hidden
from moorage.service.deps import Caller, Deps

log = logging.getLogger(__name__)

LONGEST_WAIT = 60.0  # seconds one request waits for an answer
USUAL_WAIT = 30.0


class Visitor(Struct, frozen=True):
    """The authenticated caller: identity, scopes and session limit."""

    caller: Caller
    scopes: frozenset[Scope] = frozenset(Scope)
    session_id: str | None = None  # of a session's own token: it reaches that session and its descendants
    key_id: str | None = None
    owners: tuple[str, ...] = ()  # the owners that a launcher with this key works for
    can_hold: bool = True  # whether they can be recognized when they come again


class Visit(LocalMoorage):
    """The API for one visitor of a server. Agents belong to the launcher, never to this object."""

    def __init__(self, deps: Deps, visitor: Visitor, *, session: str | None = None, run: str | None = None) -> None:
        """Set up. `session` and `run` are named by the request as the caller's; those of a token take precedence."""
        caller = visitor.caller
        asking = replace(caller, parent=session or visitor.session_id, run_id=caller.run_id or run)
        super().__init__(OpenStore.of(deps), asking)
        self.visitor, self.deps = visitor, deps

    # The reach of a session's token: that session and its descendants, and nothing else.

    async def check_operation(self, operation: Operation, arguments: Arguments) -> None:
        """Raise OutOfReach if a token does not reach all sessions in the arguments, or there are none."""
        own = self.visitor.session_id
        if own is None or operation.name in ("agents", "agent", "tools"):
            return  # every agent may list agents and tools
        if operation.name in ("create", "run"):
            arguments.setdefault("parent", self.asks_from())
        given = [(name, arguments[name]) for name in operation.refs if arguments.get(name, UNSET) not in (None, UNSET)]
        if not given or not operation.to_token:
            raise OutOfReach(own)
        for name, ref in given:
            await self.check_access(name, ref, strictly=operation.name == "delete")

    async def check_access(self, name: str, ref: Any, *, strictly: bool = False) -> None:
        """Raise OutOfReach if the visitor's token does not reach a session, a run or an approval.

        With `strictly`, the token's own session is out of reach, too. `name` is that of the parameter.
        """
        own = self.visitor.session_id
        if own is None:
            return
        try:
            session_id = await self._session_behind(name, ref)
        except NotFound:  # missing and foreign ones must look alike
            raise OutOfReach(own) from None
        if (strictly and session_id == own) or not await keys.reaches(self.deps, self.caller.owner, own, session_id):
            raise OutOfReach(own)

    async def check_first_use(self, ref: str) -> None:
        """Raise OutOfReach if a token does not reach a session; an unknown one becomes a child of the caller's."""
        if self.visitor.session_id is None:
            return
        if (parent := self.asks_from()) != self.visitor.session_id:
            await self.check_access("parent", parent)
        with suppress(SessionNotFound):
            await self.get(ref)
            await self.check_access("ref", ref)

    async def _session_behind(self, name: str, ref: str) -> str:
        if name == "run_id":
            return (await self.get_run(ref)).session_id
        if name == "approval_id":
            return (await self.approval(ref)).session_id
        return (await self.get(ref)).session_id

    def check_no_token(self) -> None:
        """Raise OutOfReach if the visitor has a session's token."""
        if self.visitor.session_id is not None:
            raise OutOfReach(self.visitor.session_id)

    # The API ------------------------------------------------------------------------------------

    @property
    def executor(self) -> AgentExecutor:
        """Return the executor that asks agents for this visitor."""
        return AgentExecutor(self)

    async def run(self, agent: str | None, prompt: object, **options: Any) -> RunAnswer:
        """Run as the API says, but with a limit on the wait of a connection."""
        timeout = options.get("timeout")
        options["timeout"] = min(USUAL_WAIT if timeout is None else timeout, LONGEST_WAIT)
        return await super().run(agent, prompt, **options)

    async def resume(self, ref: str, *, hold: bool | None = None, **options: Any) -> Any:
        """Resume as the API says; a visitor with neither key, token nor name gets a hold only on request."""
        wanted = self.visitor.can_hold or options.get("holder") is not None if hold is None else hold
        return await super().resume(ref, hold=wanted, **options)

    async def delete(self, ref: str, **options: Any) -> Deletion:
        """Delete as the API says, and log what was deleted."""
        gone = await super().delete(ref, **options)
        if not gone.dry_run:
            by, counts = self.caller.by or "unknown", (gone.cascaded_children, gone.messages, gone.runs)
            told = "%s deleted session %s (descendants: %d, messages: %d, runs: %d)"
            log.warning(told, by, gone.session_id, *counts)
        for session_id in gone.unconfirmed:
            log.warning("no launcher confirmed that the agent of the deleted session %s has ended", session_id)
        return gone

    async def ancestors(self, ref: str) -> values.SessionList:
        """Return ancestors as the API says; a session's token sees none above its own session."""
        found, own = await super().ancestors(ref), self.visitor.session_id
        if own is None:
            return found
        upwards = [session.session_id for session in found]
        return found[: upwards.index(own) + 1] if own in upwards else []

    async def approvals(
        self, ref: str | None = None, *, pending_only: bool = True, limit: int = 100
    ) -> values.ApprovalList:
        """Return approvals as the API says; a visitor that may decide but not read sees those that wait."""
        if not pending_only:
            check_held(self.visitor.scopes, Scope.READ)
        return await super().approvals(ref, pending_only=pending_only, limit=limit)

    async def agents(self) -> AgentList:
        """Return agents as the API says, without the values of variables and headers."""
        every = await super().agents()
        return AgentList(
            items=[hidden(agent) for agent in every.items], problems=[_without_folder(each) for each in every.problems]
        )

    async def agent(self, name: str) -> dict[str, Any]:
        """Return an agent as the API says, without the values of variables and headers."""
        return hidden(await super().agent(name))

    def on(self, deps: Deps) -> Visit:
        """Return the same for another view of the store."""
        return Visit(deps, self.visitor, session=self.asks_from(), run=self.caller.run_id)


def _without_folder(problem: dict[str, Any]) -> dict[str, Any]:
    name = os.path.basename(problem["file"])
    return {**problem, "file": name, "detail": problem["detail"].replace(problem["file"], name)}
