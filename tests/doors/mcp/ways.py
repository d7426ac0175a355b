"""The official client, by every way in: HTTP, stdio before a server, stdio alone; in either era of the protocol."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from moorage.testing.faults import eventually
from tests.doors.grpc.serving import Process, _program

OLD, NEW = "2025-11-25", "2026-07-28"
MODES = {OLD: "legacy", NEW: NEW}
WAYS = tuple(f"{door} {version}" for door in ("http", "bridge", "alone") for version in (OLD, NEW))
PATIENCE = 60.0
FORGOTTEN = ("AGENT_SESSION_ID", "AGENT_SESSION_NAME", "AGENT_RUN_ID", "MOORAGE_URL", "MOORAGE_TOKEN", "MOORAGE_KEY")
SLOW = """\
[agent]
name = "slow"
kind = "command"
command = ["sh", "-c", "cat > /dev/null; echo $$ > $MOORAGE_HOME/slow.pid; exec sleep 600"]
"""
TALKER = """\
[agent]
name = "talker"
kind = "command"
protocol = "jsonl"
command = ["sh", "-c", "read -r _; echo '{\\"type\\":\\"phase\\",\\"phase\\":\\"planning\\"}'; sleep 2.5; \
echo '{\\"type\\":\\"result\\",\\"text\\":\\"done\\"}'"]
"""


def environment(home: Path, **more: str) -> dict[str, str]:
    """An environment outside of any session, unless told so."""
    known = {name: value for name, value in os.environ.items() if name not in FORGOTTEN}
    return {**known, "MOORAGE_HOME": str(home), **more}


@contextmanager
def server_process(home: Path, *arguments: str) -> Iterator[Process]:
    """`moorage serve` on the store of this home."""
    with _program(
        ["serve", "--port", "0", "--log-format", "text", "--no-grpc", *arguments],
        home,
        "serves",
        ready="Started server process",
    ) as started:
        assert eventually(lambda: _hears(started.port)), "the server does not listen"
        yield started


def _hears(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@asynccontextmanager
async def client(way: str, home: Path, port: int | None = None, **options: Any) -> AsyncIterator[Client]:
    """A client of the official library; `headers` or `env` say more of it."""
    door, _, version = way.partition(" ")
    headers, env = options.pop("headers", {}), options.pop("env", {})
    async with asyncio.timeout(PATIENCE):
        if door == "http":
            async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http:
                place = streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http)
                async with Client(place, mode=MODES[version], **options) as found:
                    yield found
            return
        if door == "bridge":
            env = {"MOORAGE_URL": f"http://127.0.0.1:{port}", **env}
        program = StdioServerParameters(
            command=sys.executable, args=["-m", "moorage", "mcp"], env=environment(home, **env)
        )
        async with Client(stdio_client(program), mode=MODES[version], **options) as found:
            yield found


def define(home: Path, text: str) -> None:
    """An agent, by the text of its file."""
    folder = home / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    name = text.partition('name = "')[2].partition('"')[0]
    (folder / f"{name}.toml").write_text(text)


def text_of(result: Any) -> str:
    """Return the text of a result."""
    [content] = result.content
    assert content.type == "text"
    return str(content.text)


def is_alive(pid: int) -> bool:
    """Whether a process runs, and is more than a remainder."""
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout.strip()[:1] not in ("", "Z")
