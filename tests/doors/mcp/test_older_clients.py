"""Watching tools for a client of the older era begins when it lists them, and ends with its stream."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moorage.doors.mcp import changes
from tests.doors.mcp.serving import ACCEPT, HELLO, open_http, serving
from tests.doors.mcp.ways import OLD, PATIENCE


def watchers() -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__name__", "") == "watch_tools"]


async def test_watching_ends_some_time_after_the_stream_of_its_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "LOOK_EVERY", 0.02)
    async with serving(tmp_path) as served, open_http(served, headers=ACCEPT) as http:
        greeted = await http.post("/mcp", json=HELLO)
        client = {"MCP-Protocol-Version": OLD, "Mcp-Session-Id": greeted.headers["mcp-session-id"]}
        await http.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=client)
        async with http.stream("GET", "/mcp", headers=client) as stream:
            assert stream.status_code == 200
            monkeypatch.setattr(changes, "LOOKS_WITHOUT_STREAM", 3)
            for number in (2, 3):
                listed = {"jsonrpc": "2.0", "id": number, "method": "tools/list"}
                assert (await http.post("/mcp", json=listed, headers=client)).status_code == 200
            (watching,) = watchers()
            ended, _ = await asyncio.wait([watching], timeout=10 * changes.LOOKS_WITHOUT_STREAM * changes.LOOK_EVERY)
            assert not ended
        await asyncio.wait_for(watching, PATIENCE)
        assert not watchers()


async def test_watching_ends_with_the_server(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, open_http(served, headers=ACCEPT) as http:
        greeted = await http.post("/mcp", json=HELLO)
        client = {"MCP-Protocol-Version": OLD, "Mcp-Session-Id": greeted.headers["mcp-session-id"]}
        await http.post("/mcp", json={"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, headers=client)
        (watching,) = watchers()
    with pytest.raises(asyncio.CancelledError):
        await watching
