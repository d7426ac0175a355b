"""A caller at the door: `Moorage` as one visitor sees it, with the sessions their headers name as surroundings."""

from __future__ import annotations

import logging
import os
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from moorage.client import Approvals, Moorage
from moorage.core.errors import InvalidField
from moorage.core.family import Deletion
from moorage.core.key import Scope, check_held
from moorage.core.session import Session
from moorage.executor import AgentExecutor
from moorage.executor import Posted as Posted  # what other doors that are visited tell of
from moorage.service import runs
from moorage.service.agents import AgentList, hidden
from moorage.service.deps import Caller, Deps
from moorage.service.sessions import ResumePacket

log = logging.getLogger(__name__)

LONGEST_WAIT = 60.0  # seconds one request waits for an answer
USUAL_WAIT = 30.0


class Visitor(Struct, frozen=True):
    """Who is asking, what they may do, and how far they reach."""

    caller: Caller
    scopes: frozenset[Scope] = frozenset(Scope)
    session_id: str | None = None  # of a session's own token: it reaches that session and its descendants
    key_id: str | None = None
    owners: tuple[str, ...] = ()  # for whom a launcher with this key works
    can_hold: bool = True  # whether they can be told apart from others when they come again


class Visit(Moorage):
    """Moorage for one visitor. Agents are the launcher's business, never this object's."""

    def __init__(self, deps: Deps, visitor: Visitor, *, session: str | None = None, run: str | None = None) -> None:
        self._visitor, caller = visitor, visitor.caller
        run = caller.run_id or run  # a token's word counts for more than a header's
        super().__init__(lambda: deps, caller if caller.run_id == run else replace(caller, run_id=run))
        self.deps = self._deps = deps
        self.launches = False
        self._session, self._run = session or visitor.session_id, run
        self._reach = visitor.session_id
        self._can_hold = visitor.can_hold

    @property
    def executor(self) -> AgentExecutor:
        """Who takes words to agents for this visitor."""
        return AgentExecutor(self)

    def _surrounding_session(self) -> str | None:
        return self._session

    def _surrounding_run(self) -> str | None:
        return self._run

    async def run(self, agent: str | None, prompt: object, **options: Any) -> runs.RunReply:
        """As `Moorage.run`, but nobody keeps a connection waiting for ever."""
        timeout = options.get("timeout")
        options["timeout"] = min(USUAL_WAIT if timeout is None else timeout, LONGEST_WAIT)
        return await super().run(agent, prompt, **options)

    async def resume(  # type: ignore[override]  # whether there is a hold depends on the visitor
        self, ref: str, *, hold: bool | None = None, **options: Any
    ) -> ResumePacket:
        """As `Moorage.resume`, but a visitor with neither key, token nor name gets a hold only by asking for one."""
        wanted = self._can_hold or options.get("holder") is not None if hold is None else hold
        return await super().resume(ref, hold=wanted, **options)

    async def delete(self, ref: str, **options: Any) -> Deletion:
        """As `Moorage.delete`, and the server's log says what went."""
        gone = await super().delete(ref, **options)
        if not gone.dry_run:
            log.warning(
                "%s deleted session %s with %d below it: %d messages, %d runs",
                self._caller.by or "somebody",
                gone.session_id,
                gone.cascaded_children,
                gone.messages,
                gone.runs,
            )
        for session_id in gone.unconfirmed:
            log.warning("nobody confirms that the agent of session %s, which was deleted, has ended", session_id)
        return gone

    async def ancestors(self, ref: str) -> list[Session]:
        """As `Moorage.ancestors`; a session's token sees none above its own session."""
        found = await super().ancestors(ref)
        if self._reach is None:
            return found
        upwards = [session.session_id for session in found]
        return found[: upwards.index(self._reach) + 1] if self._reach in upwards else []

    async def approvals(self, ref: str | None = None, *, pending_only: bool = True, limit: int = 100) -> Approvals:
        """As `Moorage.approvals`; who may decide but not read sees what waits for an answer."""
        if not pending_only:
            check_held(self._visitor.scopes, Scope.READ)
        return await super().approvals(ref, pending_only=pending_only, limit=limit)

    async def agents(self) -> AgentList:
        """As `Moorage.agents`, without what variables and headers say."""
        every = await super().agents()
        return AgentList(
            items=[hidden(agent) for agent in every.items], problems=[_without_folder(each) for each in every.problems]
        )

    async def agent(self, name: str) -> dict[str, Any]:
        """As `Moorage.agent`, without what variables and headers say."""
        return hidden(await super().agent(name))

    async def post(
        self,
        ref: str,
        *,
        messages: Any = None,
        content: Any = None,
        role: str = "user",
        client_key: str | None = None,
        **how: Any,
    ) -> Posted:
        """Say one thing (`content`, `role`) or several (`messages`): `AgentExecutor.say` as requests have it."""
        if (messages is None) == (content is None):
            raise InvalidField("messages", "and content: give one of the two")
        one = [{"role": role, "content": content, "client_key": client_key}]
        return await self.executor.say(ref, one if messages is None else messages, **how)

    def on(self, deps: Deps) -> Visit:
        """The same visitor on another view of the store."""
        return Visit(deps, self._visitor, session=self._session, run=self._run)


def _without_folder(problem: dict[str, Any]) -> dict[str, Any]:
    """What is wrong in a file, without where the server keeps it."""
    name = os.path.basename(problem["file"])
    return {**problem, "file": name, "detail": problem["detail"].replace(problem["file"], name)}
