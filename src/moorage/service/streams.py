"""Streams for many readers: stored events after each reader's cursor, then new events.

The hub of an owner reads the feed once for all readers and passes each reader its events. The pushed events are hints:
a reader checks the numbers and reads missing events from the store. So a lost or late wake-up costs a read and never
an event, and a slow reader keeps at most one page.

A module of its own, because it needs an event loop: commands and hooks never load it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from math import ceil

from msgspec.structs import replace

from moorage.core.entry import SESSION_DELETED, Event
from moorage.core.errors import InvalidCursor
from moorage.core.query import check_numbers
from moorage.service.conversation import LOOK_AGAIN, PAGE, check_feed_cursor, session_page
from moorage.service.deps import Caller, Deps
from moorage.service.retention import expire_due

log = logging.getLogger(__name__)

GRID = 0.25  # seconds: timers of quiet streams end together, so that the loop wakes up less often
SPACING = 0.01  # seconds between two reads of a busy store: events in between are passed on together

Render = Callable[[Event], bytes]
ReadPage = Callable[[int], Awaitable[list[Event]]]
Wants = Callable[[Event], bool]


class Told:
    """An event for many readers. Each rendering is made once, however many readers there are."""

    __slots__ = ("_rendered", "event", "follows")

    def __init__(self, event: Event, follows: int) -> None:
        """`follows` is the number of the event before it: a reader whose cursor is lower misses something."""
        self.event, self.follows = event, follows
        self._rendered: dict[Render, bytes] = {}

    def rendered(self, render: Render) -> bytes:
        """Render the event."""
        known = self._rendered.get(render)
        if known is None:
            known = self._rendered[render] = render(self.event)
        return known


class Stream:
    """One reader's position in the events: read stored events after the cursor, wait to be woken, repeat."""

    __slots__ = ("__weakref__", "_handed", "_is_behind", "_read", "_waiter", "_wants", "after", "ended", "session_id")

    def __init__(
        self, read: ReadPage, after: int, *, session_id: str | None = None, wants: Wants | None = None
    ) -> None:
        self.after, self.session_id = after, session_id
        self.ended = False  # no more events will come
        self._read, self._wants = read, wants
        self._handed: list[Told] = []
        self._is_behind = True  # the store may have events that were not passed on
        self._waiter: asyncio.Future[None] | None = None

    async def next(self, within: float) -> list[Told]:
        """Return the next events, a page at most; none if time is up or the stream has ended."""
        loop = asyncio.get_running_loop()
        until = loop.time() + within
        while not self.ended and (left := until - loop.time()) > 0:
            is_current = not self._is_behind and not self._handed
            if is_current and not await self._is_woken(left):
                return []
            told, wants = await self._more(), self._wants
            if wanted := told if wants is None else [each for each in told if wants(each.event)]:
                return wanted
        return []

    def hand(self, told: list[Told]) -> None:
        """Pass on new events; a reader that is too slow reads them from the store."""
        if len(self._handed) + len(told) <= PAGE:
            self._handed += told
        else:
            self._handed, self._is_behind = [], True
        self._wake()

    def look(self) -> None:
        """Wake the reader to read the store."""
        self._is_behind = True
        self._wake()

    def stop(self) -> None:
        """End the stream."""
        self.ended = True
        self._wake()

    async def _more(self) -> list[Told]:
        handed, self._handed = self._handed, []
        fresh = [] if self._is_behind else self._following(handed)
        if fresh or not self._is_behind:
            return fresh
        self._is_behind = False  # before reading: an event missed meanwhile sets it again
        events = await self._read(self.after)
        self._is_behind = self._is_behind or len(events) >= PAGE
        told = [Told(event, 0) for event in events]
        if events:
            self.after = events[-1].id
            self.ended = self.ended or (self.session_id is not None and events[-1].type == SESSION_DELETED)
        return told

    def _following(self, handed: list[Told]) -> list[Told]:
        """Return the passed-on events that follow the cursor without a gap; after a gap, read the store."""
        fresh: list[Told] = []
        for told in handed:
            if told.follows > self.after:
                self._is_behind = True
                break
            if told.event.id > self.after:
                self.after = told.event.id
                fresh.append(told)
        return fresh

    async def _is_woken(self, within: float) -> bool:
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_at(ceil((loop.time() + within) / GRID) * GRID, self._wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None
        return self._is_behind or bool(self._handed) or self.ended

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Hub:
    """Reads the feed of one owner for all followers, as long as there are any."""

    def __init__(self, deps: Deps, owner: str) -> None:
        self._deps, self._owner = deps, owner
        self._by_session: dict[str, set[Stream]] = {}
        self._of_all: set[Stream] = set()
        self._cursor: int | None = None  # everything up to here was passed on
        self._task: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Return whether there are no readers."""
        return not self._of_all and not self._by_session

    async def session(self, caller: Caller, ref: str, after: int | None, wants: Wants | None = None) -> Stream:
        """Follow one session; from its end, if no cursor is given."""
        check_numbers(after)
        session = await self._deps.store.get(caller.owner, ref)
        read = partial(session_page, self._deps, caller, session.session_id)
        cursor = session.last_entry if after is None else after
        return await self._joined(Stream(read, cursor, session_id=session.session_id, wants=wants))

    async def everything(self, caller: Caller, after: int | None, wants: Wants | None = None) -> Stream:
        """Follow all sessions of the owner."""
        store = self._deps.store
        end = await store.feed_end(caller.owner)
        cursor = end if after is None else after
        check_feed_cursor(cursor)
        if cursor > end:
            raise InvalidCursor
        return await self._joined(Stream(partial(store.feed, caller.owner, limit=PAGE), cursor, wants=wants))

    async def _joined(self, stream: Stream) -> Stream:
        """Add a stream to the followers. It reads earlier events from the store, so it misses none."""
        self._place(stream).add(stream)
        if self._cursor is None:
            try:
                end = await self._deps.store.feed_end(self._owner)
            except BaseException:
                self.leave(stream)
                raise
            if self._cursor is None:
                self._cursor = end
                self._task = asyncio.create_task(self._run(), name=f"moorage-hub-{self._owner}")
        return stream

    def _place(self, stream: Stream) -> set[Stream]:
        if stream.session_id is None:
            return self._of_all
        return self._by_session.setdefault(stream.session_id, set())

    def leave(self, stream: Stream) -> None:
        """Remove a stream from the followers."""
        place = self._place(stream)
        place.discard(stream)
        if not place and stream.session_id is not None:
            del self._by_session[stream.session_id]
        if self.is_idle:
            self.close()

    def _streams(self) -> list[Stream]:
        return [*self._of_all, *(each for some in self._by_session.values() for each in some)]

    def close(self) -> None:
        """End all streams, and the task that reads for them."""
        for stream in self._streams():
            stream.stop()
        task, self._task, self._cursor = self._task, None, None
        if task is not None:
            task.cancel()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._look_and_wait()
            except Exception:
                log.exception("the events of %s cannot be read; trying again", self._owner)
                await asyncio.sleep(LOOK_AGAIN)
            await asyncio.sleep(max(0.0, SPACING - (loop.time() - began)))

    async def _look_and_wait(self) -> None:
        """Read the feed; wait for the store's wake-up, a second at most: it may be lost. Apply deadlines meanwhile."""
        seen = self._deps.store.pulse()
        if await self._look():
            return
        await expire_due(self._deps, Caller(owner=self._owner, by="moorage", interface="rest"))
        if await self._deps.store.wait(seen, LOOK_AGAIN) == seen:
            await self._check_cursor()

    async def _check_cursor(self) -> None:
        """End all streams if the store has lost events: their cursors would be given out once more."""
        assert self._cursor is not None
        end = await self._deps.store.feed_end(self._owner)
        if end < self._cursor:
            log.error("the store has lost events of %s: it was emptied, or a copy took over too early", self._owner)
            self._cursor = end
            for stream in self._streams():
                stream.stop()

    async def _look(self) -> bool:
        """Pass on new events; return whether there are more."""
        assert self._cursor is not None
        before = self._cursor
        events = await self._deps.store.feed(self._owner, before, PAGE)
        if events:
            self._cursor = events[-1].id
            self._tell_followers_of_all(events, before)
            self._tell_followers_of_one(events)
        return len(events) >= PAGE

    def _tell_followers_of_all(self, events: list[Event], before: int) -> None:
        if not self._of_all:
            return
        numbers = [before, *(event.id for event in events)]
        told = [Told(event, follows) for event, follows in zip(events, numbers, strict=False)]
        for stream in self._of_all:
            stream.hand(told)

    def _tell_followers_of_one(self, events: list[Event]) -> None:
        concerned: dict[str, list[Told]] = {}
        for event in events:
            if event.session_id not in self._by_session:
                continue
            told = concerned.setdefault(event.session_id, [])
            if event.type == SESSION_DELETED:
                for stream in self._by_session[event.session_id]:
                    stream.look()  # a follower gets its last event by its own cursor
            else:
                number = event.data["number"]
                told.append(Told(replace(event, id=number), number - 1))
        for session_id, told in concerned.items():
            for stream in self._by_session[session_id]:
                stream.hand(told)
