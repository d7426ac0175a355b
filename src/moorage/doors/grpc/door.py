"""The gRPC door: the authorizer admits every call, and one function answers it, or the error that ended it.

Services and their methods come from the descriptors of proto/; tables map their names to functions. Errors have the
status of the shared table of errors; the session's id, the code and the facts are trailing metadata.
"""

from __future__ import annotations

import logging
import re
from asyncio import CancelledError
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from os import urandom
from time import perf_counter
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from msgspec import Struct

from moorage.asking.named import NamedAgents
from moorage.core.codec import encode, encode_text
from moorage.core.errors import AgentFailed, IdTaken, InvalidField, MoorageError, SessionNotFound, edge_of
from moorage.core.key import Scope, check_held
from moorage.core.status import Because
from moorage.doors.http.app import visit_of
from moorage.doors.http.authorizer import AccessCheck, Authorizer, Places
from moorage.doors.http.monitoring import Traces
from moorage.doors.http.refusals import Unexpected
from moorage.doors.http.visit import Visitor
from moorage.service.about import working_on
from moorage.service.deps import Deps

log = logging.getLogger(__name__)

LONGEST_DEADLINE = 10**8  # seconds; a call without a deadline waits for ever
MAX_DETAILS = 1000  # characters of a message
MAX_FACTS = 4096  # bytes: metadata is small
BROKEN = frozenset({"UNKNOWN", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNIMPLEMENTED", "DEADLINE_EXCEEDED"})

CountCall = Callable[[str, str, float], None]  # the operation, its final status, its duration in seconds


class Rpc(Struct, frozen=True):
    """One method of a service: its function and its required scope; `or_scope` is an alternative.

    Without a scope, the function itself checks the visitor's rights.
    """

    scope: Scope | None
    function: Callable[[RpcCall, Any], Any]
    or_scope: Scope | None = None


Rpcs = dict[str, Rpc]  # by the name of the method


class GrpcDoor:
    """Answers gRPC calls on one store."""

    def __init__(
        self,
        deps: Deps,
        authorizer: Authorizer,
        *,
        deps_of: Callable[[str], Deps] | None = None,
        alone: str | None = None,
        places: Places | None = None,
        watch: Watch | None = None,
    ) -> None:
        """Set up the door. `alone`: serve only this agent or tool.

        `places` are shared with the streams of the other doors; `watch` is told of every call.
        """
        self._deps_of, self._authorizer, self._alone = deps_of or (lambda _: deps), authorizer, alone
        self._places, self._watch = places or Places(deps.settings.server), watch or Watch()
        self._calls, self._mark = count(1), urandom(4).hex()

    def handlers(self, service: Any, rpcs: Rpcs) -> Any:
        """Return the handlers for the methods of a service."""
        methods = {method.name: self._handler(method, rpcs[method.name]) for method in service.methods}
        return grpc.method_handlers_generic_handler(service.full_name, methods)

    def _handler(self, method: Any, rpc: Rpc) -> Any:
        read = _reading(GetMessageClass(method.input_type))
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(self._streaming(WatchedMethod(method), rpc), read, _written)
        return grpc.unary_unary_rpc_method_handler(self._answering(WatchedMethod(method), rpc), read, _written)

    def _answering(self, operation: WatchedMethod, rpc: Rpc) -> Any:
        async def answer(request: Any, context: Any) -> Any:
            about = self._about(request)
            with self._watch.call(operation, context, **about), working_on(**about):
                try:
                    return await rpc.function(await self._admitted(request, context, rpc, about), request)
                except Exception as error:
                    await _refuse(context, error, about.get("session", ""))

        return answer

    def _streaming(self, operation: WatchedMethod, rpc: Rpc) -> Any:
        async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
            about = self._about(request)
            with self._watch.call(operation, context, **about):
                try:
                    call = await self._admitted(request, context, rpc, about)
                    with self._places.place_for(call.visitor):
                        async for piece in rpc.function(call, request):
                            yield piece
                            await call.access.check()
                except Exception as error:
                    await _refuse(context, error, about.get("session", ""))

        return stream

    def _about(self, request: Any) -> dict[str, str]:
        """Return the known ids of a call's subjects: the session, the task, and a new id of the call itself."""
        named = (getattr(request, name, "") for name in ("session_id", "session"))
        session = next((each for each in named if each and isinstance(each, str)), "")
        told = {"session": session, "task": getattr(request, "task_id", "")}
        known = {name: value for name, value in told.items() if value}
        return {"request_id": f"{self._mark}-{next(self._calls)}", **known}

    async def _admitted(self, request: Any, context: Any, rpc: Rpc, about: dict[str, str]) -> RpcCall:
        """Return the admitted call. Raise the error for a caller that is refused."""
        asking = CallMetadata(context, about["request_id"])
        visitor = await self._authorizer.admit(asking)
        if rpc.scope is not None:
            check_held(visitor.scopes, rpc.scope, rpc.or_scope)
        if request is None:
            raise InvalidField("request", "is not a message of this method")
        access = AccessCheck(lambda: self._authorizer.look_at(asking))
        return RpcCall(context, asking, visitor, self._deps_of(visitor.caller.owner), access, self._alone)


def _reading(kind: Any) -> Callable[[bytes], Any]:
    """Parse a message; return None if it is invalid. (An exception here would look like an internal error.)"""
    parse = kind.FromString

    def read(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError:
            return None

    return read


def _written(answer: Any) -> bytes:
    """Encode a message; one encoded already for all its readers stays as it is."""
    return answer if isinstance(answer, bytes) else answer.SerializeToString()


async def _refuse(context: Any, error: Exception, session: str) -> None:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if not isinstance(error, MoorageError):
        log.error("a call failed", exc_info=error, extra={"session": session or None})
        error = Unexpected()
    code = getattr(grpc.StatusCode, edge_of(error).grpc)
    session = session or str(error.facts.get("session_id") or "")
    facts = encode(error.to_dict())
    trailing: list[tuple[str, str | bytes]] = [("error-code", error.code)]
    if len(facts) <= MAX_FACTS:
        trailing.append(("error-bin", facts))
    if session and session.isascii() and session.isprintable():
        trailing.append(("session-id", session[:MAX_FACTS]))
    if isinstance(error, AgentFailed) and error.because is not None:
        trailing.extend(as_metadata(error.because))
    await context.abort(code, error.message[:MAX_DETAILS], trailing_metadata=tuple(trailing))


# Calls ---------------------------------------------------------------------------------------


class CallMetadata:
    """The metadata of a call, as the authorizer reads headers."""

    def __init__(self, context: Any, request_id: str) -> None:
        self._metadata: dict[str, str | bytes] = {**_INSTEAD, **dict(context.invocation_metadata() or ())}
        self._context, self.request_id = context, request_id

    @property
    def client(self) -> str:
        """Return the address of the client, without the port."""
        return str(self._context.peer()).rpartition(":")[0]

    def header(self, name: bytes) -> str | None:
        """Return a value by its name."""
        found = self._metadata.get(name.decode())
        return found.decode("latin-1") if isinstance(found, bytes) else found


# No browser makes gRPC calls, so a local door needs no Host header.
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


# Metrics, spans and log lines -------------------------------------------------------------------

# The operation is the method's name, as it is the route's name over HTTP. Calls of unknown methods are not counted, so
# the number of labels is bounded by the number of methods.


class WatchedMethod:
    """The names of a method in metrics, spans and logs."""

    def __init__(self, method: Any) -> None:
        self.service, self.method = method.containing_service.full_name, method.name
        self.name = "grpc" + re.sub(r"(?=[A-Z])", "_", method.name).lower()


class Watch:
    """Reports calls to metrics, traces and logs."""

    def __init__(self, counting: CountCall | None = None, traces: Traces | None = None) -> None:
        self._counting, self._traces = counting, traces

    @contextmanager
    def call(self, operation: WatchedMethod, context: Any, **about: str) -> Iterator[None]:
        """Observe a call during the block, however it ends; `about` are ids of its subjects."""
        began, status, span = perf_counter(), "OK", None
        if self._traces is not None:
            texts = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
            span = self._traces.begin_call(operation.name, texts)
        try:
            yield
        except (CancelledError, GeneratorExit):
            left = context.time_remaining()
            status = "DEADLINE_EXCEEDED" if left is not None and left <= 0 else "CANCELLED"
            raise
        except BaseException:
            status = str(getattr(context.code(), "name", "UNKNOWN"))
            raise
        finally:
            took = perf_counter() - began
            if self._counting is not None:
                self._counting(operation.name, status, took)
            if self._traces is not None:
                told = {"rpc.system": "grpc", "rpc.service": operation.service, "rpc.method": operation.method}
                told |= {"rpc.grpc.status": status, **{f"moorage.{name}": value for name, value in about.items()}}
                self._traces.end_call(span, told, is_broken=status in BROKEN)
            if log.isEnabledFor(logging.DEBUG):
                facts = {"operation": operation.name, "status": status, "seconds": round(took, 6), **about}
                log.debug("%s: %s", operation.method, status, extra=facts)
