"""The database as a job sees it.

In a statement `moor.` stands for the schema, and `?` or `?1` for a value. Both dialects understand most statements; the
few words that differ come from here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from moorage.stores.rows import Row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from moorage.stores.sealing import Sealer

T = TypeVar("T")


class Stale(Exception):
    """Somebody else changed what a decision was made on; nothing was written."""

    def __init__(self, why: str, *, is_rule: bool = False) -> None:
        super().__init__(why)
        self.is_rule = is_rule  # refused by a rule of the database, which may be so at every try


class Db(Protocol):
    """One connection, used by one job at a time."""

    path: str  # names the database in messages
    is_postgres: bool
    opener: Sealer | None  # opens what is sealed, whether or not new bodies are
    sealer: Sealer | None

    async def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        """Return the first row, or None."""

    async def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return all rows."""

    async def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Write something; return how many rows it touched."""

    async def many(self, sql: str, values: Sequence[Sequence[Any]]) -> None:
        """Write the same for several values."""

    def lock(self) -> str:
        """Return what locks the rows that a statement reads: nothing, unless others can write meanwhile."""

    def skip_locked(self) -> str:
        """Return what locks the rows that a statement reads and passes by those that others have locked."""

    def index(self, name: str) -> str:
        """Return what makes a statement walk this index; nothing where the planner knows by itself."""

    def listed(self, values: Sequence[Any]) -> Any:
        """Return a list as one value of a statement."""

    def in_list(self, place: str, kind: str) -> str:
        """Return the condition that follows a column which has to be in the list that is bound to this place."""


Job = Callable[[Db], Awaitable[T]]
