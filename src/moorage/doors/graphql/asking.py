"""The caller of an operation and their rights: the same operations and scopes as in REST."""

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

OPERATION: dict[str, Operation] = {each.name: each for each in reversed(OPERATIONS)}  # of several, the first


def at_this_door(exchange: Exchange) -> None:
    """Set the interface of a request to GraphQL, unless it names another one."""
    exchange.headers.setdefault(b"x-moorage-interface", b"graphql")


class WantedEvents(Struct, frozen=True):
    """The events of a session after one of them."""

    ref: str
    after: int | None  # None is the end


class OperationContext:
    """One operation of one visitor: what resolvers are given."""

    def __init__(self, moor: Visit, visitor: Visitor) -> None:
        self.moor, self.visitor = moor, visitor
        self.loaders = Loaders(moor, visitor.caller)
        self.wanted: WantedEvents | None = None  # of a subscription, once it was looked at

    async def call(self, name: str, /, **arguments: Any) -> Any:
        """Call a method, if its operation is for this visitor. Raises Forbidden, OutOfReach."""
        operation, visitor = OPERATION[name], self.visitor
        check_held(visitor.scopes, operation.scope, operation.or_scope)
        await self.moor.check_operation(operation, arguments)
        value = await getattr(self.moor, name)(**arguments)
        if operation.scope is not Scope.READ:
            self.loaders = Loaders(self.moor, visitor.caller)  # what was read before may have changed
        return value

    async def start(self, agent: str | None, message: str, **wanted: Any) -> Session:
        """Make a session and say the first thing in it, if this visitor may."""
        self.check(Scope.WRITE)
        await self.moor.check_operation(OPERATION["create"], wanted)
        return (await self.moor.executor.start(agent, message, **wanted)).session

    async def session_with_history(self, ref: str, last: int) -> Session:
        """A session, read together with so many of its last messages."""
        await self.may_follow(ref)
        return await self.loaders.session_with_history(ref, last)

    async def say(self, ref: str, message: str, *, client_key: str | None = None, **options: Any) -> Any:
        """Post a message, if this visitor may."""
        await self.may_follow(ref, Scope.WRITE)
        said = [{"role": "user", "content": message, "client_key": client_key}]
        posted = await self.moor.executor.say(ref, said, **options)
        self.loaders = Loaders(self.moor, self.visitor.caller)
        return posted

    async def may_follow(self, ref: str, scope: Scope = Scope.READ) -> None:
        """Raise Forbidden or OutOfReach unless this visitor may see, or change, what happens in a session."""
        self.check(scope)
        await self.moor.check_access("ref", ref)

    def memory(self, scope: Scope) -> Memory:
        """Return what all sessions share, if this visitor may read it, or write it: no session's token may."""
        self.check(scope)
        self.moor.check_no_token()
        return self.moor.memory

    def check(self, scope: Scope) -> None:
        """Raise Forbidden without a scope."""
        check_held(self.visitor.scopes, scope)
