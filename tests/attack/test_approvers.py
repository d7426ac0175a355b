"""A key with only the scope `approve`: its bearer sees the questions that wait, decides them, and does nothing else."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import grpc
import httpx2
import pytest

import moorage
from moorage.core.approval import Approval
from moorage.core.errors import Forbidden
from moorage.protobuf import sessions_pb2 as sp
from moorage.testing.faults import PATIENCE
from tests.doors.graphql.client import Client
from tests.doors.grpc.serving import Stubs
from tests.doors.http.process import starting, until
from tests.doors.mcp.ways import NEW
from tests.doors.mcp.ways import client as mcp_client

SECRET = "platypus"  # in everything that is not a question
PLAN = {"steps": ["drain", "upgrade"]}
PENDING = "{ approvals { approvalId question plan options state } }"
DECIDE = 'mutation ($id: ID!) { decideApproval(approvalId: $id, decision: "canary") { state decision } }'


class Place(NamedTuple):
    """A server that wants keys, an approver's key, and the folder of both."""

    url: str
    grpc_place: str
    key: str
    home: Path
    store: str

    def http(self) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, timeout=PATIENCE, headers={"authorization": f"Bearer {self.key}"})

    def ask(self, session: str) -> Approval:
        """Put a question in a session of its own, next to one that was answered."""
        with moorage.sync.connect(self.store) as moor:
            moor.create("planner", session_id=session, purpose=SECRET, metadata={"why": SECRET})
            moor.append(session, SECRET)
            moor.approve(moor.request_approval(session, "Old?", plan=SECRET).approval_id, note=SECRET)
            return moor.request_approval(session, f"Apply {session}?", plan=PLAN, options=["canary"])

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "MOORAGE_HOME": str(self.home), "MOORAGE_URL": self.url, "MOORAGE_KEY": self.key}
        command = [sys.executable, "-m", "moorage", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE, check=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("approvers")
    store = f"sqlite:///{folder / 'moorage.db'}"
    with moorage.sync.connect(store) as moor:
        key = moor.create_key(scopes=["approve"]).text
    with starting(folder) as begin:
        server = begin("--no-launcher", "--store", store)
        port = until(lambda: re.search(r"gRPC at \S+ port (\d+)", server.log.read_text()))[1]
        yield Place(server.url, f"127.0.0.1:{port}", key, folder / "home", store)


def test_approver_lists_reads_and_decides_over_http(place: Place) -> None:
    asked = place.ask("by-http")
    with place.http() as http:
        [listed] = http.get("/approvals", params={"session": "by-http"}).raise_for_status().json()["items"]
        assert (listed["question"], listed["plan"], listed["options"]) == ("Apply by-http?", PLAN, ["canary"])
        assert asked.approval_id in http.get("/approvals").text
        assert http.get(f"/approvals/{asked.approval_id}").json() == listed
        decided = http.post(f"/approvals/{asked.approval_id}/decision", json={"decision": "canary"})
        assert decided.raise_for_status().json()["state"] == "answered"
        assert http.get("/approvals", params={"session": "by-http"}).json()["items"] == []


def test_approver_cannot_list_decided_approvals(place: Place) -> None:
    place.ask("decided-before")
    with place.http() as http:
        refused = http.get("/approvals", params={"pending_only": "false"})
        assert (refused.status_code, refused.json()["scope"]) == (403, "read")
        assert SECRET not in http.get("/approvals").text


async def test_approver_lists_and_decides_by_graphql_and_nothing_else(place: Place) -> None:
    asked = await asyncio.to_thread(place.ask, "by-graphql")
    async with Client(place.url, place.key) as client:
        listed = (await client.data(PENDING))["approvals"]
        assert [each["plan"] for each in listed if each["approvalId"] == asked.approval_id] == [PLAN]
        assert (await client.data(DECIDE, id=asked.approval_id))["decideApproval"]["decision"] == "canary"
        for query in (
            "{ approvals(pendingOnly: false) { question } }",
            '{ agentSession(sessionId: "by-graphql") { purpose } }',
            "{ agentSessions { purpose } }",
            'mutation { suspendSession(sessionId: "by-graphql") { state } }',
        ):
            assert await client.code(query) == "forbidden", query


async def test_approver_lists_and_decides_by_grpc_and_nothing_else(place: Place) -> None:
    asked = await asyncio.to_thread(place.ask, "by-grpc")
    key = [("authorization", f"Bearer {place.key}")]
    async with grpc.aio.insecure_channel(place.grpc_place) as channel:
        calls: Any = Stubs(channel).sessions
        listed = await calls.ListApprovals(sp.ListApprovalsRequest(session="by-grpc"), metadata=key)
        assert [each.question for each in listed.approvals] == ["Apply by-grpc?"]
        decide = sp.DecideApprovalRequest(approval_id=asked.approval_id, decision="canary")
        assert (await calls.DecideApproval(decide, metadata=key)).approval.state == "answered"
        for call in (
            calls.GetSession(sp.GetSessionRequest(session="by-grpc"), metadata=key),
            calls.ListSessions(sp.ListSessionsRequest(), metadata=key),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_approver_lists_and_decides_on_the_command_line(place: Place) -> None:
    asked = place.ask("by-command")
    assert asked.approval_id in place.command("approvals", "--session", "by-command").stdout
    done = place.command("approve", "by-command", "--option", "canary")
    assert (done.returncode, "answered" in done.stdout) == (0, True), done.stderr
    assert place.command("show", "by-command").returncode == 4


def test_approver_lists_and_decides_in_python(place: Place) -> None:
    asked = place.ask("by-python")
    with moorage.sync.connect(place.url, key=place.key) as moor:
        assert [each.plan for each in moor.approvals("by-python")] == [PLAN]
        assert moor.approval(asked.approval_id).question == "Apply by-python?"
        assert moor.reject(asked.approval_id).state == "rejected"
        for call in (lambda: moor.get("by-python"), moor.list, lambda: moor.log("by-python")):
            with pytest.raises(Forbidden):
                call()


async def test_approver_reads_and_changes_nothing_by_mcp(place: Place) -> None:
    await asyncio.to_thread(place.ask, "by-mcp")
    headers = {"Authorization": f"Bearer {place.key}"}
    async with mcp_client(f"http {NEW}", place.home, urlsplit(place.url).port, headers=headers) as mcp:
        for name in ("get_agent_session_status", "get_context", "suspend_session", "list_children"):
            refused = await mcp.call_tool(name, {"session_id": "by-mcp"})
            assert refused.structured_content["error"]["code"] == "forbidden", name
