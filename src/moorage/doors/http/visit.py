"""A caller at the door: `Moorage` as one visitor sees it, with the sessions their headers name as surroundings."""

from __future__ import annotations

import logging
import os
from typing import Any

from msgspec import Struct

from moorage.client import Moorage
from moorage.core.errors import InvalidField, VersionConflict
from moorage.core.family import Deletion
from moorage.core.key import Scope
from moorage.executor import AgentExecutor
from moorage.executor import Posted as Posted  # what other doors that are visited tell of
from moorage.service import runs
from moorage.service.agents import AgentList, hidden
from moorage.service.deps import Caller, Deps

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


class Visit(Moorage):
    """Moorage for one visitor. Agents are the launcher's business, never this object's."""

    def __init__(self, deps: Deps, visitor: Visitor, *, session: str | None = None, run: str | None = None) -> None:
        super().__init__(lambda: deps, visitor.caller)
        self.deps = self._deps = deps
        self.launches = False
        self._session, self._run = session or visitor.session_id, run

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

    async def check_version(self, ref: str, version: int | None) -> None:
        """Raise VersionConflict if the session is at another version: for changes that compare none themselves."""
        if version is not None and (session := await self.get(ref)).version != version:
            raise VersionConflict(session.session_id, version, session.version)


def _without_folder(problem: dict[str, Any]) -> dict[str, Any]:
    """What is wrong in a file, without where the server keeps it."""
    name = os.path.basename(problem["file"])
    return {**problem, "file": name, "detail": problem["detail"].replace(problem["file"], name)}
