"""Channels: how an adapter uses a store or a server, from any thread and any event loop.

A framework calls its session store from anywhere: from one event loop after another (`asyncio.run`), from threads
with their own loop, from threads without one. So each operation of an adapter is written once, as a coroutine over a
`Connection`, and a channel runs it: `run` for async callers, `drive` for others.

Adapters with the same URL share a channel. It opens at its first use and closes when the last adapter that uses it
is closed. An adapter that is dropped without being closed leaves the channel open for the next one.
"""

from __future__ import annotations

import asyncio
import os
import threading
import types
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar
from weakref import WeakSet

from moorage import config, sync
from moorage.client import LocalMoorage, OpenStore
from moorage.connecting import connect
from moorage.connection import Connection, caller_for
from moorage.core.errors import InvalidField, Unsupported
from moorage.remote.background import Background
from moorage.service.inline import drive

T = TypeVar("T")
ConnectionWork = Callable[[Connection], Coroutine[Any, Any, T]]
ConnectTarget = str | Connection | sync.Moorage | None


class Channel(Protocol):
    """Access to sessions for an adapter."""

    async def run(self, work: ConnectionWork[T]) -> T:
        """Return the result of the work, run on the event loop of the caller."""

    def drive(self, work: ConnectionWork[T]) -> T:
        """Return the result of the work, without an event loop of the caller."""

    def join(self, user: object) -> None:
        """Keep the channel open for a user."""

    def leave(self, user: object) -> None:
        """Close the channel if no other user is left. A connection passed by the caller stays open."""


def channel_to(target: ConnectTarget, *, owner: str, interface: str, key: str | None = None) -> Channel:
    """Return the channel to a URL, or to an open connection of the caller, who also closes it."""
    if isinstance(target, Connection):
        return GivenLoop(target)
    if isinstance(target, sync.Moorage):
        return GivenThread(target)
    if target is not None and not isinstance(target, str):
        raise InvalidField("url", f"is {target!r}; give a URL, a connection of moorage.connect, or nothing")
    return Shared.find(ChannelKey(config.pick_url(target), owner, interface, key))


@types.coroutine
def settled(work: Coroutine[Any, Any, T]) -> Generator[Any, None, T]:
    """Await work to its end, even if the caller is cancelled meanwhile; raise the cancellation afterwards.

    So a cancelled write is either done or not done, and never in progress. The work runs in the caller's task, because
    a task of its own would take longer than many writes. So it must have no time limits: those cancel their task.
    """
    cancelled: asyncio.CancelledError | None = None
    has_waited = False
    while True:
        try:
            awaited = work.send(None)
        except StopIteration as done:
            if not has_waited:  # others run after each write, also on a store that never waits
                cancelled = yield from _shielded(None)
            if cancelled is not None:
                raise cancelled from None
            result: T = done.value
            return result
        except Exception:
            if cancelled is None:
                raise
            raise cancelled from None
        cancelled = (yield from _shielded(awaited)) or cancelled
        has_waited = True


def _shielded(awaited: asyncio.Future[Any] | None) -> Generator[Any, None, asyncio.CancelledError | None]:
    """Wait until a future is done, or let other tasks run once; return the caller's cancellation meanwhile."""
    cancelled: asyncio.CancelledError | None = None
    while True:
        try:
            if awaited is None:
                yield
            else:
                ended: asyncio.Future[None] = awaited.get_loop().create_future()
                awaited.add_done_callback(partial(_end, ended))
                yield from ended
        except asyncio.CancelledError as error:
            cancelled = error
        if awaited is None or awaited.done():
            return cancelled


def _end(ended: asyncio.Future[None], _: asyncio.Future[Any]) -> None:
    if not ended.done():
        ended.set_result(None)


class GivenLoop:
    """A connection for the caller's event loop."""

    def __init__(self, moor: Connection) -> None:
        self._moor = moor

    async def run(self, work: ConnectionWork[T]) -> T:
        return await asyncio.ensure_future(work(self._moor))  # the connection may set time limits: see `settled`

    def drive(self, work: ConnectionWork[T]) -> T:
        raise Unsupported("this connection needs an event loop; pass a URL or one of moorage.sync.connect instead")

    def join(self, user: object) -> None:
        pass

    leave = join


class GivenThread:
    """A connection of `moorage.sync`, used by one caller at a time."""

    def __init__(self, moor: sync.Moorage) -> None:
        self._moor, self._alone = moor, threading.Lock()

    async def run(self, work: ConnectionWork[T]) -> T:
        return await asyncio.to_thread(self.drive, work)

    def drive(self, work: ConnectionWork[T]) -> T:
        with self._alone:
            return self._moor.call(work)

    def join(self, user: object) -> None:
        pass

    leave = join


# Shared channels -------------------------------------------------------------------------------------


class ChannelKey(NamedTuple):
    """The store and owner of a shared channel."""

    url: str
    owner: str
    interface: str
    key: str | None = None


class Shared:
    """The channel to a URL, for all adapters of this process that use it."""

    _known: ClassVar[dict[ChannelKey, Shared]] = {}
    _guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, place: ChannelKey) -> None:
        self._place, self._process = place, os.getpid()
        self._users = WeakSet[object]()
        self._link = _link_to(place)

    @classmethod
    def find(cls, place: ChannelKey) -> Shared:
        """Return the channel to a place. An unnamed store in memory has its own channel."""
        if place.url == "memory://":
            return cls(place)
        with cls._guard:
            return cls._known.setdefault(place, cls(place))

    def join(self, user: object) -> None:
        with self._guard:
            self._users.add(user)

    def leave(self, user: object) -> None:
        with self._guard:
            self._users.discard(user)
            if self._users:
                return
            if self._known.get(self._place) is self:
                del self._known[self._place]
            link, self._link = self._here(), _link_to(self._place)
        link.close()

    async def run(self, work: ConnectionWork[T]) -> T:
        return await self._here().run(work)

    def drive(self, work: ConnectionWork[T]) -> T:
        return self._here().drive(work)

    def _here(self) -> Link:
        if self._process != os.getpid():  # after a fork, threads and connections belong to the parent
            self._process, self._link = os.getpid(), _link_to(self._place)
        return self._link


class Link(Protocol):
    """The connections behind a shared channel, opened when they are first used."""

    async def run(self, work: ConnectionWork[T]) -> T: ...

    def drive(self, work: ConnectionWork[T]) -> T: ...

    def close(self) -> None: ...


def _link_to(place: ChannelKey) -> Link:
    is_here = place.url.startswith(("sqlite:", "memory:"))
    return AnyLoop(place) if is_here else OneLoop(place)


class AnyLoop:
    """A file or a store in memory. All event loops share one connection, callers without a loop another one."""

    def __init__(self, place: ChannelKey) -> None:
        self._place, self._opening, self._alone = place, threading.Lock(), threading.Lock()
        self._awaited: Connection | None = None
        self._driven: Connection | None = None

    async def run(self, work: ConnectionWork[T]) -> T:
        if (moor := self._awaited) is None:
            moor = await asyncio.to_thread(self._open_awaited)
        return await work(moor)

    def drive(self, work: ConnectionWork[T]) -> T:
        with self._alone:
            return drive(work(self._driven or self._open_driven()))

    def close(self) -> None:
        with self._alone:
            if self._driven is not None and self._driven is not self._awaited:
                drive(_close(self._driven))
        if self._awaited is not None:
            in_thread(_close(self._awaited))

    def _open_awaited(self) -> Connection:
        with self._opening:
            if self._awaited is None:
                self._awaited = self._opened(threaded=True)
            return self._awaited

    def _open_driven(self) -> Connection:
        in_memory = self._place.url.startswith("memory:")  # two connections would be two stores
        self._driven = self._open_awaited() if in_memory else self._opened(threaded=False)
        return self._driven

    def _opened(self, *, threaded: bool) -> Connection:
        deps = config.open_deps(self._place.url, threaded=threaded)
        caller = caller_for(owner=self._place.owner, by=None, interface=self._place.interface, holder=None)
        return LocalMoorage(OpenStore(lambda: deps, threaded=False, url=self._place.url), caller)


async def _close(moor: Connection) -> None:
    async with moor:  # opens it, so that closing knows its resources even if it was never used
        pass


class OneLoop:
    """A store or a server whose connections belong to one event loop, on a thread of its own."""

    def __init__(self, place: ChannelKey) -> None:
        self._place, self._opening = place, threading.Lock()
        self._opened: tuple[Connection, Background] | None = None

    async def run(self, work: ConnectionWork[T]) -> T:
        moor, background = self._opened or self._open()
        return await asyncio.wrap_future(background.submit(work(moor)))

    def drive(self, work: ConnectionWork[T]) -> T:
        moor, background = self._opened or self._open()
        done: T = background.run(work(moor))
        return done

    def close(self) -> None:
        if self._opened is not None:
            moor, background = self._opened
            background.run(moor.close())
            background.close()

    def _open(self) -> tuple[Connection, Background]:
        with self._opening:
            if self._opened is None:
                url, owner, interface, key = self._place
                self._opened = connect(url, owner=owner, interface=interface, key=key), Background()
            return self._opened


def in_thread(work: Coroutine[Any, Any, None]) -> None:
    """Run work to its end on a separate event loop, whether or not one runs in this thread."""
    thread = threading.Thread(target=asyncio.run, args=(work,))
    thread.start()
    thread.join()
