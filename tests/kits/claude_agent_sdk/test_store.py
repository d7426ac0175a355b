"""Claude Agent SDK: its own conformance suite, and what we promise besides."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("claude_agent_sdk", reason="the Claude Agent SDK is not installed; ./dev kits claude-agent-sdk")

from claude_agent_sdk import InMemorySessionStore, fork_session_via_store, get_session_messages_from_store
from claude_agent_sdk.testing import run_session_store_conformance

import moorage
from moorage.adapters.claude_agent_sdk import MoorageSessionStore
from moorage.core.errors import InvalidField, InvalidJson

KEY = {"project_key": "-srv-web", "session_id": "0f4c3d2e-0000-4000-8000-000000000001"}
SUB = {**KEY, "subpath": "subagents/agent-1"}


def line(kind: str, content: Any, **more: Any) -> dict[str, Any]:
    """A line of a transcript."""
    said = {"role": kind, "content": content}
    return {"type": kind, "uuid": str(uuid4()), "timestamp": "2026-01-01T00:00:00.000Z", "message": said, **more}


def conversation() -> list[dict[str, Any]]:
    """A prompt, a call of a tool, its result, an answer."""
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "README.md"}
    lines = [
        line("user", "What is here?"),
        line("assistant", [{"type": "thinking", "thinking": "look"}, call]),
        line("user", [result]),
        line("assistant", [{"type": "text", "text": "A README."}]),
    ]
    for before, after in pairwise(lines):
        after["parentUuid"] = before["uuid"]
    return [{"parentUuid": None, "sessionId": KEY["session_id"], **one} for one in lines]


@pytest.fixture
def fresh(url: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Makes empty stores: one owner for each, or one database behind a server."""
    made: list[MoorageSessionStore] = []

    def make() -> MoorageSessionStore:
        if url.startswith("http"):
            opened = request.getfixturevalue("doors").open(f"sqlite:///{tmp_path / str(len(made))}.db")
            made.append(MoorageSessionStore(opened))
        else:
            made.append(MoorageSessionStore(url, owner=f"owner-{len(made)}"))
        return made[-1]

    yield make
    for store in made:
        store.close()


async def test_all_contracts_hold(fresh: Any) -> None:
    await run_session_store_conformance(fresh)


async def test_in_memory_store_of_the_sdk_holds_them_too() -> None:
    await run_session_store_conformance(InMemorySessionStore)


async def test_log_has_what_was_said(url: str) -> None:
    async with moorage.connect(url) as moor, MoorageSessionStore(moor) as store:
        await store.append(KEY, conversation())
        await store.append(SUB, [line("user", "hidden")])
        [session] = (await moor.list()).items
        entries = (await moor.messages(session.session_id)).items

    assert [entry.role for entry in entries] == ["user", "assistant", "tool", "assistant"]
    assert [entry.text for entry in entries][::3] == ["What is here?", "A README."]
    assert session.labels == ["claude-agent-sdk:x:-srv-web"]


async def test_repeated_batch_is_read_once(url: str) -> None:
    lines = [*conversation(), {"type": "mode", "mode": "plan"}]
    async with moorage.connect(url) as moor, MoorageSessionStore(moor) as store:
        await store.append(KEY, lines)
        await store.append(KEY, lines)
        [session] = (await moor.list()).items

        assert await store.load(KEY) == [*lines, lines[-1]]
        assert len((await moor.messages(session.session_id)).items) == 4


async def test_sdk_reads_and_forks_what_is_stored(url: str) -> None:
    async with MoorageSessionStore(url) as store:
        await store.append(KEY, conversation())
        directory = "/srv/web"
        messages = await get_session_messages_from_store(store, KEY["session_id"], directory=directory)
        forked = await fork_session_via_store(store, KEY["session_id"], directory=directory)
        copy = await get_session_messages_from_store(store, forked.session_id, directory=directory)

    assert len(messages) == len(copy) == 4


async def test_deleted_session_begins_anew(url: str) -> None:
    async with MoorageSessionStore(url) as store:
        for _ in range(3):
            await store.append(KEY, [line("user", "hello")])
            assert len(await store.load(KEY) or []) == 1
            await store.delete(KEY)
        assert await store.load(KEY) is None


async def test_other_owner_sees_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    async with MoorageSessionStore(url, owner="anna") as hers, MoorageSessionStore(url, owner="ben") as his:
        await hers.append(KEY, conversation())

        assert await his.load(KEY) is None
        assert await his.list_sessions(KEY["project_key"]) == []


async def test_any_names_will_do(url: str) -> None:
    key = {"project_key": "a/b c::d" * 40, "session_id": "ü\n", "subpath": "x/y:z"}
    main = {name: key[name] for name in ("project_key", "session_id")}
    async with MoorageSessionStore(url) as store:
        await store.append(key, [{"type": "x", "n": 1}])
        await store.append(main, [{"type": "x", "n": 2}])

        assert await store.load(key) == [{"type": "x", "n": 1}]
        assert await store.list_subkeys(main) == ["x/y:z"]
        assert [one["session_id"] for one in await store.list_sessions(key["project_key"])] == ["ü\n"]


async def test_line_that_is_no_json_is_refused_and_nothing_is_written(url: str) -> None:
    async with MoorageSessionStore(url) as store:
        with pytest.raises(InvalidJson):
            await store.append(KEY, [{"type": "x"}, {"type": "x", "value": object()}])

        assert await store.load(KEY) is None


async def test_key_without_an_id_and_line_that_is_no_mapping_are_refused(url: str) -> None:
    async with MoorageSessionStore(url) as store:
        for key, missing in (
            ({"project_key": "p"}, "session_id"),
            ({"session_id": "s"}, "project_key"),
            (None, "project_key"),
        ):
            with pytest.raises(InvalidField, match=f"{missing} is missing"):
                await store.append(key, [{"type": "x"}])
        with pytest.raises(InvalidField, match=r"entries\[1\] is 'text'"):
            await store.append(KEY, [{"type": "x"}, "text"])  # type: ignore[list-item]

        assert await store.load(KEY) is None


async def test_id_of_a_line_may_be_no_text(url: str) -> None:
    async with MoorageSessionStore(url) as store:
        await store.append(KEY, [{"type": "x", "uuid": ["a"]}])

        assert await store.load(KEY) == [{"type": "x", "uuid": ["a"]}]


async def test_fork_is_listed_under_its_own_name(url: str) -> None:
    async with moorage.connect(url) as moor:
        store = MoorageSessionStore(moor)
        await store.append({"project_key": "p", "session_id": "s"}, [{"type": "user", "uuid": "u"}])
        await moor.fork("p::s", session_id="p::t")
        await moor.fork("p::s", session_id="no-transcript")

        assert [one["session_id"] for one in await store.list_sessions("p")] == ["s", "t"]
        assert await store.load({"project_key": "p", "session_id": "t"}) == [{"type": "user", "uuid": "u"}]
