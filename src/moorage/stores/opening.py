"""The process that opened a store: after a fork, the child has none of its threads and must not use its connections."""

from __future__ import annotations

import os

from moorage.core.errors import StoreUnavailable


class OpeningProcess:
    """The process that opened a store, until it closes it."""

    def __init__(self, store: str) -> None:
        self._store, self._pid = store, os.getpid()
        self.is_closed = False

    def check(self) -> None:
        """Raise StoreUnavailable if the store is closed, or was opened by another process."""
        if self.is_closed:
            raise StoreUnavailable(f"{self._store} is closed; connect again", store=self._store)
        if os.getpid() != self._pid:
            why = f"{self._store} was opened before this process forked; connect again in the child"
            raise StoreUnavailable(why, store=self._store)
