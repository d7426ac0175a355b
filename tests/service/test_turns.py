"""The input of a turn: its items and the history."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from msgspec.structs import replace

from moorage import config
from moorage.core.bundle import Bundle
from moorage.core.entry import Kind
from moorage.core.errors import SessionRunning
from moorage.core.run import Join
from moorage.core.session import BY_PERSON
from moorage.core.turn import Retry
from moorage.core.work import TurnEnd
from moorage.service import approvals, runs
from moorage.service.conversation import append_messages, read_log
from moorage.service.deps import Caller, Deps
from moorage.service.turns import Given, TurnDispatcher, suspend_with_turn
from moorage.testing.builders import OWNER
from moorage.testing.model_store import ModelStore
from moorage.testing.work import AGENT, a_child_run, a_launcher, finish, launch, taken

ME = Caller()


@pytest.fixture
async def deps() -> AsyncIterator[Deps]:
    deps = Deps(ModelStore(), config.SystemClock(), config.entropy, find_agent=config.find_agent)
    yield deps
    await deps.store.close()


async def given(deps: Deps) -> Given:
    dispatcher = TurnDispatcher(deps)
    claimed = await dispatcher.claim(a_launcher("launcher-1", "local"), {"echo-agent": Retry.RESUME})
    assert claimed is not None
    found = await dispatcher.given(claimed)
    await dispatcher.started("local", claimed.turn)
    await dispatcher.finish("local", claimed.turn, TurnEnd(result="done"))
    return found


def told(found: Given) -> list[object]:
    return [message["content"] for message in found.history]


async def test_a_session_that_was_opened_with_the_prompt_has_no_history(deps: Deps) -> None:
    await runs.start_run(deps, ME, "echo-agent", "first")
    found = await given(deps)
    assert (told(found), [item.body["content"] for item in found.items]) == ([], ["first"])


async def test_other_messages_before_the_first_turn_are_history(deps: Deps) -> None:
    asked = await runs.start_run(deps, ME, "echo-agent", "first")
    await append_messages(deps, ME, asked.session.session_id, [{"role": "system", "content": "be brief"}])
    assert told(await given(deps)) == ["be brief"]


async def test_first_turn_gets_both_earlier_prompts(deps: Deps) -> None:
    asked = await runs.start_run(deps, ME, "echo-agent", "first")
    await runs.ask(deps, ME, asked.session.session_id, "second")
    found = await given(deps)
    assert (told(found), [item.body["content"] for item in found.items]) == ([], ["first", "second"])


async def test_later_turn_gets_the_history(deps: Deps) -> None:
    asked = await runs.start_run(deps, ME, "echo-agent", "first")
    await given(deps)
    await runs.ask(deps, ME, asked.session.session_id, "second")
    assert told(await given(deps)) == ["first"]


async def test_a_session_from_elsewhere_may_begin_with_a_message(deps: Deps) -> None:
    first = await runs.start_run(deps, ME, "echo-agent", "long ago")
    (said,) = (await read_log(deps, ME, first.session.session_id, kinds=(Kind.MESSAGE.value,))).items
    await deps.store.restore(
        "local",
        Bundle(
            session=replace(
                await deps.store.get("local", first.session.session_id),
                session_id="elsewhere",
                root_session_id="elsewhere",
                created_at=said.at - timedelta(days=1),
                last_entry=1,
                launched=False,
                turns=0,
            ),
            entries=[replace(said, number=1, session_id="elsewhere")],
            approvals=[],
        ),
    )
    await given(deps)
    await runs.ask(deps, ME, "elsewhere", "go on")
    assert told(await given(deps)) == ["long ago"]


async def test_a_run_is_told_as_it_is_kept(deps: Deps) -> None:
    asked = await runs.start_run(deps, ME, "echo-agent", "first")
    assert asked.run == await runs.get_run(deps, ME, asked.run.run_id)
    again = await runs.ask(deps, ME, asked.session.session_id, "second")
    assert again.run == await runs.get_run(deps, ME, again.run.run_id)


async def test_turn_of_another_launcher_is_not_suspended(deps: Deps) -> None:
    asked = await runs.start_run(deps, ME, "echo-agent", "first")
    session_id = asked.session.session_id
    assert await TurnDispatcher(deps).claim(a_launcher("launcher-1", "local"), {"echo-agent": Retry.RESUME})
    with pytest.raises(SessionRunning):
        await suspend_with_turn(deps, ME, session_id, "launcher-2")
    suspended = await suspend_with_turn(deps, ME, session_id, "launcher-1", reason="lunch")
    assert (suspended.state, suspended.suspended_by) == ("suspended", BY_PERSON)


async def test_joined_callbacks_tell_how_many_children_are_out_at_delivery(deps: Deps) -> None:
    store, dispatcher = deps.store, TurnDispatcher(deps)
    await launch(store, "p", "run-p")
    parent = await taken(store)
    for name, join in (("a", Join.ALL), ("b", Join.EACH), ("c", Join.ALL)):
        await launch(store, name, a_child_run(f"run-{name}", "p", "run-p", join=join), parent="p")
    children = [await taken(store) for _ in "abc"]
    await finish(store, children[0])
    await finish(store, children[2])
    await finish(store, parent)
    claimed = await dispatcher.claim(a_launcher("launcher-1", OWNER), {AGENT: Retry.RESUME})
    assert claimed is not None

    items = (await dispatcher.given(claimed)).items
    assert [(item.body["run_id"], item.body["still_out"]) for item in items] == [("run-a", 1), ("run-c", 1)]


async def test_callbacks_that_come_one_by_one_tell_how_many_were_out_then(deps: Deps) -> None:
    store, dispatcher = deps.store, TurnDispatcher(deps)
    await launch(store, "p", "run-p")
    parent = await taken(store)
    for name in "ab":
        await launch(store, name, a_child_run(f"run-{name}", "p", "run-p"), parent="p")
    for child in [await taken(store) for _ in "ab"]:
        await finish(store, child)
    await finish(store, parent)
    claimed = await dispatcher.claim(a_launcher("launcher-1", OWNER), {AGENT: Retry.RESUME})
    assert claimed is not None
    assert [item.body["still_out"] for item in (await dispatcher.given(claimed)).items] == [1, 0]


# Calls without a result -------------------------------------------------------------------------

CALL = {"role": "assistant", "content": [{"type": "tool_call", "id": "c-1", "name": "deploy", "input": {}}]}


def shape(content: object) -> object:
    """A text as it is, a tool's part as its type."""
    return content[0]["type"] if isinstance(content, list) else content


async def logged(deps: Deps, session_id: str) -> list[object]:
    log = await read_log(deps, ME, session_id, kinds=(Kind.MESSAGE.value,))
    return [shape(entry.content) for entry in log.items]


async def test_call_left_by_a_driver_is_repaired_before_the_next_turn(deps: Deps) -> None:
    session_id = (await runs.start_run(deps, ME, "echo-agent", "first")).session.session_id
    await given(deps)
    await append_messages(deps, ME, session_id, [CALL, "between"])
    await runs.ask(deps, ME, session_id, "second")
    repaired = ["first", "tool_call", "tool_result", "between"]
    assert [shape(content) for content in told(await given(deps))] == repaired
    assert await logged(deps, session_id) == ["first", "tool_call", "between", "second", "tool_result"]

    await runs.ask(deps, ME, session_id, "third")
    assert [shape(content) for content in told(await given(deps))] == [*repaired, "second"]
    assert (await logged(deps, session_id)).count("tool_result") == 1


async def test_call_that_waits_for_an_approval_is_not_repaired(deps: Deps) -> None:
    session_id = (await runs.start_run(deps, ME, "echo-agent", "first")).session.session_id
    await given(deps)
    await append_messages(deps, ME, session_id, [CALL])
    question = await approvals.request_approval(deps, ME, session_id, "Deploy?")
    await approvals.decide_approval(deps, ME, question.approval_id, "approve")
    await runs.ask(deps, ME, session_id, "second")
    assert [shape(content) for content in told(await given(deps))] == ["first", "tool_call"]
