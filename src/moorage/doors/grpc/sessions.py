"""SessionService: the methods of `Moorage` by gRPC. Each row reads a request, names the method, renders its answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any

import msgspec

from moorage.core.approval import Approval
from moorage.core.codec import encode_text
from moorage.core.entry import Entry
from moorage.core.errors import InvalidField
from moorage.core.event import SESSION_DELETED, Event
from moorage.core.family import Deletion
from moorage.core.key import Scope
from moorage.core.query import Page
from moorage.core.run import Run
from moorage.core.session import Session
from moorage.doors.grpc.calls import Call, Rpc
from moorage.doors.grpc.door import Rpcs
from moorage.doors.http.reach import check_one, check_reach
from moorage.doors.http.visit import LONGEST_WAIT
from moorage.protobuf import sessions_pb2 as pb
from moorage.remote.operations import variants
from moorage.service.context import ContextWritten
from moorage.service.conversation import session_page
from moorage.service.deps import Deps
from moorage.service.sessions import ResumePacket
from moorage.service.streams import Hub

Arguments = dict[str, Any]
Reading = Callable[[Any], Arguments]
Rendering = Callable[[Any], Any]


class Sessions:
    """The service of one server."""

    def __init__(self) -> None:
        self._hubs: dict[str, Hub] = {}
        self._is_closing = False

    def rpcs(self) -> Rpcs:
        """What answers which method."""
        return {
            **{name: _calling(*row) for name, row in METHODS.items()},
            "SendMessage": Rpc(Scope.WRITE, _send),
            "PutContext": Rpc(Scope.WRITE, _put),
            "WatchSession": Rpc(Scope.READ, self._watch),
        }

    def close(self) -> None:
        """End all streams; their readers come back, to whoever serves then."""
        self._is_closing = True
        for hub in self._hubs.values():
            hub.close()

    async def _watch(self, call: Call, request: pb.WatchSessionRequest) -> AsyncIterator[Any]:
        if call.visitor.session_id is not None:
            await check_one(call.moor, call.visitor, "ref", request.session)
        following = _stored if request.no_follow else self._followed
        async for event in following(call, request):
            yield event

    async def _followed(self, call: Call, request: pb.WatchSessionRequest) -> AsyncIterator[bytes]:
        """What is stored after the cursor, then what comes; each event is put into bytes once for all who watch."""
        hub = self._hub(call.moor.deps, call.visitor.caller.owner)
        stream = await hub.session(call.visitor.caller, request.session, request.after)
        try:
            while not stream.ended and not self._is_closing:
                told = await stream.next(call.standing.every)
                await call.standing.check()
                for each in told:
                    yield each.rendered(_event_bytes)
        finally:
            hub.leave(stream)

    def _hub(self, deps: Deps, owner: str) -> Hub:
        known = self._hubs.get(owner)
        if known is None:
            known = self._hubs[owner] = Hub(deps, owner)
        return known


async def _stored(call: Call, request: pb.WatchSessionRequest) -> AsyncIterator[pb.WatchSessionResponse]:
    """What is stored after the cursor."""
    deps, caller, after = call.moor.deps, call.visitor.caller, request.after
    session_id = (await call.moor.get(request.session)).session_id
    while events := await session_page(deps, caller, session_id, after):
        for event in events:
            yield _event(event)
        if events[-1].type == SESSION_DELETED:
            return
        after = events[-1].id


async def _send(call: Call, request: pb.SendMessageRequest) -> pb.SendMessageResponse:
    """Say something; with `wait_seconds`, the answer if it comes in time. What was said stays said."""
    await call.open_session(request.session)
    posted = await call.moor.post(
        request.session,
        content=request.content,
        client_key=request.client_key or None,
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
        call.tell_why(run)
    return response


async def _put(call: Call, request: pb.PutContextRequest) -> pb.PutContextResponse:
    """Remember a value."""
    if not request.value:
        raise InvalidField("value", "is not JSON")
    value, ttl = _json("value", request.value), request.ttl_seconds or None
    await call.open_session(request.session)
    written = await call.moor.context.put(request.session, request.key, value, ttl=ttl)
    return pb.PutContextResponse(**_written(written))


def _calling(name: str, read: Reading, render: Rendering) -> Rpc:
    """A method of the service that calls one of `Moorage`, with the scope and the reach that REST asks for."""
    operation = variants(name)[0]
    door, _, method = name.rpartition(".")

    async def answer(call: Call, request: Any) -> Any:
        arguments = read(request)
        if call.visitor.session_id is not None:
            await check_reach(call.moor, call.visitor, operation, arguments)
        target: Any = call.moor.context if door else call.moor
        return render(await getattr(target, method)(**arguments))

    return Rpc(operation.scope, answer, or_scope=operation.or_scope)


# Reading ----------------------------------------------------------------------------------------


def _given(**values: Any) -> Arguments:
    """What a request says; an empty field says nothing."""
    return {name: value for name, value in values.items() if value not in ("", 0, 0.0, None)}


def _json(field: str, text: str) -> Any:
    """The value that a JSON text has; nothing for an empty one."""
    if not text:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        raise InvalidField(field, "is not JSON") from None


def _create(request: pb.CreateSessionRequest) -> Arguments:
    return _given(
        agent=request.agent_name,
        session_id=request.session_id,
        name=request.session_name,
        task_id=request.task_id,
        purpose=request.purpose,
        project_dir=request.project_dir,
        metadata=_json("metadata", request.metadata),
        parent=request.parent,
        ttl=request.ttl_seconds,
    )


def _list(request: pb.ListSessionsRequest) -> Arguments:
    return _given(
        state=request.state,
        status=request.status,
        agent=request.agent_name,
        task_id=request.task_id,
        parent=request.parent,
        limit=request.limit,
        cursor=request.cursor,
    )


def _suspend(request: pb.SuspendSessionRequest) -> Arguments:
    checkpoint = _json("checkpoint", request.checkpoint)
    return {"ref": request.session, **_given(reason=request.reason, token=request.token, checkpoint=checkpoint)}


def _resume(asked: pb.ResumeSessionRequest) -> Arguments:
    hold = {"hold": asked.hold} if asked.HasField("hold") else {}
    return {**_of_session(asked), **_given(holder=asked.holder), **hold}


def _finalize(request: pb.FinalizeSessionRequest) -> Arguments:
    return {
        "ref": request.session,
        **_given(outcome=request.outcome, summary=request.summary, token=request.token),
    }


def _delete(request: pb.DeleteSessionRequest) -> Arguments:
    return {
        "ref": request.session,
        "cascade": not request.no_cascade,
        "force": request.force,
        "dry_run": request.dry_run,
    }


def _ask(request: pb.RequestApprovalRequest) -> Arguments:
    return {
        "ref": request.session,
        "question": request.question,
        "options": list(request.options),
        **_given(plan=_json("plan", request.plan), expires_in=request.expires_in_seconds),
    }


def _approvals(request: pb.ListApprovalsRequest) -> Arguments:
    return {"pending_only": not request.with_settled, **_given(ref=request.session, limit=request.limit)}


def _decide(request: pb.DecideApprovalRequest) -> Arguments:
    return {"approval_id": request.approval_id, "decision": request.decision, **_given(note=request.note)}


def _of_session(request: Any) -> Arguments:
    return {"ref": request.session}


# Rendering --------------------------------------------------------------------------------------

_TEXTS = (
    "session_id",
    "session_name",
    "task_id",
    "agent_name",
    "purpose",
    "project_dir",
    "owner",
    "state",
    "status",
    "phase",
    "interface",
    "parent_session_id",
    "parent_session_name",
    "root_session_id",
    "last_error",
    "summary",
    "forked_from",
)
_NUMBERS = ("resume_ready", "depth", "version", "last_entry", "error_count", "duration_seconds", "pending_approvals")
_TIMES = ("created_at", "updated_at", "last_activity_at", "expires_at", "finalized_at")


def _session(session: Session) -> pb.Session:
    known = {name: getattr(session, name) for name in (*_TEXTS, *_NUMBERS)}
    told = pb.Session(**{name: value for name, value in known.items() if value is not None})
    told.metadata = encode_text(session.metadata) if session.metadata else ""
    for name in _TIMES:
        _set_time(told, name, getattr(session, name))
    if session.hold is not None:
        told.holder = session.hold.holder
        _set_time(told, "held_until", session.hold.until)
    for name in ("waiting_for", "because", "last_run"):
        if (part := getattr(session, name)) is not None:
            _fill(getattr(told, name), part)
    return told


_RUN = tuple(pb.Run.DESCRIPTOR.fields_by_name)


def _run(run: Run) -> pb.Run:
    told = pb.Run()
    _fill(told, run, _RUN)
    return told


def _fill(message: Any, value: msgspec.Struct, names: tuple[str, ...] | None = None) -> None:
    """Set the fields of a message as those of a value that has the same names."""
    for name in names or value.__struct_fields__:
        part = getattr(value, name)
        if isinstance(part, msgspec.Struct):
            _fill(getattr(message, name), part)
        elif isinstance(part, datetime):
            _set_time(message, name, part)
        elif part is not None:
            setattr(message, name, part)


def _set_time(message: Any, name: str, at: datetime | None) -> None:
    if at is not None:
        getattr(message, name).FromDatetime(at)


def _sessions(page: Page[Session]) -> Arguments:
    return {"sessions": [_session(each) for each in page.items], "next": page.next or ""}


def _resumed(packet: ResumePacket) -> pb.ResumeSessionResponse:
    told = pb.ResumeSessionResponse(
        session=_session(packet.session),
        checkpoint="" if packet.checkpoint is None else encode_text(packet.checkpoint),
        context=encode_text(packet.context),
        messages=encode_text([_said(entry) for entry in packet.messages]),
    )
    if packet.hold is not None:
        told.holder, told.token = packet.hold.holder, str(packet.hold.token)
        told.until.FromDatetime(packet.hold.until)
    return told


def _said(entry: Entry) -> dict[str, Any]:
    return {"number": entry.number, "role": entry.role, "content": entry.content, "data": entry.data}


def _deletion(gone: Deletion) -> pb.DeleteSessionResponse:
    fields = pb.DeleteSessionResponse.DESCRIPTOR.fields_by_name
    return pb.DeleteSessionResponse(**{name: getattr(gone, name) for name in fields})


def _value(value: Any) -> pb.GetContextResponse:
    return pb.GetContextResponse(value=encode_text(value))


def _written(written: ContextWritten) -> Arguments:
    return {name: getattr(written, name) for name in pb.PutContextResponse.DESCRIPTOR.fields_by_name}


def _approval(approval: Approval) -> pb.Approval:
    told = pb.Approval(
        approval_id=approval.approval_id,
        session_id=approval.session_id,
        question=approval.question,
        plan="" if approval.plan is None else encode_text(approval.plan),
        options=approval.options,
        state=approval.state.value,
        decision=approval.decision or "",
        note=approval.note or "",
        decided_by=approval.decided_by or "",
        plan_hash=approval.plan_hash or "",
    )
    for name in ("asked_at", "decided_at", "expires_at"):
        _set_time(told, name, getattr(approval, name))
    return told


def _event(event: Event) -> pb.WatchSessionResponse:
    told = pb.Event(id=event.id, type=event.type, session_id=event.session_id, data=encode_text(event.data))
    told.timestamp.FromDatetime(event.timestamp)
    return pb.WatchSessionResponse(event=told)


def _event_bytes(event: Event) -> bytes:
    return bytes(_event(event).SerializeToString())


def _approval_list(approvals: list[Approval]) -> pb.ListApprovalsResponse:
    return pb.ListApprovalsResponse(approvals=[_approval(each) for each in approvals])


def _session_in(kind: Any) -> Rendering:
    """Return the rendering of a session as the response of a method."""
    return lambda session: kind(session=_session(session))


METHODS: dict[str, tuple[str, Reading, Rendering]] = {
    "CreateSession": ("create", _create, _session_in(pb.CreateSessionResponse)),
    "GetSession": ("get", _of_session, _session_in(pb.GetSessionResponse)),
    "ListSessions": ("list", _list, lambda page: pb.ListSessionsResponse(**_sessions(page))),
    "RetryRun": ("retry", lambda asked: {"run_id": asked.run_id}, lambda run: pb.RetryRunResponse(run=_run(run))),
    "SuspendSession": ("suspend", _suspend, _session_in(pb.SuspendSessionResponse)),
    "ResumeSession": ("resume", _resume, _resumed),
    "ReleaseSession": (
        "release",
        lambda asked: {**_of_session(asked), **_given(token=asked.token)},
        _session_in(pb.ReleaseSessionResponse),
    ),
    "FinalizeSession": ("finalize", _finalize, _session_in(pb.FinalizeSessionResponse)),
    "DeleteSession": ("delete", _delete, _deletion),
    "ListChildren": (
        "children",
        lambda asked: {**_of_session(asked), **_given(limit=asked.limit, cursor=asked.cursor)},
        lambda page: pb.ListChildrenResponse(**_sessions(page)),
    ),
    "GetContext": ("context.get", lambda asked: {**_of_session(asked), **_given(key=asked.key)}, _value),
    "DeleteContext": (
        "context.delete",
        lambda asked: {**_of_session(asked), **_given(key=asked.key)},
        lambda written: pb.DeleteContextResponse(**_written(written)),
    ),
    "RequestApproval": (
        "request_approval",
        _ask,
        lambda approval: pb.RequestApprovalResponse(approval=_approval(approval)),
    ),
    "ListApprovals": ("approvals", _approvals, _approval_list),
    "DecideApproval": ("decide", _decide, lambda approval: pb.DecideApprovalResponse(approval=_approval(approval))),
}
