"""A server in the test's own loop, with all its doors, and plain HTTP to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import uvicorn

from moorage import config
from moorage.client import LocalMoorage, OpenStore
from moorage.doors.http.serve import make_door
from moorage.service.deps import Caller, Deps
from tests.doors.mcp.ways import OLD, PATIENCE

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


class Served:
    """A server in this process."""

    def __init__(self, deps: Deps, port: int, home: Path) -> None:
        self.deps, self.port, self.home, self.url = deps, port, home, f"http://127.0.0.1:{port}"

    def moorage(self, owner: str = "local") -> LocalMoorage:
        return LocalMoorage(
            OpenStore(lambda: self.deps), Caller(owner=owner, by="test", interface="test", holder="test")
        )

    async def key(self, owner: str, *scopes: str) -> dict[str, str]:
        """Return the headers of a caller with a new key."""
        made = await self.moorage().create_key(owner=owner, scopes=scopes or ("read", "write"))
        return {"Authorization": f"Bearer {made.text}"}


@asynccontextmanager
async def serving(home: Path) -> AsyncIterator[Served]:
    deps = config.open_deps(f"sqlite:///{home}/moorage.db", threaded=True)
    door = make_door(deps, stop=asyncio.Event())
    server = uvicorn.Server(uvicorn.Config(door, port=0, lifespan="off", ws="none", log_config=None))
    task = asyncio.create_task(server._serve())
    try:
        async with asyncio.timeout(PATIENCE):
            while not server.started:  # noqa: ASYNC110  uvicorn has no event for it
                await asyncio.sleep(0.005)
        yield Served(deps, server.servers[0].sockets[0].getsockname()[1], home)
    finally:
        await door.close()
        server.should_exit = True
        await asyncio.wait_for(task, PATIENCE)
        await deps.store.close()


def open_http(served: Served, **options: Any) -> Any:
    return httpx2.AsyncClient(base_url=served.url, timeout=PATIENCE, **options)
