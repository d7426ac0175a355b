"""Bodies within the limit of bytes, but of millions of small values: they are refused, and others do not wait."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from moorage.testing.faults import PATIENCE
from tests.attack.watching import attacked
from tests.doors.web.stage import Stage

MANY = b"[" + b"{}," * 2_600_000 + b"1]"  # just below eight MiB
NESTED = b"[" + b"[[[[[[]]]]]]," * 600_000 + b"1]"
TEXTS = b"[" + b'"",' * 2_600_000 + b"1]"
ACCEPT = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


@pytest.mark.parametrize(
    ("verb", "path", "body"),
    [
        pytest.param("POST", "/sessions", b'{"metadata": {"a": %b}}' % MANY, id="metadata"),
        pytest.param("POST", "/sessions", b'{"metadata": {"a": %b}}' % NESTED, id="nested metadata"),
        pytest.param("POST", "/sessions", b'{"metadata": {"a": %b}}' % TEXTS, id="texts"),
        pytest.param("POST", "/sessions/{id}/messages", b'{"content": %b}' % MANY, id="message"),
        pytest.param("POST", "/sessions/{id}/approvals", b'{"question": "?", "plan": %b}' % MANY, id="plan"),
        pytest.param("PUT", "/sessions/{id}/context/k", MANY, id="context"),
        pytest.param("POST", "/tools/weather-tool", b'{"parameters": {"a": %b}}' % MANY, id="tool"),
        pytest.param("POST", "/graphql", b'{"query": "{a}", "variables": {"a": %b}}' % MANY, id="graphql"),
        pytest.param("POST", "/mcp", b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "x": %b}' % MANY, id="mcp"),
    ],
)
async def test_body_with_millions_of_values_does_not_block_others(
    stage: Stage, verb: str, path: str, body: bytes
) -> None:
    session = await asyncio.to_thread(stage.create)
    place = path.format(id=session)
    answer = await attacked(stage, lambda http: http.request(verb, place, content=body, headers=ACCEPT))
    assert (answer.status_code, "100,000 values" in answer.text) == (413, True), answer.text[:200]


async def test_largest_allowed_body_does_not_block_others(stage: Stage) -> None:
    session = await asyncio.to_thread(stage.create)
    body = b'{"checkpoint": {"a": [%b1]}}' % (b"[]," * 49_000)
    place = f"/sessions/{session}/checkpoints"
    answer = await attacked(stage, lambda http: http.post(place, content=body, headers=ACCEPT))
    assert answer.status_code == 201, answer.text[:200]


async def test_commas_within_a_text_are_no_values(stage: Stage) -> None:
    session = await asyncio.to_thread(stage.create)
    async with httpx2.AsyncClient(base_url=stage.url, timeout=PATIENCE) as http:
        said = {"content": 'a "quoted", \\ and [{,' * 40_000, "run": False}
        answer = await http.post(f"/sessions/{session}/messages", json=said)
    assert answer.status_code in (200, 201), answer.text[:200]
