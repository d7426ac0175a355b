"""Pages that ask: the server's own may, others may not, whatever they send."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from moorage import config
from moorage.core.errors import InvalidField
from moorage.doors.http.authorizer import Authorizer, is_same
from moorage.doors.http.protocol import BoundedProtocol
from moorage.doors.http.serve import make_door, with_cors
from moorage.service.deps import Deps
from moorage.service.keys import create_key
from moorage.testing.faults import PATIENCE
from tests.doors.http.server import address_of, running

DASHBOARD = "https://dash.example.org"


@asynccontextmanager
async def opened(url: str, *origins: str) -> AsyncIterator[tuple[Deps, httpx2.AsyncClient]]:
    deps = config.open_deps(url, threaded=True)
    server = replace(deps.settings.server, allowed_origins=frozenset(origins))
    deps.settings = replace(deps.settings, server=server)
    door = make_door(deps, Authorizer(deps))
    try:
        async with (
            running(door, with_cors(door, frozenset(origins)), http=BoundedProtocol) as serving,
            httpx2.AsyncClient(base_url=address_of(serving), timeout=PATIENCE) as http,
        ):
            yield deps, http
    finally:
        await deps.store.close()


def own(http: httpx2.AsyncClient) -> str:
    return str(http.base_url).rstrip("/")


FOREIGN: list[dict[str, str]] = [
    {"origin": "http://localhost:3000"},
    {"origin": "http://127.0.0.1"},
    {"origin": "http://127.0.0.1:1"},
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "file://"},
    {"origin": "chrome-extension://abcdefghijklmnop"},
    {"origin": "moz-extension://abc"},
    {"origin": "http://127.0.0.1:notaport"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},  # another port of this machine is the same site
]
ASKED: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "/sessions", {}),
    ("POST", "/sessions", {"json": {}}),
    ("PUT", "/agents/evil", {"json": {"kind": "command", "command": ["true"]}}),
    ("POST", "/runs", {"json": {"agent_name": "echo-agent", "prompt": "x"}}),
    ("GET", "/events", {"headers": {"accept": "text/event-stream"}}),
    ("GET", "/graphql?query={__typename}", {}),
    ("POST", "/graphql", {"json": {"query": "{ __typename }"}}),
    ("POST", "/mcp", {"json": {}}),
    ("POST", "/import", {"content": b"", "headers": {"content-type": "application/x-ndjson"}}),
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
@pytest.mark.parametrize("with_key", [False, True], ids=["open", "keys"])
async def test_foreign_pages_are_refused_at_every_route(url: str, headers: dict[str, str], with_key: bool) -> None:
    async with opened(url) as (deps, http):
        key = {"authorization": f"Bearer {(await create_key(deps)).text}"} if with_key else {}
        for verb, path, options in ASKED:
            every = {**options.get("headers", {}), **headers, **key}
            answer = await http.request(verb, path, **{**options, "headers": every})
            assert answer.status_code == 403, (verb, path)
            assert "foreign_origin" in answer.text, (verb, path)
        listed = await http.get("/sessions", headers=key)
        assert listed.json()["items"] == []


async def test_the_servers_own_page_and_programs_are_answered(url: str) -> None:
    async with opened(url) as (_, http):
        for headers in ({}, {"origin": own(http)}, {"origin": own(http), "sec-fetch-site": "same-origin"}):
            assert (await http.post("/sessions", json={}, headers=headers)).status_code == 201
        assert (await http.get("/sessions", headers={"sec-fetch-site": "none"})).status_code == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
async def test_browser_cannot_change_anything_with_the_type_of_a_form(url: str, kind: str) -> None:
    async with opened(url) as (_, http):
        page = {"origin": own(http), **({"content-type": kind} if kind else {})}
        refused = await http.post("/sessions", content=b'{"session_id": "x"}', headers=page)
        assert (refused.status_code, refused.json()["code"]) == (415, "form_type")
        program = {"content-type": kind} if kind else {}
        assert (await http.post("/sessions", content=b'{"session_id": "x"}', headers=program)).status_code == 201


@pytest.mark.parametrize("name", ["Host", "Origin"])
async def test_two_hosts_or_origins_are_refused(url: str, name: str) -> None:
    async with opened(url) as (_, http), asyncio.timeout(PATIENCE):
        place = http.base_url
        values = {"Host": f"{place.host}:{place.port}", "Origin": own(http)}
        lines = [f"{key}: {value}" for key, value in values.items()] + [f"{name}: {values[name]}"]
        reader, writer = await asyncio.open_connection(place.host, place.port)
        writer.write(("GET /sessions HTTP/1.1\r\n" + "\r\n".join(lines) + "\r\nConnection: close\r\n\r\n").encode())
        answer = (await reader.read()).decode()
        writer.close()
        assert answer.startswith("HTTP/1.1 400 ")
        assert "repeated_header" in answer or name == "Host"  # the parser may refuse two hosts before us


async def test_allowed_origin_gets_cors_headers_and_still_needs_a_key(url: str) -> None:
    async with opened(url, DASHBOARD) as (deps, http):
        key = (await create_key(deps)).text
        asks = {
            "origin": DASHBOARD,
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization",
        }
        allowed = await http.options("/sessions", headers=asks)
        assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, DASHBOARD)
        page = {"origin": DASHBOARD, "sec-fetch-site": "cross-site"}
        assert (await http.get("/sessions", headers=page)).status_code == 401
        answer = await http.get("/sessions", headers={**page, "authorization": f"Bearer {key}"})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, DASHBOARD)
        other = await http.get(
            "/sessions", headers={"origin": "https://evil.example", "authorization": f"Bearer {key}"}
        )
        assert other.status_code == 403
        assert "access-control-allow-origin" not in other.headers


@pytest.mark.parametrize(
    ("origin", "host", "same"),
    [
        ("http://127.0.0.1:8765", "127.0.0.1:8765", True),
        ("http://127.0.0.1:8765", "127.0.0.1:8766", False),
        ("http://localhost:8765", "127.0.0.1:8765", False),
        ("https://sessions.example.org", "sessions.example.org", True),
        ("https://sessions.example.org", "sessions.example.org:443", True),
        ("http://sessions.example.org", "sessions.example.org:80", True),
        ("http://sessions.example.org:8765", "sessions.example.org", False),
        ("http://[::1]:8765", "[::1]:8765", True),
        ("http://LOCALHOST:1", "localhost:1", True),
        ("ws://localhost:1", "localhost:1", False),
        ("null", "null", False),
        ("http://", "", False),
        ("http://a:99999", "a:99999", False),
    ],
)
def test_origin_is_compared_with_its_port(origin: str, host: str, same: bool) -> None:
    assert is_same(origin, host) is same


@pytest.mark.parametrize("value", ["*", "https://x/", "https://x/path", "HTTPS://X", "x.example", "null"])
def test_configuration_refuses_an_invalid_origin(value: str) -> None:
    with pytest.raises(InvalidField, match="allowed_origins"):
        config._origins([value])


async def test_answers_may_not_be_taken_for_another_type(url: str) -> None:
    async with opened(url) as (_, http):
        for path in ("/", "/docs", "/sessions", "/openapi.json", "/metrics", "/graphql?query={__typename}", "/nowhere"):
            answer = await http.get(path)
            assert answer.headers.get_list("x-content-type-options") == ["nosniff"], path


async def test_docs_page_allows_no_scripts_and_no_frames(url: str) -> None:
    async with opened(url) as (_, http):
        policy = (await http.get("/docs")).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy


async def test_white_space_behind_a_header_is_no_part_of_it(url: str) -> None:
    async with opened(url) as (_, http), asyncio.timeout(PATIENCE):
        body = gzip.compress(b'{"session_id": "packed"}')
        place = http.base_url
        head = f"POST /sessions HTTP/1.1\r\nHost: {place.host}:{place.port} \r\nContent-Encoding: gzip \t\r\n"
        head += f"Content-Type: application/json  \r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        reader, writer = await asyncio.open_connection(place.host, place.port)
        writer.write(head.encode() + body)
        answer = (await reader.read()).decode()
        writer.close()
        assert answer.startswith("HTTP/1.1 201 "), answer
