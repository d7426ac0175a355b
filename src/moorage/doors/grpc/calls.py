"""A call at the gRPC door: the caller, the session, and the deadline."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import Struct

from moorage.asking.named import NamedAgents
from moorage.core.codec import encode_text
from moorage.core.errors import IdTaken, SessionNotFound
from moorage.core.key import Scope
from moorage.core.status import Because
from moorage.doors.http.app import visit_of
from moorage.doors.http.authorizer import AccessCheck
from moorage.doors.http.visit import Visitor
from moorage.service.deps import Deps

LONGEST_DEADLINE = 10**8  # seconds; a call without a deadline waits for ever


class CallMetadata:
    """The metadata of a call, as the authorizer reads headers."""

    def __init__(self, context: Any, request_id: str) -> None:
        self._metadata = {str(key): value for key, value in context.invocation_metadata() or ()}
        self._context, self.request_id = context, request_id

    @property
    def client(self) -> str:
        """Return the address of the client, without the port."""
        return str(self._context.peer()).rpartition(":")[0]

    def header(self, name: bytes) -> str | None:
        """Return a value by its name. No browser makes gRPC calls, so a local door needs no Host header."""
        key = name.decode()
        found = self._metadata.get(key)
        if found is None:
            return _INSTEAD.get(key)
        return found.decode("latin-1") if isinstance(found, bytes) else str(found)


_INSTEAD = {"host": "localhost", "x-moorage-interface": "grpc"}


class RpcCall:
    """One call of one visitor."""

    def __init__(
        self, context: Any, asking: CallMetadata, visitor: Visitor, deps: Deps, access: AccessCheck, alone: str | None
    ) -> None:
        self._context, self.visitor, self.access = context, visitor, access
        self.moor = visit_of(deps, visitor, asking)
        self.parent = self.moor.asks_from()
        self.named = NamedAgents(self.moor, alone=alone, tell_why=self.tell_why_at_once)

    def tell_why(self, because: Because | None) -> None:
        """Send in the trailing metadata why a run has not started or waits."""
        if because is not None:
            self._context.set_trailing_metadata(as_metadata(because))

    async def tell_why_at_once(self, because: Because) -> None:
        """Send in the initial metadata why a run has not started: the client reads it while it waits for the answer."""
        await self._context.send_initial_metadata(as_metadata(because))

    @property
    def timeout(self) -> float | None:
        """Return the seconds until the caller stops waiting."""
        left = self._context.time_remaining()
        return None if left is None or left > LONGEST_DEADLINE else max(0.001, float(left))

    async def open_session(self, ref: str) -> None:
        """Create an unknown session below the calling session. Raise OutOfReach or InvalidId."""
        await self.moor.check_first_use(ref)
        try:
            await self.moor.get(ref)
        except SessionNotFound:
            with suppress(IdTaken):  # a concurrent call created it
                await self.moor.create(session_id=ref, parent=self.parent)


def as_metadata(because: Because) -> tuple[tuple[str, str], ...]:
    """Return a reason as metadata: one word, and its facts as JSON."""
    return (("moorage-because", because.reason.value), ("moorage-because-facts", encode_text(because.facts)))


class Rpc(Struct, frozen=True):
    """One method of a service: its function and its required scope; `or_scope` is an alternative.

    Without a scope, the function itself checks the visitor's rights.
    """

    scope: Scope | None
    function: Callable[[RpcCall, Any], Any]
    or_scope: Scope | None = None
