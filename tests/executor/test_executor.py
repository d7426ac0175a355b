"""One executor for conversations and single questions: on a store of this machine and on a server, the same events."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import moorage
from moorage.api import Moorage
from moorage.core.errors import AgentNotFound, HeldByAnother, SessionClosed, SessionRunning
from moorage.executor import AgentExecutor, ExecutionEvent, Interaction
from moorage.ports import Claimed
from moorage.service.turns import TurnDispatcher
from tests.doors.cli.agent_files import ASKING, FAILING, SLOW, define

PATIENCE = 30.0
MOMENT = 0.3


async def next_move(talk: Interaction) -> list[ExecutionEvent]:
    """Return the events until the person's turn or the end."""
    heard = []
    async with asyncio.timeout(PATIENCE):
        async for event in talk:
            heard.append(event)
            if event.type == "waiting_for_input" or event.is_last:
                break
    return heard


def told(events: list[ExecutionEvent]) -> list[tuple[str, str]]:
    return [(event.type, event.content) for event in events]


async def answered(moor: Moorage, session_id: str) -> str:
    """Answer the one question a session asks, as another caller would."""
    [approval] = await moor.approvals(session_id)
    return (await moor.approve(approval.approval_id)).question


# One question ------------------------------------------------------------------------------------


async def test_a_single_turn_answers_and_tells_where(moor: Moorage) -> None:
    turn = await AgentExecutor(moor).execute_single_turn("echo-agent", "hello", timeout=PATIENCE)
    assert (turn.status, turn.text, turn.error) == ("completed", "Echo Agent Response: hello", None)
    assert turn.run_id is not None
    assert (await moor.get_run(turn.run_id)).session_id == turn.session_id


async def test_a_session_that_is_not_there_is_made_and_then_remembered(moor: Moorage) -> None:
    executor = AgentExecutor(moor)
    await executor.execute_single_turn("echo-agent", "one", session_id="mine", purpose="trying", timeout=PATIENCE)
    turn = await executor.execute_single_turn("echo-agent", "/recall", session_id="mine", timeout=PATIENCE)
    assert turn.text.endswith("Remembered: one")
    session = await moor.get("mine")
    assert (session.purpose, session.state) == ("trying", "active")
    assert [entry.kind for entry in await moor.log("mine", kinds=("resumed", "released"))] == []


async def test_context_is_there_for_the_agent(moor: Moorage) -> None:
    wishes = {"destination": "Lisbon", "days": 2}
    turn = await AgentExecutor(moor).execute_single_turn("itinerary-worker", "Plan it", wishes, timeout=PATIENCE)
    assert turn.text.startswith('{"destination":"Lisbon"')
    assert await moor.context.get(turn.session_id) == wishes


async def test_asked_again_under_its_key_the_same_run_answers(moor: Moorage) -> None:
    executor = AgentExecutor(moor)
    first = await executor.execute_single_turn(
        "echo-agent", "hello", session_id="mine", client_key="k1", timeout=PATIENCE
    )
    again = await executor.execute_single_turn(
        "echo-agent", "hello", session_id="mine", client_key="k1", timeout=PATIENCE
    )
    assert again == first
    assert len((await moor.messages("mine")).items) == 2


async def test_content_may_have_parts(moor: Moorage) -> None:
    turn = await AgentExecutor(moor).execute_single_turn(
        "echo-agent", [{"type": "text", "text": "hello"}], timeout=PATIENCE
    )
    assert turn.text == "Echo Agent Response: hello"


async def test_a_failed_run_is_told_with_its_error(moor: Moorage, home: Path) -> None:
    define(home, FAILING)
    turn = await AgentExecutor(moor).execute_single_turn("failing", "try", timeout=PATIENCE)
    assert turn.status == "failed"
    assert turn.error is not None
    assert "out of luck" in turn.error


async def test_a_question_of_the_agent_ends_the_wait_but_not_the_run(moor: Moorage, home: Path) -> None:
    define(home, ASKING)
    executor = AgentExecutor(moor)
    turn = await executor.execute_single_turn("asking", "do it", session_id="mine", client_key="k1", timeout=PATIENCE)
    assert (turn.status, turn.text) == ("waiting_for_input", "Apply it?")
    assert [each["question"] for each in turn.approvals] == ["Apply it?"]
    assert await answered(moor, "mine") == "Apply it?"
    over = await executor.execute_single_turn("asking", "do it", session_id="mine", client_key="k1", timeout=PATIENCE)
    assert (over.status, over.text, over.run_id) == ("completed", "You said approve", turn.run_id)


async def test_when_time_is_up_the_run_goes_on(moor: Moorage, home: Path) -> None:
    define(home, SLOW)
    turn = await AgentExecutor(moor).execute_single_turn("slow", "take your time", timeout=0.3)
    assert turn.status == "running"
    assert turn.run_id is not None
    assert not (await moor.get_run(turn.run_id)).is_settled
    await moor.stop(turn.session_id)
    assert (await moor.result(turn.run_id, wait=PATIENCE)).state == "stopped"


async def test_unknown_agent_is_refused_before_anything_is_said(moor: Moorage) -> None:
    await moor.create("hello-world", session_id="theirs")
    for session in ("mine", "theirs"):
        with pytest.raises(AgentNotFound):
            await AgentExecutor(moor).execute_single_turn("nobody", "hello", session_id=session)
    assert [session.session_id for session in await moor.list()] == ["theirs"]
    assert (await moor.get("theirs")).last_entry == 1


async def test_any_agent_answers_in_any_session(moor: Moorage) -> None:
    await moor.create("hello-world", session_id="theirs")
    turn = await AgentExecutor(moor).execute_single_turn("echo-agent", "hello", session_id="theirs", timeout=PATIENCE)
    assert (turn.text, turn.session_id) == ("Echo Agent Response: hello", "theirs")
    assert turn.run is not None
    assert turn.run.agent_name == "echo-agent"
    own = await AgentExecutor(moor).execute_single_turn("hello-world", "hi", session_id="theirs", timeout=PATIENCE)
    assert own.text.startswith("Hello")
    assert [run.agent_name for run in (await moor.runs(session="theirs")).items] == ["hello-world", "echo-agent"]


async def test_conversation_with_a_guest_asks_the_guest_each_time(moor: Moorage) -> None:
    await moor.create("hello-world", session_id="theirs")
    async with AgentExecutor(moor).execute_interactive("echo-agent", "theirs") as talk:
        await next_move(talk)
        for word in ("one", "two"):
            await talk.send(word)
            assert told(await next_move(talk))[0] == ("message", f"Echo Agent Response: {word}")


# A conversation ----------------------------------------------------------------------------------


async def test_a_conversation_waits_for_input_and_answers_it(moor: Moorage) -> None:
    async with AgentExecutor(moor).execute_interactive("echo-agent", "mine") as talk:
        assert told(await next_move(talk)) == [("waiting_for_input", "")]
        await talk.send("one")
        heard = await next_move(talk)
        assert told(heard) == [("message", "Echo Agent Response: one"), ("waiting_for_input", "")]
        await talk.send("/recall")
        assert "Remembered: one" in (await next_move(talk))[0].content
    assert all(event.timestamp.tzinfo is not None for event in heard)
    assert (heard[0].data["role"], heard[0].data["session_id"]) == ("assistant", "mine")
    assert (await moor.get("mine")).state == "active"


async def test_the_first_message_comes_with_it(moor: Moorage) -> None:
    talk = AgentExecutor(moor).execute_interactive("echo-agent", initial_message="hello")
    assert told(await next_move(talk))[0] == ("message", "Echo Agent Response: hello")
    await talk.close()


async def test_several_inputs_at_once_are_all_answered_before_the_next_is_waited_for(moor: Moorage) -> None:
    async with AgentExecutor(moor).execute_interactive("echo-agent", "mine") as talk:
        await next_move(talk)
        await asyncio.gather(*(talk.send(f"word {number}") for number in range(5)))
        heard = await next_move(talk)
    assert [event.type for event in heard].count("waiting_for_input") == 1
    answers = "\n".join(event.content for event in heard)
    assert all(f"word {number}" in answers for number in range(5))


async def test_approval_is_answered_in_the_conversation(moor: Moorage, home: Path) -> None:
    define(home, ASKING)
    async with AgentExecutor(moor).execute_interactive("asking", "mine", "do it") as talk:
        heard = await next_move(talk)
        assert told(heard) == [("message", "Let me see."), ("waiting_for_input", "Apply it?")]
        assert await talk.decide("approve", approval_id="another") == []
        [decided] = await talk.decide("approve", note="go")
        assert (decided.question, decided.note) == ("Apply it?", "go")
        heard = await next_move(talk)
    assert told(heard)[-2:] == [("message", "You said approve"), ("waiting_for_input", "")]


async def test_a_run_that_fails_is_told_and_the_conversation_goes_on(moor: Moorage, home: Path) -> None:
    define(home, FAILING)
    async with AgentExecutor(moor).execute_interactive("failing", initial_message="try") as talk:
        heard = await next_move(talk)
    assert [event.type for event in heard] == ["cut_off", "cut_off", "failed", "waiting_for_input"]
    assert all("out of luck" in event.content and not event.is_last for event in heard[:-1])


async def begun(moor: Moorage, session_id: str, turn: int = 1) -> None:
    """Wait until a session's agent has begun so many turns."""
    async with asyncio.timeout(PATIENCE):
        async for event in moor.events(session_id):
            turn -= event.type == "turn_started"
            if not turn:
                return


async def test_suspending_gives_the_turn_back_and_coming_back_goes_on(moor: Moorage, home: Path, url: str) -> None:
    define(home, SLOW)
    executor = AgentExecutor(moor)
    async with executor.execute_interactive("slow", "mine", "take your time") as talk:
        await begun(moor, "mine")
        if url.startswith("http"):  # its launcher is the server's
            with pytest.raises(SessionRunning):
                await talk.suspend("lunch")
            await talk.stop()
            return
        session = await talk.suspend("lunch", checkpoint={"step": 2})
    assert (session.state, (await moor.checkpoint("mine")).checkpoint) == ("suspended", {"step": 2})
    [run] = (await moor.runs(session="mine")).items
    assert (run.state, (await moor.get("mine")).live_turn) == ("queued", None)
    async with executor.execute_interactive("slow", "mine") as talk:
        assert [each.run_id for each in talk.earlier] == [run.run_id]
        await begun(moor, "mine", 2)
        assert await talk.stop() == ["mine"]
        assert [event.type for event in await next_move(talk)] == ["message", "failed", "waiting_for_input"]
    assert (await moor.get_run(run.run_id)).state == "stopped"


async def test_suspending_leaves_other_sessions_of_the_connection_at_work(tmp_path: Path, home: Path) -> None:
    define(home, SLOW)
    async with moorage.connect(f"sqlite:///{tmp_path / 'own.db'}") as moor:
        executor = AgentExecutor(moor)
        async with (
            executor.execute_interactive("slow", "mine", "begin") as mine,
            executor.execute_interactive("slow", "other", "begin") as other,
        ):
            await begun(moor, "mine")
            await begun(moor, "other")
            epoch = (await moor.get("other")).epoch
            await mine.suspend()
            left = await moor.get("other")
            assert (left.status, left.epoch) == ("running", epoch)  # a turn that was given back has another epoch
            await other.stop()


async def test_suspending_waits_for_a_claim_that_is_committed_and_not_answered(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    define(home, SLOW)
    claimed, answers, claim = asyncio.Event(), asyncio.Event(), TurnDispatcher.claim

    async def claim_slowly(dispatcher: TurnDispatcher, *args: Any, **options: Any) -> Claimed | None:
        turn = await claim(dispatcher, *args, **options)
        if turn is not None:
            claimed.set()
            await answers.wait()
        return turn

    monkeypatch.setattr(TurnDispatcher, "claim", claim_slowly)
    async with moorage.connect(f"sqlite:///{tmp_path / 'own.db'}") as moor, asyncio.timeout(PATIENCE):
        async with AgentExecutor(moor).execute_interactive("slow", "mine", "begin") as talk:
            await claimed.wait()
            leaving = asyncio.create_task(talk.suspend("left"))
            await asyncio.wait([leaving], timeout=MOMENT)  # without the claim's answer, it cannot be done yet
            answers.set()
            assert (await leaving).state == "suspended"
        session = await moor.get("mine")
        assert (session.state, session.live_turn) == ("suspended", None)
        assert [run.state for run in (await moor.runs(session="mine")).items] == ["queued"]


@pytest.mark.parametrize(("outcome", "kind"), [("completed", "completed"), ("abandoned", "failed")])
async def test_a_session_that_is_closed_elsewhere_ends_the_conversation(moor: Moorage, outcome: str, kind: str) -> None:
    async with AgentExecutor(moor).execute_interactive("echo-agent", "mine") as talk:
        await next_move(talk)
        await moor.finalize("mine", outcome, summary="enough")
        [last] = await next_move(talk)
        assert (last.type, last.content, last.is_last) == (kind, "enough", True)
        assert [event async for event in talk] == []
    with pytest.raises(SessionClosed):
        await AgentExecutor(moor).execute_interactive("echo-agent", "mine").open()


async def test_a_session_that_is_suspended_or_deleted_elsewhere_ends_it_too(moor: Moorage) -> None:
    executor = AgentExecutor(moor)
    async with executor.execute_interactive("echo-agent", "mine") as talk:
        await next_move(talk)
        await moor.suspend("mine", reason="lunch")
        assert told(await next_move(talk)) == [("suspended", "lunch")]
    async with executor.execute_interactive("echo-agent", "mine") as talk:
        await next_move(talk)
        await moor.delete("mine")
        [last] = await next_move(talk)
        assert (last.type, last.is_last) == ("failed", True)


async def test_messages_of_others_are_shown_and_own_ones_are_not_repeated(moor: Moorage) -> None:
    async with AgentExecutor(moor).execute_interactive("echo-agent", "mine", "one") as talk:
        await next_move(talk)
        await moor.append("mine", "by the way")
        async with asyncio.timeout(PATIENCE):
            event = await anext(talk)
    assert (event.content, event.data["role"], event.data["interface"]) == ("by the way", "user", "python")


async def test_held_session_is_refused(moor: Moorage) -> None:
    await moor.create("echo-agent", session_id="mine")
    await moor.resume("mine", holder="somebody")
    with pytest.raises(HeldByAnother):
        await AgentExecutor(moor).execute_interactive("echo-agent", "mine").open()


async def test_resumed_conversation_gets_the_answer_to_an_earlier_prompt(moor: Moorage, home: Path) -> None:
    define(home, ASKING)
    executor = AgentExecutor(moor)
    turn = await executor.execute_single_turn("asking", "do it", session_id="mine", timeout=PATIENCE)
    assert turn.status == "waiting_for_input"
    async with executor.execute_interactive("asking", "mine") as talk:
        assert told(await next_move(talk)) == [("waiting_for_input", "Apply it?")]
        await talk.decide("reject")
        assert told(await next_move(talk))[-2:] == [("message", "You said reject"), ("waiting_for_input", "")]


async def test_agents_of_the_connection_are_heard_word_by_word(tmp_path: Path, home: Path) -> None:
    define(home, SLOW)
    async with moorage.connect(f"sqlite:///{tmp_path / 'own.db'}") as moor:
        talk = AgentExecutor(moor).execute_interactive("slow", "mine", "begin", partial=True)
        async with talk, asyncio.timeout(PATIENCE):
            event = await anext(talk)
            assert (event.type, event.content.strip()) == ("chunk", "started")
            await talk.suspend()


async def test_refusal_of_the_store_reaches_the_caller(tmp_path: Path) -> None:
    moor = moorage.connect(f"sqlite:///{tmp_path / 'own.db'}")
    talk = await AgentExecutor(moor).execute_interactive("echo-agent").open()
    await next_move(talk)
    await moor.close()
    with pytest.raises(moorage.StoreError):
        async with asyncio.timeout(PATIENCE):
            await anext(talk)
    await talk.close()
