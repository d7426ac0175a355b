"""The Python door: one object, the names every other door follows.

::

    async with moorage.connect("sqlite:///moorage.db") as moor:
        session = await moor.create(agent="terraform-architect", purpose="approval_workflow")

Each method checks nothing and decides nothing: it calls one service function.
`moorage.sync` has the same methods without `await`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any, Literal, overload

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from moorage import config
from moorage.core.approval import Approval
from moorage.core.context import ContextItem
from moorage.core.delegation import Delegation, Span
from moorage.core.entry import Entry
from moorage.core.errors import InvalidCursor, InvalidField, SessionRunning, StoreError, StoreUnavailable
from moorage.core.event import Event, Hit
from moorage.core.family import Deletion, Tombstone
from moorage.core.policy import Verdict
from moorage.core.query import Page, SessionQuery, check_limit
from moorage.core.session import Session
from moorage.core.window import TokenCounter, WindowSize
from moorage.service import (
    approvals,
    context,
    conversation,
    delegation,
    family,
    importing,
    retention,
    sessions,
    transfer,
)
from moorage.service.context import ContextWritten
from moorage.service.conversation import Reply
from moorage.service.delegation import Delegated, Place, Question
from moorage.service.deps import Caller, Deps
from moorage.service.family import TreeNode
from moorage.service.importing import ImportReport
from moorage.service.retention import Cleanup
from moorage.service.sessions import Checkpoint, ResumePacket, SessionRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import Task

    from moorage.core.agent import AgentDefinition
    from moorage.core.inbox import Item
    from moorage.core.key import Key
    from moorage.core.once import OnceKey
    from moorage.core.run import Run
    from moorage.core.tool import Tool, ToolAnswer
    from moorage.core.turn import Launcher, Turn
    from moorage.files.finding import Source
    from moorage.launcher.embedded import Embedded
    from moorage.service.agents import AgentList
    from moorage.service.analytics import Analytics
    from moorage.service.keys import NewKey
    from moorage.service.runs import Asked, Posted, RunReply
    from moorage.service.sessions import HeldPacket

# `list` is a method below, so the answers that are lists have names of their own.
Sessions = list[Session]
Entries = list[Entry]
Hits = list[Hit]
Approvals = list[Approval]
Problems = list[str]
Stopped = list[str]
Tools = list["Tool"]
Hearer = Callable[[str, dict[str, Any]], None]  # of a session's id, and of what happens in it
Hearers = list[Hearer]
WordHearer = Callable[[str, bool], None]  # of a piece of words, and of whether it takes the place of those before it


class Moorage:
    """Sessions on one store. Opened on first use or by `async with`."""

    def __init__(
        self, open_deps: Callable[[], Deps], caller: Caller, *, threaded: bool = True, url: str | None = None
    ) -> None:
        self._open_deps, self._caller, self._threaded, self._url = open_deps, caller, threaded, url
        self._deps: Deps | None = None
        self._launchers: dict[str | None, Embedded] = {}  # by the family they serve; None: all
        self._hearers: Hearers = []
        self.launches = threaded  # whether runs get a launcher of this connection
        self.one_family = False  # whether that launcher leaves other families' turns alone
        self.drains = True  # whether it waits for agents at work, a while, when the connection is closed
        self.is_away = False  # whether the server that is followed does not answer just now
        self.on_return: Callable[[], None] | None = None  # called when it answers again
        self._opening: Task[Deps] | None = None
        self._closed = False
        self.context = ContextDoor(self)

    async def __aenter__(self) -> Moorage:
        if self._deps is None:
            await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let the store go. Nothing acknowledged depends on it."""
        self._closed = True
        if self._opening is not None:
            from asyncio import wait

            await wait([self._opening])
        while self._launchers:
            await self._launchers.popitem()[1].close(drain=self.drains)
        deps, self._deps = self._deps, None
        if deps is not None:
            await deps.store.close()

    def _open_and_fresh(self) -> Deps | None:
        """What `_ready` gives, if there is nothing to wait for: the hot paths ask this first."""
        deps = self._deps
        return deps if deps is not None and not deps.may_be_due() else None

    async def _ready(self) -> Deps:
        deps = self._deps or await self._open()
        if self.one_family:  # inside an agent, its launcher does the work
            deps.takes_turns = self.launches and self._surrounding_run() is None
        if deps.may_be_due():
            await retention.expire_due(deps, self._caller)
        return deps

    async def _open(self) -> Deps:
        if self._closed:
            raise StoreUnavailable("this connection is closed; connect again")
        if not self._threaded:
            self._deps = self._open_deps()
            return self._deps
        from asyncio import create_task, shield, to_thread

        if self._opening is None:  # who comes first opens, the others wait; who gives up leaves it to them
            self._opening = create_task(to_thread(self._open_deps))
            self._opening.add_done_callback(self._opened)
        return await shield(self._opening)

    def _opened(self, opening: Task[Deps]) -> None:
        self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            self._deps = opening.result()

    def _surrounding_session(self) -> str | None:
        """The session that asks, if nobody names one: that of the agent this process is."""
        return config.parent_from_environment()

    def _surrounding_run(self) -> str | None:
        """The run that asks, likewise."""
        return config.run_from_environment()

    # Sessions -----------------------------------------------------------------------------------

    async def create(
        self,
        agent: str | None = None,
        *,
        name: str | None = None,
        purpose: str | None = None,
        metadata: dict[str, Any] | None = None,
        parent: str | UnsetType | None = UNSET,
        task_id: str | None = None,
        session_id: str | None = None,
        project_dir: str | None = None,
        ttl: object = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """Open a new session. Inside an agent its parent is that agent's session, unless `parent` says otherwise.

        With an `idempotency_key`, asked again within 24 hours, it is the session that was made the first time.
        """
        request = SessionRequest(
            agent=agent,
            name=name,
            purpose=purpose,
            metadata=metadata,
            task_id=task_id,
            session_id=session_id,
            project_dir=project_dir,
            ttl=ttl,
        )
        above = self._surrounding_session() if parent is UNSET else parent
        once = None if idempotency_key is None else _once("create", idempotency_key, [request, above])
        return await sessions.create_session(await self._ready(), self._caller, request, parent=above, once=once)

    async def get(self, ref: str, *, messages: int | None = None) -> Session:
        """A session by id or name; with a number, a window of so many last messages is in its `messages`."""
        return await sessions.get_session(self._open_and_fresh() or await self._ready(), self._caller, ref, messages)

    async def resolve(self, ref: str) -> str:
        """The id behind an id, a name, or a prefix that fits only one session."""
        return await sessions.resolve(await self._ready(), self._caller, ref)

    async def list(
        self,
        *,
        agent: str | None = None,
        state: str | None = None,
        status: str | None = None,
        phase: str | None = None,
        interface: str | None = None,
        parent: str | None = None,
        root: str | None = None,
        task_id: str | None = None,
        name_prefix: str | None = None,
        project_dir: str | None = None,
        metadata_key: str | None = None,
        metadata_value: Any = None,
        active_only: bool = False,
        resume_ready: bool | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        updated_after: datetime | None = None,
        updated_before: datetime | None = None,
        sort: str = "-created",
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Session]:
        """A page of sessions; pass its `next` as `cursor` for what follows."""
        query = SessionQuery(
            agent=agent,
            state=state,
            status=status,
            phase=phase,
            interface=interface,
            parent=parent,
            root=root,
            task=task_id,
            name_prefix=name_prefix,
            project_dir=project_dir,
            metadata_key=metadata_key,
            metadata_value=metadata_value,
            active_only=active_only,
            resume_ready=resume_ready,
            created_after=created_after,
            created_before=created_before,
            updated_after=updated_after,
            updated_before=updated_before,
            sort=sort,
            limit=limit,
            cursor=cursor,
        )
        return await sessions.list_sessions(await self._ready(), self._caller, query)

    async def update(
        self,
        ref: str,
        *,
        phase: str | None = None,
        metadata: dict[str, Any] | None = None,
        error: str | None = None,
        resume_ready: bool | None = None,
        version: int | None = None,
        token: str | None = None,
    ) -> Session:
        """Change phase, metadata or readiness, or count an error; all of it or nothing."""
        return await sessions.update_session(
            await self._ready(),
            self._caller,
            ref,
            phase=phase,
            metadata=metadata,
            error=error,
            resume_ready=resume_ready,
            version=version,
            token=token,
        )

    async def suspend(
        self,
        ref: str,
        *,
        checkpoint: dict[str, Any] | None = None,
        reason: str | None = None,
        version: int | None = None,
        token: str | None = None,
    ) -> Session:
        """Pause a session, keeping what its agent hands over."""
        return await sessions.suspend_session(
            await self._ready(),
            self._caller,
            ref,
            checkpoint=checkpoint,
            reason=reason,
            version=version,
            token=token,
        )

    @overload
    async def resume(
        self, ref: str, *, hold: Literal[True] = True, holder: str | None = None, version: int | None = None
    ) -> HeldPacket: ...

    @overload
    async def resume(
        self, ref: str, *, hold: bool, holder: str | None = None, version: int | None = None
    ) -> ResumePacket: ...

    async def resume(
        self, ref: str, *, hold: bool = True, holder: str | None = None, version: int | None = None
    ) -> ResumePacket:
        """Take a session to drive: session, hold, checkpoint, context and messages.

        With `hold=False` its agent goes on instead: a suspended session becomes active, one that is active or running
        is left as it is, and the packet has no hold.
        """
        deps = await self._ready()
        packet = await sessions.resume_session(deps, self._caller, ref, hold=hold, holder=holder, version=version)
        if not hold and packet.session.launched:
            await self._launch(packet.session.root_session_id)
        return packet

    async def release(self, ref: str, *, token: str | None = None) -> Session:
        """Give the hold up, so that others may resume."""
        return await sessions.release_session(await self._ready(), self._caller, ref, token=token)

    async def finalize(
        self,
        ref: str,
        outcome: str = "completed",
        *,
        summary: str | None = None,
        version: int | None = None,
        token: str | None = None,
    ) -> Session:
        """Close a session: completed, failed or abandoned."""
        return await sessions.finalize_session(
            await self._ready(), self._caller, ref, outcome, summary=summary, version=version, token=token
        )

    async def should_resume(
        self,
        ref: str | None = None,
        *,
        agent: str | None = None,
        task_id: str | None = None,
        project_dir: str | None = None,
        host: str | None = None,
        holder: str | None = None,
    ) -> Verdict:
        """May this work be picked up? Decision, reason, and every criterion with its value.

        Without a ref the newest fitting session of that agent is looked for: of the same task, under
        the session `host`, or in the same folder.
        """
        place = Place(agent=agent, task_id=task_id, host=host, project_dir=project_dir)
        deps = self._open_and_fresh() or await self._ready()
        return await delegation.should_resume(deps, self._caller, ref, place=place, holder=holder)

    async def delegate(
        self,
        agent: str | None = None,
        *,
        session_id: str | None = None,
        task_id: str | None = None,
        project_dir: str | None = None,
        host: str | None = None,
        create: bool = False,
        new_id: str | None = None,
        purpose: str | None = None,
        metadata: dict[str, Any] | None = None,
        holder: str | None = None,
        delegation_id: str | None = None,
    ) -> Delegated:
        """`should_resume`, counted as a delegation; with `create`, a new session if there is none to pick up."""
        question = Question(
            place=Place(agent=agent, task_id=task_id, host=host, project_dir=project_dir),
            session_id=session_id,
            holder=holder,
            delegation_id=delegation_id,
            create=create,
            parent=self._surrounding_session() if create and host is None else None,
            new_id=new_id,
            purpose=purpose,
            metadata=metadata,
        )
        return await delegation.delegate(await self._ready(), self._caller, question)

    async def delegations(
        self,
        *,
        agent: str | None = None,
        task_id: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Delegation]:
        """What was delegated, oldest first, and whether earlier work was picked up."""
        span = Span(agent=agent, task=task_id, after=created_after, before=created_before)
        return await (await self._ready()).store.delegations(self._caller.owner, span, check_limit(limit), cursor)

    async def resumable(self, *, agent: str | None = None, limit: int = 20) -> Sessions:
        """What could be picked up, suspended sessions first."""
        return await delegation.resumable_sessions(await self._ready(), self._caller, agent=agent, limit=limit)

    async def fork(
        self,
        ref: str,
        *,
        at: int | None = None,
        name: str | None = None,
        session_id: str | None = None,
        agent: str | None = None,
        purpose: str | None = None,
        metadata: dict[str, Any] | None = None,
        task_id: str | None = None,
        ttl: object = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """Start a new session from entry `at` of another, without copying what came before."""
        request = SessionRequest(
            agent=agent,
            name=name,
            purpose=purpose,
            metadata=metadata,
            task_id=task_id,
            session_id=session_id,
            ttl=ttl,
        )
        once = None if idempotency_key is None else _once("fork", idempotency_key, [ref, at, request])
        return await sessions.fork_session(await self._ready(), self._caller, ref, request, at=at, once=once)

    async def save_checkpoint(
        self, ref: str, checkpoint: dict[str, Any], *, token: str | None = None, idempotency_key: str | None = None
    ) -> Checkpoint:
        """Keep a checkpoint without pausing."""
        once = _once("save_checkpoint", idempotency_key, [ref, checkpoint])
        return await sessions.save_checkpoint(
            await self._ready(), self._caller, ref, checkpoint, token=token, once=once
        )

    async def checkpoint(self, ref: str, number: int | None = None) -> Checkpoint:
        """The newest checkpoint, or the one with that entry number."""
        return await sessions.get_checkpoint(await self._ready(), self._caller, ref, number)

    async def checkpoints(self, ref: str, *, before: int | str | None = None, limit: int = 100) -> Page[Checkpoint]:
        """Checkpoints, newest first; pass `next` as `before` for older ones."""
        return await sessions.list_checkpoints(
            await self._ready(), self._caller, ref, before=_number(before), limit=limit
        )

    # Conversation -------------------------------------------------------------------------------

    async def append(self, ref: str, messages: object, *, token: str | None = None) -> Entries:
        """Say something; the entries with their numbers. Starts nothing."""
        return await conversation.append_messages(
            self._open_and_fresh() or await self._ready(), self._caller, ref, messages, token=token
        )

    async def send(
        self,
        ref: str,
        content: object,
        *,
        client_key: str | None = None,
        token: str | None = None,
        run: bool | None = None,
        queue: bool = False,
        wake: bool = True,
    ) -> Reply:
        """Say something to the agent as its user: a run, if the agent can be started; else it is only kept.

        Asking resumes a suspended session, unless `wake` is false, and ends a hold of yours. While somebody else
        holds the session it is refused, or waits with `queue`. With `run=True` an agent that cannot be started is an
        error; with `run=False`, or with a token and nothing said about `run`, it starts nothing.
        """
        message = {"role": "user", "content": content, "client_key": client_key}
        posted = await self._post(ref, [message], token=token, run=run, queue=queue, wake=wake)
        because = None if posted.run is None else posted.run.because
        return Reply(session_id=posted.session_id, message=posted.entries[-1], run_id=posted.run_id, because=because)

    async def _post(
        self,
        ref: str,
        messages: object,
        *,
        token: str | None = None,
        run: bool | None = None,
        queue: bool = False,
        wake: bool = True,
    ) -> Posted:
        """Say something, all at once; `send` says what is asked by it."""
        from moorage.service import runs

        deps, by_agent = await self._ready(), self._surrounding_session() is not None
        wish = runs.Wish(token=token, queue=queue, wake=wake, by_agent=by_agent, parent_run=self._surrounding_run())
        asked = await runs.post(deps, self._caller, ref, messages, run=run, wish=wish)
        if isinstance(asked, list):
            return runs.Posted(session_id=str(asked[0].session_id), entries=asked)
        await self._launch(asked.session.root_session_id)
        work = asked.run.taken_here() if self._launchers else asked.run
        return runs.Posted(session_id=asked.session.session_id, entries=asked.entries, run_id=work.run_id, run=work)

    # Runs ---------------------------------------------------------------------------------------

    async def run(
        self,
        agent: str | None,
        prompt: object,
        *,
        mode: str = "sync",
        session: str | None = None,
        parent: str | UnsetType | None = UNSET,
        join: str = "each",
        correlation: str | None = None,
        idempotency_key: str | None = None,
        expires_in: object = None,
        timeout: float | None = None,
        name: str | None = None,
        purpose: str | None = None,
        metadata: dict[str, Any] | None = None,
        task_id: str | None = None,
        session_id: str | None = None,
        project_dir: str | None = None,
        ttl: object = None,
        token: str | None = None,
        queue: bool = False,
        wake: bool = True,
        on_event: Hearer | None = None,
    ) -> RunReply:
        """Ask an agent for something, in a session of its own or in `session`; with mode `sync`, wait for the answer.

        The agent of `session` need not be named; `token`, `queue` and `wake` are as for `send`. Inside an agent
        its parent is that agent's session, and it does not wake what a person suspended. A
        launcher does the work: one that is running, or one of this connection. `on_event` is told the
        session's id and what happens until this call ends: first `asked`, with the `run_id`; then what
        agents say while they say it, if the launcher is this connection's or on a server the server's.
        """
        from moorage.service import runs

        deps = await self._ready()
        asked_by = self._surrounding_session() if parent is UNSET else parent
        wish = runs.Wish(
            mode=mode,
            join=join,
            parent=asked_by,
            parent_run=self._surrounding_run() if asked_by is not None else None,
            correlation=correlation,
            idempotency_key=idempotency_key,
            expires_in=expires_in,
            token=token,
            queue=queue,
            wake=wake,
            by_agent=self._surrounding_session() is not None,
        )
        new = SessionRequest(
            name=name,
            purpose=purpose,
            metadata=metadata,
            task_id=task_id,
            session_id=session_id,
            project_dir=project_dir,
            ttl=ttl,
        )
        if session is not None:
            asked = await runs.ask(deps, self._caller, session, prompt, wish=wish, agent=agent)
        elif agent is None:
            raise InvalidField("agent", "must be given, or session: one of the two says who is to work")
        else:
            asked = await runs.start_run(deps, self._caller, agent, prompt, wish=wish, session=new)
        return await self._answer(asked, on_event, timeout=timeout)

    async def _start(
        self,
        agent: str,
        prompt: object,
        *,
        parent: str | UnsetType | None = UNSET,
        idempotency_key: str | None = None,
        **new: Any,
    ) -> Asked:
        """Make a session and ask its agent the first thing, both or neither; the key is one of `create`."""
        from moorage.service import runs

        request = SessionRequest(**new)
        above = self._surrounding_session() if parent is UNSET else parent
        run_key = None if idempotency_key is None else f"create:{idempotency_key}"
        wish = runs.Wish(parent=above, parent_run=self._surrounding_run(), idempotency_key=run_key)
        once = _once("create", idempotency_key, [request, agent, above, prompt])
        asked = await runs.start_run(
            await self._ready(), self._caller, agent, prompt, wish=wish, session=request, once=once
        )
        await self._launch(asked.session.root_session_id)
        return asked

    async def _answer(self, asked: Asked, on_event: Hearer | None, *, timeout: float | None) -> RunReply:
        """What comes of a run: of a sync one its end, else that it was asked."""
        from moorage.service import runs

        deps, run = await self._ready(), asked.run
        is_inside = run.parent_session_id is not None and self._surrounding_run() is not None
        with self._heard_by(on_event):
            if on_event is not None:
                on_event(run.session_id, {"type": "asked", "run_id": run.run_id})
            if not is_inside:  # inside an agent, its launcher does the work
                await self._launch(asked.session.root_session_id)
            if run.mode == "sync":
                run = await runs.wait_for_run(deps, self._caller, run.run_id, timeout=timeout)
        return runs.RunReply(
            session=await self.get(run.session_id), run=run, status=run.state.value, result=run.result, error=run.error
        )

    def _for_a_loop(self) -> Moorage:
        """The same caller on the same store, for an event loop of its own."""
        deps = self._deps
        if deps is not None and config.pick_url(self._url).startswith("memory://"):
            return Moorage(lambda: deps, self._caller, url=self._url)
        return Moorage(lambda: config.open_deps(self._url, threaded=True), self._caller, url=self._url)

    @contextmanager
    def _heard_by(self, hearer: Hearer | None) -> Iterator[None]:
        """For as long as the block lasts, somebody hears what agents say."""
        if hearer is not None:
            self._hearers.append(hearer)
        try:
            yield
        finally:
            if hearer is not None:
                self._hearers.remove(hearer)

    @contextmanager
    def _words_heard(self, session_id: str, hearer: WordHearer) -> Iterator[None]:
        """Within the block, pass on what the agent of a session says while it says it."""

        def hear(speaker: str, event: dict[str, Any]) -> None:
            if event["type"] == "chunk" and speaker == session_id:
                hearer(str(event.get("text") or ""), False)

        with self._heard_by(hear):
            yield

    def _hear(self, turn: Turn, event: dict[str, Any]) -> None:
        for hearer in tuple(self._hearers):
            hearer(turn.session_id, event)

    async def _suspend_own(self, session_id: str, *, checkpoint: dict[str, Any] | None, reason: str | None) -> Session:
        """Pause a session, and give back as cut off the turn that this connection's launcher has of it.

        Raises SessionRunning if another launcher has it.
        """
        from moorage.service.turns import suspend_with_turn

        launcher = next((each for each in self._launchers.values() if session_id in each.at_work), None)
        if launcher is None:
            raise SessionRunning([session_id])
        launcher_id = launcher.launcher.launcher_id
        deps = await self._ready()
        session = await suspend_with_turn(
            deps, self._caller, session_id, launcher_id, checkpoint=checkpoint, reason=reason
        )
        await launcher.give_back(session_id)
        return session

    @property
    def _at_work(self) -> set[str]:
        """The sessions whose agents this connection's own launcher has at work."""
        return {session_id for launcher in self._launchers.values() for session_id in launcher.at_work}

    async def _launch(self, root: str) -> None:
        """Make sure that somebody takes the turns: a launcher of this connection, until it is closed."""
        family = root if self.one_family else None
        if self.launches and family not in self._launchers and self._deps is not None:
            from moorage.launcher.embedded import Embedded

            launcher = self._launchers[family] = Embedded(
                self._deps,
                partial(config.agents_of, self._deps),
                owner=self._caller.owner,
                root=family,
                environment=config.agent_environment(self._url),
                listener=self._hear,
            )
            await launcher.__aenter__()

    async def get_run(self, run_id: str) -> Run:
        """One run as it stands."""
        from moorage.service import runs

        return await runs.get_run(await self._ready(), self._caller, run_id)

    async def runs(
        self,
        *,
        session: str | None = None,
        parent: str | None = None,
        agent: str | None = None,
        state: str | None = None,
        open_only: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Run]:
        """A page of runs, newest first."""
        from moorage.core.run import RunQuery
        from moorage.service import runs

        query = RunQuery(
            session_id=session,
            parent_session_id=parent,
            agent=agent,
            state=state,
            open_only=open_only,
            limit=limit,
            cursor=cursor,
        )
        return await runs.list_runs(await self._ready(), self._caller, query)

    async def result(self, run_id: str, *, wait: float | None = None) -> Run:
        """A run once it has settled, or when `wait` seconds are over."""
        from moorage.service import runs

        return await runs.wait_for_run(await self._ready(), self._caller, run_id, timeout=wait or 0.0)

    async def stop(self, ref: str, *, tree: bool = True) -> Stopped:
        """Stop what runs in a session, and in all that hang on it; the ids of those told to."""
        from moorage.service import runs

        return await runs.stop_session(await self._ready(), self._caller, ref, tree=tree)

    async def stop_run(self, run_id: str) -> Run:
        """Stop one run."""
        from moorage.service import runs

        return await runs.stop_run(await self._ready(), self._caller, run_id)

    async def retry(self, run_id: str) -> Run:
        """Ask again what a failed run was asked: a new run, with its prompt and its dead letters.

        A run is retried once: asked again, the same new run answers. Raises RunNotFailed if it did not fail.
        """
        from moorage.service import runs

        run = await runs.retry_run(await self._ready(), self._caller, run_id)
        await self._launch((await self.get(run.session_id)).root_session_id)
        return run

    async def inbox(
        self, ref: str | None = None, *, set_aside: bool = False, limit: int = 100, cursor: str | None = None
    ) -> Page[Item]:
        """What waits for a session's next turn, or what was set aside; of one session, or of all."""
        from moorage.service import runs

        deps = await self._ready()
        return await runs.inbox(deps, self._caller, ref=ref, set_aside=set_aside, limit=limit, cursor=cursor)

    async def send_again(self, item_id: str) -> Item:
        """Let what was set aside wait for the next turn again."""
        from moorage.service import runs

        return await runs.send_again(await self._ready(), self._caller, item_id)

    async def agents(self) -> AgentList:
        """Agents by name, with what is wrong in files that describe none."""
        from moorage.service.agents import AgentList, shown

        registry = config.open_registry()
        registered: dict[str, AgentDefinition] = {}
        with suppress(StoreError):  # it is away: those that are defined are there all the same
            deps = await self._ready()
            await deps.registered.look()
            registered = deps.registered.agents()
        every = {**registered, **registry.all()}
        items = [shown(agent) for _, agent in sorted(every.items())]
        return AgentList(items=items, problems=[problem.to_dict() for problem in registry.problems()])

    async def agent(self, name: str) -> dict[str, Any]:
        """One agent as it is defined."""
        from moorage.service.agents import shown

        deps = await self._ready()
        await deps.look_for(name)
        found = config.find_agent(name) or deps.registered.agents().get(name)
        if found is None:
            raise deps.no_agent(name)
        return shown(found)

    async def define_agent(
        self,
        definition: str | dict[str, Any],
        *,
        replace: bool = False,
        dry_run: bool = False,
        source: str = "the definition",
    ) -> dict[str, Any]:
        """Add the agent that the text of a TOML file, or its table, describes; `source` is what errors call it.

        With `dry_run` it is only said what is wrong with it, if anything is.
        """
        from moorage.service.agents import shown

        registry = config.open_registry()
        if dry_run:
            return shown(registry.check(config.read_definition(definition, source), replace=replace))
        if isinstance(definition, str):
            return shown(registry.add_text(definition, source=source, replace=replace))
        return shown(registry.add_table(definition, source=source, replace=replace))

    async def remove_agent(self, name: str) -> dict[str, Any]:
        """Remove an agent that was added; its sessions stay. The agent as it was."""
        from moorage.service.agents import shown

        return shown(config.open_registry().remove(name))

    async def tools(self) -> Tools:
        """Tools by name, with what each of their operations takes."""
        deps = await self._ready()
        await deps.registered.look()
        return [tool for tool, _ in config.tools_of(deps).values()]

    async def call_tool(
        self,
        tool: str,
        operation: str | None = None,
        parameters: dict[str, Any] | None = None,
        *,
        session: str | None = None,
    ) -> ToolAnswer:
        """Call a tool: the operation that fits, unless one is named. With `session`, its log has call and result."""
        from moorage.service.tools import call_tool

        deps = await self._ready()
        if tool not in config.tools_of(deps):
            await deps.registered.look()
        return await call_tool(deps, self._caller, config.tools_of(deps), tool, operation, parameters, session=session)

    async def launchers(self) -> Page[Launcher]:
        """Launchers that work for the caller, newest first; not those that have ended in good order."""
        from moorage.service.launchers import list_launchers

        found = await list_launchers(await self._ready(), self._caller)
        return Page([replace(each, seen_off=()) for each in found])  # of others' sessions, too

    async def drain_launcher(self, launcher_id: str, *, drain: bool = True) -> Launcher:
        """Let a launcher take no more turns, or with `drain=False` take them again; what it has at work goes on.

        One that is a process of its own ends when nothing is left; a server's own goes on waiting. It holds for
        this start of the launcher, which may also be named by its name, or the beginning of its id.
        """
        from moorage.service.launchers import drain_launcher

        kept = await drain_launcher(await self._ready(), self._caller, launcher_id, drain=drain)
        return replace(kept, seen_off=())

    async def messages(
        self,
        ref: str,
        *,
        last: int | None = None,
        turns: int | None = None,
        tokens: int | None = None,
        max_bytes: int | None = None,
        before: int | str | None = None,
        after: int | str | None = None,
        limit: int = 100,
        count_tokens: TokenCounter | None = None,
    ) -> Page[Entry]:
        """A window (last, turns, tokens, max_bytes), or a plain page before or after a number.

        A window never separates a tool call from its result, keeps system messages and the
        newest summary. `next` goes into `before` for what is older (a page after a number:
        into `after`); a window before or after a number has only what was said there.
        """
        deps = self._open_and_fresh() or await self._ready()
        if last is turns is tokens is max_bytes is None:
            return await conversation.read_messages(
                deps, self._caller, ref, before=_number(before), after=_number(after), limit=limit
            )
        size = WindowSize(last=last, turns=turns, tokens=tokens, max_bytes=max_bytes)
        return await conversation.window(
            deps, self._caller, ref, size, count_tokens, before=_number(before), after=_number(after)
        )

    async def log(
        self,
        ref: str,
        *,
        after: int | str = 0,
        before: int | str | None = None,
        limit: int = 100,
        kinds: Iterable[str] | None = None,
        newest_first: bool = False,
    ) -> Page[Entry]:
        """Entries of the log; pass `next` as `after` (or `before`, newest first) for what follows."""
        return await conversation.read_log(
            await self._ready(),
            self._caller,
            ref,
            after=_number(after) or 0,
            before=_number(before),
            limit=limit,
            kinds=None if kinds is None else tuple(kinds),
            newest_first=newest_first,
        )

    async def compact(
        self,
        ref: str,
        summary: str | None = None,
        *,
        agent: str | None = None,
        upto: int | None = None,
        token: str | None = None,
        idempotency_key: str | None = None,
    ) -> Entry:
        """Add a summary that stands for what came before in every later window: yours, or one that an agent writes."""
        if (summary is None) == (agent is None):
            raise InvalidField("summary", "and agent: give one of the two")
        if agent is not None:
            return await self._summed_up(ref, agent, upto=upto, token=token)
        assert summary is not None
        once = _once("compact", idempotency_key, [ref, summary, upto])
        return await conversation.compact(
            await self._ready(), self._caller, ref, summary, upto=upto, token=token, once=once
        )

    async def _summed_up(self, ref: str, agent: str, *, upto: int | None, token: str | None) -> Entry:
        from moorage.service.summaries import summed_up

        return await summed_up(self, ref, agent, upto=upto, token=token)

    async def search(self, text: str, *, limit: int = 20) -> Hits:
        """Entries that have all these words."""
        return await conversation.search_entries(await self._ready(), self._caller, text, limit=limit)

    async def events(
        self, ref: str | None = None, *, after: int | str = 0, follow: bool = True
    ) -> AsyncIterator[Event]:
        """What happened after the cursor, then what comes: of one session, or of all. `end` is after the newest."""
        deps = await self._ready()
        if after == "end":
            cursor = await conversation.newest_event(deps, self._caller, ref)
        else:
            cursor = _number(after) or 0
        stream = (
            conversation.owner_events(deps, self._caller, after=cursor, follow=follow)
            if ref is None
            else conversation.session_events(deps, self._caller, ref, after=cursor, follow=follow)
        )
        async for event in stream:
            yield event

    # Families -----------------------------------------------------------------------------------

    async def children(self, ref: str, *, limit: int = 50, cursor: str | None = None) -> Page[Session]:
        """The session's children, oldest first."""
        return await family.children_of(await self._ready(), self._caller, ref, limit=limit, cursor=cursor)

    async def count_children(self, ref: str) -> int:
        """How many children a session has."""
        return await family.count_children(await self._ready(), self._caller, ref)

    async def ancestors(self, ref: str) -> Sessions:
        """Parent, grandparent … up to the root."""
        return await family.ancestors_of(await self._ready(), self._caller, ref)

    async def tree(self, ref: str) -> TreeNode:
        """The session with all that hangs on it."""
        return await family.tree_of(await self._ready(), self._caller, ref)

    async def delete(
        self, ref: str, *, cascade: bool = True, force: bool = False, dry_run: bool = False, reason: str = "deleted"
    ) -> Deletion:
        """Delete a session with its tree, or say what would go."""
        return await family.delete_session(
            await self._ready(), self._caller, ref, cascade=cascade, force=force, dry_run=dry_run, reason=reason
        )

    async def deleted(
        self,
        *,
        reason: str | None = None,
        since: datetime | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Tombstone]:
        """What was deleted, when, by whom and why; newest first."""
        return await family.deleted_sessions(
            await self._ready(), self._caller, reason=reason, since=since, limit=limit, cursor=cursor
        )

    async def cleanup(
        self,
        hours: float | None = None,
        *,
        states: Iterable[str] | None = None,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Cleanup:
        """Delete what nobody touched for as long as the policy says, or for so many hours, and what is past its TTL."""
        return await retention.cleanup(
            self._deps or await self._open(),  # what is past its TTL goes here, so that the answer tells of it
            self._caller,
            hours=hours,
            states=None if states is None else tuple(states),
            dry_run=dry_run,
            progress=progress,
        )

    # Approvals ----------------------------------------------------------------------------------

    async def request_approval(
        self,
        ref: str,
        question: str,
        *,
        plan: Any = None,
        options: Iterable[str] = (),
        expires_in: object = None,
        idempotency_key: str | None = None,
    ) -> Approval:
        """Put a question to a person; the session waits in phase `approval`."""
        offered = tuple(options)
        return await approvals.request_approval(
            await self._ready(),
            self._caller,
            ref,
            question,
            plan=plan,
            options=offered,
            expires_in=expires_in,
            once=_once("request_approval", idempotency_key, [ref, question, plan, offered, expires_in]),
        )

    async def approvals(self, ref: str | None = None, *, pending_only: bool = True, limit: int = 100) -> Approvals:
        """Approvals, oldest first."""
        return await approvals.list_approvals(
            await self._ready(), self._caller, ref=ref, pending_only=pending_only, limit=limit
        )

    async def approval(self, approval_id: str) -> Approval:
        """One approval as it stands."""
        return await approvals.get_approval(await self._ready(), self._caller, approval_id)

    async def decide(
        self,
        approval_id: str,
        decision: str,
        *,
        note: str | None = None,
        by: str | None = None,
        plan_hash: str | None = None,
    ) -> Approval:
        """Answer an approval: approve, reject, or one of its options."""
        return await approvals.decide_approval(
            await self._ready(), self._caller, approval_id, decision, note=note, by=by, plan_hash=plan_hash
        )

    async def approve(self, approval_id: str, *, note: str | None = None, by: str | None = None) -> Approval:
        """Say yes."""
        return await self.decide(approval_id, "approve", note=note, by=by)

    async def reject(self, approval_id: str, *, note: str | None = None, by: str | None = None) -> Approval:
        """Say no."""
        return await self.decide(approval_id, "reject", note=note, by=by)

    # Access -------------------------------------------------------------------------------------

    async def create_key(
        self,
        *,
        owner: str | None = None,
        scopes: Iterable[str] = ("read", "write"),
        name: str | None = None,
        owners: Iterable[str] | None = None,
        expires_in: object = None,
    ) -> NewKey:
        """Make a key for a server's door. Its text is in this answer and nowhere else."""
        from moorage.service import keys

        return await keys.create_key(
            await self._ready(),
            owner=self._caller.owner if owner is None else owner,
            scopes=scopes,
            name=name,
            owners=owners,
            expires_in=expires_in,
            by=self._caller.by,
        )

    async def keys(self, *, owner: str | None = None) -> Page[Key]:
        """The keys of an owner, or of all, oldest first; revoked ones too."""
        from moorage.service import keys

        return Page(await keys.list_keys(await self._ready(), owner=owner))

    async def revoke_key(self, key_id: str) -> Key:
        """Let a key count no more. Twice is harmless."""
        from moorage.service import keys

        return await keys.revoke_key(await self._ready(), key_id)

    # Transfer and care --------------------------------------------------------------------------

    async def export(self, ref: str, *, tree: bool = False, format: str = "jsonl") -> AsyncIterator[str]:
        """A session as lines: `jsonl` (whole, importable) or `markdown` (to read)."""
        deps = await self._ready()
        if format not in transfer.FORMATS:
            raise InvalidField("format", f"is {format!r}; use one of {', '.join(transfer.FORMATS)}")
        async for line in transfer.FORMATS[format](deps, self._caller, ref, tree=tree):
            yield line

    async def import_(
        self, lines: Iterable[str | bytes], *, detach: bool = False, dry_run: bool = False
    ) -> ImportReport:
        """Bring exported sessions in. Importing twice changes nothing."""
        return await importing.import_lines(await self._ready(), self._caller, lines, detach=detach, dry_run=dry_run)

    async def stats(
        self,
        *,
        agent: str | None = None,
        task_id: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        by: str | None = None,
    ) -> Analytics:
        """How much was done, how much of it was picked up again and how it went, beside what is aimed at.

        `by` groups it: agent, task, hour, day or week.
        """
        from moorage.service.analytics import analytics  # for those who ask

        return await analytics(
            await self._ready(),
            self._caller,
            agent=agent,
            task_id=task_id,
            created_after=created_after,
            created_before=created_before,
            by=by,
        )

    async def import_files(
        self,
        paths: Iterable[Source],
        *,
        source: str = "auto",
        detach: bool = False,
        dry_run: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> ImportReport:
        """Bring in what files and folders of this machine hold: exports, or what others kept.

        That is state.json files, transcripts of Claude Code, and lists of messages as chat APIs have them.
        What others kept comes in as far as it is sound; the report tells what was left out, where and why.
        """
        from moorage.files.taking import import_files

        return await import_files(
            await self._ready(),
            self._caller,
            paths,
            source=source,
            detach=detach,
            dry_run=dry_run,
            progress=progress,
            threaded=self._threaded,
        )

    async def check(self) -> Problems:
        """What is wrong with the stored data, in words; empty if nothing is."""
        return await (await self._ready()).store.check()


class ContextDoor:
    """`moor.context`: a session's keyed memory."""

    def __init__(self, moorage: Moorage) -> None:
        self._moorage = moorage

    async def get(self, ref: str, key: str | None = None) -> Any:
        """The whole context, or one key's value; nothing there is `{}`."""
        return await context.read_context(await self._deps(), self._moorage._caller, ref, key)

    async def items(self, ref: str) -> dict[str, ContextItem]:
        """The context with versions and expiries."""
        return await context.read_items(await self._deps(), self._moorage._caller, ref)

    async def put(
        self, ref: str, key: str, value: Any, *, ttl: object = None, version: int | None = None
    ) -> ContextWritten:
        """Remember a value under a key."""
        return await context.put_context(
            await self._deps(), self._moorage._caller, ref, key, value, ttl=ttl, version=version
        )

    async def merge(
        self, ref: str, values: dict[str, Any], *, ttl: object = None, version: int | None = None
    ) -> ContextWritten:
        """Remember several values; other keys stay."""
        return await context.merge_context(
            await self._deps(), self._moorage._caller, ref, values, ttl=ttl, version=version
        )

    async def replace(
        self, ref: str, values: dict[str, Any], *, ttl: object = None, version: int | None = None
    ) -> ContextWritten:
        """Make these values the whole context."""
        return await context.replace_context(
            await self._deps(), self._moorage._caller, ref, values, ttl=ttl, version=version
        )

    async def delete(self, ref: str, key: str | None = None, *, version: int | None = None) -> ContextWritten:
        """Forget a key, or everything."""
        return await context.delete_context(await self._deps(), self._moorage._caller, ref, key, version=version)

    async def _deps(self) -> Deps:
        return await self._moorage._ready()


def connect(
    url: str | None = None,
    *,
    owner: str = "local",
    by: str | None = None,
    interface: str = "python",
    holder: str | None = None,
) -> Moorage:
    """Sessions on the store that `url` names, for an event loop.

    Without a URL: MOORAGE_URL, else an SQLite file in the user's data folder.
    """
    caller = caller_for(owner=owner, by=by, interface=interface, holder=holder)
    return Moorage(lambda: config.open_deps(url, threaded=True), caller, url=url)


def caller_for(*, owner: str, by: str | None, interface: str, holder: str | None) -> Caller:
    """Who uses this connection."""
    return Caller(
        owner=owner,
        by=by or config.user(),
        interface=interface,
        holder=holder or config.unique_holder(),
        run_id=config.run_from_environment(),
    )


def _once(operation: str, key: str | None, request: Sequence[object]) -> OnceKey | None:
    """What was asked under a key; None without one."""
    if key is None:
        return None
    from moorage.core.once import once_key

    return once_key(operation, key, request)


def _number(value: int | str | None) -> int | None:
    if isinstance(value, str):
        if not value.isdecimal() or len(value) > 18:  # no log is that long
            raise InvalidCursor
        return int(value)
    return value
