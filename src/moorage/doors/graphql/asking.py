"""The context of resolvers: the caller and their rights, with the operations and scopes of REST, and batched reads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any

from msgspec import Struct

from moorage.core.key import Scope, check_held
from moorage.core.session import Session
from moorage.core.window import WindowSize
from moorage.doors.http.exchange import Exchange
from moorage.doors.http.visit import Visit, Visitor
from moorage.records import Memory
from moorage.remote.operations import OPERATIONS, Operation
from moorage.service.conversation import session_and_window, windows_of

OPERATION: dict[str, Operation] = {each.name: each for each in reversed(OPERATIONS)}  # the first row wins
BatchRead = Callable[..., Coroutine[Any, Any, list[Any]]]  # a service function that reads for several keys at once


def at_this_door(exchange: Exchange) -> None:
    """Set the interface of a request to GraphQL, unless it names another one."""
    exchange.headers.setdefault(b"x-moorage-interface", b"graphql")


class WantedEvents(Struct, frozen=True):
    """The requested events of a session after an entry."""

    ref: str
    after: int | None  # None means the end


class OperationContext:
    """One operation of one visitor: the context of resolvers."""

    def __init__(self, moor: Visit, visitor: Visitor) -> None:
        self.moor, self.visitor = moor, visitor
        self._loaders: dict[Hashable, Loader] = {}
        self.wanted: WantedEvents | None = None  # of a subscription, once its resolver has run

    async def call(self, name: str, /, **arguments: Any) -> Any:
        """Call a method if the visitor may use its operation. Raise Forbidden or OutOfReach."""
        operation, visitor = OPERATION[name], self.visitor
        check_held(visitor.scopes, operation.scope, operation.or_scope)
        await self.moor.check_operation(operation, arguments)
        value = await getattr(self.moor, name)(**arguments)
        if operation.scope is not Scope.READ:
            self.forget()
        return value

    def forget(self) -> None:
        """Read everything again: earlier reads may be stale after a change."""
        self._loaders = {}

    def read(self, service: BatchRead, key: Hashable, **options: Hashable) -> Awaitable[Any]:
        """Return the answer of a service function for a key; it is called once for all items of a list."""
        return self._loader(service, **options)(key)

    def _loader(self, service: BatchRead, **options: Hashable) -> Loader:
        known, moor = (service, *options.values()), self.moor
        if known not in self._loaders:
            self._loaders[known] = Loader(lambda keys: moor.call(service, keys, **options))
        return self._loaders[known]

    async def session_with_history(self, ref: str, last: int) -> Session:
        """Return a session whose history will be requested next: one read instead of two."""
        await self.may_follow(ref)
        size = WindowSize(last=last)
        session, page = await self.moor.call(session_and_window, ref, size)
        self._loader(windows_of, size=size, before=None).know(session.session_id, page)
        return session

    async def may_follow(self, ref: str, scope: Scope = Scope.READ) -> None:
        """Raise Forbidden or OutOfReach unless this visitor may follow, or change, a session."""
        self.check(scope)
        await self.moor.check_access("ref", ref)

    def memory(self, scope: Scope) -> Memory:
        """Return the memory if this visitor may read it, or write it; a session's token never may."""
        self.check(scope)
        self.moor.check_no_token()
        return self.moor.memory

    def check(self, scope: Scope) -> None:
        """Raise Forbidden without this scope."""
        check_held(self.visitor.scopes, scope)


class Loader:
    """Collects keys until the next turn of the event loop, then loads all of them, each once."""

    def __init__(self, load: Callable[[list[Any]], Awaitable[list[Any]]]) -> None:
        self._load = load
        self._known: dict[Hashable, asyncio.Future[Any]] = {}
        self._waiting: list[Hashable] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, key: Hashable) -> asyncio.Future[Any]:
        """Return the value once it is loaded."""
        known = self._known.get(key)
        if known is None:
            loop = asyncio.get_running_loop()
            known = self._known[key] = loop.create_future()
            if not self._waiting:
                loop.call_soon(self._begin)
            self._waiting.append(key)
        return known

    def know(self, key: Hashable, value: object) -> None:
        """Store a value that need not be loaded."""
        known = self._known[key] = asyncio.get_running_loop().create_future()
        known.set_result(value)

    def _begin(self) -> None:
        keys, self._waiting = self._waiting, []
        task = asyncio.create_task(self._fill(keys))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fill(self, keys: list[Hashable]) -> None:
        try:
            values = await self._load(keys)
        except Exception as error:
            for key in keys:
                self._known[key].set_exception(error)
                self._known[key].exception()  # retrieve it, in case no caller waits any more
            return
        for key, value in zip(keys, values, strict=True):
            if not self._known[key].cancelled():
                self._known[key].set_result(value)
