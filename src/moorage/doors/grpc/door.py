"""The gRPC door: the authorizer admits every call, and one function answers it, or the error that ended it.

Services and their methods come from the descriptors of proto/; tables map their names to functions. Errors have the
status of the shared table of errors; the session's id, the code and the facts are trailing metadata.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from itertools import count
from os import urandom
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from moorage.core.codec import encode
from moorage.core.errors import AgentFailed, InvalidField, MoorageError, edge_of
from moorage.core.key import check_held
from moorage.doors.grpc.calls import CallMetadata, Rpc, RpcCall, as_metadata
from moorage.doors.grpc.watching import Watch, WatchedMethod
from moorage.doors.http.authorizer import AccessCheck, Authorizer, Places
from moorage.doors.http.refusals import Unexpected
from moorage.service.about import working_on
from moorage.service.deps import Deps

log = logging.getLogger(__name__)

MAX_DETAILS = 1000  # characters of a message
MAX_FACTS = 4096  # bytes: metadata is small
SESSION, CODE, FACTS = "session-id", "error-code", "error-bin"

Rpcs = dict[str, Rpc]  # by the name of the method


class GrpcDoor:
    """Answers gRPC calls on one store."""

    def __init__(
        self,
        deps_of: Callable[[str], Deps],
        authorizer: Authorizer,
        places: Places,
        watch: Watch,
        *,
        alone: str | None = None,
    ) -> None:
        """Set up the door. `alone`: serve only this agent or tool."""
        self._deps_of, self._authorizer, self._alone = deps_of, authorizer, alone
        self._places, self._watch = places, watch
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
        told = {"session": _session_of(request), "task": getattr(request, "task_id", "")}
        return {
            "request_id": f"{self._mark}-{next(self._calls)}",
            **{name: value for name, value in told.items() if value},
        }

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


def _session_of(request: Any) -> str:
    """Return the session that a request names, to report it with the outcome."""
    for name in ("session_id", "session"):
        if (value := getattr(request, name, "")) and isinstance(value, str):
            return value
    return ""


async def _refuse(context: Any, error: Exception, session: str) -> None:
    """End a call with an error."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if not isinstance(error, MoorageError):
        log.error("a call failed", exc_info=error, extra={"session": session or None})
        error = Unexpected()
    code = getattr(grpc.StatusCode, edge_of(error).grpc)
    session = session or str(error.facts.get("session_id") or "")
    await context.abort(code, error.message[:MAX_DETAILS], trailing_metadata=_trailing(error, session))


def _trailing(error: MoorageError, session: str) -> tuple[tuple[str, str | bytes], ...]:
    facts = encode(error.to_dict())
    told: list[tuple[str, str | bytes]] = [(CODE, error.code)]
    if len(facts) <= MAX_FACTS:
        told.append((FACTS, facts))
    if session and session.isascii() and session.isprintable():
        told.append((SESSION, session[:MAX_FACTS]))
    if isinstance(error, AgentFailed) and error.because is not None:
        told.extend(as_metadata(error.because))
    return tuple(told)
