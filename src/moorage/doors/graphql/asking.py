"""The caller of an operation and their rights, with the same operations and scopes as in REST."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from moorage.core.key import Scope, check_held
from moorage.core.session import Session
from moorage.doors.graphql.loaders import Loaders
from moorage.doors.http.exchange import Exchange
from moorage.doors.http.visit import Visit, Visitor
from moorage.records import Memory
from moorage.remote.operations import OPERATIONS, Operation

OPERATION: dict[str, Operation] = {each.name: each for each in reversed(OPERATIONS)}  # the first row wins


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
        self.loaders = Loaders(moor)
        self.wanted: WantedEvents | None = None  # of a subscription, once its resolver has run

    async def call(self, name: str, /, **arguments: Any) -> Any:
        """Call a method if the visitor may use its operation. Raise Forbidden or OutOfReach."""
        operation, visitor = OPERATION[name], self.visitor
        check_held(visitor.scopes, operation.scope, operation.or_scope)
        await self.moor.check_operation(operation, arguments)
        value = await getattr(self.moor, name)(**arguments)
        if operation.scope is not Scope.READ:
            self.loaders = Loaders(self.moor)  # earlier reads may be stale now
        return value

    async def start(self, agent: str | None, message: str, **wanted: Any) -> Session:
        """Create a session and post its first message, if this visitor may."""
        self.check(Scope.WRITE)
        await self.moor.check_operation(OPERATION["create"], wanted)
        return (await self.moor.executor.start(agent, message, **wanted)).session

    async def session_with_history(self, ref: str, last: int) -> Session:
        """Return a session, read together with this number of its last messages."""
        await self.may_follow(ref)
        return await self.loaders.session_with_history(ref, last)

    async def say(self, ref: str, message: str, *, client_key: str | None = None, **options: Any) -> Any:
        """Post a message, if this visitor may."""
        await self.may_follow(ref, Scope.WRITE)
        said = [{"role": "user", "content": message, "client_key": client_key}]
        posted = await self.moor.executor.say(ref, said, **options)
        self.loaders = Loaders(self.moor)
        return posted

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
