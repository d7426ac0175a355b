"""Moorage without `await`: the same methods, run to completion.

On SQLite and in memory nothing ever suspends, so no event loop is needed and `asyncio` is not even imported. Requests
to a server run in an event loop in a thread of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from types import AsyncGeneratorType, CoroutineType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from moorage import api, connecting, records
from moorage.client import LocalMoorage, OpenStore
from moorage.connection import Connection, LaunchOptions
from moorage.core.inline import drive
from moorage.service.inline import drive_each

if TYPE_CHECKING:
    from moorage.remote.background import Background
    from moorage.service.packet import HeldPacket, ResumePacket

P = ParamSpec("P")
T = TypeVar("T")


def driven(result: Any) -> Any:
    """Return the answer of a method that never suspends; of a stream, each of its items."""
    if type(result) is CoroutineType:
        return drive(result)
    return drive_each(result) if type(result) is AsyncGeneratorType else result


class _Sync:
    """An asynchronous object whose methods are called without `await`."""

    def __init__(self, target: Any, drive: Callable[[Any], Any] = driven) -> None:
        self._target, self._drive = target, drive

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._drive(getattr(self._target, name)(*args, **kwargs))


def _called(specification: Callable[..., Any]) -> Any:
    """Return the method of that name without `await`, with its signature and its docstring."""
    name = specification.__name__

    @wraps(specification)
    def call(self: _Sync, *args: Any, **kwargs: Any) -> Any:
        return self._call(name, args, kwargs)

    return call


def answer(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Return a method with the parameters of an asynchronous one, which returns its answer."""
    called: Callable[Concatenate[Any, P], T] = _called(method)
    return called


def stream(method: Callable[Concatenate[Any, P], AsyncIterator[T]]) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """Return a method with the parameters of an asynchronous one, which returns an iterator."""
    called: Callable[Concatenate[Any, P], Iterator[T]] = _called(method)
    return called


class Context(_Sync):
    """`moor.context`: a session's keyed memory."""

    get = answer(api.Context.get)
    items = answer(api.Context.items)
    put = answer(api.Context.put)
    merge = answer(api.Context.merge)
    replace = answer(api.Context.replace)
    delete = answer(api.Context.delete)


class Records(_Sync):
    """`moor.records`: values beside the log of a session, by namespace and key."""

    get = answer(records.Records.get)
    get_many = answer(records.Records.get_many)
    of_sessions = answer(records.Records.of_sessions)
    list = answer(records.Records.list)
    put = answer(records.Records.put)
    delete = answer(records.Records.delete)
    write = answer(records.Records.write)


class Memory(_Sync):
    """`moor.memory`: values that all sessions of an owner share, by namespace and key."""

    get = answer(records.Memory.get)
    get_many = answer(records.Memory.get_many)
    list = answer(records.Memory.list)
    put = answer(records.Memory.put)
    delete = answer(records.Memory.delete)
    write = answer(records.Memory.write)


class Moorage(_Sync):
    """Sessions on one store."""

    def __init__(self, target: Connection, drive: Callable[[Any], Any] = driven) -> None:
        super().__init__(target, drive)
        self.context = Context(target.context, drive)

    def __repr__(self) -> str:
        return repr(self._target)

    @property
    def records(self) -> Records:
        """Values beside the log of a session, by namespace and key."""
        return Records(self._target.records, self._drive)

    @property
    def memory(self) -> Memory:
        """Values that all sessions of an owner share, by namespace and key."""
        return Memory(self._target.memory, self._drive)

    def __enter__(self) -> Moorage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Nothing acknowledged depends on it."""
        drive(self._target.close())

    def call(self, work: Callable[[Connection], Coroutine[Any, Any, T]]) -> T:
        """Return the answer of a coroutine over the asynchronous object."""
        answer: T = self._drive(work(self._target))
        return answer

    @overload
    def resume(
        self, ref: str, *, hold: Literal[True] = True, holder: str | None = None, version: int | None = None
    ) -> HeldPacket: ...

    @overload
    def resume(
        self, ref: str, *, hold: bool, holder: str | None = None, version: int | None = None
    ) -> ResumePacket: ...

    @wraps(api.Moorage.resume)
    def resume(self, ref: str, **options: Any) -> ResumePacket:
        packet: ResumePacket = self._call("resume", (ref,), options)
        return packet

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        asks = name == "run" or (name == "compact" and kwargs.get("agent") is not None)
        if asks and isinstance(self._target, LocalMoorage):
            return _in_a_loop(_asked(self._target, name, args, kwargs))
        return super()._call(name, args, kwargs)

    create = answer(api.Moorage.create)
    get = answer(api.Moorage.get)
    resolve = answer(api.Moorage.resolve)
    list = answer(api.Moorage.list)
    update = answer(api.Moorage.update)
    rename = answer(api.Moorage.rename)
    suspend = answer(api.Moorage.suspend)
    release = answer(api.Moorage.release)
    finalize = answer(api.Moorage.finalize)
    should_resume = answer(api.Moorage.should_resume)
    delegate = answer(api.Moorage.delegate)
    delegations = answer(api.Moorage.delegations)
    resumable = answer(api.Moorage.resumable)
    fork = answer(api.Moorage.fork)
    save_checkpoint = answer(api.Moorage.save_checkpoint)
    checkpoint = answer(api.Moorage.checkpoint)
    checkpoints = answer(api.Moorage.checkpoints)
    append = answer(api.Moorage.append)
    send = answer(api.Moorage.send)
    run = answer(api.Moorage.run)
    get_run = answer(api.Moorage.get_run)
    runs = answer(api.Moorage.runs)
    result = answer(api.Moorage.result)
    stop = answer(api.Moorage.stop)
    stop_run = answer(api.Moorage.stop_run)
    retry = answer(api.Moorage.retry)
    inbox = answer(api.Moorage.inbox)
    send_again = answer(api.Moorage.send_again)
    agents = answer(api.Moorage.agents)
    agent = answer(api.Moorage.agent)
    define_agent = answer(api.Moorage.define_agent)
    remove_agent = answer(api.Moorage.remove_agent)
    tools = answer(api.Moorage.tools)
    call_tool = answer(api.Moorage.call_tool)
    launchers = answer(api.Moorage.launchers)
    drain_launcher = answer(api.Moorage.drain_launcher)
    messages = answer(api.Moorage.messages)
    log = answer(api.Moorage.log)
    compact = answer(api.Moorage.compact)
    search = answer(api.Moorage.search)
    events = stream(api.Moorage.events)
    children = answer(api.Moorage.children)
    count_children = answer(api.Moorage.count_children)
    ancestors = answer(api.Moorage.ancestors)
    tree = answer(api.Moorage.tree)
    delete = answer(api.Moorage.delete)
    deleted = answer(api.Moorage.deleted)
    cleanup = answer(api.Moorage.cleanup)
    request_approval = answer(api.Moorage.request_approval)
    approvals = answer(api.Moorage.approvals)
    approval = answer(api.Moorage.approval)
    decide = answer(api.Moorage.decide)
    approve = answer(api.Moorage.approve)
    reject = answer(api.Moorage.reject)
    create_key = answer(api.Moorage.create_key)
    keys = answer(api.Moorage.keys)
    revoke_key = answer(api.Moorage.revoke_key)
    export = stream(api.Moorage.export)
    import_ = answer(api.Moorage.import_)
    stats = answer(api.Moorage.stats)
    import_files = answer(api.Moorage.import_files)
    check = answer(api.Moorage.check)


class OnServer(Moorage):
    """Sessions on a server: its own thread waits for answers until they are closed."""

    def __init__(self, target: Connection, background: Background) -> None:
        super().__init__(target, background.driven)
        self._background = background

    def close(self) -> None:
        """Close the connection. Nothing acknowledged depends on it."""
        if self._background.is_open:
            self._background.run(self._target.close())
            self._background.close()

    def health(self) -> dict[str, Any]:
        """Return what the server says of itself. Raises ServerUnreachable."""
        health: dict[str, Any] = self._background.run(self._target.health())
        return health


def _in_a_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run work that may start an agent, and so needs an event loop, in a new one."""
    from asyncio import get_running_loop, run

    try:
        get_running_loop()
    except RuntimeError:
        return run(work)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as thread:  # a loop runs here already, as in a notebook
        return thread.submit(run, work).result()


async def _asked(target: LocalMoorage, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    async with LocalMoorage(target.opened.for_a_loop(), target.caller) as moor:
        mode = str(kwargs.get("mode", "sync")).strip().lower()
        moor.launching = LaunchOptions(launches=mode == "sync")  # others do the work that is not waited for
        return await getattr(moor, name)(*args, **kwargs)


def _without_await(connect: Callable[P, Connection]) -> Callable[P, Moorage]:
    """Return a function with the same parameters whose connections need no `await`; a store is opened at once."""

    @wraps(connect)
    def connected(*args: P.args, **kwargs: P.kwargs) -> Moorage:
        moor = connect(*args, **kwargs)
        if not isinstance(moor, LocalMoorage):
            return on_server(moor)
        opened = OpenStore(url=moor.opened.url, context_url=moor.opened.context_url, threaded=False)
        drive(opened.open())
        return Moorage(LocalMoorage(opened, moor.caller))

    return connected


connect = _without_await(connecting.connect)


def on_server(moor: Connection) -> Moorage:
    """Return the sessions of a server without `await`."""
    from moorage.remote.background import Background

    return OnServer(moor, Background())
