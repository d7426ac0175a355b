"""`python -m bench.deletion`: deleting on PostgreSQL by moorage, and by hand with asyncpg.

Both delete the same rows of moorage's own tables, in one transaction with fsync, and leave a tombstone and an event for
each session. The hands know where everything is and check no rule:

- **a statement for each table**, between BEGIN and COMMIT, as most people write it;
- **one statement** for all of it, which is the least that PostgreSQL can be asked.

Each pair deletes one of ours and one of theirs, the order changing. Figures are medians; a ratio is the median over the
pairs. Exit code 1 with `--check` when moorage takes more than 2.5 times as long as one statement.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import asyncpg

import moorage
from bench import material
from bench.postgres import started_database

MOST = 2.5
MESSAGES = 40
TREE = (None, 0, 0, 1, 1, 2, 2)  # the parent of each session
TREE_MESSAGES = 4

_TREE = """
WITH RECURSIVE tree (pk) AS (
    SELECT pk FROM moorage.sessions WHERE owner = $1 AND id = $2
    UNION ALL
    SELECT s.pk FROM tree JOIN moorage.sessions s ON s.owner = $1 AND s.parent = tree.pk
)
"""
_TOMBSTONE = (
    "INSERT INTO moorage.tombstones (owner, id, name, agent, task, state, root_of_deletion, deleted_at, reason)"
)
_NOW = "(extract(epoch FROM now()) * 1000000)::bigint"
_TOMBSTONE_OF = f"{_TOMBSTONE} SELECT owner, id, name, agent, task, state, $2, {_NOW}, 'deleted'"
_ONE_STATEMENT = f"""
{_TREE}, gone AS (
    DELETE FROM moorage.sessions s USING tree WHERE s.owner = $1 AND s.pk = tree.pk RETURNING s.*
), tombstone AS (
    {_TOMBSTONE_OF} FROM gone ORDER BY depth DESC, pk DESC RETURNING n
), told AS (
    INSERT INTO moorage.arrivals (owner, subject, root, last, count) SELECT $1, n, 0, 0, 1 FROM tombstone ORDER BY n
), entries AS (
    DELETE FROM moorage.entries e USING gone g
    WHERE e.owner = g.owner AND e.root = coalesce(g.root, g.pk) AND e.segment = g.pk
), search AS (
    DELETE FROM moorage.search e USING gone g
    WHERE e.owner = g.owner AND e.root = coalesce(g.root, g.pk) AND e.segment = g.pk
)
SELECT count(*) FROM gone
"""
_LOCK = f"{_TREE} SELECT s.pk, coalesce(s.root, s.pk) FROM tree JOIN moorage.sessions s USING (pk) FOR UPDATE OF s"
_INSERT = (
    f"{_TOMBSTONE_OF} FROM moorage.sessions WHERE owner = $1 AND pk = ANY($3) ORDER BY depth DESC, pk DESC RETURNING n"
)
_ANNOUNCE = "INSERT INTO moorage.arrivals (owner, subject, root, last, count) SELECT $1, unnest($2::bigint[]), 0, 0, 1"
_ROWS = "DELETE FROM moorage.{} WHERE owner = $1 AND root = $2 AND segment = ANY($3)"
_SESSIONS = "DELETE FROM moorage.sessions WHERE owner = $1 AND pk = ANY($2)"

Delete = Callable[[str], Awaitable[object]]


class Times(NamedTuple):
    """Seconds that each deletion took, pair by pair."""

    ours: list[float]
    theirs: list[float]

    @property
    def ratio(self) -> float:
        return median(mine / other for mine, other in zip(*self, strict=True))

    def __str__(self) -> str:
        mine, other = (median(each) * 1000 for each in self)
        return f"{mine:6.2f} ms beside {other:6.2f} ms   {self.ratio:5.2f} ×"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say whether the promise is kept."""
    parser = argparse.ArgumentParser(prog="python -m bench.deletion", description=__doc__)
    parser.add_argument("--pairs", type=int, default=200, metavar="N", help="of each (200)")
    parser.add_argument("--check", action="store_true", help="exit 1 when the target is missed")
    options = parser.parse_args(arguments)
    with started_database() as url:
        ratios = asyncio.run(_measure(url, options.pairs))
    return int(options.check and max(ratios) > MOST)


async def _measure(url: str, pairs: int) -> list[float]:
    """Return the ratios to one statement."""
    ratios = []
    async with moorage.connect(url) as moor:
        await _made(moor, (None,), 1)  # so that there are tables
        hand = Hand(await asyncpg.connect(url))
        await hand.raw.execute("ANALYZE")
        for what, *shape in (
            (f"a session of {MESSAGES} messages", (None,), MESSAGES),
            (f"a tree of {len(TREE)} sessions", TREE, TREE_MESSAGES),
        ):
            make = partial(_made, moor, *shape)
            for how, delete in (("a statement for each table", hand.one_by_one), ("one statement", hand.at_once)):
                times = await _raced(make, moor.delete, delete, pairs)
                print(f"{what:<26} {how:<28} {times}")
            ratios.append(times.ratio)
        await hand.raw.close()
    return ratios


async def _made(moor: moorage.Moorage, parents: Sequence[int | None], messages: int) -> str:
    """Make a session, or a tree; return the id of its root."""
    made: list[str] = []
    for parent in parents:
        above = None if parent is None else made[parent]
        made.append((await moor.create(agent="agent-00", parent=above)).id)
        await moor.append(made[-1], material.messages(messages))
    return made[0]


async def _raced(make: Callable[[], Awaitable[str]], ours: Delete, theirs: Delete, pairs: int) -> Times:
    """Delete in pairs, after a few that do not count."""
    times = Times([], [])
    for number in range(-5, pairs):
        pair = [(ours, await make(), times.ours), (theirs, await make(), times.theirs)]
        for delete, root, kept in pair[:: 1 if number % 2 else -1]:
            began = perf_counter()
            await delete(root)
            if number >= 0:
                kept.append(perf_counter() - began)
    return times


class Hand:
    """A connection, and what a competent hand does with it. Statements are prepared by asyncpg."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    async def at_once(self, root: str) -> None:
        """Delete with one statement."""
        assert await self.raw.fetchval(_ONE_STATEMENT, "local", root)

    async def one_by_one(self, root: str) -> None:
        """Delete with a statement for each table."""
        raw = self.raw
        async with raw.transaction():
            found = await raw.fetch(_LOCK, "local", root)
            pks, family = [row[0] for row in found], found[0][1]
            tombstones = await raw.fetch(_INSERT, "local", root, pks)
            await raw.execute(_ANNOUNCE, "local", [row[0] for row in tombstones])
            await raw.execute(_ROWS.format("entries"), "local", family, pks)
            await raw.execute(_ROWS.format("search"), "local", family, pks)
            await raw.execute(_SESSIONS, "local", pks)


if __name__ == "__main__":
    sys.exit(main())
