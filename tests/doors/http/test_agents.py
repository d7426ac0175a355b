"""Agents over HTTP: listing, defining, replacing, removing; and what launchers get of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.launcher.stage import on

TEXT = """\
[agent]  # ours
name = "greeter"
kind = "command"
command = ["cat"]
timeout = "90s"

[agent.env]
API_KEY = "very secret"

[agent.mcp_servers.files]
url = "http://files.example/mcp"
headers = { Authorization = "Bearer secret", X-Session = "${AGENT_SESSION_ID}" }
"""


@pytest.fixture
async def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx2.AsyncClient]:
    monkeypatch.setenv("MOORAGE_HOME", str(tmp_path / "home"))
    async with on("memory://", tmp_path, over_http=True) as stage:
        assert stage.server is not None
        async with httpx2.AsyncClient(base_url=stage.server, timeout=60) as made:
            yield made


def by(key: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {key}"}}


async def test_an_agent_is_defined_shown_without_its_secrets_and_removed(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    made = await client.post("/agents", json={"definition": TEXT})
    assert (made.status_code, made.json()["name"]) == (201, "greeter")
    assert "# ours" in (tmp_path / "home" / "agents" / "greeter.toml").read_text()
    listed = (await client.get("/agents")).json()
    assert [agent["name"] for agent in listed["items"]] == ["echo-agent", "greeter", "hello-world", "itinerary-worker"]
    shown = await client.get("/agents/greeter")
    assert (shown.json()["command"], shown.json()["timeout"]) == (["cat"], "90s")
    assert shown.json()["env"] == {"API_KEY": "[redacted]"}
    for answer in (shown.text, str(listed)):
        assert "secret" not in answer
        assert str(tmp_path) not in answer
    again = await client.post("/agents", json={"definition": TEXT})
    assert (again.status_code, again.json()["code"]) == (409, "agent_exists")
    assert (await client.delete("/agents/greeter")).json()["name"] == "greeter"
    kept = await client.delete("/agents/echo-agent")
    assert (kept.status_code, kept.json()["code"]) == (409, "agent_built_in")
    gone = await client.get("/agents/greeter")
    assert (gone.status_code, gone.json()["code"]) == (404, "agent_not_found")


async def test_an_agent_is_put_in_place_as_text_or_as_a_table(client: httpx2.AsyncClient) -> None:
    table = {"name": "greeter", "kind": "command", "command": ["true"]}
    for definition, command in ((TEXT, ["cat"]), (table, ["true"]), ({"worker": table}, ["true"])):
        put = await client.put("/agents/greeter", json={"definition": definition})
        assert (put.status_code, put.json()["command"]) == (200, command)
    assert put.json()["role"] == "worker"
    other = await client.put("/agents/other", json={"definition": TEXT})
    assert (other.status_code, other.json()["code"]) == (422, "invalid_name")
    assert (await client.get("/agents/other")).status_code == 404


@pytest.mark.parametrize(
    ("definition", "line"),
    [
        ('[agent]\nname = "x"\nkind = "comand"\n', 3),
        ("[agent\n", 1),
        ({"name": "x", "kind": "comand"}, None),
        ({"name": "../x", "kind": "command", "command": ["cat"]}, None),
    ],
)
async def test_a_wrong_definition_is_refused_with_its_line(
    client: httpx2.AsyncClient, definition: Any, line: int | None
) -> None:
    for answer in (
        await client.post("/agents", json={"definition": definition}),
        await client.put("/agents/x", json={"definition": definition}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_definition")
        assert answer.json()["line"] == line
    assert len((await client.get("/agents")).json()["items"]) == 3


async def test_scopes_of_each_operation(client: httpx2.AsyncClient) -> None:
    definition: dict[str, Any] = {"json": {"definition": TEXT}}
    for key in ("local:read,write,launch,approve", "token/local/s-1"):
        for request in (
            client.post("/agents", **definition, **by(key)),
            client.put("/agents/greeter", **definition, **by(key)),
            client.delete("/agents/greeter", **by(key)),
        ):
            assert (await request).status_code == 403
    assert (await client.get("/agents", **by("token/local/s-1"))).status_code == 200
    assert (await client.get("/agents", **by("local:launch"))).status_code == 403
    assert (await client.post("/agents", **definition, **by("local:admin"))).status_code == 201


async def test_launchers_get_definitions_as_they_are(client: httpx2.AsyncClient) -> None:
    await client.post("/agents", json={"definition": TEXT})
    answer = await client.get("/definitions", **by("local:launch"))
    [greeter] = [each for each in answer.json()["items"] if each["definition"]["name"] == "greeter"]
    assert greeter["role"] == "agent"
    assert greeter["definition"]["env"] == {"API_KEY": "very secret"}
    assert (await client.get("/definitions", **by("local:read,write,admin,approve"))).status_code == 403


async def test_dry_run_reports_errors_and_stores_nothing(client: httpx2.AsyncClient) -> None:
    tried = await client.post("/agents", json={"definition": TEXT, "dry_run": True})
    assert (tried.status_code, tried.json()["name"]) == (201, "greeter")
    assert (await client.get("/agents/greeter")).status_code == 404
    await client.post("/agents", json={"definition": TEXT})
    again = await client.post("/agents", json={"definition": TEXT, "dry_run": True})
    assert again.json()["code"] == "agent_exists"
    wrong = await client.put("/agents/greeter", json={"definition": TEXT.replace('"90s"', '"soon"'), "dry_run": True})
    assert wrong.json()["code"] == "invalid_definition"
    assert (await client.put("/agents/greeter", json={"definition": TEXT, "dry_run": True})).is_success
    [kept] = [each for each in (await client.get("/definitions?text=true")).json()["items"] if each["text"]]
    assert kept["text"] == TEXT
    assert all(each["text"] is None for each in (await client.get("/definitions")).json()["items"])
