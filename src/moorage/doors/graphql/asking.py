"""Who asks, and what they may: the same operations, scopes and reach as at the REST door."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from moorage.core.key import Scope, check_held
from moorage.core.session import Session
from moorage.doors.graphql.loaders import Loaders
from moorage.doors.http.exchange import Exchange
from moorage.doors.http.reach import check_one, check_reach
from moorage.doors.http.visit import Visit, Visitor
from moorage.remote.operations import OPERATIONS, Operation

_BY_NAME: dict[str, Operation] = {}
for _operation in OPERATIONS:
    _BY_NAME.setdefault(_operation.name, _operation)


def at_this_door(exchange: Exchange) -> None:
    """What comes in here came by GraphQL, unless it says otherwise."""
    exchange.headers.setdefault(b"x-moorage-interface", b"graphql")


class Wanted(Struct, frozen=True):
    """The events of a session after one of them."""

    ref: str
    after: int | None  # None is the end


class Asking:
    """One operation of one visitor: what resolvers are given."""

    def __init__(self, moor: Visit, visitor: Visitor) -> None:
        self.moor, self.visitor = moor, visitor
        self.loaders = Loaders(moor, visitor.caller)
        self.wanted: Wanted | None = None  # of a subscription, once it was looked at

    async def call(self, name: str, /, **arguments: Any) -> Any:
        """Call a method, if its operation is for this visitor. Raises Forbidden, OutOfReach."""
        operation, visitor = _BY_NAME[name], self.visitor
        check_held(visitor.scopes, operation.scope, operation.or_scope)
        if visitor.session_id is not None:
            await check_reach(self.moor, visitor, operation, arguments)
        value = await getattr(self.moor, name)(**arguments)
        if operation.scope is not Scope.READ:
            self.loaders = Loaders(self.moor, visitor.caller)  # what was read before may have changed
        return value

    async def start(self, agent: str | None, message: str, **wanted: Any) -> Session:
        """Make a session and say the first thing in it, if this visitor may."""
        self.check(Scope.WRITE)
        if self.visitor.session_id is not None:
            await check_reach(self.moor, self.visitor, _BY_NAME["create"], wanted)
        return (await self.moor.executor.start(agent, message, **wanted)).session

    async def session_with_history(self, ref: str, last: int) -> Session:
        """A session, read together with so many of its last messages."""
        self.check(Scope.READ)
        if self.visitor.session_id is not None:
            await check_one(self.moor, self.visitor, "ref", ref)
        return await self.loaders.session_with_history(ref, last)

    async def say(self, ref: str, **options: Any) -> Any:
        """Post a message, if this visitor may."""
        self.check(Scope.WRITE)
        if self.visitor.session_id is not None:
            await check_one(self.moor, self.visitor, "ref", ref)
        posted = await self.moor.post(ref, **options)
        self.loaders = Loaders(self.moor, self.visitor.caller)
        return posted

    async def may_follow(self, ref: str) -> None:
        """Raise Forbidden or OutOfReach unless this visitor may see what happens in a session."""
        self.check(Scope.READ)
        if self.visitor.session_id is not None:
            await check_one(self.moor, self.visitor, "ref", ref)

    def check(self, scope: Scope) -> None:
        """Raise Forbidden without a scope."""
        check_held(self.visitor.scopes, scope)
