"""The log: appending, numbering, client keys, paging, and the entries that every window keeps."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from moorage.core.entry import MAX_MESSAGE_BYTES, Entry, Kind
from moorage.core.errors import HoldLost, KeyReused, SessionClosed, SessionNotFound
from moorage.core.query import LogQuery
from moorage.core.session import HOLD_FOR, Phase, Session, State
from moorage.ports import Store, Tail
from moorage.testing.builders import *
from moorage.testing.texts import DEEP, TEXTS


async def numbers(store: Store, ref: str = "s-1", **options: Any) -> list[int]:
    """Return the numbers of the entries of a log."""
    return [entry.number for entry in await store.log(OWNER, ref, LogQuery(**options))]


class LogRules:
    """Rules of `append`, `log` and `tail`."""

    # Appending ----------------------------------------------------------------------------------

    async def test_messages_are_numbered_in_order_and_read_back(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", task_id="task-7"))

        added = await store.append(OWNER, "s-1", said("one", "two"), a_stamp(after(1)))
        added += await store.append(
            OWNER, "s-1", said("three", role="assistant", key="k"), a_stamp(after(2), None, None)
        )

        assert added == await store.log(OWNER, "s-1", LogQuery(after=1))
        assert [(entry.number, entry.role, entry.content) for entry in added] == [
            (2, "user", "one"),
            (3, "user", "two"),
            (4, "assistant", "three"),
        ]
        assert [(entry.at, entry.by, entry.interface) for entry in added[1:]] == [
            (after(1), "tester", "test"),
            (after(2), None, None),
        ]
        assert [(entry.kind, entry.session_id, entry.task_id, entry.client_key) for entry in added[1:]] == [
            (Kind.MESSAGE, "s-1", "task-7", None),
            (Kind.MESSAGE, "s-1", "task-7", "k"),
        ]

    async def test_appending_wakes_a_created_session_and_leaves_its_version(self, store: Store) -> None:
        before = await store.create(OWNER, a_session("s-1"))
        await store.append(OWNER, "s-1", said("hello"), a_stamp(after(1)))

        session = await store.get(OWNER, "s-1")

        assert (session.state, session.version, session.last_entry) == (State.ACTIVE, before.version, 2)
        assert (session.last_activity_at, session.updated_at, session.created_at) == (after(1), after(1), NOON)

    async def test_appending_leaves_a_suspended_session_suspended(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", lambda view: view.session.suspend(a_stamp()))
        await store.append(OWNER, "s-1", said("hello"), a_stamp())

        assert (await store.get(OWNER, "s-1")).state is State.SUSPENDED

    async def test_appending_works_by_name(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", "planner"))
        await store.append(OWNER, "planner", said("hello"), a_stamp())

        assert (await whole_log(store, "s-1"))[-1].content == "hello"

    async def test_append_matches_the_rule_of_the_session(self, store: Store) -> None:
        """The store may take a shortcut with the same result."""
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", lambda view: view.session.resume("ann", "secret", a_stamp()))
        head = await store.get(OWNER, "s-1")
        expected = head.append(said("one", "two"), a_stamp(after(9)), token="secret")

        entries = await store.append(OWNER, "s-1", said("one", "two"), a_stamp(after(9)), token="secret")

        assert tuple(entries) == expected.entries
        assert await store.get(OWNER, "s-1") == expected.session

    async def test_unknown_session_takes_no_messages(self, store: Store) -> None:
        with pytest.raises(SessionNotFound):
            await store.append(OWNER, "nobody", said("hello"), a_stamp())

    @pytest.mark.parametrize("outcome", ["completed", "failed", "abandoned"])
    async def test_closed_session_takes_no_messages(self, store: Store, outcome: str) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", finalized(outcome))

        async with nothing_changes(store):
            with pytest.raises(SessionClosed) as closed:
                await store.append(OWNER, "s-1", said("hello"), a_stamp())
        assert closed.value.state == outcome

    async def test_appends_of_many_tasks_all_land_without_gaps(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))

        async def write(task: int) -> list[int]:
            added = [await store.append(OWNER, "s-1", said(f"{task}.{n}", "more"), a_stamp()) for n in range(10)]
            return [entry.number for entries in added for entry in entries]

        acknowledged = await asyncio.gather(*(write(task) for task in range(10)))
        log = await whole_log(store, "s-1")

        assert all(given == sorted(given) for given in acknowledged)
        assert sorted(number for given in acknowledged for number in given) == list(range(2, 202))
        assert [entry.number for entry in log] == list(range(1, 202))
        assert {entry.content for entry in log} >= {f"{task}.{n}" for task in range(10) for n in range(10)}
        assert (await store.get(OWNER, "s-1")).last_entry == 201

    async def test_messages_of_one_append_stay_together(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await asyncio.gather(*(store.append(OWNER, "s-1", said(n := str(i), n, n), a_stamp()) for i in range(10)))

        contents = [entry.content for entry in await store.log(OWNER, "s-1", LogQuery(after=1))]

        assert all(len(set(contents[i : i + 3])) == 1 for i in range(0, 30, 3))

    async def test_appends_and_changes_at_once_all_land(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await asyncio.gather(
            *(store.append(OWNER, "s-1", said(str(n)), a_stamp()) for n in range(10)),
            *(store.apply(OWNER, "s-1", updated(error=str(n))) for n in range(10)),
            *(store.append(OWNER, "s-1", said(str(n)), a_stamp()) for n in range(10)),
        )

        session = await store.get(OWNER, "s-1")

        assert await numbers(store) == list(range(1, 32))
        assert (session.last_entry, session.error_count, session.version) == (31, 10, 11)

    # Holds --------------------------------------------------------------------------------------

    async def test_message_with_the_holds_token_renews_it(self, store: Store) -> None:
        await _held(store)
        await store.append(OWNER, "s-1", said("hello"), a_stamp(after(60)), token="secret")

        hold = (await store.get(OWNER, "s-1")).hold

        assert hold is not None
        assert (hold.until, hold.token) == (after(60) + HOLD_FOR, "secret")

    async def test_message_without_a_token_lands_and_leaves_the_hold(self, store: Store) -> None:
        held = await _held(store)
        await store.append(OWNER, "s-1", said("hello"), a_stamp(after(60)))

        assert (await store.get(OWNER, "s-1")).hold == held.hold

    async def test_message_with_another_token_is_refused(self, store: Store) -> None:
        await _held(store)

        async with nothing_changes(store):
            with pytest.raises(HoldLost):
                await store.append(OWNER, "s-1", said("hello"), a_stamp(), token="old")

    async def test_message_with_a_token_is_refused_without_a_hold(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))

        async with nothing_changes(store):
            with pytest.raises(HoldLost):
                await store.append(OWNER, "s-1", said("hello"), a_stamp(), token="old")

    # Client keys --------------------------------------------------------------------------------

    async def test_repeated_client_key_gives_the_same_entry_again(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        first = await store.append(OWNER, "s-1", said("hello", key="k-1"), a_stamp())

        async with nothing_changes(store):
            assert await store.append(OWNER, "s-1", said("hello", key="k-1"), a_stamp(after(60), "other")) == first

    async def test_repeated_and_new_messages_come_back_in_the_order_given(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        old = said("two", key="k-2") + said("four", key="k-4")
        await store.append(OWNER, "s-1", old, a_stamp())

        entries = await store.append(OWNER, "s-1", [*said("one"), old[0], *said("three", key="k-3"), old[1]], a_stamp())

        assert [entry.content for entry in entries] == ["one", "two", "three", "four"]
        assert [entry.number for entry in entries] == [4, 2, 5, 3]
        assert await numbers(store) == [1, 2, 3, 4, 5]

    @pytest.mark.parametrize(("content", "role"), [("goodbye", "user"), ("hello", "assistant"), ([], "user")])
    async def test_client_key_with_another_message_is_refused(self, store: Store, content: str, role: str) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.append(OWNER, "s-1", said("hello", key="k-1"), a_stamp())
        other = said(content or [{"type": "text", "text": "hello"}], role=role, key="k-1")

        async with nothing_changes(store):
            with pytest.raises(KeyReused):
                await store.append(OWNER, "s-1", [*said("new", key="k-2"), *other], a_stamp())

    async def test_client_keys_count_per_session(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.create(OWNER, a_session("s-2"))
        await store.append(OWNER, "s-1", said("hello", key="k-1"), a_stamp())
        await store.append(OWNER, "s-2", said("goodbye", key="k-1"), a_stamp())

        assert (await whole_log(store, "s-2"))[-1].content == "goodbye"

    async def test_message_sent_many_times_at_once_lands_once(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        sent = await asyncio.gather(
            *(store.append(OWNER, "s-1", said("hello", key="k-1"), a_stamp()) for _ in range(8))
        )

        assert [entry.number for entries in sent for entry in entries] == [2] * 8
        assert await numbers(store) == [1, 2]

    async def test_messages_without_a_client_key_may_repeat(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.append(OWNER, "s-1", said("hello", "hello"), a_stamp())

        assert await numbers(store) == [1, 2, 3]

    # Round trips --------------------------------------------------------------------------------

    @pytest.mark.parametrize("text", TEXTS)
    async def test_any_text_said_comes_back_the_same(self, store: Store, text: str) -> None:
        await store.create(OWNER, a_session("s-1"))
        parts = [{"type": "text", "text": text}, {"type": "own-kind", text: [text]}]
        await store.append(OWNER, "s-1", said(text, parts), a_stamp(by=text))

        entries = await store.log(OWNER, "s-1", LogQuery(after=1))

        assert [(entry.content, entry.by) for entry in entries] == [(text, text), (parts, text)]

    async def test_largest_message_comes_back_whole(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        largest = "…" * (MAX_MESSAGE_BYTES // 3)
        await store.append(OWNER, "s-1", said(largest, "small"), a_stamp())

        assert [entry.content for entry in await store.log(OWNER, "s-1", LogQuery(after=1))] == [largest, "small"]

    async def test_parts_come_back_the_same(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        call = {"type": "tool_call", "id": "c-1", "name": "terraform", "input": {"deep": DEEP}}
        result = {"type": "tool_result", "call_id": "c-1", "output": [1, 1.0, None, True], "is_error": False}
        await store.append(OWNER, "s-1", said([call], role="assistant") + said([result], role="tool"), a_stamp())

        entries = await store.log(OWNER, "s-1", LogQuery(after=1))

        assert [entry.content for entry in entries] == [[call], [result]]
        assert str(entries[1].content) == str([result]), "1 and 1.0 and True are equal, but not the same"

    async def test_changing_a_returned_value_leaves_the_log_unchanged(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        (message,) = said([{"type": "text", "text": "hello"}])
        (entry,) = await store.append(OWNER, "s-1", [message], a_stamp())
        (read,) = await store.log(OWNER, "s-1", LogQuery(after=1))

        for content in (message.content, entry.content, read.content):
            assert isinstance(content, list)
            content[0]["text"] = "forged"

        assert (await whole_log(store, "s-1"))[-1].text == "hello"

    # Reading ------------------------------------------------------------------------------------

    async def test_log_pages_forwards(self, store: Store) -> None:
        await _ten_entries(store)

        assert await numbers(store, limit=4) == [1, 2, 3, 4]
        assert await numbers(store, limit=4, after=4) == [5, 6, 7, 8]
        assert await numbers(store, limit=4, after=8) == [9, 10]
        assert await numbers(store, limit=4, after=10) == []

    async def test_log_pages_backwards(self, store: Store) -> None:
        await _ten_entries(store)

        assert await numbers(store, limit=4, newest_first=True) == [10, 9, 8, 7]
        assert await numbers(store, limit=4, newest_first=True, before=7) == [6, 5, 4, 3]
        assert await numbers(store, limit=4, newest_first=True, before=3) == [2, 1]
        assert await numbers(store, limit=4, newest_first=True, before=1) == []

    async def test_log_answers_between_two_numbers(self, store: Store) -> None:
        await _ten_entries(store)

        assert await numbers(store, after=3, before=7) == [4, 5, 6]
        assert await numbers(store, after=3, before=7, newest_first=True) == [6, 5, 4]
        assert await numbers(store, after=3, before=7, limit=2) == [4, 5]
        assert await numbers(store, after=3, before=7, limit=2, newest_first=True) == [6, 5]
        assert await numbers(store, after=3, before=4) == []
        assert await numbers(store, after=7, before=3) == []

    async def test_log_answers_past_both_ends(self, store: Store) -> None:
        await _ten_entries(store)

        assert await numbers(store, before=10**9) == list(range(1, 11))
        assert await numbers(store, after=10**9) == []

    async def test_log_answers_by_kinds(self, store: Store) -> None:
        await _ten_entries(store)
        phase, message, error = str(Kind.PHASE), str(Kind.MESSAGE), str(Kind.ERROR)

        assert await numbers(store, kinds=(message,)) == [2, 5, 8]
        assert await numbers(store, kinds=(phase,)) == [3, 6, 9]
        assert await numbers(store, kinds=(phase, error)) == [3, 4, 6, 7, 9, 10]
        assert await numbers(store, kinds=(message, error), after=2, before=10) == [4, 5, 7, 8]
        assert await numbers(store, kinds=(error, message), limit=3, newest_first=True) == [10, 8, 7]
        assert await numbers(store, kinds=(str(Kind.SUMMARY),)) == []

    async def test_log_counts_system_messages_among_messages(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.append(OWNER, "s-1", said("rules", role="system") + said("hello"), a_stamp())

        assert await numbers(store, kinds=(str(Kind.MESSAGE),)) == [2, 3]
        assert await numbers(store, kinds=("system",)) == []

    async def test_log_gives_a_hundred_entries_unless_asked_for_more(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.append(OWNER, "s-1", said(*("hello",) * 149), a_stamp())

        assert len(await store.log(OWNER, "s-1")) == 100
        assert len(await store.log(OWNER, "s-1", LogQuery(limit=1000))) == 150

    async def test_log_of_an_unknown_session_is_not_found(self, store: Store) -> None:
        with pytest.raises(SessionNotFound):
            await store.log(OWNER, "nobody")

    # Windows ------------------------------------------------------------------------------------

    async def test_tail_has_the_newest_messages_newest_first(self, store: Store) -> None:
        await _ten_entries(store)

        assert [entry.number for entry in (await store.tail(OWNER, "s-1", 2)).messages] == [8, 5]
        assert (await store.tail(OWNER, "s-1", 100)) == Tail([], await _messages(store, "s-1"))

    async def test_tail_keeps_system_messages_and_the_newest_summary_in_order(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.append(OWNER, "s-1", said("rule", role="system") + said("hello"), a_stamp())
        await store.apply(OWNER, "s-1", lambda view: view.session.compact("old", 2, a_stamp()))
        await store.apply(OWNER, "s-1", lambda view: view.session.compact("new", 3, a_stamp()))
        await store.append(OWNER, "s-1", said("goodbye") + said("another rule", role="system"), a_stamp())

        tail = await store.tail(OWNER, "s-1", 100)

        assert [(entry.number, entry.kind) for entry in tail.pinned] == [
            (2, Kind.MESSAGE),
            (5, Kind.SUMMARY),
            (7, Kind.MESSAGE),
        ]
        assert tail.pinned == [entry for entry in await whole_log(store, "s-1") if entry.number in (2, 5, 7)]

    async def test_tail_omits_entries_before_the_newest_summary(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.append(OWNER, "s-1", said("a", "b", "c"), a_stamp())
        await store.apply(OWNER, "s-1", lambda view: view.session.compact("a and b", 3, a_stamp()))
        await store.append(OWNER, "s-1", said("d"), a_stamp())

        assert [entry.number for entry in (await store.tail(OWNER, "s-1", 100)).messages] == [6, 4]
        assert [entry.number for entry in (await store.tail(OWNER, "s-1", 1)).messages] == [6]

    async def test_tail_keeps_the_newest_system_messages(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", lambda view: view.session.compact("all", 1, a_stamp()))
        await store.append(OWNER, "s-1", said("a", "b", "c", role="system"), a_stamp())

        assert [entry.number for entry in (await store.tail(OWNER, "s-1", 1, pins=2)).pinned] == [2, 4, 5]

    async def test_tail_of_a_new_session_is_empty(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))

        assert await store.tail(OWNER, "s-1", 100) == Tail([], [])

    async def test_tail_of_a_fork_includes_shared_entries(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.append(OWNER, "s-1", said("hello") + said("rule", role="system") + said("on"), a_stamp())
        await store.apply(OWNER, "s-1", lambda view: view.session.compact("hello", 2, a_stamp()))
        await store.append(OWNER, "s-1", said("too late", role="system"), a_stamp())
        await store.fork(OWNER, "s-1", 5, a_fork("f-1"))
        await store.append(OWNER, "f-1", said("own", role="system") + said("own"), a_stamp())

        tail, short = await store.tail(OWNER, "f-1", 100), await store.tail(OWNER, "f-1", 1, pins=1)

        assert [entry.number for entry in tail.pinned] == [3, 5, 7]
        assert [entry.number for entry in tail.messages] == [8, 7, 4, 3]
        assert [entry.number for entry in short.pinned + short.messages] == [5, 7, 8]

    @pytest.mark.parametrize("pins", [False, True])
    async def test_tail_brings_the_session_if_it_is_wanted(self, store: Store, pins: bool) -> None:
        await store.create(OWNER, a_session("s-1", name="sam"))
        await store.append(OWNER, "s-1", said("hello") + (said("rule", role="system") if pins else []), a_stamp())
        await store.fork(OWNER, "s-1", 2, a_fork("f-1"))

        for ref in ("s-1", "sam", "f-1"):
            tail = await store.tail(OWNER, ref, 10, with_session=True)
            assert tail.session == await store.get(OWNER, ref)
            assert replace(tail, session=None) == await store.tail(OWNER, ref, 10)

    async def test_tail_of_an_unknown_session_is_not_found(self, store: Store) -> None:
        with pytest.raises(SessionNotFound):
            await store.tail(OWNER, "nobody", 10)
        await store.create(OWNER, a_session("s-1"))
        for owner, ref in ((OWNER, "nobody"), (OTHER, "s-1")):
            with pytest.raises(SessionNotFound):
                await store.tail(owner, ref, 10, with_session=True)


async def _messages(store: Store, ref: str) -> list[Entry]:
    return await store.log(OWNER, ref, LogQuery(kinds=(str(Kind.MESSAGE),), newest_first=True))


async def _held(store: Store) -> Session:
    await store.create(OWNER, a_session("s-1"))
    change = await store.apply(OWNER, "s-1", lambda view: view.session.resume("ann", "secret", a_stamp()))
    return change.session


async def _ten_entries(store: Store) -> None:
    """Create ten entries: created; then message, phase, error three times."""
    await store.create(OWNER, a_session("s-1"))
    for phase in (Phase.PLANNING, Phase.EXECUTING, Phase.VALIDATING):
        await store.append(OWNER, "s-1", said("hello"), a_stamp())
        await store.apply(OWNER, "s-1", updated(phase=phase, error="oops"))
