"""The feed over all of an owner's sessions, and the pulse that tells when to read again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

from moorage.core.entry import SESSION_DELETED, Kind, event_of
from moorage.core.session import Phase
from moorage.ports import Store
from moorage.testing.builders import *


class FeedRules:
    """Rules of `feed`, `feed_end`, `pulse` and `wait`."""

    @asynccontextmanager
    async def meanwhile(self, work: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
        """Do this during the body. A store whose `wait` blocks the event loop does it on another thread."""
        task = asyncio.create_task(work)
        yield
        await task

    async def test_feed_of_an_unknown_owner_is_empty(self, store: Store) -> None:
        assert await store.feed(OWNER, 0, 10) == []
        assert await store.feed_end(OWNER) == 0

    async def test_feed_tells_every_entry_once_in_the_order_of_commits(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.create(OWNER, a_session("s-2"))
        await store.append(OWNER, "s-2", said("one", "two"), a_stamp(after(1)))
        await store.apply(OWNER, "s-1", updated(phase=Phase.PLANNING, error="oops"))
        await store.append(OWNER, "s-2", said("three"), a_stamp(after(2)))

        events = await whole_feed(store)

        assert [(event.id, event.session_id, event.data["number"]) for event in events] == [
            (1, "s-1", 1),
            (2, "s-2", 1),
            (3, "s-2", 2),
            (4, "s-2", 3),
            (5, "s-1", 2),
            (6, "s-1", 3),
            (7, "s-2", 4),
        ]
        assert await store.feed_end(OWNER) == 7

    async def test_event_equals_its_entry(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.append(OWNER, "s-1", said([{"type": "text", "text": "hello"}], key="k"), a_stamp(after(1)))
        await store.apply(OWNER, "s-1", finalized(summary="done"))

        assert await whole_feed(store) == [event_of(entry, "s-1") for entry in await whole_log(store, "s-1")]

    async def test_feed_pages_by_cursor(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.append(OWNER, "s-1", said("a", "b", "c", "d"), a_stamp())

        assert [event.id for event in await store.feed(OWNER, 0, 2)] == [1, 2]
        assert [event.id for event in await store.feed(OWNER, 2, 2)] == [3, 4]
        assert [event.id for event in await store.feed(OWNER, 3, 10)] == [4, 5]
        assert await store.feed(OWNER, 5, 2) == []
        assert await store.feed(OWNER, 99, 2) == []
        assert await whole_feed(store, page=1) == await whole_feed(store)

    async def test_a_page_of_the_feed_is_full_unless_it_is_the_last(self, store: Store) -> None:
        for n in range(3):
            await store.create(OWNER, a_session(f"s-{n}"))
            await store.append(OWNER, f"s-{n}", said("a", "b", "c", "d"), a_stamp())
        await store.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp())
        everything = await whole_feed(store)

        for limit in (1, 2, 3, 7):
            for event in everything:
                following = [other for other in everything if other.id > event.id]
                assert await store.feed(OWNER, event.id, limit) == following[:limit]

    async def test_feed_counts_its_owners_events_alone(self, store: Store) -> None:
        for n in range(3):
            await store.create(OWNER, a_session(f"s-{n}"))
            await store.create(OTHER, a_session(f"s-{n}", owner=OTHER))
            await store.append(OTHER, f"s-{n}", said("not yours"), a_stamp())

        assert [event.id for event in await whole_feed(store)] == [1, 2, 3]
        assert {event.data.get("content") for event in await whole_feed(store)} == {None}
        assert (await store.feed_end(OWNER), await store.feed_end(OTHER)) == (3, 6)

    async def test_feed_is_gap_free_when_many_write_at_once(self, store: Store) -> None:
        for n in range(5):
            await store.create(OWNER, a_session(f"s-{n}"))
        await asyncio.gather(*(store.append(OWNER, f"s-{n % 5}", said("a", "b"), a_stamp()) for n in range(50)))

        events = await whole_feed(store)

        assert [event.id for event in events] == list(range(1, 106))
        for n in range(5):
            assert [event.data["number"] for event in events if event.session_id == f"s-{n}"] == list(range(1, 22))

    async def test_reader_that_follows_the_cursor_misses_nothing(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        seen: list[int] = []

        async def follow() -> None:
            while len(seen) < 41:
                pulse = store.pulse()
                seen.extend(event.id for event in await store.feed(OWNER, seen[-1] if seen else 0, 7))
                await store.wait(pulse, 0.01)
                await asyncio.sleep(0)  # some stores never suspend: let the writers run

        async with asyncio.timeout(30):
            await asyncio.gather(follow(), *(store.append(OWNER, "s-1", said(str(n)), a_stamp()) for n in range(40)))

        assert seen == list(range(1, 42))

    async def test_feed_of_a_fork_omits_shared_entries(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.append(OWNER, "s-1", said("one", "two"), a_stamp())
        await store.fork(OWNER, "s-1", 2, a_fork("f-1"))

        events = await store.feed(OWNER, 3, 10)

        assert [(event.id, event.type, event.session_id, event.data["number"]) for event in events] == [
            (4, Kind.FORKED, "f-1", 3)
        ]

    async def test_feed_keeps_deletions_and_drops_deleted_entries(self, store: Store) -> None:
        for session_id, parent in (("p-1", None), ("s-1", None), ("c-1", "p-1")):
            await store.create(OWNER, a_session(session_id, f"name-of-{session_id}"), parent=parent)
        stamp = a_stamp(after(9), by="ann")
        await store.delete_tree(OWNER, "p-1", may_delete("p-1", reason="tidying up"), stamp)

        events = await whole_feed(store)

        assert [(event.id, event.type, event.session_id) for event in events] == [
            (2, Kind.CREATED, "s-1"),
            (4, SESSION_DELETED, "c-1"),
            (5, SESSION_DELETED, "p-1"),
        ]
        assert events[1].timestamp == after(9)
        assert events[1].data == {
            "session_name": "name-of-c-1",
            "root_of_deletion": "p-1",
            "deleted_by": "ann",
            "reason": "tidying up",
        }

    async def test_cursors_are_never_used_again(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.append(OWNER, "s-1", said("one", "two"), a_stamp())
        await store.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp())
        assert await store.feed_end(OWNER) == 4

        await store.create(OWNER, a_session("s-2"))

        assert [(event.id, event.session_id) for event in await whole_feed(store)] == [(4, "s-1"), (5, "s-2")]

    async def test_feed_goes_on_past_many_deleted_sessions(self, store: Store) -> None:
        for n in range(20):
            await store.create(OWNER, a_session(f"s-{n}"))
            await store.append(OWNER, f"s-{n}", said("a", "b"), a_stamp())
        for n in range(1, 20):
            await store.delete_tree(OWNER, f"s-{n}", may_delete(f"s-{n}"), a_stamp())

        assert [event.id for event in await whole_feed(store, page=2)] == [1, 2, 3, *range(61, 80)]

    # The pulse ----------------------------------------------------------------------------------

    async def test_pulse_changes_with_everything_that_is_committed(self, store: Store) -> None:
        pulses = [store.pulse()]
        await store.create(OWNER, a_session("s-1"))
        pulses.append(store.pulse())
        await store.append(OWNER, "s-1", said("hello"), a_stamp())
        pulses.append(store.pulse())
        await store.apply(OWNER, "s-1", updated(error="oops"))
        pulses.append(store.pulse())
        await write_context(store, OWNER, "s-1", remembering("k", 1))
        pulses.append(store.pulse())
        await store.fork(OWNER, "s-1", None, a_fork("f-1"))
        pulses.append(store.pulse())
        bundle = await bundle_of(store, "f-1")
        await store.delete_tree(OWNER, "f-1", may_delete("f-1"), a_stamp())
        pulses.append(store.pulse())
        await store.restore(OTHER, bundle)
        pulses.append(store.pulse())

        assert all(before != now for before, now in pairwise(pulses))

    async def test_wait_answers_at_once_when_something_was_missed(self, store: Store) -> None:
        seen = store.pulse()
        await store.create(OWNER, a_session("s-1"))

        async with asyncio.timeout(5):
            assert await store.wait(seen, 60) != seen

    async def test_wait_answers_when_something_is_committed(self, store: Store) -> None:
        seen = store.pulse()

        async with asyncio.timeout(10), self.meanwhile(store.create(OWNER, a_session("s-1"))):
            assert await store.wait(seen, 60) != seen

    async def test_wait_ends_when_time_is_up(self, store: Store) -> None:
        seen = store.pulse()

        async with asyncio.timeout(5):
            assert await store.wait(seen, 0.01) == seen
            assert await store.wait(seen, 0) == seen
