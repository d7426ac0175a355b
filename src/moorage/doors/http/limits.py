"""How often a visitor may ask: a bucket that fills at a steady rate and holds a burst.

Several servers of one store part the rate between them, evenly, so that together they allow no more than it
says. None has to ask another for each request; who always comes to the same one gets a share only.
"""

from __future__ import annotations

from collections import OrderedDict
from time import monotonic

from moorage.core.errors import RateLimited

MOST_VISITORS = 10_000  # whose buckets are remembered; those not seen for longest are forgotten first


class Rates:
    """Buckets by visitor."""

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
