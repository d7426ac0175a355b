"""The API on a store that this process opens.

::

    async with moorage.connect("sqlite:///moorage.db") as moor:
        session = await moor.create(agent="terraform-architect", purpose="approval_workflow")

Each method checks and decides nothing: it calls one service function. `moorage.sync` has the same methods
without `await`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from moorage import config
from moorage.api import Context, EventListener, Moorage, WordListener
from moorage.connection import Connection, LaunchOptions, Parent, implements
from moorage.core.codec import check_list
from moorage.core.duration import check_wait
from moorage.core.entry import Event
from moorage.core.errors import InvalidField, StoreError, StoreUnavailable
from moorage.core.ids import check_is_text
from moorage.core.policy import Verdict
from moorage.core.query import Page, SessionQuery
from moorage.core.session import Session
from moorage.service import (
    approvals,
    conversation,
    delegation,
    family,
    records,
    retention,
    sessions,
    transfer,
)
from moorage.service.delegation import Delegated, DelegationQuestion, WorkPlace
from moorage.service.deps import Caller, Deps, once_key
from moorage.service.retention import Cleanup
from moorage.service.sessions import SessionRequest
from moorage.service.transfer import ImportReport

if TYPE_CHECKING:
    from asyncio import Task

    from moorage import values
    from moorage.core.agent import AgentDefinition, ToolAnswer
    from moorage.core.answer import Answer, RunAnswer
    from moorage.core.key import Key
    from moorage.core.run import Run
    from moorage.core.turn import Launcher, Turn
    from moorage.files.finding import Source
    from moorage.launcher.embedded import Embedded
    from moorage.records import RecordOperations as RecordBackend
    from moorage.service import agents, analytics, calls, keys, launchers, runs, turns
    from moorage.service.agents import AgentList
    from moorage.service.keys import NewKey
else:

    class LaterModule:
        """A rarely used part of the service, loaded on first use: all of them take 13 ms of a start of 49."""

        def __init__(self, name: str) -> None:
            self._name = f"moorage.service.{name}"

        def __getattr__(self, name: str) -> Any:
            return getattr(import_module(self._name), name)

    agents, analytics, keys, launchers = map(LaterModule, ("agents", "analytics", "keys", "launchers"))
    calls, runs, turns = map(LaterModule, ("calls", "runs", "turns"))

P = ParamSpec("P")
T = TypeVar("T")
Service = Callable[Concatenate[Deps, Caller, P], Coroutine[Any, Any, T]]


class OpenStore:
    """A store that is opened on first use, and the launchers of this process for it."""

    def __init__(
        self,
        open_deps: Callable[[], Deps] | None = None,
        *,
        threaded: bool = True,
        url: str | None = None,
        context_url: str | None = None,
    ) -> None:
        """`open_deps` opens it; by default, it is the store of the URL."""
        self._open_deps = open_deps or partial(config.open_deps, url, threaded=threaded, context_url=context_url)
        self.threaded, self.url, self.context_url = threaded, url, context_url
        self.deps: Deps | None = None
        self.launching = LaunchOptions(launches=threaded)
        self.launchers: dict[str | None, Embedded] = {}  # by the family they serve; None: all
        self.listeners: list[EventListener] = []
        self._opening: Task[Deps] | None = None
        self._closed = False

    @classmethod
    def of(cls, deps: Deps) -> OpenStore:
        """Return an opened store whose turns are taken elsewhere."""
        opened = cls(lambda: deps)
        opened.deps, opened.launching = deps, LaunchOptions(launches=False)
        return opened

    async def open(self) -> Deps:
        """Open the store, unless it is open."""
        if self.deps is not None:
            return self.deps
        if self._closed:
            raise StoreUnavailable("this connection is closed; connect again")
        if not self.threaded:
            self.deps = self._open_deps()
            return self.deps
        from asyncio import create_task, shield, to_thread

        if self._opening is None:  # the first caller opens it, the others wait; a cancelled caller does not cancel them
            self._opening = create_task(to_thread(self._open_deps))
            self._opening.add_done_callback(self._opened)
        return await shield(self._opening)

    def _opened(self, opening: Task[Deps]) -> None:
        self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            self.deps = opening.result()

    async def close(self) -> None:
        """Close the launchers, then the store."""
        self._closed = True
        if self._opening is not None:
            from asyncio import wait

            await wait([self._opening])
        while self.launchers:
            await self.launchers.popitem()[1].close(drain=self.launching.drains)
        deps, self.deps = self.deps, None
        if deps is not None:
            await deps.store.close()

    def for_a_loop(self) -> OpenStore:
        """Return the same store for an event loop of its own."""
        deps = self.deps
        if deps is not None and config.pick_url(self.url).startswith("memory://"):
            return OpenStore(lambda: deps, url=self.url)
        return OpenStore(url=self.url, context_url=self.context_url)

    async def launch(self, root: str, owner: str) -> None:
        """Make sure that a launcher of this connection takes turns, until it is closed."""
        family = root if self.launching.one_family else None
        if self.launching.launches and family not in self.launchers and self.deps is not None:
            from moorage.launcher.embedded import Embedded

            launcher = self.launchers[family] = Embedded(
                self.deps,
                partial(config.agents_of, self.deps),
                owner=owner,
                root=family,
                environment=config.agent_environment(self.url, self.context_url),
                listener=self._hear,
            )
            await launcher.__aenter__()

    def _hear(self, turn: Turn, event: dict[str, Any]) -> None:
        for listener in tuple(self.listeners):
            listener(turn.session_id, event)

    @contextmanager
    def listening(self, listener: EventListener | None) -> Iterator[None]:
        """Within the block, pass on the output of agents of this connection's launchers."""
        if listener is not None:
            self.listeners.append(listener)
        try:
            yield
        finally:
            if listener is not None:
                self.listeners.remove(listener)


class OnStore:
    """A part of the API, for one caller on one store."""

    def __init__(self, opened: OpenStore, caller: Caller) -> None:
        self.opened, self.caller = opened, caller

    def fresh(self) -> Deps | None:
        """Return the open store if no wait is needed: the hot paths call this before `ready`."""
        deps = self.opened.deps
        return None if deps is None or self.opened.launching.one_family or deps.may_be_due() else deps

    async def ready(self) -> Deps:
        """Return the open store, after removing expired sessions and approvals."""
        deps = self.opened.deps or await self.opened.open()
        if self.opened.launching.one_family:  # inside an agent, its launcher does this work
            deps.takes_turns = self.opened.launching.launches and self.caller.run_id is None
        if deps.may_be_due():
            await retention.expire_due(deps, self.caller)
        return deps

    async def call(self, service: Service[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a service function once the store is ready."""
        return await service(await self.ready(), self.caller, *args, **kwargs)


def served(service: Service[P, T]) -> Callable[Concatenate[OnStore, P], Coroutine[Any, Any, T]]:
    """Return a method that calls a service function: at once if no wait is needed, which saves a frame."""

    def method(self: OnStore, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        deps = self.fresh()
        if deps is None:
            return self.call(service, *args, **kwargs)
        return service(deps, self.caller, *args, **kwargs)

    return method


def served_later(find: Callable[[], Service[P, T]]) -> Callable[Concatenate[OnStore, P], Coroutine[Any, Any, T]]:
    """Return a method that calls a service function of a module that is loaded on first use."""

    def method(self: OnStore, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return self.call(find(), *args, **kwargs)

    return method


@implements(Moorage)
class LocalMoorage(OnStore, Connection):
    """Sessions on one store. Opened on first use or by `async with`."""

    def __repr__(self) -> str:
        return f"Moorage({config.without_password(self.opened.url or 'memory://')!r})"

    @property
    def context(self) -> LocalContext:
        return LocalContext(self.opened, self.caller)

    def record_backend(self) -> RecordBackend:
        return LocalRecords(self.opened, self.caller)

    @property
    def launching(self) -> LaunchOptions:
        """Return which launchers run the agents of this connection."""
        return self.opened.launching

    @launching.setter
    def launching(self, launching: LaunchOptions) -> None:
        self.opened.launching = launching

    async def __aenter__(self) -> Self:
        await self.opened.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.opened.close()

    # Sessions -------------------------------------------------------------------------------------

    async def create(
        self, agent: str | None = None, *, parent: Parent = UNSET, idempotency_key: str | None = None, **new: Any
    ) -> Session:
        request, above = SessionRequest(agent=agent, **new), self.parent_of(parent)
        once = once_key("create", idempotency_key, [request, above])
        deps = self.fresh() or await self.ready()
        return await sessions.create_session(deps, self.caller, request, parent=above, once=once)

    async def list(self, *, task_id: str | None = None, **filters: Any) -> Page[Session]:
        return await sessions.list_sessions(await self.ready(), self.caller, SessionQuery(task=task_id, **filters))

    get = served(sessions.get_session)
    resolve = served(sessions.resolve)
    update = served(sessions.update_session)
    rename = served(sessions.rename_session)
    suspend = served(sessions.suspend_session)
    release = served(sessions.release_session)
    finalize = served(sessions.finalize_session)
    resumable = served(delegation.resumable_sessions)
    delegations = served(delegation.list_delegations)
    save_checkpoint = served(sessions.save_checkpoint)
    checkpoint = served(sessions.get_checkpoint)
    checkpoints = served(sessions.list_checkpoints)

    async def resume(self, ref: str, *, hold: bool = True, **options: Any) -> Any:
        packet = await sessions.resume_session(await self.ready(), self.caller, ref, hold=hold, **options)
        if not hold and packet.session.launched:
            await self.launch(packet.session.root_session_id)
        return packet

    async def should_resume(self, ref: str | None = None, *, holder: str | None = None, **place: Any) -> Verdict:
        deps = self.fresh() or await self.ready()
        return await delegation.should_resume(deps, self.caller, ref, place=WorkPlace(**place), holder=holder)

    async def delegate(
        self,
        agent: str | None = None,
        *,
        task_id: str | None = None,
        project_dir: str | None = None,
        host: str | None = None,
        create: bool = False,
        **more: Any,
    ) -> Delegated:
        place = WorkPlace(agent=agent, task_id=task_id, host=host, project_dir=project_dir)
        parent = self.asks_from() if create and host is None else None
        question = DelegationQuestion(place=place, create=create, parent=parent, **more)
        return await delegation.delegate(await self.ready(), self.caller, question)

    async def fork(self, ref: str, *, at: int | None = None, idempotency_key: str | None = None, **new: Any) -> Session:
        request = SessionRequest(**new)
        once = once_key("fork", idempotency_key, [ref, at, request])
        return await sessions.fork_session(await self.ready(), self.caller, ref, request, at=at, once=once)

    # Conversation ---------------------------------------------------------------------------------

    append = served(conversation.append_messages)
    messages = served(conversation.messages)
    log = served(conversation.read_log)
    search = served(conversation.search_entries)
    keep_summary = served(conversation.compact)

    async def post(
        self, ref: str, messages: object, *, agent: str | None = None, run: bool | None = None, **how: Any
    ) -> Answer:
        deps, by_agent = self.fresh() or await self.ready(), self.asks_from() is not None
        wish = runs.Wish(by_agent=by_agent, parent_run=self.caller.run_id, **how)
        asked = await runs.post(deps, self.caller, ref, messages, run=run, wish=wish, agent=agent)
        if asked.run is None or asked.session is None:
            return asked
        await self.launch(asked.session.root_session_id)
        work = asked.run.taken_here() if self.opened.launchers else asked.run
        return replace(asked, session=None, run=work, because=work.because)

    async def events(
        self, ref: str | None = None, *, after: int | str = 0, follow: bool = True
    ) -> AsyncIterator[Event]:
        async for event in conversation.events(await self.ready(), self.caller, ref, after=after, follow=follow):
            yield event

    @contextmanager
    def words_heard(self, session_id: str, listener: WordListener) -> Iterator[None]:
        def hear(speaker: str, event: dict[str, Any]) -> None:
            if event["type"] == "chunk" and speaker == session_id:
                listener(str(event.get("text") or ""), False)

        with self.opened.listening(hear):
            yield

    # Runs -----------------------------------------------------------------------------------------

    get_run = served_later(lambda: runs.get_run)
    stop = served_later(lambda: runs.stop_session)
    stop_run = served_later(lambda: runs.stop_run)
    inbox = served_later(lambda: runs.inbox)
    send_again = served_later(lambda: runs.send_again)

    async def run(
        self,
        agent: str | None,
        prompt: object,
        *,
        mode: str = "sync",
        session: str | None = None,
        parent: Parent = UNSET,
        timeout: float | None = None,
        on_event: EventListener | None = None,
        **more: Any,
    ) -> RunAnswer:
        timeout = check_wait(timeout, "timeout")
        deps, asked_by = await self.ready(), self.parent_of(parent)
        new = {name: more.pop(name) for name in SessionRequest.__struct_fields__ if name in more}
        wish = runs.Wish(
            mode=mode,
            parent=asked_by,
            parent_run=self.caller.run_id if asked_by is not None else None,
            by_agent=self.asks_from() is not None,
            **more,
        )
        if session is not None:
            asked = await runs.ask(deps, self.caller, session, prompt, wish=wish, agent=agent)
        elif agent is None:
            raise InvalidField("agent", "is missing; give an agent or a session")
        else:
            request = SessionRequest(**new)
            asked = await runs.start_run(deps, self.caller, agent, prompt, wish=wish, session=request)
        return await self._answer(asked, on_event, timeout=timeout)

    async def start(
        self, agent: str, prompt: object, *, parent: Parent = UNSET, idempotency_key: str | None = None, **new: Any
    ) -> RunAnswer:
        request, above = SessionRequest(**new), self.parent_of(parent)
        run_key = None if idempotency_key is None else f"{runs.CREATES}{idempotency_key}"
        wish = runs.Wish(parent=above, parent_run=self.caller.run_id, idempotency_key=run_key)
        once = once_key("create", idempotency_key, [request, agent, above, prompt])
        deps = await self.ready()
        asked = await runs.start_run(deps, self.caller, agent, prompt, wish=wish, session=request, once=once)
        await self.launch(asked.session.root_session_id)
        return asked

    async def _answer(self, asked: RunAnswer, on_event: EventListener | None, *, timeout: float | None) -> RunAnswer:
        """Return the end of a sync run; for any other, return that it was requested."""
        from moorage.core.answer import answer_of

        deps, run = await self.ready(), asked.run
        is_inside = run.parent_session_id is not None and self.caller.run_id is not None
        with self.opened.listening(on_event):
            if on_event is not None:
                on_event(run.session_id, {"type": "asked", "run_id": run.run_id})
            if not is_inside:  # inside an agent, its launcher does this work
                await self.launch(asked.session.root_session_id)
            if run.mode == "sync":
                hears = on_event is not None
                run = await runs.wait_for_run(
                    deps, self.caller, run.run_id, session_id=run.session_id, timeout=timeout, hears=hears
                )
        return answer_of(run, await self.get(run.session_id))

    async def runs(self, *, session: str | None = None, parent: str | None = None, **filters: Any) -> Page[Run]:
        from moorage.core.run import RunQuery

        query = RunQuery(session_id=session, parent_session_id=parent, **filters)
        return await runs.list_runs(await self.ready(), self.caller, query)

    async def result(self, run_id: str, *, wait: float | None = None) -> Run:
        timeout = check_wait(wait, "wait") or 0.0
        return await runs.wait_for_run(await self.ready(), self.caller, run_id, timeout=timeout)

    async def retry(self, run_id: str) -> Run:
        run = await runs.retry_run(await self.ready(), self.caller, run_id)
        await self.launch((await self.get(run.session_id)).root_session_id)
        return run

    async def launch(self, root: str) -> None:
        await self.opened.launch(root, self.caller.owner)

    @property
    def at_work(self) -> set[str]:
        """Return the sessions whose agents run in launchers of this connection."""
        return {session_id for launcher in self.opened.launchers.values() for session_id in launcher.at_work}

    async def suspend_own(self, session_id: str, *, checkpoint: dict[str, Any] | None, reason: str | None) -> Session:
        launcher = await self._launcher_at(session_id)
        if launcher is None:  # its turn has ended meanwhile, or another launcher has it: then this is refused, too
            return await self.suspend(session_id, checkpoint=checkpoint, reason=reason)
        ours = launcher.launcher.launcher_id
        session = await self.call(turns.suspend_with_turn, session_id, ours, checkpoint=checkpoint, reason=reason)
        await launcher.give_back(session_id)
        return session

    async def _launcher_at(self, session_id: str) -> Embedded | None:
        """Return the launcher of this connection that works on a session."""
        for launcher in tuple(self.opened.launchers.values()):
            if await launcher.works_on(session_id):
                return launcher
        return None

    # Agents, tools and launchers ------------------------------------------------------------------

    async def agents(self) -> AgentList:
        registry = config.registry()
        registered: dict[str, AgentDefinition] = {}
        with suppress(StoreError):  # the store does not answer: defined agents are listed all the same
            deps = await self.ready()
            await deps.registered.look()
            registered = deps.registered.agents()
        every = {**registered, **registry.all()}
        items = [agents.shown(agent) for _, agent in sorted(every.items())]
        return agents.AgentList(items=items, problems=[problem.to_dict() for problem in registry.problems()])

    async def agent(self, name: str) -> dict[str, Any]:
        deps = await self.ready()
        await deps.look_for(name)
        found = config.find_agent(name) or deps.registered.agents().get(name)
        if found is None:
            raise deps.no_agent(name)
        return agents.shown(found)

    async def define_agent(self, definition: str | dict[str, Any], **how: Any) -> dict[str, Any]:
        return agents.shown(config.registry().add(definition, **how))

    async def remove_agent(self, name: str) -> dict[str, Any]:
        return agents.shown(config.registry().remove(name))

    async def tools(self) -> values.Tools:
        deps = await self.ready()
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
        deps = await self.ready()
        check_is_text(tool, "tool")
        if tool not in config.tools_of(deps):
            await deps.registered.look()
        known = config.tools_of(deps)
        return await calls.call_tool(deps, self.caller, known, tool, operation, parameters, session=session)

    async def launchers(self) -> Page[Launcher]:
        found = await launchers.list_launchers(await self.ready(), self.caller)
        return Page([replace(each, ended_sessions=()) for each in found])  # sessions of other owners, too

    async def drain_launcher(self, launcher_id: str, *, drain: bool = True) -> Launcher:
        kept = await launchers.drain_launcher(await self.ready(), self.caller, launcher_id, drain=drain)
        return replace(kept, ended_sessions=())

    # Families -------------------------------------------------------------------------------------

    children = served(family.children_of)
    count_children = served(family.count_children)
    ancestors = served(family.ancestors_of)
    tree = served(family.tree_of)
    delete = served(family.delete_session)
    deleted = served(family.deleted_sessions)

    async def cleanup(
        self, hours: float | None = None, *, states: Iterable[str] | None = None, **options: Any
    ) -> Cleanup:
        deps = await self.opened.open()  # expired sessions are deleted here, so that the answer includes them
        wanted = None if states is None else tuple(check_list(states, "states"))
        return await retention.cleanup(deps, self.caller, hours=hours, states=wanted, **options)

    # Approvals ------------------------------------------------------------------------------------

    request_approval = served(approvals.request_approval)
    approval = served(approvals.get_approval)
    decide = served(approvals.decide_approval)
    approvals = served(approvals.list_approvals)  # last, because from here on the name means this method in the class

    # Keys -----------------------------------------------------------------------------------------

    async def create_key(self, *, owner: str | None = None, **wanted: Any) -> NewKey:
        whose = self.caller.owner if owner is None else owner
        return await keys.create_key(await self.ready(), owner=whose, by=self.caller.by, **wanted)

    async def keys(self, *, owner: str | None = None) -> Page[Key]:
        return Page(await keys.all_keys((await self.ready()).store, owner))

    async def revoke_key(self, key_id: str) -> Key:
        return await keys.revoke_key(await self.ready(), key_id)

    # Transfer and care ----------------------------------------------------------------------------

    import_ = served(transfer.import_lines)
    stats = served_later(lambda: analytics.analytics)

    async def export(self, ref: str, *, tree: bool = False, format: str = "jsonl") -> AsyncIterator[str]:
        deps = await self.ready()
        if format not in tuple(transfer.FORMATS):
            raise InvalidField("format", f"is {format!r}; use one of {', '.join(transfer.FORMATS)}")
        async for line in transfer.FORMATS[format](deps, self.caller, ref, tree=tree):
            yield line

    async def import_files(self, paths: Iterable[Source], **options: Any) -> ImportReport:
        from moorage.files.taking import import_files

        return await import_files(await self.ready(), self.caller, paths, threaded=self.opened.threaded, **options)

    async def check(self) -> values.Texts:
        return await (await self.ready()).store.check()


@implements(Context)
class LocalContext(OnStore, Context):
    """`moor.context` on one store."""

    get = served(records.read_context)
    items = served(records.read_items)
    put = served(records.put_context)
    merge = served(records.merge_context)
    replace = served(records.replace_context)
    delete = served(records.delete_context)


class LocalRecords(OnStore):
    """The operations of `moor.records` and `moor.memory` on one store."""

    read_records = served(records.read_records)
    records_of = served(records.records_of)
    list_records = served(records.list_records)
    write_records = served(records.write_records)
