"""The stores of sessions."""

from __future__ import annotations

import os

from moorage.core.errors import StoreUnavailable

# The prefix of a sealed text; no JSON begins with it. It is here and not in `sealing`, so that readers of a plain store
# need not import that.
SEALED = "~sealed1:"
# The error of the triggers of an encrypted SQLite file that reject a plain body.
REFUSED_PLAIN = "moorage: plain body in a sealed store"


class Stale(Exception):
    """A concurrent commit changed the data of a decision; nothing was written."""

    def __init__(self, why: str, session_id: str | None = None, *, is_rule: bool = False) -> None:
        super().__init__(why)
        self.session_id = session_id  # the session that has changed, if it was one
        self.is_rule = is_rule  # whether a database constraint refused, which may do so at every attempt


class OpeningProcess:
    """The process that opened a store. After a fork, the child has none of its threads and must not use its locks."""

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
