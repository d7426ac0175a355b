"""Tokens of a child, its sibling, its parent and its own child, over every operation of every door.

What is looked at is what comes back: nothing that a session beside or above has said, kept or is called is in it. A
session's own record names its parent and its root; nothing else may.
"""

from __future__ import annotations

import json
import re
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
from moorage.service.keys import session_token
from tests.doors.grpc.serving import Stubs
from tests.doors.http.visitors import Guarded, ask, everything, guarded
from tests.doors.mcp.ways import NEW
from tests.doors.mcp.ways import client as mcp_client

BELOW = {  # whom a token reaches
    "parent": {"parent", "child", "sibling", "grandchild"},
    "child": {"child", "grandchild"},
    "sibling": {"sibling"},
    "grandchild": {"grandchild"},
}
EVERYBODY = (*BELOW, "stranger")
ABOVE = {"parent": None, "child": "parent", "sibling": "parent", "grandchild": "child", "stranger": None}
NAMING = r'\\?"(parent|root)_?[sS]ession_?(Id|Name|id|name)\\?": ?\\?"[^"\\]*\\?"'  # a record of its parent and root
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


async def settle(place: Guarded) -> dict[str, dict[str, str]]:
    """Sessions with everything that they may have, each of it with a word of its own; where it all is."""
    moor, places = place.embedded("ann"), {}
    await place.key("ann", "read")
    for who in EVERYBODY:
        word, parent = secret(who), ABOVE[who]
        above = None if parent is None else id_of(parent)
        about: dict[str, Any] = {
            "purpose": word,
            "metadata": {"why": word},
            "task_id": "T001" if above is None else None,
        }
        await moor.create("planner", session_id=id_of(who), parent=above, **about)
        await moor.append(id_of(who), [word, f"{word} again"])
        number = (await moor.save_checkpoint(id_of(who), {"step": word})).number
        await moor.context.put(id_of(who), "tone", word)
        await moor.update(id_of(who), error=word)
        approval = await moor.request_approval(id_of(who), f"{word}?", plan=word)
        asked = await moor.run("echo-agent", word, mode="async_poll", session_id=f"run-of-{who}", parent=id_of(who))
        [item] = (await moor.inbox(f"run-of-{who}")).items
        places[who] = {
            "session_id": id_of(who),
            "key": "tone",
            "number": str(number),
            "approval_id": approval.approval_id,
            "run_id": asked.run.run_id,
            "item_id": item.item_id,
            "launcher_id": "x",
            "turn_id": "x",
            "key_id": "x",
            "name": "echo-agent",
            "tool": "weather-tool",
        }
    return places


def id_of(who: str) -> str:
    return f"id-of-{who}"


def secret(who: str) -> str:
    return f"word-of-{who}"


def check(holder: str, text: str, asked_for: str = "") -> None:
    """Fail if a text tells the holder of a token of somebody whom it does not reach; they know whom they asked for."""
    told = re.sub(NAMING, "", text)
    for who in set(EVERYBODY) - BELOW[holder]:
        assert secret(who) not in told, (holder, who, told)
        assert f"run-of-{who}" not in told, (holder, who, told)
        assert who == asked_for or id_of(who) not in told, (holder, who, told)


async def bearer(place: Guarded, who: str) -> str:
    return await session_token(place.door.deps, "ann", id_of(who))


@pytest.mark.parametrize("holder", BELOW)
async def test_no_answer_over_http_tells_a_token_of_others(place: Guarded, holder: str) -> None:
    places = await settle(place)
    client, answered = place.visitor(await bearer(place, holder)), 0
    requests = sorted(everything(place.door), key=lambda asked: (asked.verb != "GET", asked.verb == "DELETE"))
    for asked in requests:
        for who in (*(other for other in EVERYBODY if other != holder), holder):
            answer = await ask(client, asked, places[who])
            check(holder, answer.text, asked_for=who)
            answered += answer.is_success
    assert answered > 30  # else nothing was looked at


@pytest.mark.parametrize("holder", BELOW)
async def test_no_answer_of_graphql_tells_a_token_of_others(place: Guarded, holder: str) -> None:
    await settle(place)
    client = place.visitor(await bearer(place, holder))
    for query in (IN_DEPTH, *LISTS):
        for who in EVERYBODY:
            variables = {"id": id_of(who)} if "$id" in query else {}
            answer = await client.post("/graphql", json={"query": query, "variables": variables})
            check(holder, answer.text, asked_for=who)
    own = await client.post("/graphql", json={"query": IN_DEPTH, "variables": {"id": id_of(holder)}})
    assert secret(holder) in own.text


@pytest.mark.parametrize("holder", BELOW)
async def test_no_answer_of_mcp_tells_a_token_of_others(place: Guarded, holder: str, tmp_path: Path) -> None:
    await settle(place)
    headers, heard = {"Authorization": f"Bearer {await bearer(place, holder)}"}, ""
    async with mcp_client(f"http {NEW}", tmp_path, urlsplit(place.url).port, headers=headers) as mcp:
        check(holder, (await mcp.list_resources()).model_dump_json())
        for who in EVERYBODY:
            for part in ("", "/log", "/messages"):
                try:
                    text = (await mcp.read_resource(f"moorage://sessions/{id_of(who)}{part}")).model_dump_json()
                except MCPError as error:
                    text = str(error)
                check(holder, text, asked_for=who)
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
                check(holder, result.model_dump_json(), asked_for=who)
    assert secret(holder) in heard


@pytest.mark.parametrize("holder", BELOW)
async def test_no_answer_of_grpc_tells_a_token_of_others(place: Guarded, holder: str) -> None:
    places, heard = await settle(place), ""
    server = GrpcServer(place.door.deps, place.door._gate, deps_of=place.door.deps_of)
    port = await server.start("127.0.0.1", 0, None)
    metadata = [("authorization", f"Bearer {await bearer(place, holder)}")]
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            for method in sp.DESCRIPTOR.services_by_name["SessionService"].methods:
                for who in EVERYBODY:
                    text = await told_by_grpc(Stubs(channel).sessions, method, places[who], metadata)
                    check(holder, text, asked_for=who)
                    heard += text
    finally:
        await server.close(0)
    assert secret(holder) in heard


async def told_by_grpc(stub: Any, method: Any, places: dict[str, str], metadata: Any) -> str:
    """What a method answers about one session, its errors included."""
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
