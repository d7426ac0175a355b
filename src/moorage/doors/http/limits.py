"""Limits of one visitor of a server: the rate of requests, the number of streams, and their duration.

Servers of one store share the rate evenly, so that together they allow no more than the limit. No server has to ask
another one for each request; a visitor that always uses the same server gets only its share.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic

from moorage.core.errors import RateLimited, StoreError
from moorage.doors.http.refusals import TooManyStreams
from moorage.doors.http.visit import Visitor
from moorage.service.deps import ServerSettings

MOST_VISITORS = 10_000  # whose buckets are kept; the least recently seen are dropped first
LOOK_EVERY = 15.0  # seconds between two access checks of a stream's reader


class Rates:
    """A token bucket for each visitor, which fills at a steady rate and holds a burst."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second, self._burst = self._whole = per_second, burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens left, and since when

    def share(self, servers: int) -> None:
        """Set the number of servers that share the rate; each allows at least one request at a time."""
        per_second, burst = self._whole
        self._per_second, self._burst = per_second / servers, max(1.0, burst / servers)

    def take(self, visitor: str) -> None:
        """Count one request. Raise RateLimited, which has the time to wait."""
        now = monotonic()
        left, since = self._buckets.get(visitor, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._per_second)
        if left < 1:
            raise RateLimited((1 - left) / self._per_second)
        self._buckets[visitor] = (left - 1, now)
        self._buckets.move_to_end(visitor)
        if len(self._buckets) > MOST_VISITORS:
            self._buckets.popitem(last=False)


class Places:
    """Limits on streams: in all on a server, and for one visitor, at any door."""

    def __init__(self, limits: ServerSettings) -> None:
        """Set up the limits. `watcher` gets the number of open streams."""
        self._in_all, self._per_visitor = limits.streams, limits.streams_per_visitor
        self.watcher: Callable[[int], None] = lambda _: None
        self._open: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """Return the number of open streams."""
        return self._open.total()

    @contextmanager
    def place_for(self, visitor: Visitor) -> Iterator[None]:
        """Take a place during the block. Raise TooManyStreams."""
        who = visitor.key_id or visitor.session_id or visitor.caller.owner
        if self.taken >= self._in_all:
            raise TooManyStreams(self._in_all, "on this server")
        if self._open[who] >= self._per_visitor:
            raise TooManyStreams(self._per_visitor, "for you")
        self._open[who] += 1
        self.watcher(self.taken)
        try:
            yield
        finally:
            self._open[who] -= 1
            if not self._open[who]:
                del self._open[who]
            self.watcher(self.taken)


class AccessCheck:
    """Repeats the authorization of a stream at intervals: its key may be revoked, its token may expire.

    If the store cannot answer, the stream continues.
    """

    def __init__(self, admit: Callable[[], Awaitable[object]], every: float | None = None) -> None:
        """`admit` authorizes the request again and raises AccessError if that fails."""
        self._admit, self.every = admit, LOOK_EVERY if every is None else every
        self._next = monotonic() + self.every

    async def check(self) -> None:
        """Authorize again if the interval has passed. Raises AccessError."""
        now = monotonic()
        if now >= self._next:
            self._next = now + self.every
            with suppress(StoreError):
                await self._admit()
