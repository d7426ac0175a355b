"""Streams: what is stored after the cursor, then what comes, until there is nothing more to come."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

import moorage
from moorage import sync
from moorage.core.entry import Event
from moorage.core.errors import SessionNotFound, StoreUnavailable
from moorage.testing.faults import Worker
from tests.service.doors import Place, Timed


class Listener:
    """Follows a stream on a thread of its own and hands over its events one by one."""

    def __init__(self, stream: Iterator[Event]) -> None:
        self._heard: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._listen, args=(stream,), daemon=True)
        self._thread.start()

    def _listen(self, stream: Iterator[Event]) -> None:
        with suppress(StoreUnavailable):  # the test is over and its connections are closed
            for event in stream:
                self._heard.put(event)
            self._heard.put(None)

    def next(self) -> Event:
        event = self._heard.get(timeout=30)
        assert event is not None, "the stream has ended"
        return event

    def has_ended(self) -> bool:
        return self._heard.get(timeout=30) is None


def test_a_session_is_replayed_with_the_logs_numbers(timed: Timed) -> None:
    moor = timed.moor
    session = moor.create("agent")
    moor.append(session.id, ["one", "two"])
    moor.update(session.id, phase="planning")
    events = list(moor.events(session.id, follow=False))
    assert [(event.id, event.type) for event in events] == [
        (1, "created"),
        (2, "message"),
        (3, "message"),
        (4, "phase"),
    ]
    assert events[1].data["content"] == "one"
    assert events[3].data["to"] == "planning"
    assert [event.id for event in moor.events(session.id, after=2, follow=False)] == [3, 4]
    assert list(moor.events(session.id, after=4, follow=False)) == []


def test_all_sessions_have_one_cursor_without_gaps(place: Place) -> None:
    moor = place.connect()
    one, two = moor.create("agent"), moor.create("agent")
    for number in range(3):
        moor.append(one.id, [f"a{number}", f"b{number}"])
        moor.update(two.id, error=f"e{number}")
    events = list(moor.events(follow=False))
    assert [event.id for event in events] == list(range(1, 12))
    for cursor in range(12):
        assert list(moor.events(after=cursor, follow=False)) == events[cursor:]


def test_a_long_stream_is_replayed_whole(place: Place) -> None:
    moor = place.connect()
    session = moor.create("agent")
    for _ in range(5):
        moor.append(session.id, ["x"] * 150)
    assert [event.id for event in moor.events(session.id, follow=False)] == list(range(1, 752))
    assert [event.id for event in moor.events(follow=False)] == list(range(1, 752))


def test_follower_gets_events_of_another_connection(place: Place) -> None:
    reader, writer = place.connect(), place.connect()
    session = writer.create("agent")
    writer.append(session.id, "before")
    listener = Listener(reader.events(session.id, after=1))
    assert listener.next().data["content"] == "before"
    for word in ("live", "and", "on"):
        writer.append(session.id, word)
        assert listener.next().data["content"] == word
    writer.delete(session.id)
    assert listener.next().type == "session_deleted"
    assert listener.has_ended()


def test_a_follower_of_everything_hears_new_sessions_and_deletions(place: Place) -> None:
    reader, writer = place.connect(), place.connect()
    listener = Listener(reader.events())
    session = writer.create("agent")
    assert (listener.next().type, writer.append(session.id, "hi")[0].number) == ("created", 2)
    assert listener.next().data["content"] == "hi"
    writer.delete(session.id)
    last = listener.next()
    assert (last.type, last.session_id) == ("session_deleted", session.id)
    writer.create("agent", session_id="next")
    assert listener.next().session_id == "next"


WRITER = """
import sys
from moorage import sync
moor = sync.connect(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    if line.strip() == "delete":
        moor.delete("s-1")
    else:
        moor.append("s-1", line.strip())
"""


def test_a_follower_hears_another_process(place: Place) -> None:
    if not place.is_shared:
        pytest.skip("memory is not shared among processes")
    moor = place.connect()
    moor.create("agent", session_id="s-1")
    with Worker(WRITER, place.url) as writer:
        writer.line()
        one, everything = Listener(moor.events("s-1", after=1)), Listener(place.connect().events(after=1))
        for word in ("from", "elsewhere"):
            writer.say(word)
            assert one.next().data["content"] == word
            assert everything.next().data["content"] == word
        writer.say("delete")
        assert one.next().type == everything.next().type == "session_deleted"
        assert one.has_ended()


def test_a_deletion_outlives_its_session_in_the_feed(place: Place) -> None:
    moor = place.connect()
    gone = moor.create("agent", name="brief")
    moor.append(gone.id, "words")
    moor.delete(gone.id)
    moor.create("agent", session_id="later")
    events = list(moor.events(follow=False))
    assert [(event.type, event.session_id) for event in events] == [("session_deleted", gone.id), ("created", "later")]
    assert events[0].data["session_name"] == "brief"
    assert [event.id for event in events] == [3, 4], "cursors are not used again"


def test_a_stream_of_nothing_that_exists_is_refused(place: Place) -> None:
    with pytest.raises(SessionNotFound):
        next(iter(place.connect().events("nobody")))


def test_stream_carries_only_events_of_its_owner(place: Place) -> None:
    ann, bob = place.connect(owner="ann"), place.connect(owner="bob")
    for number in range(5):
        ann.append(ann.create(session_id=f"a-{number}").id, "hers")
        bob.append(bob.create(session_id=f"b-{number}").id, "his")
    bob.delete("b-0")
    ann.delete("a-4")
    for moor, mark in ((ann, "a-"), (bob, "b-")):
        events = list(moor.events(follow=False))
        assert {event.session_id[:2] for event in events} == {mark}
        assert [event.id for event in events] == sorted({event.id for event in events})


async def test_an_async_follower_hears_another_process_without_blocking_the_loop(place: Place) -> None:
    if not place.is_shared:
        pytest.skip("memory is not shared among processes")
    async with moorage.connect(place.url) as moor, asyncio.timeout(60):
        await moor.create("agent", session_id="s-1", parent=None)
        stream = moor.events("s-1", after=1)
        with Worker(WRITER, place.url) as writer:
            await asyncio.to_thread(writer.line)
            waiting = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0)
            writer.say("hello")
            assert (await waiting).data["content"] == "hello"
            writer.say("delete")
            assert (await anext(stream)).type == "session_deleted"
            assert [event async for event in stream] == []


async def test_many_async_followers_hear_everything_in_order(place: Place) -> None:
    async with moorage.connect(place.url) as moor, asyncio.timeout(60):
        session = await moor.create("agent", parent=None)

        async def follow() -> list[int]:
            heard: list[int] = []
            async for event in moor.events(session.id):
                heard.append(event.id)
                if event.id == 31:
                    break
            return heard

        followers = [asyncio.ensure_future(follow()) for _ in range(10)]
        for number in range(30):
            await moor.append(session.id, f"m{number}")
            await asyncio.sleep(0)
        assert await asyncio.gather(*followers) == [list(range(1, 32))] * 10


def test_leaving_a_stream_early_leaves_nothing_behind(place: Place) -> None:
    moor: sync.Moorage = place.connect()
    session = moor.create("agent")
    for event in moor.events(session.id):
        assert event.id == 1
        break
    assert moor.append(session.id, "still works")[0].number == 2
