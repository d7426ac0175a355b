"""Streams under hardship: a server that is killed, and a thousand sessions at once."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import httpx2

from tests.doors.http.listening import STREAM, Listener, Plain
from tests.doors.http.server import free_port, serving, serving_process

KILLS, MESSAGES = 3, 120
SESSIONS, TURNS = 1_000, 20


async def test_a_reader_that_comes_back_after_kill_9_sees_everything_once(tmp_path: Path) -> None:
    url, port = f"sqlite:///{tmp_path / 'moorage.db'}", free_port()
    seen: dict[str, list[int]] = {"/sessions/one/events": [], "/events": []}
    last, said = MESSAGES + 1, 0

    async def follow(http: httpx2.AsyncClient, path: str) -> None:
        """As a browser does: come back with the last id until everything was seen."""
        ids = seen[path]
        while not ids or ids[-1] < last:
            asked = STREAM | ({"last-event-id": str(ids[-1])} if ids else {})
            with suppress(httpx2.TransportError):
                async with http.stream("GET", path, headers=asked) as response:
                    listener = Listener(response)
                    while (heard := await listener._next()) is not None:
                        ids.append(heard.id or 0)
                        if heard.id == last:
                            return
            await asyncio.sleep(0.02)

    async def talk(http: httpx2.AsyncClient, upto: int) -> None:
        """Say it until it is acknowledged; a key makes saying it twice harmless."""
        nonlocal said
        while said < upto:
            with suppress(httpx2.TransportError):
                answer = await http.post(
                    "/sessions/one/messages", json={"content": f"m{said}", "client_key": f"k{said}"}
                )
                assert answer.status_code == 201, answer.text
                said += 1

    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as http, asyncio.timeout(110):
        readers: list[asyncio.Task[None]] = []
        for life in range(KILLS + 1):
            server = await asyncio.to_thread(_Life, url, port)
            if life == 0:
                assert (await http.post("/sessions", json={"session_id": "one"})).status_code == 201
                readers = [asyncio.create_task(follow(http, path)) for path in seen]
            await talk(http, MESSAGES * (life + 1) // (KILLS + 1))
            talking = asyncio.create_task(talk(http, MESSAGES))
            if life < KILLS:
                await asyncio.sleep(0.01)  # somewhere in the middle of a request
                server.kill()
                talking.cancel()
                await asyncio.wait([talking])
        await talking
        await asyncio.gather(*readers)
        server.kill()
    assert seen == {path: list(range(1, last + 1)) for path in seen}


class _Life:
    """A server process until it is killed."""

    def __init__(self, url: str, port: int) -> None:
        self._context = serving_process(url, port)
        self._worker = self._context.__enter__()

    def kill(self) -> None:
        self._worker.kill()
        with suppress(Exception):
            self._context.__exit__(None, None, None)


async def test_a_server_told_to_stop_ends_its_streams_and_then_itself(tmp_path: Path) -> None:
    url, port = f"sqlite:///{tmp_path / 'moorage.db'}", free_port()
    with serving_process(url, port) as server:
        stream = await Plain.open(f"http://127.0.0.1:{port}", "/events")
        os.kill(server.pid, signal.SIGTERM)
        rest = await asyncio.wait_for(stream._reader.read(), 30)
        assert rest.endswith(b"0\r\n\r\n"), "ended, not broken off"
        stream.close()
        await asyncio.to_thread(server.finish)


async def test_a_thousand_sessions_with_a_stream_each_get_every_message(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path / 'moorage.db'}") as served, asyncio.timeout(110):
        moor = served.moorage()
        names = [f"s-{number}" for number in range(SESSIONS)]
        await asyncio.gather(*(moor.create(session_id=name, parent=None) for name in names))
        streams = [await Plain.open(served.url, f"/sessions/{name}/events") for name in names]
        everything = await Plain.open(served.url, "/events")
        assert served.live.places.taken == SESSIONS + 1
        reading = asyncio.gather(
            everything.read_until(SESSIONS * (TURNS + 1)), *(stream.read_until(TURNS + 1) for stream in streams)
        )
        for turn in range(TURNS):
            await asyncio.gather(*(moor.append(name, f"turn {turn}") for name in names))
        await reading
        assert all(stream.ids == list(range(1, TURNS + 2)) for stream in streams)
        assert everything.ids == list(range(1, SESSIONS * (TURNS + 1) + 1))
        for stream in (*streams, everything):
            stream.close()
        while served.live.places.taken:  # noqa: ASYNC110  there is no event for a closed connection
            await asyncio.sleep(0.01)
