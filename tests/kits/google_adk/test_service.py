"""Google ADK: one contract, held by its service in memory and by ours, and what we promise besides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.adk", reason="Google ADK is not installed; ./dev kits google-adk has it")

from google.adk.agents import LlmAgent
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types

import moorage
from moorage.adapters.adk import MoorageSessionService
from moorage.core.errors import InvalidJson, StoreUnavailable
from moorage.records import RecordSpace

HERE: dict[str, Any] = {"app_name": "shop", "user_id": "anna"}


def event(text: str = "hello", *, at: float = 0.0, author: str = "user", **delta: Any) -> Event:
    """An event that says something and changes state."""
    content = types.Content(role=author, parts=[types.Part(text=text)])
    named = {name.replace("__", ":"): value for name, value in delta.items()}
    made = Event(author=author, content=content, actions=EventActions(state_delta=named))
    if at:
        made.timestamp = at
    return made


def texts(session: Any) -> list[str]:
    """Return the texts of a session's events."""
    return [one.content.parts[0].text for one in session.events]


@pytest.fixture(params=["theirs", "ours"])
async def service(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Any]:
    """A session service without sessions."""
    if request.param == "theirs":
        yield InMemorySessionService()
        return
    async with MoorageSessionService(url) as ours:
        yield ours


class TestContract:
    """The contract of every session service of ADK."""

    async def test_created_session_is_found(self, service: Any) -> None:
        made = await service.create_session(**HERE, session_id="s", state={"a": 1})
        found = await service.get_session(**HERE, session_id="s")

        assert (made.id, made.state, made.events) == ("s", {"a": 1}, [])
        assert (found.id, found.state, found.app_name, found.user_id) == ("s", {"a": 1}, "shop", "anna")
        assert await service.get_session(**HERE, session_id="none") is None

    async def test_id_is_made_or_taken_once(self, service: Any) -> None:
        made = await service.create_session(**HERE)
        with pytest.raises(AlreadyExistsError):
            await service.create_session(**HERE, session_id=made.id)
        other = await service.create_session(app_name="shop", user_id="ben", session_id=made.id)

        assert other.user_id == "ben"

    async def test_events_and_state_come_back(self, service: Any) -> None:
        session = await service.create_session(**HERE, session_id="s")
        for number in range(3):
            await service.append_event(session, event(f"e{number}", count=number))
        found = await service.get_session(**HERE, session_id="s")

        assert texts(found) == texts(session) == ["e0", "e1", "e2"]
        assert found.state == {"count": 2}
        assert found.events == session.events

    async def test_state_of_app_and_user_is_shared_and_temp_state_is_not_kept(self, service: Any) -> None:
        session = await service.create_session(**HERE, session_id="s", state={"app:a": 1, "user:u": 1, "mine": 1})
        await service.append_event(session, event(app__b=2, user__v=2, temp__t=2, mine=2))
        same_user = await service.create_session(**HERE, session_id="t")
        other_user = await service.create_session(app_name="shop", user_id="ben", session_id="s")
        other_app = await service.create_session(app_name="bank", user_id="anna", session_id="s")

        assert session.state["temp:t"] == 2
        found = await service.get_session(**HERE, session_id="s")
        assert found.state == {"app:a": 1, "app:b": 2, "user:u": 1, "user:v": 2, "mine": 2}
        assert "temp:t" not in found.events[0].actions.state_delta
        assert same_user.state == {"app:a": 1, "app:b": 2, "user:u": 1, "user:v": 2}
        assert other_user.state == {"app:a": 1, "app:b": 2}
        assert other_app.state == {}
        listed = (await service.list_sessions(app_name="shop")).sessions
        assert {(one.user_id, one.id): one.state for one in listed} == {
            ("anna", "s"): found.state,
            ("anna", "t"): same_user.state,
            ("ben", "s"): other_user.state,
        }
        assert await service.get_user_state(**HERE) == {"u": 1, "v": 2}
        assert await service.get_user_state(app_name="shop", user_id="nobody") == {}

    async def test_recent_events_are_chosen(self, service: Any) -> None:
        session = await service.create_session(**HERE, session_id="s")
        for number in range(1, 6):
            await service.append_event(session, event(f"e{number}", at=float(number)))

        async def chosen(**config: Any) -> list[str]:
            return texts(await service.get_session(**HERE, session_id="s", config=GetSessionConfig(**config)))

        assert await chosen(num_recent_events=2) == ["e4", "e5"]
        assert await chosen(num_recent_events=0) == []
        assert await chosen(after_timestamp=4.0) == ["e4", "e5"]
        assert await chosen(after_timestamp=2.0, num_recent_events=2) == ["e4", "e5"]
        assert await chosen() == ["e1", "e2", "e3", "e4", "e5"]

    async def test_lists_are_oldest_first_and_without_events(self, service: Any) -> None:
        made = [await service.create_session(**HERE, session_id=name, state={"name": name}) for name in "abc"]
        await service.create_session(app_name="shop", user_id="ben", session_id="z")
        await service.create_session(app_name="bank", user_id="anna", session_id="y")
        latest = max(session.last_update_time for session in made)
        await service.append_event(made[0], event(at=latest + 60))
        hers = (await service.list_sessions(**HERE)).sessions

        assert [(one.id, one.state, one.events) for one in hers] == [
            (name, {"name": name}, []) for name in ("b", "c", "a")
        ]
        assert [one.id for one in (await service.list_sessions(app_name="shop")).sessions] == ["b", "c", "z", "a"]
        assert (await service.list_sessions(app_name="none")).sessions == []

    async def test_deleted_session_is_gone_and_its_id_free(self, service: Any) -> None:
        session = await service.create_session(**HERE, session_id="s", state={"user:u": 1})
        await service.append_event(session, event())
        await service.delete_session(**HERE, session_id="s")
        await service.delete_session(**HERE, session_id="s")

        assert await service.get_session(**HERE, session_id="s") is None
        with pytest.raises(SessionNotFoundError):
            await service.append_event(session, event())
        assert (await service.create_session(**HERE, session_id="s")).events == []

    async def test_partial_event_is_not_kept(self, service: Any) -> None:
        session = await service.create_session(**HERE, session_id="s")
        part = event()
        part.partial = True
        await service.append_event(session, part)

        assert (await service.get_session(**HERE, session_id="s")).events == []


async def test_stale_writer_is_refused(url: str) -> None:
    async with MoorageSessionService(url) as service:
        await service.create_session(**HERE, session_id="s")
        one, two = [await service.get_session(**HERE, session_id="s") for _ in range(2)]
        assert one is not None
        await service.append_event(one, event("first", n=1))
        with pytest.raises(StaleSessionError):
            await service.append_event(two, event("late", n=2))
        found = await service.get_session(**HERE, session_id="s")
        await service.append_event(one, event("second"))

        assert found is not None
        assert (texts(found), found.state) == (["first"], {"n": 1})


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
async def test_event_and_all_its_state_are_one_commit(url: str, monkeypatch: pytest.MonkeyPatch, done: bool) -> None:
    """The connection fails at the first write, before or after it is done: a half-written event is never seen."""
    write = RecordSpace._write

    async def fail(self: RecordSpace, *args: Any, **how: Any) -> Any:
        if done:
            await write(self, *args, **how)
        raise StoreUnavailable("the connection is gone")

    async with MoorageSessionService(url) as service:
        session = await service.create_session(**HERE, session_id="s")
        monkeypatch.setattr(RecordSpace, "_write", fail)
        with pytest.raises(StoreUnavailable):
            await service.append_event(session, event("hello", n=1, app__a=1, user__u=1))
        found = await service.get_session(**HERE, session_id="s")

    assert found is not None
    assert (len(found.events), found.state) == ((1, {"n": 1, "app:a": 1, "user:u": 1}) if done else (0, {}))


async def test_sessions_that_change_the_state_of_one_app_are_not_stale(url: str) -> None:
    async with MoorageSessionService(url) as service:
        sessions = [await service.create_session(**HERE, session_id=f"s-{n}") for n in range(4)]
        deltas: list[dict[str, Any]] = [{f"app__{n}": n, f"user__{n}": n} for n in range(4)]
        both = zip(sessions, deltas, strict=True)
        await asyncio.gather(*(service.append_event(one, event(**delta)) for one, delta in both))
        found = await service.get_session(**HERE, session_id="s-0")

    assert found is not None
    assert found.state == {f"{scope}:{n}": n for scope in ("app", "user") for n in range(4)}


async def test_log_has_what_was_said(url: str) -> None:
    async with moorage.connect(url) as moor, MoorageSessionService(moor) as service:
        session = await service.create_session(**HERE, session_id="s")
        await service.append_event(session, event("How is Genoa?"))
        call = types.Part(function_call=types.FunctionCall(id="c1", name="weather", args={"city": "Genoa"}))
        await service.append_event(session, Event(author="helper", content=types.Content(parts=[call])))
        entries = (await moor.messages("shop::anna::s")).items

    assert [entry.role for entry in entries] == ["user", "assistant"]
    assert entries[1].content == [{"type": "tool_call", "id": "c1", "name": "weather", "input": {"city": "Genoa"}}]


async def test_bytes_in_an_event_come_back(url: str) -> None:
    picture = types.Part(inline_data=types.Blob(data=b"\x00\xff", mime_type="image/png"))
    async with MoorageSessionService(url) as service:
        session = await service.create_session(**HERE, session_id="s")
        await service.append_event(session, Event(author="user", content=types.Content(parts=[picture])))
        found = await service.get_session(**HERE, session_id="s")

    assert found is not None
    assert found.events[0].content.parts[0].inline_data.data == b"\x00\xff"


async def test_other_owner_sees_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    async with MoorageSessionService(url, owner="one") as one, MoorageSessionService(url, owner="two") as two:
        await one.create_session(**HERE, session_id="s", state={"app:a": 1, "user:u": 1})

        assert await two.get_session(**HERE, session_id="s") is None
        assert (await two.create_session(**HERE, session_id="s")).state == {}


async def test_any_names_will_do(url: str) -> None:
    names: dict[str, Any] = {"app_name": "a b::c" * 30, "user_id": "ü/é"}
    async with MoorageSessionService(url) as service:
        session = await service.create_session(**names, session_id="x:y\nz")
        await service.append_event(session, event())

        assert [one.id for one in (await service.list_sessions(**names)).sessions] == ["x:y\nz"]
        assert [one.user_id for one in (await service.list_sessions(app_name=names["app_name"])).sessions] == ["ü/é"]


async def test_state_that_is_no_json_is_refused_and_nothing_is_written(url: str) -> None:
    async with MoorageSessionService(url) as service:
        with pytest.raises(InvalidJson):
            await service.create_session(**HERE, session_id="s", state={"bad": object()})

        assert await service.get_session(**HERE, session_id="s") is None


# The real framework ---------------------------------------------------------------------------------


class Scripted(BaseLlm):
    """A model that repeats what it heard first."""

    async def generate_content_async(self, request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        first = request.contents[0].parts[0].text
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=f"first: {first}")]))


async def test_runner_goes_on_where_it_was(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    for prompt in ("I am Anna", "Who am I?"):
        async with MoorageSessionService(url) as service:
            agent = LlmAgent(name="helper", model=Scripted(model="scripted"), output_key="answer")
            runner = Runner(agent=agent, app_name="shop", session_service=service, auto_create_session=True)
            message = types.Content(role="user", parts=[types.Part(text=prompt)])
            async for _ in runner.run_async(user_id="anna", session_id="s", new_message=message):
                pass
            found = await service.get_session(**HERE, session_id="s")

    assert found is not None
    assert texts(found) == ["I am Anna", "first: I am Anna", "Who am I?", "first: I am Anna"]
    assert found.state["answer"] == "first: I am Anna"


async def test_fork_is_listed_under_its_own_name(url: str) -> None:
    async with moorage.connect(url) as moor:
        service = MoorageSessionService(moor)
        await service.create_session(app_name="shop", user_id="anna", session_id="s", state={"n": 1})
        await moor.fork("shop::anna::s", session_id="shop::anna::t")
        await moor.fork("shop::anna::s", session_id="no-session-of-adk")

        for user in ("anna", None):
            listed = await service.list_sessions(app_name="shop", user_id=user)
            assert [(one.id, one.user_id, one.state) for one in listed.sessions] == [
                ("s", "anna", {"n": 1}),
                ("t", "anna", {"n": 1}),
            ]
