"""Tokens of a child, its sibling, its parent and its own child, over every operation of GraphQL, MCP and gRPC.

The tests look at what comes back: it holds nothing that a session beside or above has said, kept or is called. A
session's own record names its parent and its root; nothing else may. `test_access_matrix.py` does the same for REST.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import pytest
from mcp import MCPError

from moorage.doors.grpc.server import GrpcServer
from moorage.doors.mcp.tools import TOOLS
from moorage.protobuf import sessions_pb2 as sp
from tests.attack.family import EVERYONE, VISIBLE_TO, check, id_of, secret, settle, token_of
from tests.doors.grpc.serving import Stubs
from tests.doors.http.visitors import Guarded, guarded
from tests.doors.mcp.ways import NEW
from tests.doors.mcp.ways import client as mcp_client

IN_DEPTH = """query ($id: ID!) { agentSession(sessionId: $id) { sessionId purpose metadata
  parent { sessionId purpose }
  children { nodes { sessionId purpose parent { sessionId parent { sessionId purpose } } } }
  history(last: 50) { nodes { content } } approvals(pendingOnly: false) { question } } }"""
LISTS = (
    "query ($id: ID!) { agentSessions(parent: $id) { sessionId purpose } }",
    "query ($id: ID!) { approvals(sessionId: $id, pendingOnly: false) { question sessionId } }",
    "{ agentSessions { sessionId purpose } }",
    "{ approvals(pendingOnly: false) { question sessionId } }",
)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with guarded(f"sqlite:///{tmp_path / 'moorage.db'}") as door:
        yield door


@pytest.mark.parametrize("holder", VISIBLE_TO)
async def test_no_answer_of_graphql_tells_a_token_of_others(place: Guarded, holder: str) -> None:
    await settle(place)
    client = place.visitor(await token_of(place, holder))
    for query in (IN_DEPTH, *LISTS):
        for who in EVERYONE:
            variables = {"id": id_of(who)} if "$id" in query else {}
            answer = await client.post("/graphql", json={"query": query, "variables": variables})
            check(VISIBLE_TO[holder], answer.text, asked_for={"session_id": id_of(who)})
    own = await client.post("/graphql", json={"query": IN_DEPTH, "variables": {"id": id_of(holder)}})
    assert secret(holder) in own.text


@pytest.mark.parametrize("holder", VISIBLE_TO)
async def test_no_answer_of_mcp_tells_a_token_of_others(place: Guarded, holder: str, tmp_path: Path) -> None:
    await settle(place)
    headers, heard = {"Authorization": f"Bearer {await token_of(place, holder)}"}, ""
    async with mcp_client(f"http {NEW}", tmp_path, urlsplit(place.url).port, headers=headers) as mcp:
        check(VISIBLE_TO[holder], (await mcp.list_resources()).model_dump_json())
        for who in EVERYONE:
            for part in ("", "/log", "/messages"):
                try:
                    text = (await mcp.read_resource(f"moorage://sessions/{id_of(who)}{part}")).model_dump_json()
                except MCPError as error:
                    text = str(error)
                check(VISIBLE_TO[holder], text, asked_for={"session_id": id_of(who)})
                heard += text
            for tool in sorted(TOOLS.values(), key=lambda tool: not tool.reads):
                known: dict[str, Any] = {
                    "session_id": id_of(who),
                    "parent": id_of(who),
                    "root": id_of(who),
                    "query": "word",
                }
                known |= {"agent": "echo-agent", "prompt": "x", "message": "x", "question": "?", "key": "k"}
                fields = tool.input_schema.get("properties", {})
                arguments: dict[str, Any] = {name: value for name, value in known.items() if name in fields}
                if tool.name == "start_agent_session":
                    arguments |= {"mode": "async_poll"}
                    arguments.pop("session_id", None)
                if "wait_seconds" in fields:
                    arguments["wait_seconds"] = 0
                result = await mcp.call_tool(tool.name, arguments)
                check(VISIBLE_TO[holder], result.model_dump_json(), asked_for={"session_id": id_of(who)})
    assert secret(holder) in heard


@pytest.mark.parametrize("holder", VISIBLE_TO)
async def test_no_answer_of_grpc_tells_a_token_of_others(place: Guarded, holder: str) -> None:
    places, heard = await settle(place), ""
    server = GrpcServer(place.door.deps, place.door._authorizer, deps_of=place.door.deps_of)
    port = await server.start("127.0.0.1", 0, None)
    metadata = [("authorization", f"Bearer {await token_of(place, holder)}")]
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            for method in sp.DESCRIPTOR.services_by_name["SessionService"].methods:
                for who in EVERYONE:
                    text = await told_by_grpc(Stubs(channel).sessions, method, places[who], metadata)
                    check(VISIBLE_TO[holder], text, asked_for={"session_id": id_of(who)})
                    heard += text
    finally:
        await server.close(0)
    assert secret(holder) in heard


async def told_by_grpc(stub: Any, method: Any, places: dict[str, str], metadata: Any) -> str:
    """Return the answer of a method about one session, errors included."""
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message_factory import GetMessageClass

    request = GetMessageClass(method.input_type)()
    known = {**places, "session": places["session_id"], "parent": places["session_id"], "content": "x", "value": "1"}
    known |= {"question": "?", "decision": "approve", "outcome": "completed"}
    for field in method.input_type.fields:
        if field.name in known and field.type == field.TYPE_STRING and method.name != "CreateSession":
            setattr(request, field.name, known[field.name])
    if method.name == "CreateSession":
        request.parent = places["session_id"]
    if hasattr(request, "no_follow"):
        request.no_follow = True
    call = getattr(stub, method.name)(request, metadata=metadata)
    try:
        answers = [each async for each in call] if method.server_streaming else [await call]
    except grpc.aio.AioRpcError as error:
        return f"{error.details()} {error.trailing_metadata()}"
    return json.dumps([MessageToDict(each) for each in answers])
