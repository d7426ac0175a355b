"""OpenAI Agents SDK: any session's promises, and ours."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents", reason="the OpenAI Agents SDK is not installed; ./dev kits openai-agents has it")

from agents import Agent, Runner, Session, function_tool
from agents.memory.session_settings import SessionSettings
from agents.testing import ScriptedModel, assistant_message, function_call

import moorage
from moorage import sync
from moorage.adapters.batches import BATCH
from moorage.adapters.openai_agents import MoorageSession
from moorage.core.errors import InvalidField, InvalidJson, SessionClosed, StoreUnavailable, TooLarge

HELLO: dict[str, Any] = {"role": "user", "content": "Hello"}
HI: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Hi there", "annotations": []}],
}
CALL = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Genoa"}'}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "sunny"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VjcmV0"}


@function_tool
def weather(city: str) -> str:
    """Tell the weather."""
    return f"sunny in {city}"


async def test_items_come_back_as_they_were_added(url: str) -> None:
    async with MoorageSession("s", url) as session:
        assert isinstance(session, Session)
        assert await session.get_items() == []
        await session.add_items([HELLO, HI])
        await session.add_items([CALL, RESULT, REASONING])

        assert await session.get_items() == [HELLO, HI, CALL, RESULT, REASONING]
        assert await session.get_items(2) == [RESULT, REASONING]
        assert await session.get_items(0) == []
        assert await session.get_items(99) == [HELLO, HI, CALL, RESULT, REASONING]


async def test_last_item_is_popped_first(url: str) -> None:
    async with MoorageSession("s", url) as session:
        assert await session.pop_item() is None
        await session.add_items([HELLO, HI])
        await session.add_items([CALL])

        assert [await session.pop_item() for _ in range(4)] == [CALL, HI, HELLO, None]


async def test_cleared_session_is_empty_and_goes_on(url: str) -> None:
    async with MoorageSession("s", url) as session:
        await session.clear_session()
        await session.add_items([HELLO, HI])
        await session.clear_session()
        assert await session.get_items() == []
        await session.add_items([CALL])

        assert await session.get_items() == [CALL]


async def test_limit_of_the_settings_counts_unless_another_is_given(url: str) -> None:
    async with MoorageSession("s", url, session_settings={"limit": 1}) as session:
        await session.add_items([HELLO, HI])

        assert session.session_settings == SessionSettings(limit=1)
        assert await session.get_items() == [HI]
        assert await session.get_items(limit=2) == [HELLO, HI]


async def test_many_items_are_added_at_once(url: str) -> None:
    items = [{"role": "user", "content": f"m{number}"} for number in range(BATCH * 25 + 1)]
    async with MoorageSession("s", url) as session:
        await session.add_items(items)

        assert await session.get_items() == items
        assert await session.pop_item() == items[-1]
        assert await session.get_items(3) == items[-4:-1]


async def test_long_history_is_read_in_pages(tmp_path: Path) -> None:
    async with MoorageSession("s", f"sqlite:///{tmp_path / 'a.db'}", projection=False) as session:
        for number in range(1005):
            await session.add_items([{"role": "user", "content": f"m{number}"}])

        assert [item["content"] for item in await session.get_items()] == [f"m{number}" for number in range(1005)]


@pytest.mark.parametrize("name", ["a b", "ü/../x", "", "x" * 500, "a::b", "g2:a"])
async def test_any_session_id_will_do(name: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    async with MoorageSession(name, url) as session, MoorageSession("other", url) as other:
        await session.add_items([HELLO])

        assert await session.get_items() == [HELLO]
        assert await other.get_items() == []


async def test_other_owner_sees_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    async with MoorageSession("s", url, owner="anna") as hers, MoorageSession("s", url, owner="ben") as his:
        await hers.add_items([HELLO])

        assert await his.get_items() == []
        assert await his.pop_item() is None


# Other operations on such a session -----------------------------------------------------------------


async def test_log_has_what_was_said(url: str) -> None:
    async with moorage.connect(url) as moor, MoorageSession("s", moor) as session:
        await session.add_items([HELLO, HI, CALL, RESULT, REASONING])
        await session.pop_item()
        page = await moor.messages("s")
        roles = [entry.role for entry in page.items]

        assert roles == ["user", "assistant", "assistant", "tool", "assistant"]
        assert [entry.content for entry in page.items[:2]] == ["Hello", "Hi there"]
        call, result = (entry.content for entry in page.items[2:4])
        assert isinstance(call, list)
        assert call[0]["input"] == {"city": "Genoa"}
        assert isinstance(result, list)
        assert result[0]["output"] == "sunny"
        assert (await moor.get("s")).metadata["framework"] == "openai-agents"


async def test_projection_can_be_turned_off(url: str) -> None:
    async with moorage.connect(url) as moor, MoorageSession("s", moor, projection=False) as session:
        await session.add_items([HELLO])

        assert (await moor.messages("s")).items == []
        assert await session.get_items() == [HELLO]


async def test_deleted_session_begins_anew(url: str) -> None:
    async with moorage.connect(url) as moor, MoorageSession("s", moor) as session:
        await session.add_items([HELLO])
        await moor.delete("s")
        assert await session.get_items() == []
        await session.add_items([HI])

        assert await session.get_items() == [HI]


async def test_fork_goes_on_by_itself(url: str) -> None:
    async with moorage.connect(url) as moor, MoorageSession("s", moor) as session:
        await session.add_items([HELLO])
        await moor.fork("s", session_id="t")
        fork = MoorageSession("t", moor)
        await fork.add_items([HI])

        assert await fork.get_items() == [HELLO, HI]
        assert await session.get_items() == [HELLO]


# The real framework ---------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["run", "sync", "streamed"])
def test_runner_goes_on_where_it_was(way: str, tmp_path: Path) -> None:
    model = ScriptedModel([[function_call("weather", {"city": "Genoa"}, call_id="c1")]])
    model.enqueue([assistant_message("It is sunny.")])
    model.enqueue([assistant_message("You asked about Genoa.")])
    agent = Agent(name="helper", model=model, tools=[weather])
    url = f"sqlite:///{tmp_path / 'a.db'}"
    for prompt in ("How is Genoa?", "What did I ask?"):
        _ask(way, agent, prompt, MoorageSession("s", url))

    heard = [item.get("content", item.get("output")) for item in model.calls[-1].input]
    assert "sunny in Genoa" in heard
    assert heard[0] == "How is Genoa?"
    with sync.connect(url) as moor:
        assert [entry.role for entry in moor.messages("s").items] == [
            *("user", "assistant", "tool", "assistant", "user", "assistant")
        ]


def _ask(way: str, agent: Any, prompt: str, session: MoorageSession) -> None:
    if way == "sync":
        Runner.run_sync(agent, prompt, session=session)
        return

    async def ask() -> None:
        if way == "run":
            await Runner.run(agent, prompt, session=session)
            return
        async for _ in Runner.run_streamed(agent, prompt, session=session).stream_events():
            pass

    asyncio.run(ask())


# Bad input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [object(), {"role": "user", "content": {1, 2}}, {"x": float("nan")}])
async def test_item_that_is_no_json_is_refused_and_nothing_is_written(bad: Any, url: str) -> None:
    async with MoorageSession("s", url) as session:
        with pytest.raises(InvalidJson):
            await session.add_items([HELLO, bad])

        assert await session.get_items() == []


async def test_arguments_of_other_types_are_refused(url: str) -> None:
    async with MoorageSession("s", url) as session:
        with pytest.raises(InvalidField, match="items"):
            await session.add_items("text")  # type: ignore[arg-type]  # as an untyped caller might
        with pytest.raises(InvalidField, match="limit"):
            await session.get_items("2")  # type: ignore[arg-type]
    with pytest.raises(InvalidField, match="metadata"):
        MoorageSession("s", url, metadata="text")


async def test_item_of_100_megabytes_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    async with MoorageSession("s", f"sqlite:///{tmp_path / 'a.db'}") as session:
        with pytest.raises(TooLarge):
            await session.add_items([HELLO, {"role": "user", "content": "x" * 100_000_000}])

        assert await session.get_items() == []


async def test_item_of_megabytes_is_kept_whole(url: str) -> None:
    large = {"role": "user", "content": "x" * 5_000_000}
    async with MoorageSession("s", url) as session:
        await session.add_items([HELLO, large])

        assert await session.get_items() == [HELLO, large]
        assert await session.pop_item() == large


async def test_closed_session_says_so(url: str) -> None:
    async with moorage.connect(url) as moor, MoorageSession("s", moor) as session:
        await session.add_items([HELLO])
        await moor.finalize("s")
        with pytest.raises(SessionClosed):
            await session.add_items([HI])

        assert await session.get_items() == [HELLO]
    with pytest.raises(StoreUnavailable):
        await session.add_items([])


async def test_cancelled_write_is_done_or_not_done(url: str) -> None:
    async with MoorageSession("s", url) as session:
        await session.add_items([HELLO])
        write = asyncio.create_task(session.add_items([HI]))
        await asyncio.sleep(0)
        write.cancel()
        with pytest.raises(asyncio.CancelledError):
            await write

        assert await session.get_items() in ([HELLO], [HELLO, HI])
