"""Frames that make no sense: the door says so or says nothing; it neither falls nor keeps anything of them."""

from __future__ import annotations

import gc
import inspect
import json
import random
from pathlib import Path
from typing import Any

import pytest
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from tests.doors.mcp.serving import ACCEPT, HELLO, Served, open_http
from tests.doors.mcp.test_stdio import META, called, said, talking
from tests.doors.mcp.ways import NEW, OLD, server_process
from tests.fuzz.inputs import SEED, SHORT, kept, many, no_stalls, tried

ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1.5,
    2**70,
    "",
    "x" * 5000,
    "\ud800",
    "\x00",
    "../../etc/passwd",
    [],
    [[]],
    {},
    {"a": {"b": {"c": []}}},
    "tools/call",
    "initialize",
    "server/discover",
    "notifications/cancelled",
    "notifications/initialized",
    "resources/read",
    "resources/list",
    "tools/list",
    "subscriptions/listen",
    "logging/setLevel",
    "completion/complete",
    "moorage://sessions/%00",
    "moorage://sessions/x/log?after=99999999999999999999",
)
KEYS = (
    "jsonrpc",
    "id",
    "method",
    "params",
    "result",
    "error",
    "_meta",
    "name",
    "arguments",
    "uri",
    "cursor",
    "requestId",
)
NAMES = ("echo-agent", "start_agent_session", "set_context", "weather-tool", "get_agent_session_result", "nothing")


def frames(seed: int, count: int) -> list[bytes]:
    """The corpus, and messages with something wrong in them, a good many of them almost right."""
    chance = random.Random(f"{SEED} {seed}")
    return [*kept("mcp"), *(_frame(chance) for _ in range(count))]


def _frame(chance: random.Random) -> bytes:
    kind = chance.randrange(6)
    if kind == 0:
        return chance.randbytes(chance.randrange(1, 200)).replace(b"\n", b"")
    if kind == 1:
        return b"[" * chance.randrange(1, 5000)
    if kind == 2:
        message: Any = {key: chance.choice(ODD) for key in chance.sample(KEYS, 5)}
    else:
        params = {
            "name": chance.choice(NAMES),
            "arguments": {"input": "x"},
            "uri": "moorage://sessions/x",
            "_meta": META,
        }
        message = {"jsonrpc": "2.0", "id": chance.randrange(5), "method": "tools/call", "params": params}
        place = chance.choice((message, params, params["arguments"], params["_meta"]))
        place = dict(place) if place is META else place
        place[chance.choice((*KEYS, "session_id", "parameters", "agent", "prompt"))] = chance.choice(ODD)  # type: ignore[index]
    text = json.dumps(message)
    if kind == 5:
        text = text[: chance.randrange(len(text))]
    return text.encode()


async def test_over_http_frames_are_refused_and_nothing_stays(served: Served) -> None:
    async with open_http(served, headers={**ACCEPT, "Content-Type": "application/json"}) as http:
        greeted = await http.post("/mcp", json=HELLO)
        eras: tuple[dict[str, str], ...] = (
            {"MCP-Protocol-Version": NEW, "Mcp-Method": "tools/call", "Mcp-Name": "echo-agent"},
            {"MCP-Protocol-Version": OLD, "Mcp-Session-Id": greeted.headers["mcp-session-id"]},
            {},
            {"MCP-Protocol-Version": "nonsense"},
            {"Mcp-Session-Id": "nonsense"},
        )
        await _throw(http, eras, 1, 80 if SHORT else many(80) - 160)
        gc.collect()
        before = len(gc.get_objects())
        await _throw(http, eras, 2)
        await _throw(http, eras, 3)
        gc.collect()
        bounded = "max_sessions" in inspect.signature(StreamableHTTPSessionManager).parameters
        # Before 2.2, the library keeps a session for each refused frame until it was idle for half an hour.
        assert len(gc.get_objects()) - before < (3000 if bounded else 9000)
        sane = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "echo-agent", "_meta": META}}
        sane["params"]["arguments"] = {"input": "still here"}  # type: ignore[index]
        answer = await http.post("/mcp", json=sane, headers=eras[0])
        assert said(answer.json()) == "Echo Agent Response: still here"


async def _throw(http: Any, eras: tuple[dict[str, str], ...], seed: int, count: int = 80) -> None:
    chance = random.Random(seed)
    async with no_stalls():
        for frame in frames(seed, count):
            with tried("mcp", frame):
                answer = await http.post("/mcp", content=frame, headers=chance.choice(eras))
                assert answer.status_code < 500, (frame, answer.text)


@pytest.mark.parametrize("alone", [True, False])
def test_over_stdio_frames_are_refused_and_life_goes_on(tmp_path: Path, alone: bool) -> None:
    def talk_nonsense(url: str | None) -> None:
        with talking(tmp_path, *(() if url is None else ("--url", url))) as talk:
            talk.say(called(1, "echo-agent", input="hello"))  # the first frame chooses the version
            for frame in frames(4, 120):
                with tried("mcp", frame):
                    talk.say(frame)
            talk.say({**called(77_777, "echo-agent", input="still here"), "id": "sane"})
            while (answer := talk.hear()).get("id") != "sane":
                assert answer["jsonrpc"] == "2.0"
            assert said(answer) == "Echo Agent Response: still here"

    if alone:
        talk_nonsense(None)
        return
    with server_process(tmp_path) as server:
        talk_nonsense(f"http://127.0.0.1:{server.port}")
