"""Whether whoever reads a stream may still do so.

A stream passes the gate once and may last for days; the key it came with may be revoked meanwhile, the token end. So
it is looked at again now and then. A store that cannot answer ends no stream.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic

from moorage.core.errors import StoreError

LOOK_EVERY = 15.0  # seconds


class Standing:
    """How whoever opened a stream stands."""

    def __init__(self, admit: Callable[[], Awaitable[object]], every: float | None = None) -> None:
        """`admit` raises what a stranger is told."""
        self._admit, self.every = admit, LOOK_EVERY if every is None else every
        self._next = monotonic() + self.every

    async def check(self) -> None:
        """Look again, if it is time. Raises AccessError."""
        now = monotonic()
        if now < self._next:
            return
        self._next = now + self.every
        try:
            await self._admit()
        except StoreError:
            return  # nobody can tell at the moment
