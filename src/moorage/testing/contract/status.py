"""Status: its inputs in the head (inbox, runs and children), its filter in lists, and retries of failed runs."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.core import work
from moorage.core.entry import Kind, Message
from moorage.core.errors import KeyReused, RunNotFailed, RunNotFound, SessionClosed
from moorage.core.run import Mode, RunState
from moorage.core.session import BY_PERSON, Change, Needs
from moorage.core.status import Child, LastRun, Status, WaitingFor
from moorage.core.turn import Retry
from moorage.ports import Store
from moorage.testing.builders import *
from moorage.testing.work import *

PROMPT = Message(role="user", content="go on")


async def status(store: Store, ref: str = "s-1") -> str:
    return (await store.get(OWNER, ref)).status


async def waiting_for_child(store: Store) -> None:
    """Create session s-1, whose run waits for the run of its child c-1."""
    await launch(store, "s-1", "run-1")
    claimed = await taken(store)
    await launch(store, "c-1", a_child_run("run-2", "s-1", "run-1"), parent="s-1")
    await finish(store, claimed)


async def failed(store: Store, session_id: str = "s-1", run_id: str = "run-1") -> None:
    """Create a session whose run has failed."""
    await launch(store, session_id, run_id)
    for _ in range(3):
        await carry(store, "failed", error="oh no")


async def retry(store: Store, run_id: str = "run-1", again: str = "run-9", ref: str = "s-1", **fields: Any) -> Change:
    run = a_run(again, **fields)
    return await store.apply(
        OWNER, ref, lambda view: work.retried(view, run, PROMPT, a_stamp(after(9))), needs=Needs(run=run_id)
    )


class StatusRules:
    """The head has the inputs of the status, and lists find sessions by it."""

    async def test_session_is_queued_running_and_idle_again(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", agent_name="echo-agent"))
        seen = [await status(store)]
        await ask(store, "s-1", "run-1")
        seen.append(await status(store))
        claimed = await taken(store)
        seen.append(await status(store))
        await finish(store, claimed, at=after(5))
        seen.append(await status(store))

        assert seen == ["created", "queued", "running", "idle"]
        assert (await store.get(OWNER, "s-1")).last_run == LastRun("run-1", "completed", None, after(5))

    async def test_change_that_is_returned_says_the_same_as_the_store(self, store: Store) -> None:
        change = await launch(store, "s-1", "run-1")
        assert change.waits
        assert (await store.get(OWNER, "s-1")) == change

    async def test_message_during_a_turn_waits_and_the_session_stays_running(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store)
        assert not (await store.get(OWNER, "s-1")).waits
        await ask(store, "s-1", "run-2")

        head = await store.get(OWNER, "s-1")
        assert (head.status, head.waits) == ("running", True)
        await finish(store, claimed)
        assert await status(store) == "queued"

    async def test_parent_waits_for_its_child_until_the_callback_is_there(self, store: Store) -> None:
        await waiting_for_child(store)
        head = await store.get(OWNER, "s-1")
        assert (head.status, head.waits) == ("waiting", False)
        assert head.waiting_for == WaitingFor(child=Child("c-1", "run-2"))
        assert await status(store, "c-1") == "queued"

        await carry(store)
        head = await store.get(OWNER, "s-1")
        assert (head.status, head.waiting_for, head.awaited_child) == ("queued", None, None)

    async def test_child_asked_from_outside_of_a_turn_is_waited_for_too(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await launch(store, "c-1", a_child_run("run-2", "s-1"), parent="s-1")
        assert await status(store) == "waiting"
        await store.delete_tree(OWNER, "c-1", may_delete("c-1"), a_stamp())
        assert (await store.get(OWNER, "s-1")).awaited_child is None

    async def test_only_callbacks_are_waited_for_and_only_the_oldest_is_named(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store)
        await launch(store, "c-1", a_child_run("run-2", "s-1", "run-1", mode=Mode.ASYNC_POLL), parent="s-1")
        await launch(store, "c-2", a_child_run("run-3", "s-1", "run-1"), parent="s-1")
        await launch(store, "c-3", a_child_run("run-4", "s-1", "run-1"), parent="s-1")
        await finish(store, claimed)

        assert (await store.get(OWNER, "s-1")).awaited_child == Child("c-2", "run-3")

    async def test_child_of_a_stopped_run_is_not_waited_for(self, store: Store) -> None:
        await waiting_for_child(store)
        await stop(store, "s-1")
        head = await store.get(OWNER, "s-1")
        assert (head.status, head.last_run and head.last_run.state) == ("idle", "stopped")

    async def test_approval_is_named_and_the_next_one_after_it(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        for approval_id in ("approval-2", "approval-1"):
            await store.apply(OWNER, "s-1", asked(an_approval("s-1", approval_id)))
        assert (await store.get(OWNER, "s-1")).waiting_for == WaitingFor(approval_id="approval-2")
        await store.apply(OWNER, "s-1", answered("approve"), needs=Needs(approval="approval-2"))
        assert (await store.get(OWNER, "s-1")).waiting_for == WaitingFor(approval_id="approval-1")
        await store.apply(OWNER, "s-1", answered("approve"), needs=Needs(approval="approval-1"))
        assert (await store.get(OWNER, "s-1")).waiting_for is None

    async def test_failed_run_shows_until_something_is_asked(self, store: Store) -> None:
        await failed(store)
        head = await store.get(OWNER, "s-1")
        assert (head.status, head.waits) == ("run_failed", False)
        assert head.last_run == LastRun("run-1", "failed", "agent_failed", NOON)
        await ask(store, "s-1", "run-2")
        assert await status(store) == "queued"
        await carry(store)
        assert await status(store) == "idle"

    async def test_waiting_input_of_a_suspended_session_is_known(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await store.apply(OWNER, "s-1", lambda view: view.session.suspend(a_stamp(), by=BY_PERSON))
        head = await store.get(OWNER, "s-1")
        assert (head.status, head.waits, head.is_kept_asleep) == ("suspended", True, True)

    @pytest.mark.parametrize("sort", ["created", "-updated"])
    async def test_lists_find_sessions_by_their_status(self, store: Store, sort: str) -> None:
        await failed(store, "fails", "run-0")
        await launch(store, "s-1", "run-1")
        parent = await taken(store)
        await launch(store, "c-1", a_child_run("run-2", "s-1", "run-1"), parent="s-1")
        await finish(store, parent)
        await taken(store)
        await launch(store, "queued", "run-3")
        await store.create(OWNER, a_session("asks"))
        await store.apply(OWNER, "asks", asked(an_approval("asks")))
        await store.create(OWNER, a_session("new"))
        await store.create(OTHER, a_session("theirs", owner=OTHER))

        found = {
            each: sorted(session.session_id for session in await all_sessions(store, status=each, sort=sort))
            for each in Status
        }
        assert {each: names for each, names in found.items() if names} == {
            "run_failed": ["fails"],
            "waiting": ["asks", "s-1"],
            "running": ["c-1"],
            "queued": ["queued"],
            "created": ["new"],
        }
        of_family = await all_sessions(store, status="waiting", root="s-1")
        of_agent = await all_sessions(store, status="queued", agent="echo-agent")
        assert [each.session_id for each in (*of_family, *of_agent)] == ["s-1", "queued"]

    async def test_closed_session_waits_for_nothing(self, store: Store) -> None:
        await waiting_for_child(store)
        await ask(store, "s-1", "run-3")
        await store.apply(OWNER, "s-1", finalized())
        head = await store.get(OWNER, "s-1")
        assert (head.status, head.waits, head.awaited_child) == ("completed", False, None)

    # Retrying -----------------------------------------------------------------------------------

    async def test_retry_gives_a_new_run_the_prompt_and_the_dead_letters(self, store: Store) -> None:
        await failed(store)
        assert await inbox_of(store, "s-1") == {"message:run-1": "dead_letter"}
        said = [entry for entry in await whole_log(store, "s-1") if entry.kind == Kind.MESSAGE]
        change = await retry(store)

        run = await store.run(OWNER, "run-9")
        assert (run.retry_of, run.state, run.asked_entry) == ("run-1", RunState.QUEUED, said[0].number)
        assert (change.session.status, await status(store)) == ("queued", "queued")
        assert await inbox_of(store, "s-1") == {"message:run-1": "waiting"}
        log = await whole_log(store, "s-1")
        assert [entry for entry in log if entry.kind == Kind.MESSAGE] == said
        assert (log[-1].kind, log[-1].data) == (Kind.RUN_RETRIED, {"run_id": "run-9", "retry_of": "run-1"})

        claimed = await carry(store, result="done")
        assert [(item.item_id, item.body["content"]) for item in claimed.items] == [("message:run-1", "begin")]
        assert (await store.run(OWNER, "run-9")).result == "done"
        assert (await store.run(OWNER, "run-1")).state is RunState.FAILED
        assert await status(store) == "idle"

    async def test_retry_gives_the_prompt_again_if_only_a_callback_is_a_dead_letter(self, store: Store) -> None:
        await waiting_for_child(store)
        await carry(store, says="found it")
        for _ in range(3):
            await carry(store, "failed")
        assert await inbox_of(store, "s-1") == {"message:run-1": "consumed", "callback:run-2": "dead_letter"}
        await retry(store)

        claimed = await carry(store)
        assert {item.item_id for item in claimed.items} == {"callback:run-2", "message:run-9"}
        assert {item.run_id for item in claimed.items} == {"run-9"}
        assert (await store.run(OWNER, "run-9")).state is RunState.COMPLETED

    async def test_retried_child_calls_its_parent_back(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store)
        await launch(store, "c-1", a_child_run("run-2", "s-1", "run-1", correlation="blue"), parent="s-1")
        await start(store, claimed)
        for _ in range(3):
            await carry(store, "failed")
        await retry(store, "run-2", ref="c-1")
        assert (await store.get(OWNER, "s-1")).awaited_child == Child("c-1", "run-9")
        await carry(store, result="at last")

        waiting = await inbox_of(store, "s-1")
        assert waiting["callback:run-9"] == "waiting"
        assert (await store.run(OWNER, "run-9")).correlation == "blue"

    async def test_expired_run_can_be_retried(self, store: Store) -> None:
        await launch(store, "s-1", a_run("run-1", expires_at=after(5)))
        await expire(store, after(6))
        await retry(store)
        assert (await store.run(OWNER, "run-9")).state is RunState.QUEUED
        assert [item.body["content"] for item in (await taken(store, at=after(9))).items] == ["go on"]

    async def test_lost_turn_that_failed_its_run_can_be_retried(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        claimed = await taken(store, retry=Retry.NEVER)
        await start(store, claimed)
        await expire(store, NOON + TOO_LATE)
        assert await status(store) == "run_failed"
        await retry(store)
        assert await status(store) == "queued"

    async def test_only_a_failed_run_of_this_session_can_be_retried(self, store: Store) -> None:
        await launch(store, "s-1", "run-1")
        await failed(store, "s-2", "run-2")
        async with nothing_changes(store):
            for run_id, error in (("run-1", RunNotFailed), ("run-2", RunNotFound), ("no-run", RunNotFound)):
                with pytest.raises(error):
                    await retry(store, run_id)
        await stop(store, "s-1")
        with pytest.raises(RunNotFailed, match="send a message"):
            await retry(store)
        await store.apply(OWNER, "s-2", finalized())
        with pytest.raises(SessionClosed):
            await retry(store, "run-2", ref="s-2")

    async def test_run_is_retried_once_under_one_key(self, store: Store) -> None:
        await failed(store)
        await retry(store, idempotency_key="retry:run-1")
        async with nothing_changes(store):
            with pytest.raises(KeyReused):
                await retry(store, again="run-10", idempotency_key="retry:run-1")
