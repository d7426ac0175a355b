"""Lower bounds: a bare JSON echo, and a hand-written app on plain tables.

Starlette on uvicorn with uvloop and httptools; msgspec for JSON. The tables, the pragmas and what an
append does are those of `bench.floor`. Whatever waits is committed together by one writer thread, and
acknowledged when it is on disk; reads have threads and connections of their own. No rule is checked.

    python -m bench.web.floor echo 8001
    python -m bench.web.floor floor 8002 /tmp/folder
"""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bench.floor import COLUMNS, INSERT_SESSION, as_dict, connect, insert_messages, row_of

Job = Callable[[apsw.Connection], Any]

GROUP = 64
READERS = 4
_SESSION = f"SELECT key, {', '.join(COLUMNS)} FROM sessions WHERE session_id = ?"
_LAST = "SELECT number, role, content, created_at FROM messages WHERE session = ? ORDER BY number DESC LIMIT ?"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


async def echo(request: Request) -> Response:
    """The same document back."""
    return _json(_decode(await request.body()))


def echo_app() -> Starlette:
    return Starlette(routes=[Route("/echo", echo, methods=["POST"])])


class Tables:
    """Plain tables behind an event loop."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "floor.db"
        self._db = connect(self._path)
        self._waiting: queue.SimpleQueue[tuple[Job, asyncio.Future[Any]]] = queue.SimpleQueue()
        self._readers = ThreadPoolExecutor(READERS)
        self._of_thread = threading.local()
        threading.Thread(target=self._write, daemon=True).start()

    async def write(self, job: Job) -> Any:
        done = asyncio.get_running_loop().create_future()
        self._waiting.put((job, done))
        return await done

    def _write(self) -> None:
        while True:
            group = [self._waiting.get()]
            while len(group) < GROUP and not self._waiting.empty():
                group.append(self._waiting.get())
            with self._db:
                results = [job(self._db) for job, _ in group]
            group[0][1].get_loop().call_soon_threadsafe(_resolve, [done for _, done in group], results)

    async def read(self, job: Job) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, job)

    def _read(self, job: Job) -> Any:
        if not hasattr(self._of_thread, "db"):
            self._of_thread.db = connect(self._path)
        return job(self._of_thread.db)


def _resolve(waiting: list[asyncio.Future[Any]], results: list[Any]) -> None:
    for done, result in zip(waiting, results, strict=True):
        done.set_result(result)


def floor_app(folder: Path) -> Starlette:
    """Three routes: create a session, append messages, get a session with its last messages."""
    tables = Tables(folder)

    async def create(request: Request) -> Response:
        asked = _decode(await request.body())
        row = row_of(str(uuid.uuid4()), asked["agent_name"], asked.get("session_name"), None)
        await tables.write(lambda db: db.execute(INSERT_SESSION, row))
        return _json(as_dict(row[1:]), 201)

    async def append(request: Request) -> Response:
        session_id, messages = request.path_params["id"], _decode(await request.body())["messages"]

        def job(db: apsw.Connection) -> Any:
            key = db.execute("SELECT key FROM sessions WHERE session_id = ?", (session_id,)).get
            return None if key is None else insert_messages(db, key, messages)

        last = await tables.write(job)
        if last is None:
            return Response(status_code=404)
        entries = [{"number": last + place, **each} for place, each in enumerate(messages, 1)]
        return _json({"session_id": session_id, "entries": entries}, 201)

    async def get(request: Request) -> Response:
        session_id, count = request.path_params["id"], int(request.query_params.get("messages", "0"))

        def job(db: apsw.Connection) -> Any:
            row = db.execute(_SESSION, (session_id,)).fetchone()
            return row and (row, db.execute(_LAST, (row[0], count)).fetchall())

        found = await tables.read(job)
        if found is None:
            return Response(status_code=404)
        row, messages = found
        shown = [{"number": n, "role": role, "content": text, "at": at} for n, role, text, at in reversed(messages)]
        return _json({**as_dict(row[1:]), "messages": shown})

    return Starlette(
        routes=[
            Route("/sessions", create, methods=["POST"]),
            Route("/sessions/{id}/messages", append, methods=["POST"]),
            Route("/sessions/{id}", get, methods=["GET"]),
        ]
    )


def _json(value: Any, status: int = 200) -> Response:
    return Response(_encode(value), status, media_type="application/json")


def main(kind: str, port: str, folder: str = "") -> None:
    app = echo_app() if kind == "echo" else floor_app(Path(folder))
    uvicorn.run(app, port=int(port), loop="uvloop", http="httptools", access_log=False, log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
