"""Limits of one visitor of a server: requests a second, streams at once, and how long each may last.

Several servers of one store part the rate of requests between them, evenly, so that together they allow no more than it
says. None has to ask another for each request; who always comes to the same one gets a share only.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic

from moorage.core.errors import RateLimited, StoreError
from moorage.doors.http.refusals import TooManyStreams
from moorage.doors.http.visit import Visitor

MOST_VISITORS = 10_000  # whose buckets are remembered; those not seen for longest are forgotten first
LOOK_EVERY = 15.0  # seconds between two looks at whether a reader is still authorized


class Rates:
    """A bucket for each visitor, which fills at a steady rate and holds a burst."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second, self._burst = self._whole = per_second, burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is left, and since when

    def share(self, servers: int) -> None:
        """So many servers part what a visitor may ask for; each allows a request at a time, however many there are."""
        per_second, burst = self._whole
        self._per_second, self._burst = per_second / servers, max(1.0, burst / servers)

    def take(self, visitor: str) -> None:
        """Count one request. Raises RateLimited, which says when to come back."""
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
    """Places for streams: so many on a server and so many for one visitor, at whatever door they come in."""

    def __init__(self, in_all: int, per_visitor: int, watcher: Callable[[int], None] = lambda _: None) -> None:
        """`watcher` is told how many are open."""
        self._in_all, self._per_visitor, self.watcher = in_all, per_visitor, watcher
        self._open: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """How many are open."""
        return self._open.total()

    @contextmanager
    def place_for(self, visitor: Visitor) -> Iterator[None]:
        """A place for as long as the block lasts. Raises TooManyStreams."""
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
    """Repeats the authorization of one stream at intervals: its key may be revoked, its token may expire.

    A store that cannot answer ends no stream.
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
