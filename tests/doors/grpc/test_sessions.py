"""SessionService: everything a session can be asked, by gRPC, on the same store as any other door."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import grpc
import msgspec
import pytest

from moorage.core.session import PUBLIC_FIELDS, Birth, Hold
from moorage.core.status import LastRun
from moorage.doors.grpc import sessions
from moorage.doors.grpc.sessions import _MORE, _session
from moorage.protobuf import sessions_pb2 as sp
from moorage.testing.builders import NOON, a_session
from tests.doors.grpc.serving import Served, server_process
from tests.doors.grpc.test_platform import refused, task, trailing

Code = grpc.StatusCode


async def test_a_session_from_creation_to_deletion(served: Served) -> None:
    service = served.sessions
    asked = sp.CreateSessionRequest(agent_name="planner", session_name="plan", purpose="to plan", metadata='{"a": 1}')
    made = (await service.CreateSession(asked)).session
    assert (made.session_name, made.state, made.interface) == ("plan", "created", "grpc")
    assert json.loads(made.metadata) == {"a": 1}
    assert made.created_at.seconds > 1_700_000_000
    found = (await service.GetSession(sp.GetSessionRequest(session="plan"))).session
    assert found == made
    suspended = await service.SuspendSession(
        sp.SuspendSessionRequest(session="plan", reason="later", checkpoint='{"step": 3}')
    )
    assert suspended.session.state == "suspended"
    back = await service.ResumeSession(sp.ResumeSessionRequest(session="plan", holder="me"))
    assert (json.loads(back.checkpoint), back.session.state) == ({"step": 3}, "active")
    held = (await service.GetSession(sp.GetSessionRequest(session="plan"))).session
    assert (held.holder, held.held_until) == (back.holder, back.until)
    over = await service.FinalizeSession(
        sp.FinalizeSessionRequest(session="plan", outcome="completed", summary="done", token=back.token)
    )
    assert (over.session.state, over.session.summary) == ("completed", "done")
    gone = await service.DeleteSession(sp.DeleteSessionRequest(session=made.session_id))
    assert (gone.deleted_sessions, list(gone.session_ids)) == (1, [made.session_id])
    error = await refused(service.GetSession(sp.GetSessionRequest(session=made.session_id)))
    assert (error.code(), trailing(error)["error-code"]) == (Code.NOT_FOUND, "session_gone")


async def test_lists_come_in_pages(served: Served) -> None:
    for number in range(5):
        await served.sessions.CreateSession(sp.CreateSessionRequest(agent_name="planner", session_id=f"s-{number}"))
    seen, cursor = [], ""
    while True:
        page = await served.sessions.ListSessions(sp.ListSessionsRequest(agent_name="planner", limit=2, cursor=cursor))
        seen += [session.session_id for session in page.sessions]
        if not (cursor := page.next):
            break
    assert sorted(seen) == [f"s-{number}" for number in range(5)]


async def test_children_hang_on_their_parent_and_go_with_it(served: Served) -> None:
    service = served.sessions
    await service.CreateSession(sp.CreateSessionRequest(session_id="top"))
    await service.CreateSession(sp.CreateSessionRequest(session_id="child", parent="top"))
    await service.CreateSession(sp.CreateSessionRequest(session_id="other"), metadata=[("x-agent-session-id", "top")])
    page = await service.ListChildren(sp.ListChildrenRequest(session="top"))
    assert [each.session_id for each in page.sessions] == ["child", "other"]
    error = await refused(service.DeleteSession(sp.DeleteSessionRequest(session="top", no_cascade=True)))
    assert (error.code(), trailing(error)["error-code"]) == (Code.FAILED_PRECONDITION, "has_children")
    preview = await service.DeleteSession(sp.DeleteSessionRequest(session="top", dry_run=True))
    gone = await service.DeleteSession(sp.DeleteSessionRequest(session="top"))
    assert preview == gone
    assert gone.cascaded_children == 2


async def test_context_is_shared_with_agents(served: Served) -> None:
    service = served.sessions
    await service.CreateSession(sp.CreateSessionRequest(session_id="s-1"))
    written = await service.PutContext(
        sp.PutContextRequest(session="s-1", key="preference", value='"tea"', ttl_seconds=60)
    )
    assert (written.version, list(written.keys)) == (1, ["preference"])
    assert json.loads((await service.GetContext(sp.GetContextRequest(session="s-1"))).value) == {"preference": "tea"}
    answer = await served.workers.ProcessTask(task("1 day in Rome", "itinerary-worker", session_id="s-1"))
    assert json.loads(answer.output)["preferences"] == ["tea"]
    await service.DeleteContext(sp.DeleteContextRequest(session="s-1", key="preference"))
    one = await service.GetContext(sp.GetContextRequest(session="s-1", key="preference"))
    assert json.loads(one.value) == {}


async def test_an_approval_is_asked_listed_and_decided(served: Served) -> None:
    service = served.sessions
    await service.CreateSession(sp.CreateSessionRequest(session_id="s-1"))
    question = sp.RequestApprovalRequest(session="s-1", question="Apply?", plan='{"add": 2}', expires_in_seconds=600)
    asked = (await service.RequestApproval(question)).approval
    assert (asked.state, json.loads(asked.plan), asked.expires_at.seconds > 0) == ("pending", {"add": 2}, True)
    assert len(asked.plan_hash) == 64
    [listed] = (await service.ListApprovals(sp.ListApprovalsRequest(session="s-1"))).approvals
    assert listed == asked
    decided = await service.DecideApproval(
        sp.DecideApprovalRequest(approval_id=asked.approval_id, decision="approve", note="go")
    )
    assert (decided.approval.state, decided.approval.note) == ("approved", "go")
    error = await refused(
        service.DecideApproval(sp.DecideApprovalRequest(approval_id=asked.approval_id, decision="reject"))
    )
    assert trailing(error)["error-code"] == "already_decided"


@pytest.mark.parametrize(
    "request_",
    [
        sp.CreateSessionRequest(metadata="{nonsense"),
        sp.CreateSessionRequest(session_id="../evil"),
        sp.CreateSessionRequest(ttl_seconds=-1),
    ],
)
async def test_a_request_that_makes_no_sense_is_told_so(served: Served, request_: sp.CreateSessionRequest) -> None:
    assert (await refused(served.sessions.CreateSession(request_))).code() is Code.INVALID_ARGUMENT


async def test_message_to_an_unknown_session_creates_it(served: Served) -> None:
    await served.moorage().create(session_id="top", parent=None)
    metadata = (("x-agent-session-id", "top"),)
    said = await served.sessions.SendMessage(sp.SendMessageRequest(session="new", content="hi"), metadata=metadata)
    assert (said.session_id, said.run_id) == ("new", "")
    assert (await served.moorage().get("new")).parent_session_id == "top"
    asked = sp.PutContextRequest(session="other", key="a", value="1")
    assert (await served.sessions.PutContext(asked)).version == 1
    assert (await refused(served.sessions.GetSession(sp.GetSessionRequest(session="third")))).code() is Code.NOT_FOUND


# Streams ----------------------------------------------------------------------------------------


async def test_watch_replays_follows_and_continues_from_a_cursor(served: Served) -> None:
    moor = served.moorage()
    await moor.create("planner", session_id="s-1", parent=None)
    await moor.append("s-1", "one")
    watch = served.sessions.WatchSession(sp.WatchSessionRequest(session="s-1"))
    async with asyncio.timeout(20):
        first = [(await watch.read()).event for _ in range(2)]
        await moor.append("s-1", "two")
        third = (await watch.read()).event
    assert [(event.id, event.type) for event in (*first, third)] == [(1, "created"), (2, "message"), (3, "message")]
    assert json.loads(third.data)["content"] == "two"
    watch.cancel()
    again = served.sessions.WatchSession(sp.WatchSessionRequest(session="s-1", after=2))
    async with asyncio.timeout(20):
        assert (await again.read()).event.id == 3
        await moor.delete("s-1")
        assert (await again.read()).event.type == "session_deleted"
        assert await again.read() is grpc.aio.EOF


async def test_watch_without_follow_ends_after_stored_entries(served: Served) -> None:
    moor = served.moorage()
    await moor.create("planner", session_id="s-1", parent=None)
    for start in range(0, 500, 250):
        await moor.append("s-1", [{"role": "user", "content": str(start + number)} for number in range(250)])
    watch = served.sessions.WatchSession(sp.WatchSessionRequest(session="s-1", no_follow=True))
    assert [each.event.id async for each in watch] == list(range(1, 502))


async def test_a_message_sent_here_is_answered_by_a_launcher(home: Path) -> None:
    with server_process(f"sqlite:///{home}/store.db", home) as process:
        async with grpc.aio.insecure_channel(process.place) as channel:
            from tests.doors.grpc.serving import Stubs

            service = Stubs(channel).sessions
            await service.CreateSession(sp.CreateSessionRequest(agent_name="echo-agent", session_id="s-1"))
            sent = await service.SendMessage(
                sp.SendMessageRequest(session="s-1", content="hello", client_key="k", wait_seconds=30)
            )
            assert (sent.status, sent.result) == ("completed", "Echo Agent Response: hello")
            again = await service.SendMessage(
                sp.SendMessageRequest(session="s-1", content="hello", client_key="k", wait_seconds=30)
            )
            assert (again.run_id, again.number) == (sent.run_id, sent.number)


async def test_holder_appends_with_its_token_and_hands_over_with_run(home: Path) -> None:
    with server_process(f"sqlite:///{home}/store.db", home) as process:
        async with grpc.aio.insecure_channel(process.place) as channel:
            from tests.doors.grpc.serving import Stubs

            service = Stubs(channel).sessions
            await service.CreateSession(sp.CreateSessionRequest(agent_name="echo-agent", session_id="s-1"))
            resumed = await service.ResumeSession(sp.ResumeSessionRequest(session="s-1", hold=True))
            own = {"session": "s-1", "token": resumed.token}

            error = await refused(service.SendMessage(sp.SendMessageRequest(session="s-1", content="hello")))
            assert trailing(error)["error-code"] == "held_by_another"
            error = await refused(service.SendMessage(sp.SendMessageRequest(session="s-1", content="hi", token="old")))
            assert trailing(error)["error-code"] == "hold_lost"
            appended = await service.SendMessage(sp.SendMessageRequest(content="a note", **own))
            assert appended.run_id == ""
            head = (await service.GetSession(sp.GetSessionRequest(session="s-1"))).session
            assert head.holder == resumed.holder

            asked = await service.SendMessage(sp.SendMessageRequest(content="go on", run=True, wait_seconds=30, **own))
            assert (asked.status, asked.result) == ("completed", "Echo Agent Response: go on")
            head = (await service.GetSession(sp.GetSessionRequest(session="s-1"))).session
            assert head.holder == ""


def test_every_public_field_of_a_session_has_a_place_or_is_in_more() -> None:
    """Only a hold is told in other words, as `holder` and `held_until`."""
    head = a_session("s-1")(Birth()).session
    given = {"hold": Hold("ann", NOON), "last_run": LastRun("r-1", "failed", "lost", NOON), "summary": "done"}
    told = _session(msgspec.structs.replace(head, **given))
    places = set(sp.Session.DESCRIPTOR.fields_by_name)

    assert (told.summary, told.holder, told.last_run.id, told.more) == ("done", "ann", "r-1", "")
    assert places - set(PUBLIC_FIELDS) == {"holder", "held_until", "more"}
    assert set(_MORE) == set(PUBLIC_FIELDS) - places - {"hold"}


def test_field_without_a_place_is_in_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_MORE", ("summary", "purpose"))
    head = msgspec.structs.replace(a_session("s-1")(Birth()).session, summary="done", purpose=None)

    assert json.loads(_session(head).more) == {"summary": "done"}
