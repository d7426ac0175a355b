"""The database as a job sees it.

Both dialects understand most statements as they are written. Each translates a few words, once for each statement:

- `moor.` stands for the schema, `?` or `?1` for a value.
- `IN LIST(?1::bigint)` is a condition on a column: its value is in the list that `listed` made.
- `ORDERED JOIN` joins in the order as written, `INDEXED BY` walks an index: hints for SQLite. PostgreSQL needs none.
- `FOR UPDATE SKIP LOCKED` and casts of values (`?1::bigint`) are for PostgreSQL alone.
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

    def listed(self, values: Sequence[Any]) -> Any:
        """Return a list as one value of a statement."""


Job = Callable[[Db], Awaitable[T]]
