"""Orchestrator, child, grandchild: each started by the one above through MCP and nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from moorage import sync
from moorage.core.session import Session
from moorage.service.family import TreeNode
from tests.doors.mcp.ways import NEW, OLD, client, define, server_process, text_of

# Asks the next generation by MCP, over HTTP with the header or over stdio with the variable, and says what it heard.
LINK = """\
import asyncio, os, sys
import httpx2
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

way, mode, depth = sys.stdin.read().split()

async def ask(where):
    async with Client(where, mode=mode) as mcp:
        asked = {"agent": "link", "prompt": f"{way} {mode} {int(depth) - 1}"}
        result = await mcp.call_tool("start_agent_session", asked)
        if result.is_error:
            sys.exit(result.content[0].text)
        children = await mcp.call_tool("list_children", {})
        count = len(children.structured_content["sessions"])
        print(f"above {result.structured_content['run']['result']} of {count}")

async def main():
    if way == "stdio":
        program = StdioServerParameters(command=sys.executable, args=["-m", "moorage", "mcp"], env=dict(os.environ))
        return await ask(stdio_client(program))
    headers = {"X-Agent-Session-Name": os.environ["AGENT_SESSION_NAME"]}
    if token := os.environ.get("MOORAGE_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        await ask(streamable_http_client(os.environ["MOORAGE_URL"] + "/mcp", http_client=http))

if int(depth) == 0:
    print("leaf")
else:
    asyncio.run(main())
"""


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("way", "version", "keyed"), [("http", OLD, False), ("stdio", NEW, True)])
async def test_three_generations_by_mcp_alone(tmp_path: Path, way: str, version: str, keyed: bool) -> None:
    script = tmp_path / "link.py"
    script.write_text(LINK)
    define(
        tmp_path, f'[agent]\nname = "link"\nkind = "command"\ncommand = {json.dumps([sys.executable, str(script)])}\n'
    )
    mode = "legacy" if version == OLD else version
    with sync.connect(f"sqlite:///{tmp_path}/moorage.db") as moor, server_process(tmp_path) as server:
        headers = {"Authorization": f"Bearer {moor.create_key(scopes=['read', 'write']).text}"} if keyed else {}
        async with client(f"http {version}", tmp_path, server.port, headers=headers) as mcp:
            asked = {"agent": "link", "prompt": f"{way} {mode} 2", "session_name": "orchestrator"}
            result = await mcp.call_tool("start_agent_session", asked)
        assert not result.is_error, text_of(result)
        assert result.structured_content["run"]["result"] == "above above leaf of 1 of 1"
        top, child, grandchild = generations(moor.tree("orchestrator"))
    assert top.parent_session_id is None
    assert (child.parent_session_id, child.parent_session_name) == (top.session_id, "orchestrator")
    assert grandchild.parent_session_id == child.session_id
    assert grandchild.root_session_id == top.session_id
    assert {child.interface, grandchild.interface} == {"mcp"}


def generations(node: TreeNode) -> list[Session]:
    """A session and its only child, and so on."""
    return [node.session, *(session for below in node.children for session in generations(below))]


@pytest.mark.timeout(180)
async def test_a_parent_is_told_by_callback_and_can_wait_for_all(tmp_path: Path) -> None:
    with sync.connect(f"sqlite:///{tmp_path}/moorage.db") as moor, server_process(tmp_path) as server:
        parent = moor.create("echo-agent", name="parent")
        headers: dict[str, Any] = {"X-Agent-Session-Name": "parent"}
        async with client(f"http {NEW}", tmp_path, server.port, headers=headers) as mcp:
            for word in ("one", "two"):
                asked = {"agent": "echo-agent", "prompt": word, "mode": "ASYNC_CALLBACK", "correlation": word}
                started = await mcp.call_tool("start_agent_session", asked)
                assert started.structured_content["session"]["parent_session_id"] == parent.session_id
            waited = await mcp.call_tool("wait_for_children", {"wait_seconds": 30})
        told = waited.structured_content
        assert (told["all_settled"], told["open"]) == (True, 0)
        assert sorted(run["correlation"] for run in told["settled"]) == ["one", "two"]
        callbacks = [(entry.data or {})["correlation"] for entry in moor.log(parent.session_id, kinds=["callback"])]
        assert sorted(callbacks) == ["one", "two"]


async def test_unfilled_template_is_no_parent(tmp_path: Path) -> None:
    env = {"AGENT_SESSION_NAME": "${AGENT_SESSION_NAME}", "AGENT_SESSION_ID": ""}
    async with client(f"alone {NEW}", tmp_path, env=env) as mcp:
        started = await mcp.call_tool("start_agent_session", {"agent": "echo-agent", "prompt": "hi"})
        assert started.structured_content["session"]["parent_session_id"] is None
    env["AGENT_SESSION_NAME"] = "nobody"
    async with client(f"alone {OLD}", tmp_path, env=env) as mcp:
        started = await mcp.call_tool("start_agent_session", {"agent": "echo-agent", "prompt": "hi"})
        assert started.structured_content["error"]["code"] == "parent_not_found"
