"""Sending messages over HTTP: they are kept, they ask for a run, and the answer is waited for or streamed."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import Any

import httpx2
import pytest

from moorage import config
from moorage.connection import LaunchOptions
from moorage.core.errors import VersionConflict
from moorage.core.session import Change, View
from moorage.core.turn import Launcher
from moorage.service import runs
from moorage.service.deps import Caller
from moorage.service.launchers import save_launcher
from tests.doors.http.server import Served, launching, serving


async def made(http: httpx2.AsyncClient, agent: str | None = "echo-agent") -> str:
    return str((await http.post("/sessions", json={"agent_name": agent})).json()["session_id"])


async def say(http: httpx2.AsyncClient, session: str, *, headers: Any = None, **body: Any) -> httpx2.Response:
    return await http.post(f"/sessions/{session}/messages", json=body, headers=headers)


async def test_message_without_a_known_agent_is_stored_and_starts_nothing(http: httpx2.AsyncClient) -> None:
    session = await made(http, "somebody-elses")
    answer = await say(http, session, content="hello")
    told = answer.json()
    assert answer.status_code == 201
    assert [(entry["number"], entry["content"]) for entry in told["entries"]] == [(2, "hello")]
    assert (told["session_id"], told["run_id"], told["run"], told["reply"]) == (session, None, None, None)


async def test_message_that_starts_nothing_names_the_approval_that_the_session_waits_for(
    http: httpx2.AsyncClient,
) -> None:
    session = await made(http, "unknown-agent")
    assert (await say(http, session, content="before")).json()["because"] is None
    approval = (await http.post(f"/sessions/{session}/approvals", json={"question": "Apply?"})).json()["approval_id"]
    because = (await say(http, session, content="meanwhile")).json()["because"]
    assert (because["reason"], because["approval_id"]) == ("waiting_for_approval", approval)


async def test_a_users_message_asks_for_a_run_unless_told_not_to(http: httpx2.AsyncClient) -> None:
    session = await made(http)
    asked = (await say(http, session, content="hello")).json()
    assert asked["run"]["state"] == "queued"
    assert asked["reply"] is None
    for body in ({"content": "x", "run": False}, {"content": "x", "role": "assistant"}):
        assert (await say(http, session, **body)).json()["run_id"] is None
    assert len((await http.get("/runs", params={"session": session})).json()["items"]) == 1


async def test_only_a_users_message_can_ask_for_a_run(http: httpx2.AsyncClient) -> None:
    session = await made(http)
    refused = await say(http, session, content="done", role="assistant", run=True)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_run")
    assert (await http.get(f"/sessions/{session}")).json()["last_entry"] == 1


async def test_the_reply_is_waited_for(served: Served, http: httpx2.AsyncClient) -> None:
    session = await made(http)
    async with launching(served):
        told = (await say(http, session, content="hello", wait=60)).json()
    assert told["run"]["state"] == "completed"
    assert (told["reply"]["role"], told["reply"]["content"]) == ("assistant", "Echo Agent Response: hello")


async def test_content_may_have_parts(served: Served, http: httpx2.AsyncClient) -> None:
    session = await made(http)
    parts = [{"type": "text", "text": "hello"}]
    async with launching(served):
        told = (await say(http, session, content=parts, wait=60)).json()
    assert told["entries"][0]["content"] == parts
    assert told["reply"]["content"] == "Echo Agent Response: hello"


async def test_of_several_messages_the_last_one_asks(served: Served, http: httpx2.AsyncClient) -> None:
    session = await made(http)
    said = [{"role": "system", "content": "Be brief"}, "hello"]
    async with launching(served):
        told = (await say(http, session, messages=said, wait=60)).json()
    assert [(entry["role"], entry["content"]) for entry in told["entries"]] == [
        ("system", "Be brief"),
        ("user", "hello"),
    ]
    assert told["reply"]["content"] == "Echo Agent Response: hello"
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert (await say(http, session, messages=history)).json()["run_id"] is None


@pytest.mark.parametrize("agent", ["echo-agent", "somebody-elses"])
async def test_a_message_sent_again_with_its_key_is_the_same(http: httpx2.AsyncClient, agent: str) -> None:
    session = await made(http, agent)
    first = (await say(http, session, content="hello", headers={"Idempotency-Key": "k1"})).json()
    again = (await say(http, session, content="hello", headers={"Idempotency-Key": "k1"})).json()
    in_body = (await say(http, session, content="hello", client_key="k1")).json()
    assert first == again == in_body
    assert (await http.get(f"/sessions/{session}")).json()["last_entry"] == first["entries"][0]["number"]


async def test_refused_key_of_a_question_is_named_as_it_was_sent(http: httpx2.AsyncClient) -> None:
    session = await made(http, "echo-agent")
    headers = {"Idempotency-Key": "k1"}
    await say(http, session, content="hello", headers=headers)
    other = await say(http, session, content="good-bye", headers=headers)
    assert (other.status_code, other.json()["code"], other.json()["key"]) == (409, "key_reused", "k1")
    assert other.json()["detail"] == "the key 'k1' was used for another request; use a new key"


async def test_several_messages_share_a_key_by_their_places(http: httpx2.AsyncClient) -> None:
    session = await made(http, None)
    headers = {"Idempotency-Key": "k1"}
    for _ in range(2):
        told = (await say(http, session, messages=["a", "b"], headers=headers)).json()
        assert [(entry["number"], entry["client_key"]) for entry in told["entries"]] == [(2, "k1:0"), (3, "k1:1")]
    other = await say(http, session, messages=["a", "c"], headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "key_reused")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "messages"),
        ({"content": "a", "messages": ["b"]}, "messages"),
        ({"messages": []}, "messages"),
        ({"content": "a", "role": "boss"}, "messages[0].role"),
        ({"content": 3}, "content"),
        ({"content": "a", "wait": 61}, "wait"),
        ({"content": "a", "strem": True}, "strem"),
    ],
)
async def test_a_wrong_message_is_refused_and_changes_nothing(
    http: httpx2.AsyncClient, body: dict[str, Any], field: str
) -> None:
    session = await made(http)
    answer = await say(http, session, **body)
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert (await http.get(f"/sessions/{session}")).json()["last_entry"] == 1


async def test_a_closed_session_takes_no_message(http: httpx2.AsyncClient) -> None:
    session = await made(http)
    await http.post(f"/sessions/{session}/finalize", json={})
    answer = await say(http, session, content="hello")
    assert (answer.status_code, answer.json()["code"]) == (409, "session_closed")
    assert (await say(http, "nobody", content="hello")).status_code == 404


# Cost of requests --------------------------------------------------------------------------------


class CountedStore:
    """A store that notes which of its methods are called."""

    def __init__(self, store: Any) -> None:
        self._store, self.calls = store, list[str]()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def counted(*args: Any, **options: Any) -> Any:
            self.calls.append(name)
            return await found(*args, **options)

        return counted


async def test_asking_is_one_write_and_one_read_of_the_store(url: str) -> None:
    deps = config.open_deps(url, threaded=True)
    store = CountedStore(deps.store)
    deps.store = store
    async with serving(deps) as served, served.client() as http:
        now = deps.clock.now()
        await save_launcher(deps.store, Launcher(launcher_id="l-1", name="one", registered_at=now, seen_at=now))
        session = await made(http)
        python = served.moorage()
        python.launching = LaunchOptions(launches=False)
        both = ["apply", "documents"]

        async def cost(asking: Awaitable[Any]) -> list[str]:
            store.calls.clear()
            asked = await asking
            assert (asked.json() if isinstance(asked, httpx2.Response) else {"run_id": asked.run_id})["run_id"]
            return [each for each in store.calls if each != "next_expiry"]  # once a second, whatever is asked

        assert await cost(say(http, session, content="hello")) == both
        assert await cost(say(http, session, content="hello", run=True, client_key="k1")) == both
        assert await cost(say(http, session, messages=[{"role": "system", "content": "Be brief"}, "hello"])) == both
        assert await cost(http.post(f"/agent-sessions/{session}/messages", json={"content": "a", "wait": 0})) == [
            *both,
            "log",  # its answer names the turn
        ]
        assert await cost(python.send(session, "hello")) == both
        assert await cost(python.send(session, "hello", client_key="k2")) == both
    await store.close()


async def test_if_match_counts_for_the_first_change_that_is_made(served: Served) -> None:
    """An ask for an agent that is not known here gives its first change up and makes another one."""
    moor = served.moorage()
    session = await moor.create("somebody-elses", parent=None)
    deps, caller = served.deps.at_version(session.session_id, session), Caller()

    def give_up(_: View) -> Change:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await deps.store.apply(caller.owner, session.session_id, give_up)
    await moor.update(session.session_id, phase="planning")
    with pytest.raises(VersionConflict):
        await runs.post(deps, caller, session.session_id, ["hello"])
