"""Every row of the table of operations answers over a real connection, and refuses as the rules say."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from moorage import config
from moorage.connection import LaunchOptions
from moorage.core.session import PUBLIC_FIELDS
from moorage.core.turn import Launcher
from moorage.launcher.embedded import Embedded
from moorage.remote.operations import OPERATIONS
from moorage.service.launchers import save_launcher
from tests.doors.http.server import Served

Check = Callable[[Any], bool]
GREETER = {"name": "other", "kind": "command", "command": ["cat"]}


class World:
    """A family with a conversation, a question to a person, a run that waits, and a dead letter."""

    def __init__(self, http: httpx2.AsyncClient, served: Served) -> None:
        self.http, self.served = http, served
        self.places = {"session_id": "s-1", "key": "tone", "number": "0", "name": "greeter", "tool": "weather-tool"}
        self.places["launcher_id"] = "launcher-1"

    async def make(self) -> World:
        moor = self.served.moorage()
        await moor.create("planner", session_id="s-1", name="plan-prod", parent=None)
        await moor.create(session_id="child", parent="s-1")
        await moor.append("s-1", ["Plan the change", "and say when"])
        self.places["number"] = str((await moor.save_checkpoint("s-1", {"step": 1})).number)
        await moor.context.put("s-1", "tone", {"voice": "dry"})
        await moor.delegate("planner", task_id="T1")
        await moor.create(session_id="asks", parent=None)
        self.places["approval_id"] = (await moor.request_approval("asks", "Sure?")).approval_id
        moor.launching = LaunchOptions(launches=False)
        asked = await moor.run("echo-agent", "hello", mode="async_poll", session_id="runs", parent=None)
        self.places["run_id"] = asked.run.run_id
        await moor.define_agent(GREETER | {"name": "greeter"})
        now = self.served.deps.clock.now()
        await save_launcher(
            self.served.deps.store, Launcher(launcher_id="launcher-1", name="one", registered_at=now, seen_at=now)
        )
        return self

    failed_run = ""

    async def set_one_aside(self) -> None:
        """Make a dead letter: ask an agent that cannot be started three times."""
        folder = Path(config.home()) / "agents"
        folder.mkdir(parents=True, exist_ok=True)
        text = '[agent]\nname = "broken"\nkind = "command"\ncommand = ["no-such-program"]\n'
        (folder / "broken.toml").write_text(text)
        moor = self.served.moorage()
        moor.launching = LaunchOptions(launches=False)
        async with Embedded(self.served.deps, config.agents):
            failed = await moor.run("broken", "hello", parent=None, timeout=60)
        assert failed.status == "failed"
        self.failed_run = failed.run.run_id
        self.places["item_id"] = (await moor.inbox(dead_letters=True)).items[0].item_id

    async def make_key(self) -> None:
        """Make a key for everything and use it from now on: requests without a key are refused."""
        made = await self.served.moorage().create_key(scopes=["admin"])
        self.places["key_id"] = made.key.key_id
        self.http.headers["authorization"] = f"Bearer {made.text}"

    async def ask(self, verb: str, path: str, body: Any = None, query: dict[str, Any] | None = None) -> httpx2.Response:
        given: dict[str, Any] = {} if body is None else {"json": body}
        return await self.http.request(verb, path.format_map(self.places), params=query, **given)


@pytest.fixture
async def world(served: Served, http: httpx2.AsyncClient) -> World:
    return await World(http, served).make()


class Case:
    """A request that succeeds, and what its answer has."""

    def __init__(self, check: Check, body: Any = None, **query: Any) -> None:
        self.check, self.body, self.query = check, body, query


def items(check: Check) -> Check:
    return lambda answer: set(answer) == {"items", "next"} and check(answer["items"])


def session(**facts: Any) -> Check:
    return lambda answer: set(PUBLIC_FIELDS) <= set(answer) and facts.items() <= answer.items()


SUCCESSES: dict[tuple[str, str], Case] = {
    ("GET", "/sessions/{session_id}"): Case(session(session_id="s-1")),
    ("GET", "/sessions/{session_id}/messages"): Case(items(lambda them: them[0]["content"] == "and say when"), last=1),
    ("POST", "/sessions"): Case(session(agent_name="x", metadata={"a": 1}), {"agent_name": "x", "metadata": {"a": 1}}),
    ("GET", "/sessions"): Case(items(lambda them: [each["session_id"] for each in them] == ["s-1"]), agent="planner"),
    ("PATCH", "/sessions/{session_id}"): Case(session(phase="planning"), {"phase": "planning"}),
    ("DELETE", "/sessions/{session_id}"): Case(lambda gone: gone["session_ids"] == ["child", "s-1"]),
    ("GET", "/sessions/{session_id}/id"): Case(lambda answer: answer == {"session_id": "s-1"}),
    ("POST", "/sessions/{session_id}/suspend"): Case(session(state="suspended"), {"checkpoint": {"step": 2}}),
    ("POST", "/sessions/{session_id}/resume"): Case(lambda packet: packet["checkpoint"] == {"step": 1}, {}),
    ("POST", "/sessions/{session_id}/release"): Case(session(hold=None), {}),
    ("POST", "/sessions/{session_id}/finalize"): Case(session(state="failed"), {"outcome": "failed"}),
    ("POST", "/sessions/{session_id}/fork"): Case(lambda fork: fork["last_entry"] == 3, {"at": 2}),
    ("POST", "/sessions/{session_id}/rename"): Case(session(session_name="dinner"), {"session_name": "dinner"}),
    ("POST", "/sessions/{session_id}/stop"): Case(items(lambda them: them == []), {}),
    ("GET", "/sessions/{session_id}/resume-verdict"): Case(lambda verdict: verdict["reason"] == "phase_not_resumable"),
    ("GET", "/resume-verdict"): Case(lambda verdict: verdict["reason"] == "no_existing_session", agent="nobody"),
    ("GET", "/resumable"): Case(items(lambda them: isinstance(them, list))),
    ("POST", "/delegations"): Case(lambda answer: "verdict" in answer, {"agent": "planner"}),
    ("GET", "/delegations"): Case(items(lambda them: len(them) == 1)),
    ("GET", "/sessions/{session_id}/children"): Case(items(lambda them: them[0]["session_id"] == "child")),
    ("GET", "/sessions/{session_id}/children/count"): Case(lambda answer: answer == {"count": 1}),
    ("GET", "/sessions/{session_id}/ancestors"): Case(items(lambda them: them == [])),
    ("GET", "/sessions/{session_id}/tree"): Case(lambda tree: len(tree["children"]) == 1),
    ("GET", "/deleted"): Case(items(lambda them: them == [])),
    ("POST", "/cleanup"): Case(lambda answer: answer["dry_run"] is True, {"dry_run": True}),
    ("GET", "/sessions/{session_id}/log"): Case(
        items(lambda them: [each["number"] for each in them] == [1]), kinds="created"
    ),
    ("POST", "/sessions/{session_id}/compact"): Case(
        lambda entry: entry["kind"] == "summary", {"summary": "They planned"}
    ),
    ("GET", "/search"): Case(items(lambda them: them[0]["session_id"] == "s-1"), q="plan"),
    ("GET", "/sessions/{session_id}/context"): Case(lambda context: context == {"tone": {"voice": "dry"}}),
    ("PUT", "/sessions/{session_id}/context"): Case(lambda answer: answer["version"] > 0, {"a": 1}),
    ("PATCH", "/sessions/{session_id}/context"): Case(lambda answer: answer["version"] > 0, {"a": 1}, ttl=60),
    ("DELETE", "/sessions/{session_id}/context"): Case(lambda answer: answer["version"] > 0),
    ("GET", "/sessions/{session_id}/context-items"): Case(lambda answer: answer["tone"]["value"] == {"voice": "dry"}),
    ("GET", "/sessions/{session_id}/context/{key}"): Case(lambda answer: answer == {"voice": "dry"}),
    ("PUT", "/sessions/{session_id}/context/{key}"): Case(lambda answer: answer["version"] > 0, ["any", "JSON"]),
    ("PATCH", "/sessions/{session_id}/context/{key}"): Case(lambda answer: answer["keys"] == ["tone"], {"volume": 3}),
    ("DELETE", "/sessions/{session_id}/context/{key}"): Case(lambda answer: answer["version"] > 0),
    ("POST", "/sessions/{session_id}/checkpoints"): Case(
        lambda saved: saved["number"] > 0, {"checkpoint": {"step": 2}}
    ),
    ("GET", "/sessions/{session_id}/checkpoints"): Case(items(lambda them: len(them) == 1)),
    ("GET", "/sessions/{session_id}/checkpoints/newest"): Case(lambda saved: saved["checkpoint"] == {"step": 1}),
    ("GET", "/sessions/{session_id}/checkpoints/{number}"): Case(lambda saved: saved["checkpoint"] == {"step": 1}),
    ("POST", "/sessions/{session_id}/approvals"): Case(lambda asked: asked["state"] == "pending", {"question": "Go?"}),
    ("GET", "/approvals"): Case(items(lambda them: them[0]["question"] == "Sure?"), session="asks"),
    ("GET", "/approvals/{approval_id}"): Case(lambda approval: approval["question"] == "Sure?"),
    ("POST", "/approvals/{approval_id}/decision"): Case(
        lambda approval: approval["decision"] == "approve", {"decision": "approve"}
    ),
    ("POST", "/runs"): Case(
        lambda reply: reply["run"]["state"] == "queued", {"agent_name": "echo-agent", "prompt": "hi", "wait": 0}
    ),
    ("GET", "/runs"): Case(items(lambda them: them[0]["session_id"] == "runs")),
    ("GET", "/runs/{run_id}"): Case(lambda run: run["asked"] == "hello"),
    ("GET", "/runs/{run_id}/result"): Case(lambda run: run["state"] == "queued", wait=0),
    ("POST", "/runs/{run_id}/stop"): Case(lambda run: run["state"] == "stopped", {}),
    ("POST", "/runs/{run_id}/retry"): Case(lambda run: run["retry_of"] is not None, {}),
    ("GET", "/inbox"): Case(items(lambda them: them[0]["session_id"] == "runs")),
    ("POST", "/inbox/{item_id}/resend"): Case(lambda item: item["state"] == "waiting", {}),
    ("GET", "/launchers"): Case(items(lambda them: them[0]["name"] == "one")),
    ("POST", "/launchers/{launcher_id}/drain"): Case(lambda launcher: launcher["drain"] is True, {}),
    ("GET", "/agents"): Case(lambda told: "greeter" in {agent["name"] for agent in told["items"]}),
    ("GET", "/agents/{name}"): Case(lambda agent: agent["command"] == ["cat"]),
    ("POST", "/agents"): Case(lambda agent: agent["name"] == "other", {"definition": GREETER}),
    ("DELETE", "/agents/{name}"): Case(lambda agent: agent["name"] == "greeter"),
    ("GET", "/tools"): Case(items(lambda them: them[0]["name"] == "weather-tool")),
    ("POST", "/tools/{tool}"): Case(
        lambda answer: answer["result"]["location"] == "Rome" and answer["session_id"] == "s-1",
        {"parameters": {"location": "Rome"}, "session_id": "s-1"},
    ),
    ("GET", "/keys"): Case(items(lambda them: them == [])),
    ("POST", "/keys"): Case(lambda made: made["text"].startswith("moor_"), {"scopes": ["read"]}),
    ("DELETE", "/keys/{key_id}"): Case(lambda key: key["revoked_at"] is not None),
    ("GET", "/analytics"): Case(lambda answer: isinstance(answer, dict)),
    ("GET", "/check"): Case(items(lambda them: them == [])),
}


def test_no_operation_is_forgotten() -> None:
    assert set(SUCCESSES) == {(operation.verb, operation.path) for operation in OPERATIONS}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: f"{each.verb}{each.path}")
async def test_every_operation_answers(world: World, operation: Any) -> None:
    case = SUCCESSES[operation.verb, operation.path]
    if "item_id" in operation.in_path or operation.name == "retry":
        await world.set_one_aside()
    if operation.name == "retry":
        world.places["run_id"] = world.failed_run
    if "key_id" in operation.in_path:
        await world.make_key()
    answer = await world.ask(operation.verb, operation.path, case.body, case.query)
    assert answer.status_code == operation.status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert case.check(answer.json()), answer.text


def problem(answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """The document of a refusal that is as it should be."""
    told: dict[str, Any] = answer.json()
    assert (answer.status_code, told["status"], told["code"]) == (status, status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert told["detail"]
    assert told["request_id"] == answer.headers["x-request-id"]
    return told


NAMED = [operation for operation in OPERATIONS if operation.in_path]


@pytest.mark.parametrize("operation", NAMED, ids=lambda each: f"{each.verb}{each.path}")
async def test_missing_resource_is_404(world: World, operation: Any) -> None:
    case = SUCCESSES[operation.verb, operation.path]
    world.places |= dict.fromkeys((set(world.places) | {"item_id", "key_id"}) - {"number"}, "nobody")
    answer = await world.ask(operation.verb, operation.path, case.body, case.query)
    if operation.name == "should_resume":
        assert answer.json()["reason"] == "session_not_found"
        return
    assert answer.status_code == 404, answer.text
    assert answer.json()["code"].endswith("_not_found")


@pytest.mark.parametrize(
    "operation", [each for each in NAMED if "session_id" in each.in_path], ids=lambda each: f"{each.verb}{each.path}"
)
async def test_deleted_session_is_410(world: World, operation: Any) -> None:
    case = SUCCESSES[operation.verb, operation.path]
    await world.served.moorage().delete("s-1")
    answer = await world.ask(operation.verb, operation.path, case.body, case.query)
    if operation.name == "should_resume":
        assert answer.json()["decision"] != "resume"
        return
    assert problem(answer, 410, "session_gone")["session_id"] == "s-1"


async def test_a_path_of_nothing_and_a_verb_of_nothing_are_told_apart(http: httpx2.AsyncClient) -> None:
    problem(await http.get("/nothing/here"), 404, "no_such_path")
    answer = await http.put("/sessions", json={})
    assert problem(answer, 405, "method_not_allowed")["allowed"] == ["GET", "POST"]
    assert answer.headers["allow"] == "GET, POST"


async def test_a_version_from_yesterday_is_refused_with_412(world: World) -> None:
    tag = (await world.http.get("/sessions/s-1")).headers["etag"]
    changed = await world.http.patch("/sessions/s-1", json={"phase": "planning"}, headers={"if-match": tag})
    assert changed.status_code == 200
    late = await world.http.patch("/sessions/s-1", json={"phase": "executing"}, headers={"if-match": tag})
    problem(late, 412, "version_conflict")
    in_body = await world.http.patch("/sessions/s-1", json={"phase": "executing", "version": 1})
    problem(in_body, 409, "version_conflict")
    assert (await world.http.get("/sessions/s-1")).json()["phase"] == "planning"


async def test_unchanged_resource_is_304(world: World) -> None:
    tag = (await world.http.get("/sessions/s-1")).headers["etag"]
    same = await world.http.get("/sessions/s-1", headers={"if-none-match": tag})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    await world.served.moorage().append("s-1", "more")
    assert (await world.http.get("/sessions/s-1", headers={"if-none-match": tag})).status_code == 200


@pytest.mark.parametrize("known", ["{}", "W/{}", '"9-9", {}', "*"])
async def test_every_form_of_a_matching_etag_gets_no_body(world: World, known: str) -> None:
    tag = (await world.http.get("/sessions/s-1")).headers["etag"]
    same = await world.http.get("/sessions/s-1", headers={"if-none-match": known.format(tag)})
    assert (same.status_code, same.content) == (304, b"")


CHANGES = [each for each in NAMED if "session_id" in each.in_path and each.verb != "GET"]


@pytest.mark.parametrize("operation", CHANGES, ids=lambda each: f"{each.verb}{each.path}")
async def test_no_change_is_made_for_a_version_from_yesterday(world: World, operation: Any) -> None:
    case, before = SUCCESSES[operation.verb, operation.path], (await world.http.get("/sessions/s-1")).content
    path = operation.path.format_map(world.places)
    given: dict[str, Any] = {} if case.body is None else {"json": case.body}
    answer = await world.http.request(operation.verb, path, params=case.query, headers={"if-match": '"99-1"'}, **given)
    problem(answer, 412, "version_conflict")
    assert (await world.http.get("/sessions/s-1")).content == before


async def test_no_message_is_taken_for_a_version_from_yesterday(world: World) -> None:
    version = (await world.http.get("/sessions/s-1")).json()["version"]
    answers = []
    for wanted in (version + 1, version):
        headers = {"if-match": f'"{wanted}-1"'}
        answers.append(await world.http.post("/sessions/s-1/messages", json={"content": "now"}, headers=headers))
    problem(answers[0], 412, "version_conflict")
    assert answers[1].status_code == 201, "what was said since is no other version"


@pytest.mark.parametrize("wanted", ["", "abc", '"1-1", "2-2"', '"1-x"'])
async def test_invalid_etag_is_refused(world: World, wanted: str) -> None:
    answer = await world.http.patch("/sessions/s-1", json={}, headers={"if-match": wanted})
    problem(answer, 422, "invalid_if_match")


async def test_a_conflict_is_409_with_its_facts(world: World) -> None:
    problem(await world.http.post("/sessions", json={"session_id": "s-1"}), 409, "id_taken")
    assert (await world.http.post("/sessions/s-1/finalize", json={})).status_code == 200
    problem(await world.http.patch("/sessions/s-1", json={"phase": "planning"}), 409, "session_closed")
    problem(await world.http.delete("/sessions/s-1", params={"cascade": "false"}), 409, "has_children")


async def test_a_deleted_id_is_gone_for_new_sessions_too(world: World) -> None:
    assert (await world.http.delete("/sessions/s-1")).status_code == 200
    problem(await world.http.post("/sessions", json={"session_id": "s-1"}), 410, "session_gone")


@pytest.mark.parametrize(
    ("verb", "path", "body", "field"),
    [
        ("POST", "/sessions", {"metadata": 3}, "metadata"),
        ("POST", "/sessions", {"agnet_name": "x"}, "agnet_name"),
        ("POST", "/runs", {"agent_name": "echo-agent"}, "prompt"),
        ("GET", "/sessions?limit=0", None, "limit"),
        ("GET", "/sessions?limit=5&limit=6", None, "limit"),
        ("GET", "/sessions?created_after=yesterday", None, "created_after"),
        ("POST", "/sessions/s-1/approvals", {"question": 3}, "question"),
        ("GET", "/sessions/s-1/checkpoints/first", None, "number"),
    ],
)
async def test_a_wrong_field_is_named(world: World, verb: str, path: str, body: Any, field: str) -> None:
    answer = await world.ask(verb, path, body)
    assert problem(answer, 422, f"invalid_{field}")["field"] == field


@pytest.mark.parametrize(
    ("verb", "path", "body", "told"),
    [
        ("POST", "/sessions", {"metadata": [1]}, "metadata must be an object or null, not a list"),
        ("PATCH", "/sessions/s-1", {"resume_ready": "yes"}, "resume_ready must be true or false or null, not a text"),
        ("GET", "/sessions?limit=0", None, "limit must be a whole number of at least 1"),
        ("GET", "/sessions?limit=x", None, "limit must be a whole number, not a text"),
        ("POST", "/cleanup", {"hours": -1}, "hours must be a number of at least 0"),
        (
            "GET",
            "/sessions?created_after=now",
            None,
            "created_after must be a time with a time zone, such as 2026-01-31",
        ),
        (
            "POST",
            "/sessions/s-1/messages",
            {"content": "x", "client_key": "k" * 251},
            "client_key must be a text with a length of at most 250",
        ),
    ],
)
async def test_a_wrong_value_is_told_in_plain_words(world: World, verb: str, path: str, body: Any, told: str) -> None:
    answer = await world.ask(verb, path, body)
    assert (answer.status_code, answer.json()["detail"].startswith(told)) == (422, True), answer.text


@pytest.mark.parametrize("body", [b"{", b"\xff", b"[" * 100_000, b'{"metadata": NaN}', b"3"])
async def test_a_body_that_is_no_object_is_refused(http: httpx2.AsyncClient, body: bytes) -> None:
    answer = await http.post("/sessions", content=body)
    assert answer.status_code == 422, answer.text
    assert (await http.get("/sessions")).json()["items"] == []


@pytest.mark.parametrize("header", [{"host": "evil.example"}, {"host": "evil.example:8765"}])
async def test_a_request_meant_for_elsewhere_is_refused(http: httpx2.AsyncClient, header: dict[str, str]) -> None:
    problem(await http.post("/sessions", json={}, headers=header), 403, "not_local")
    assert (await http.get("/sessions")).json()["items"] == []


async def test_bodies_are_packed_both_ways(http: httpx2.AsyncClient) -> None:
    metadata = {"long": "x" * 5000}
    packed = gzip.compress(json.dumps({"session_id": "s", "metadata": metadata}).encode())
    made = await http.post("/sessions", content=packed, headers={"content-encoding": "gzip"})
    assert (made.status_code, made.json()["metadata"]) == (201, metadata)
    assert made.headers["content-encoding"] == "gzip"
    plain = await http.get("/sessions/s", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.json()["metadata"] == metadata
    broken = await http.post("/sessions", content=packed[:50], headers={"content-encoding": "gzip"})
    problem(broken, 422, "invalid_json")


async def test_a_bomb_is_refused_before_it_unpacks(http: httpx2.AsyncClient) -> None:
    bomb = gzip.compress(b" " * 64_000_000)
    answer = await http.post("/sessions", content=bomb, headers={"content-encoding": "gzip"})
    problem(answer, 413, "request_too_large")


async def test_the_callers_request_id_comes_back(http: httpx2.AsyncClient) -> None:
    assert (await http.get("/sessions", headers={"x-request-id": "r-7"})).headers["x-request-id"] == "r-7"
    ours = (await http.get("/sessions")).headers["x-request-id"]
    assert len(ours) == 16
    assert (await http.get("/sessions", headers={"x-request-id": "r" * 200})).headers["x-request-id"] != "r" * 200


async def test_a_head_request_has_no_body(world: World) -> None:
    answer = await world.http.head("/sessions/s-1")
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) > 0


async def test_a_header_makes_the_session_that_asks_the_parent(world: World) -> None:
    named = await world.http.post("/sessions", json={}, headers={"X-Agent-Session-Name": "plan-prod"})
    assert named.json()["parent_session_id"] == "s-1"
    template = await world.http.post("/sessions", json={}, headers={"X-Agent-Session-Name": "${AGENT_SESSION_NAME}"})
    assert template.json()["parent_session_id"] is None


@pytest.mark.parametrize("path", ["/runs", "/inbox", "/approvals"])
async def test_filter_accepts_a_name_and_reports_an_unknown_one(world: World, path: str) -> None:
    await world.served.moorage().create("echo-agent", session_id="named", name="by-name", parent=None)
    moor = world.served.moorage()
    moor.launching = LaunchOptions(launches=False)
    await moor.run(None, "hello", session="named", mode="async_poll")
    await moor.request_approval("named", "Sure?")
    asked = [{"session": "named"}, {"session": "by-name"}, {"session_id": "named"}]
    answers = [(await world.http.get(path, params=query)).json() for query in asked]
    assert answers[0]["items"]
    assert answers == [answers[0]] * 3
    problem(await world.http.get(path, params={"session": "nobody"}), 404, "session_not_found")


@pytest.mark.parametrize(
    ("filter_", "field"),
    [("agent", "agent_name"), ("task", "task_id"), ("parent", "parent_session_id"), ("root", "root_session_id")],
)
async def test_sessions_are_filtered_by_the_short_name_and_by_the_fields(
    world: World, filter_: str, field: str
) -> None:
    value = {"agent": "planner", "task": "s-1", "parent": "s-1", "root": "s-1"}[filter_]
    found = [(await world.http.get("/sessions", params={name: value})).json()["items"] for name in (filter_, field)]
    assert found[0] == found[1]
    assert 0 < len(found[0]) < 4


async def test_run_without_an_agent_is_a_bad_request(http: httpx2.AsyncClient) -> None:
    problem(await http.post("/runs", json={"prompt": "hello"}), 422, "invalid_agent")


async def test_a_deletion_is_in_the_servers_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.http.delete("/sessions/s-1", params={"dry_run": "true"})
    assert not caplog.records
    await world.http.delete("/sessions/s-1")
    [line] = [record for record in caplog.records if record.name == "moorage.doors.http.visit"]
    assert line.levelname == "WARNING"
    assert "local deleted session s-1 (descendants: 1, " in line.getMessage()
