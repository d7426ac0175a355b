"""How often a visitor may ask: a bucket that fills at a steady rate and holds a burst."""

from __future__ import annotations

from collections import OrderedDict
from time import monotonic

from holdfast.core.errors import RateLimited

MOST_VISITORS = 10_000  # whose buckets are remembered; those not seen for longest are forgotten first


class Rates:
    """Buckets by visitor."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second, self._burst = per_second, burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is left, and since when

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
