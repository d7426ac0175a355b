"""A caller at the door: `Holdfast` as one visitor sees it, with the sessions their headers name as surroundings."""

from __future__ import annotations

import logging
import os
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast.client import Holdfast
from holdfast.core.entry import Entry, Message, check_messages
from holdfast.core.errors import InvalidField, VersionConflict
from holdfast.core.family import Deletion
from holdfast.core.key import Scope
from holdfast.core.run import Run
from holdfast.service import conversation, runs
from holdfast.service.agents import AgentList, hidden
from holdfast.service.deps import Caller, Deps

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


class Posted(Struct, frozen=True, kw_only=True):
    """What became of messages: the entries they are, and the work they asked for."""

    session_id: str
    entries: list[Entry]
    run_id: str | None = None
    run: Run | None = None  # as it is when the answer is sent
    reply: Entry | None = None  # what the agent said last, if the run has completed


class Visit(Holdfast):
    """Holdfast for one visitor. Agents are the launcher's business, never this object's."""

    def __init__(self, deps: Deps, visitor: Visitor, *, session: str | None = None, run: str | None = None) -> None:
        super().__init__(lambda: deps, visitor.caller)
        self.deps = self._deps = deps
        self.launches = False
        self._session, self._run = session or visitor.session_id, run

    def _surrounding_session(self) -> str | None:
        return self._session

    def _surrounding_run(self) -> str | None:
        return self._run

    async def run(self, agent: str | None, prompt: object, **options: Any) -> runs.RunReply:
        """As `Holdfast.run`, but nobody keeps a connection waiting for ever."""
        timeout = options.get("timeout")
        options["timeout"] = min(USUAL_WAIT if timeout is None else timeout, LONGEST_WAIT)
        return await super().run(agent, prompt, **options)

    async def delete(self, ref: str, **options: Any) -> Deletion:
        """As `Holdfast.delete`, and the server's log says what went."""
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
        """As `Holdfast.agents`, without what variables and headers say."""
        every = await super().agents()
        return AgentList(
            items=[hidden(agent) for agent in every.items], problems=[_without_folder(each) for each in every.problems]
        )

    async def agent(self, name: str) -> dict[str, Any]:
        """As `Holdfast.agent`, without what variables and headers say."""
        return hidden(await super().agent(name))

    async def post(
        self,
        ref: str,
        *,
        messages: Any = None,
        content: Any = None,
        role: str = "user",
        client_key: str | None = None,
        token: str | None = None,
        run: bool = True,
        wait: float = 0.0,
    ) -> Posted:
        """Say something: a user's message asks for a run if the agent can be started, unless told not to.

        Of several messages the last one asks; those before it are what it goes with.
        """
        if (messages is None) == (content is None):
            raise InvalidField("messages", "and content: give one of the two")
        said = [{"role": role, "content": content, "client_key": client_key}] if messages is None else messages
        checked = check_messages(said)
        if run and token is None and checked[-1].role == "user" and await self._is_answered(ref):
            return await self._ask(ref, checked, wait)
        entries = await self.append(ref, checked, token=token)
        return Posted(session_id=str(entries[0].session_id), entries=entries)

    async def check_version(self, ref: str, version: int | None) -> None:
        """Raise VersionConflict if the session is at another version: for changes that compare none themselves."""
        if version is not None and (session := await self.get(ref)).version != version:
            raise VersionConflict(session.session_id, version, session.version)

    async def _is_answered(self, ref: str) -> bool:
        """Whether the session has an agent that can be started."""
        deps = await self._ready()
        return deps.find_agent is not None and deps.can_start(
            (await deps.store.get(self._caller.owner, ref)).agent_name
        )

    async def _ask(self, ref: str, said: list[Message], wait: float) -> Posted:
        before, last = said[:-1], said[-1]
        entries = await self.append(ref, before) if before else []
        prompt = {"role": last.role, "content": last.content}
        reply = await self.send(ref, prompt, client_key=last.client_key)
        posted = Posted(session_id=reply.session_id, entries=[*entries, reply.message], run_id=reply.run_id)
        return await self.as_it_stands(posted, wait=wait)

    async def as_it_stands(self, posted: Posted, *, wait: float = 0.0) -> Posted:
        """The same with the run as it is now, or once it has settled within `wait` seconds."""
        if posted.run_id is None:
            return posted
        run = await self.result(posted.run_id, wait=min(wait, LONGEST_WAIT))
        return replace(posted, run=run, reply=await self._said(run))

    async def _said(self, run: Run) -> Entry | None:
        """The entry that a settled run's result is."""
        if run.result_entry is None:
            return None
        deps = await self._ready()
        page = await conversation.read_log(
            deps, self._caller, run.session_id, after=run.result_entry - 1, before=run.result_entry + 1
        )
        return page.items[0] if page.items else None


def _without_folder(problem: dict[str, Any]) -> dict[str, Any]:
    """What is wrong in a file, without where the server keeps it."""
    name = os.path.basename(problem["file"])
    return {**problem, "file": name, "detail": problem["detail"].replace(problem["file"], name)}
