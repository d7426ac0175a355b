"""SessionService: the methods of `Moorage` over gRPC. Each row reads a request, calls a method, renders its answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from moorage.core.approval import Approval
from moorage.core.codec import encode_text
from moorage.core.entry import Event
from moorage.core.errors import InvalidField
from moorage.core.key import Scope, check_held
from moorage.core.query import Page
from moorage.core.run import Run
from moorage.core.session import PUBLIC_FIELDS, Session
from moorage.doors.grpc.door import Rpc, RpcCall, Rpcs
from moorage.doors.http.app import answer_of
from moorage.doors.http.reading import arguments_from
from moorage.doors.http.visit import LONGEST_WAIT
from moorage.protobuf import sessions_pb2 as pb
from moorage.remote.operations import Operation, variants
from moorage.service.packet import ResumePacket
from moorage.service.streams import Hub

Arguments = dict[str, Any]
M = TypeVar("M", bound=Any)


class SessionsService:
    """The service of one server."""

    def __init__(self) -> None:
        self._hubs: dict[str, Hub] = {}
        self._is_closing = False

    def rpcs(self) -> Rpcs:
        """Return the handler of each method."""
        return {
            **{name: _calling(name, operation) for name, operation in METHODS.items()},
            "SendMessage": Rpc(Scope.WRITE, _send),
            "PutContext": Rpc(Scope.WRITE, _put),
            "WatchSession": Rpc(Scope.READ, self._watch),
            "CallOperation": Rpc(None, _call),
        }

    def close(self) -> None:
        """End all streams; their readers reconnect, to the next server."""
        self._is_closing = True
        for hub in self._hubs.values():
            hub.close()

    async def _watch(self, call: RpcCall, request: pb.WatchSessionRequest) -> AsyncIterator[Any]:
        await call.moor.check_access("ref", request.session)
        following = _stored if request.no_follow else self._followed
        async for event in following(call, request):
            yield event

    async def _followed(self, call: RpcCall, request: pb.WatchSessionRequest) -> AsyncIterator[bytes]:
        """Yield stored entries after the cursor, then new ones; each event is encoded once for all readers."""
        owner = call.visitor.caller.owner
        if owner not in self._hubs:
            self._hubs[owner] = Hub(call.moor.deps, owner)
        hub = self._hubs[owner]
        stream = await hub.session(call.visitor.caller, request.session, request.after)
        try:
            while not stream.ended and not self._is_closing:
                told = await stream.next(call.access.every)
                await call.access.check()
                for each in told:
                    yield each.rendered(_event_bytes)
        finally:
            hub.leave(stream)


async def _stored(call: RpcCall, request: pb.WatchSessionRequest) -> AsyncIterator[pb.WatchSessionResponse]:
    async for event in call.moor.events(request.session, after=request.after, follow=False):
        yield _event(event)


async def _send(call: RpcCall, request: pb.SendMessageRequest) -> pb.SendMessageResponse:
    """Send a message; with `wait_seconds`, return the answer if it arrives in time. The message stays stored."""
    await call.open_session(request.session)
    said = {"role": "user", "content": request.content, "client_key": request.client_key or None}
    posted = await call.moor.executor.say(
        request.session,
        [said],
        token=request.token or None,
        run=request.run if request.HasField("run") else None,
        queue=request.queue,
        wake=not request.no_wake,
    )
    response = pb.SendMessageResponse(session_id=posted.session_id, number=posted.entries[-1].number)
    if posted.run is not None:
        if posted.run.because is not None:
            await call.tell_why_at_once(posted.run.because)
        wait = min(max(0.0, request.wait_seconds), LONGEST_WAIT)
        run = await call.moor.result(posted.run.run_id, wait=wait) if wait else posted.run
        response.run_id, response.status = run.run_id, run.state.value
        response.result, response.error = run.result or "", run.error or ""
        response.problems = run.problems
        call.tell_why(run.because)
    return response


async def _put(call: RpcCall, request: pb.PutContextRequest) -> pb.PutContextResponse:
    value, ttl = json_of("value", request.value), request.ttl_seconds or None
    await call.open_session(request.session)
    written = await call.moor.context.put(request.session, request.key, value, ttl=ttl)
    return filled(pb.PutContextResponse(), written)


async def _call(call: RpcCall, request: pb.CallOperationRequest) -> pb.CallOperationResponse:
    """Call the operation of that name, with the scope and the reach that REST requires."""
    given = json_of("arguments", request.arguments or "{}")
    if not isinstance(given, dict):
        raise InvalidField("arguments", "must be an object")
    operation = _operation(request.operation, given)
    check_held(call.visitor.scopes, operation.scope, operation.or_scope)
    arguments = arguments_from(operation, given)
    await call.moor.check_operation(operation, arguments)
    value = await operation.method(call.moor)(**arguments)
    return pb.CallOperationResponse(answer=answer_of(operation, value).decode())


def _operation(name: str, given: Arguments) -> Operation:
    """Return the operation of a name; of several, the one with the given path."""
    every = variants(name.removesuffix("_one"))
    if not every:
        raise InvalidField("operation", f"is {name[:80]!r}; the OpenAPI document has the names of all operations")
    return next((each for each in every if each.in_path.keys() <= given.keys()), every[-1])


def _calling(name: str, method: str) -> Rpc:
    """Return a method of the service that calls one of `Moorage`, with the scope and the reach that REST requires."""
    operation, kind = variants(method)[0], getattr(pb, f"{name}Response")

    async def answer(call: RpcCall, request: Any) -> Any:
        arguments = _read(request, operation)
        await call.moor.check_operation(operation, arguments)
        return _rendered(kind, await operation.method(call.moor)(**arguments))

    return Rpc(operation.scope, answer, or_scope=operation.or_scope)


# Reading ----------------------------------------------------------------------------------------


NAMES = {"session": "ref", "expires_in_seconds": "expires_in"}  # arguments with other names in REST
JSON = {"metadata", "checkpoint", "plan"}
TURNED = {"no_cascade": "cascade", "with_settled": "pending_only"}  # true where the argument is false


def _read(request: Any, operation: Operation) -> Arguments:
    """Return the arguments of a request; an empty field counts as absent, unless the operation needs it."""
    told: Arguments = {}
    names = {**operation.fields, **NAMES}
    for field in request.DESCRIPTOR.fields:
        name, value = names.get(field.name, field.name), getattr(request, field.name)
        is_needed = name in operation.parameters and operation.is_required(name)
        if not (request.HasField(field.name) if field.has_presence else value or is_needed):
            continue
        if name in TURNED:
            told[TURNED[name]] = False
        elif name in JSON:
            told[name] = json_of(name, value)
        else:
            told[name] = value if isinstance(value, str | bool | int | float) else list(value)
    return told


def json_of(field: str, text: str, kind: Any = Any, problem: str = "is not JSON") -> Any:
    """Return the value of a JSON text. Raise InvalidField if it is none of that kind."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError:
        raise InvalidField(field, problem) from None


# Rendering --------------------------------------------------------------------------------------

_MORE = tuple(name for name in PUBLIC_FIELDS if name not in pb.Session.DESCRIPTOR.fields_by_name and name != "hold")


def _rendered(kind: Any, value: Any) -> Any:
    if kind is pb.GetContextResponse:  # it may be any JSON
        return kind(value=encode_text(value))
    match value:
        case Session():
            return kind(session=_session(value))
        case Page():
            return kind(sessions=map(_session, value.items), next=value.next or "")
        case Approval():
            return kind(approval=_approval(value))
        case list():
            return kind(approvals=map(_approval, value))
        case Run():
            return kind(run=filled(pb.Run(), value))
        case ResumePacket():
            return _resumed(value)
    return filled(kind(), value)


def _session(session: Session) -> pb.Session:
    told = filled(pb.Session(), session, json=("metadata",))
    more = {name: value for name in _MORE if (value := getattr(session, name))}
    told.more = encode_text(more) if more else ""
    if session.hold is not None:
        told.holder = session.hold.holder
        told.held_until.FromDatetime(session.hold.until)
    return told


def filled(message: M, value: msgspec.Struct, *, json: tuple[str, ...] = ()) -> M:
    """Return a message with the fields of a value that have the same names; those of `json` as texts."""
    for name in message.DESCRIPTOR.fields_by_name:
        part = getattr(value, name, None)
        if isinstance(part, msgspec.Struct):
            filled(getattr(message, name), part)
        elif isinstance(part, datetime):
            getattr(message, name).FromDatetime(part)
        elif name in json and part:
            setattr(message, name, encode_text(part))
        elif isinstance(part, list | tuple):
            getattr(message, name).extend(part)
        elif part is not None and name not in json:
            setattr(message, name, part)
    return message


def _resumed(packet: ResumePacket) -> pb.ResumeSessionResponse:
    names = ("number", "role", "content", "data")
    messages = [{name: getattr(entry, name) for name in names} for entry in packet.messages]
    told = pb.ResumeSessionResponse(
        session=_session(packet.session),
        checkpoint="" if packet.checkpoint is None else encode_text(packet.checkpoint),
        context=encode_text(packet.context),
        messages=encode_text(messages),
    )
    if packet.hold is not None:
        told.holder, told.token = packet.hold.holder, str(packet.hold.token)
        told.until.FromDatetime(packet.hold.until)
    return told


def _approval(approval: Approval) -> pb.Approval:
    return filled(pb.Approval(), approval, json=("plan",))


def _event(event: Event) -> pb.WatchSessionResponse:
    told = pb.Event(id=event.id, type=event.type, session_id=event.session_id, data=encode_text(event.data))
    told.timestamp.FromDatetime(event.timestamp)
    return pb.WatchSessionResponse(event=told)


def _event_bytes(event: Event) -> bytes:
    return bytes(_event(event).SerializeToString())


METHODS = {  # of the service, with the operations that they call
    "CreateSession": "create",
    "GetSession": "get",
    "ListSessions": "list",
    "RetryRun": "retry",
    "SuspendSession": "suspend",
    "ResumeSession": "resume",
    "ReleaseSession": "release",
    "FinalizeSession": "finalize",
    "DeleteSession": "delete",
    "ListChildren": "children",
    "GetContext": "context.get",
    "DeleteContext": "context.delete",
    "RequestApproval": "request_approval",
    "ListApprovals": "approvals",
    "DecideApproval": "decide",
}
