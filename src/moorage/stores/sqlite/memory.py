"""A database without a file, for `memory://`: the same store, which ends with the process.

Jobs run at once on the thread of their caller, as for scripts, and also for event loops: no disk can delay them.
"""

from __future__ import annotations

import apsw

from moorage.stores.pulse import Pulse
from moorage.stores.sqlite.access import InlineAccess
from moorage.stores.sqlite.connection import Check, SqliteConnection, set_options


class MemoryConnection(SqliteConnection):
    """The connection to a database in memory. Its path is the URL, for messages."""

    def _open(self, _: float | None, __: Check) -> apsw.Connection:
        raw = apsw.Connection(":memory:")
        set_options(raw, self.path)
        return raw

    def check_file(self) -> None:
        """Do nothing: there is no file that could be replaced."""


class MemoryAccess(Pulse, InlineAccess):
    """Runs jobs at once on one connection, which threads and event loops use in turn; `wait` blocks no loop."""

    def __init__(self, db: MemoryConnection) -> None:
        Pulse.__init__(self)
        InlineAccess.__init__(self, db)

    def _committed(self) -> None:
        self.beat()

    async def close(self) -> None:
        """Do nothing: other connections may share the data, which lives as long as this object."""
