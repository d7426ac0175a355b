"""Tokens of a child, its sibling, its parent and its own child, and another owner's key, at GraphQL, MCP and gRPC.

The operations are those that the schema, the list of tools and the services have, so a new one is asked for, too.
The tests look at what comes back: it holds nothing that a session beside or above has said, kept or is called. A
session's own record names its parent and its root; nothing else may. `test_access_matrix.py` does the same for REST.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import graphql as gql
import grpc
import pytest
from mcp import MCPError

from moorage.doors.graphql.schema import schema
from moorage.doors.grpc.server import GrpcServer
from moorage.protobuf import agent_platform_pb2 as pb
from moorage.protobuf import sessions_pb2 as sp
from tests.attack.family import EVERYONE, VISIBLE_TO, check, id_of, secret, settle, token_of
from tests.doors.grpc.serving import Stubs
from tests.doors.http.visitors import Guarded, filled, guarded
from tests.doors.mcp.ways import NEW
from tests.doors.mcp.ways import client as mcp_client

ARGUMENTS: dict[str, Any] = {  # of GraphQL, with places of the session that is asked about
    "sessionId": "{session_id}", "parent": "{session_id}", "parentSessionName": "{session_id}",
    "runId": "{run_id}", "approvalId": "{approval_id}", "namespace": "notes", "key": "one", "value": 1,
    "message": "x", "decision": "approve", "wait": 0, "pendingOnly": False, "limit": 5, "first": 5,
}  # fmt: skip
PAGES = {"children": "(first: 5)", "history": "(last: 5)", "approvals": "(pendingOnly: false, first: 5)"}
DEPTH = 3  # of the objects in an answer: a session, its children, their parent
VISIBLE = {**VISIBLE_TO, "bob": {"bob"}}  # to tokens of sessions, and to another owner's key for everything
UNASKED = {"invalid_query", "query_too_deep", "query_too_costly", "query_too_large"}
STUBS = {"SessionService": "sessions", "AgentService": "agents", "ToolService": "tools", "TaskWorker": "workers"}
METHODS = [
    (name, method)
    for file in (sp, pb)
    for name, service in file.DESCRIPTOR.services_by_name.items()
    for method in service.methods
]
PLATFORM = {"agent_id": "echo-agent", "tool_id": "weather-tool", "task_id": "t", "input": "x", "endpoint": "here:1"}

pytestmark = pytest.mark.timeout(600)  # a few seconds each, on a machine that does nothing else


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with guarded(f"sqlite:///{tmp_path / 'moorage.db'}") as door:
        yield door


async def credential_of(place: Guarded, caller: str) -> str:
    """Return the key of the other owner, or the token of a session."""
    return await (place.key("bob", "admin") if caller == "bob" else token_of(place, caller))


@pytest.mark.parametrize("caller", VISIBLE)
async def test_no_answer_of_graphql_tells_a_caller_of_others(place: Guarded, caller: str) -> None:
    places, heard = await settle(place), ""
    client = place.visitor(await credential_of(place, caller))
    for query, asked in every_query():
        for who in EVERYONE:
            variables = {name: filled(ARGUMENTS[name], places[who]) for name in asked}
            answer = await client.post("/graphql", json={"query": query, "variables": variables})
            check(VISIBLE[caller], answer.text, asked_for=places[who])
            assert answer.json().get("errors", [{}])[0].get("extensions", {}).get("code") not in UNASKED, answer.text
            heard += answer.text
    assert secret(caller) in heard


def every_query() -> Iterator[tuple[str, list[str]]]:
    """Return a query for each field of the roots, with all that it can answer, and its arguments; deletions last."""
    roots = {"query": schema().query_type, "mutation": schema().mutation_type}
    fields = [(kind, name, field) for kind, root in roots.items() if root for name, field in root.fields.items()]
    for kind, name, field in sorted(fields, key=lambda each: each[1].startswith("delete")):
        is_new = name == "createAgentSession"  # its `sessionId` is that of the new one
        asked = [each for each in field.args if each in ARGUMENTS and not (is_new and each == "sessionId")]
        declared = ", ".join(f"${each}: {field.args[each].type}" for each in asked)
        given = ", ".join(f"{each}: ${each}" for each in asked)
        yield f"{kind} ({declared}) {{ {name}({given}){answered_by(field.type, DEPTH)} }}", asked


def answered_by(kind: gql.GraphQLOutputType, depth: int) -> str:
    """Return the selection of all fields of a type, with those of the objects in it."""
    named = gql.get_named_type(kind)
    if not isinstance(named, gql.GraphQLObjectType) or depth < 0:
        return ""
    inner = {name: answered_by(field.type, depth - 1) for name, field in named.fields.items()}
    plain = {name for name, field in named.fields.items() if gql.is_leaf_type(gql.get_named_type(field.type))}
    chosen = [f"{name}{PAGES.get(name, '')}{inner[name]}" for name in inner if name in plain or inner[name]]
    return f" {{ {' '.join(chosen)} }}" if chosen else ""


@pytest.mark.parametrize("caller", VISIBLE)
async def test_no_answer_of_mcp_tells_a_caller_of_others(place: Guarded, caller: str, tmp_path: Path) -> None:
    await settle(place)
    headers, heard = {"Authorization": f"Bearer {await credential_of(place, caller)}"}, ""
    for who in EVERYONE:
        async with mcp_client(f"http {NEW}", tmp_path, urlsplit(place.url).port, headers=headers) as mcp:
            check(VISIBLE[caller], (await mcp.list_resources()).model_dump_json())
            heard += await told_by_mcp(mcp, who, VISIBLE[caller])
    assert secret(caller) in heard


async def told_by_mcp(mcp: Any, who: str, visible: set[str]) -> str:
    """Read all resources of a session and call each tool with it; return what the resources have."""
    heard, asked = "", {"session_id": id_of(who)}
    for part in ("", "/log", "/messages"):
        try:
            text = (await mcp.read_resource(f"moorage://sessions/{id_of(who)}{part}")).model_dump_json()
        except MCPError as error:
            text = str(error)
        check(visible, text, asked_for=asked)
        heard += text
    known: dict[str, Any] = {"session_id": id_of(who), "parent": id_of(who), "root": id_of(who), "query": "word"}
    known |= {"agent": "echo-agent", "prompt": "x", "message": "x", "question": "?", "key": "k", "wait_seconds": 0}
    known |= {"input": "x", "location": "Rome"}
    for tool in sorted((await mcp.list_tools()).tools, key=lambda tool: not reads(tool)):
        arguments = {name: value for name, value in known.items() if name in tool.input_schema.get("properties", {})}
        if tool.name == "start_agent_session":
            arguments |= {"mode": "async_poll"}
            arguments.pop("session_id", None)
        result = await mcp.call_tool(tool.name, arguments)
        check(visible, result.model_dump_json(), asked_for=asked)
    return heard


def reads(tool: Any) -> bool:
    """Whether a tool only reads."""
    return bool(tool.annotations and tool.annotations.read_only_hint)


@pytest.mark.parametrize("caller", VISIBLE)
async def test_no_answer_of_grpc_tells_a_caller_of_others(place: Guarded, caller: str) -> None:
    places, heard = await settle(place), ""
    server = GrpcServer(place.door.deps, place.door.authorizer, deps_of=place.door.deps_of)
    port = await server.start("127.0.0.1", 0, None)
    metadata = [("authorization", f"Bearer {await credential_of(place, caller)}")]
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stubs = Stubs(channel)
            for service, method in METHODS:
                for who in EVERYONE:
                    text = await told_by_grpc(getattr(stubs, STUBS[service]), method, places[who], metadata)
                    check(VISIBLE[caller], text, asked_for={"session_id": id_of(who)})
                    heard += text
    finally:
        await server.close(0)
    assert secret(caller) in heard


async def told_by_grpc(stub: Any, method: Any, places: dict[str, str], metadata: Any) -> str:
    """Return the answer of a method about one session, errors included."""
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message_factory import GetMessageClass

    request = GetMessageClass(method.input_type)()
    known = {**places, **PLATFORM, "session": places["session_id"], "parent": places["session_id"], "content": "x"}
    known["value"] = "1"
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
