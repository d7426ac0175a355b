"""`python -m bench.scale`: what a million sessions cost on PostgreSQL, beside a thousand of the same.

A database for each size, on one server; sessions of one owner, of three entries each, as moorage writes them. Then
the same work in all of them, in turn, round after round: what it takes by the clock as a multiple of what it takes
among a thousand; how many rows and pages it touches, by PostgreSQL's own counters; and what a session takes on
the disk, two messages of 1 KB among it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from statistics import median
from time import perf_counter
from typing import NamedTuple

import moorage
from bench import material
from moorage.api import Moorage
from moorage.stores.postgres.store import PostgresStore
from moorage.testing.postgres import PostgresServer

SIZES = (1_000, 10_000, 100_000, 1_000_000)
AT_ONCE = 100_000  # sessions in one statement
OPERATIONS = 40  # of each work in one round
MOST = 2.0
_SETTINGS = {
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "maintenance_work_mem": "256MB",
    "autovacuum": "off",  # it would come and go as it likes; VACUUM ANALYZE is run once
}

# As the store writes them: a head, the entry `created`, a turn of two messages of 1 KB, one row of the feed.
_FILL = """
INSERT INTO moorage.sessions (pk, owner, id, name, task, agent, state, phase, resume_ready, depth, version, last_entry,
    error_count, metadata, created_at, updated_at, last_activity_at, project_dir, revision)
SELECT n, 'local', 'session-' || lpad(n::text, 9, '0'), NULL, 'task-' || n / 4, 'agent-' || n % 20, 'active',
    CASE n % 5 WHEN 0 THEN 'planning' ELSE 'executing' END, n % 5 = 0, 0, 1, 3, 0,
    '{"workspace":"prod","region":"eu-west-1","attempt":1}', at, at, at, 'project-' || n % 1000, 1
FROM (SELECT n, (extract(epoch FROM now()) * 1000000)::bigint - 1000000 + n % 1000 AS at
    FROM generate_series($1::bigint, $2::bigint) n) made;
INSERT INTO moorage.entries (owner, root, segment, number, kind, at, role, content, data, by, interface)
SELECT 'local', n, n, k, CASE k WHEN 1 THEN 'created' ELSE 'message' END, s.created_at,
    CASE k WHEN 2 THEN 'user' WHEN 3 THEN 'assistant' END,
    CASE WHEN k > 1 THEN (SELECT string_agg(md5((n * 97 + k * 31 + i)::text), ' ') FROM generate_series(1, 31) i) END,
    CASE k WHEN 1 THEN '{"agent_name":"agent"}' END, 'bench', 'bench'
FROM generate_series($1::bigint, $2::bigint) n, generate_series(1, 3) k, moorage.sessions s
WHERE s.owner = 'local' AND s.pk = n;
INSERT INTO moorage.feed (owner, id, subject, root, last, count)
SELECT 'local', n * 3, n, n, 3, 3 FROM generate_series($1::bigint, $2::bigint) n;
"""
_AFTER = """
INSERT INTO moorage.owners (name, feed_end) VALUES ('local', {size} * 3)
ON CONFLICT (name) DO UPDATE SET feed_end = excluded.feed_end;
SELECT setval('moorage.sessions_pk_seq', {size});
"""
_TOUCHED = """
SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0) + n_tup_ins + n_tup_upd), 0)::bigint || ' ' ||
    (SELECT sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit + idx_blks_read, 0)) FROM pg_statio_user_tables
     WHERE schemaname = 'moorage')
FROM pg_stat_user_tables WHERE schemaname = 'moorage'
"""
_BYTES = """
SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relnamespace = 'moorage'::regnamespace AND relkind = 'r'
"""

Work = Callable[[Moorage, int, int], Awaitable[object]]  # on a store of a size, the n-th time


def _name(number: int, size: int) -> str:
    """A session somewhere in the middle, another each time."""
    return f"session-{(number * 7919 + 13) % size + 1:09d}"


async def _list(moor: Moorage, number: int, size: int) -> object:
    return await moor.list(limit=50)


async def _list_updated(moor: Moorage, number: int, size: int) -> object:
    return await moor.list(limit=50, sort="-updated")


async def _find(moor: Moorage, number: int, size: int) -> object:
    return await moor.list(agent=f"agent-{number % 20}", state="active", limit=50)


async def _verdict(moor: Moorage, number: int, size: int) -> object:
    return await moor.should_resume(_name(number, size))


async def _verdict_by_task(moor: Moorage, number: int, size: int) -> object:
    ready = (number * 5) % size
    return await moor.should_resume(agent=f"agent-{ready % 20}", task_id=f"task-{ready // 4}")


async def _append(moor: Moorage, number: int, size: int) -> object:
    return await moor.append(_name(number, size), material.turn(number))


async def _create(moor: Moorage, number: int, size: int) -> object:
    return await moor.create(agent="agent-00")


async def _read(moor: Moorage, number: int, size: int) -> object:
    return await moor.messages(_name(number, size), last=20)


WORKS: dict[str, Work] = {
    "list the newest 50": _list,
    "list 50 by update": _list_updated,
    "find 50 of an agent": _find,
    "verdict by id": _verdict,
    "verdict by task": _verdict_by_task,
    "append a turn": _append,
    "create a session": _create,
    "last 20 messages": _read,
}


class Place(NamedTuple):
    """One database."""

    size: int
    name: str
    url: str


class Touched(NamedTuple):
    """The rows and pages that one operation touches."""

    rows: float
    pages: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say whether the promises are kept."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--most", type=int, default=SIZES[-1], metavar="N", help="sessions (1000000)")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="of each work in each database (9)")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    options = parser.parse_args(arguments)
    with PostgresServer(durable=True, settings=_SETTINGS) as server:
        places = [_made(server, size) for size in SIZES if size <= options.most]
        kept = _report(server, places, options.rounds)
    return int(options.check and not kept)


def _made(server: PostgresServer, size: int) -> Place:
    name = server.create_database()
    place = Place(size, name, server.url(name))
    began = perf_counter()
    asyncio.run(_fill(place))
    server.sql("VACUUM ANALYZE", name)
    print(f"… {size} sessions, made in {perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return place


async def _fill(place: Place) -> None:
    import asyncpg

    store = PostgresStore(place.url)
    await store.last_beat()  # makes the schema
    await store.close()
    db = await asyncpg.connect(place.url)
    for first in range(1, place.size + 1, AT_ONCE):
        last = min(first + AT_ONCE - 1, place.size)
        for statement in _FILL.split(";\n"):
            if statement.strip():
                await db.execute(statement, first, last)
    await db.execute(_AFTER.format(size=place.size))
    await db.close()


# Measuring --------------------------------------------------------------------------------------


def _report(server: PostgresServer, places: list[Place], rounds: int) -> bool:
    bytes_each = [int(server.sql(_BYTES, place.name)[0]) / place.size for place in places]
    times = asyncio.run(_timed(places, rounds))
    touched = {work: [_counted(server, place, work) for place in places] for work in WORKS}
    print(f"\n{'':<22}" + "".join(f"{place.size:>26,}" for place in places))
    kept = True
    for work in WORKS:
        base = times[work][0]
        cells = []
        for place, took, each in zip(places, times[work], touched[work], strict=True):
            ratio = median(mine / theirs for mine, theirs in zip(took, base, strict=True))
            kept &= place.size < SIZES[-1] or ratio <= MOST
            cells.append(f"{median(took) * 1000:6.2f} ms {ratio:4.2f} × {each.rows:4.0f}/{each.pages:<4.0f}")
        print(f"{work:<22}" + "".join(f"{cell:>26}" for cell in cells))
    print(f"{'bytes a session':<22}" + "".join(f"{each:>26,.0f}" for each in bytes_each))
    print("\nIn each cell: the median of one operation, as a multiple of the first column, and rows/pages touched.")
    return kept


async def _timed(places: list[Place], rounds: int) -> dict[str, list[list[float]]]:
    """Seconds for one operation, by work, place and round."""
    opened = [moorage.connect(place.url) for place in places]
    times: dict[str, list[list[float]]] = {work: [[] for _ in places] for work in WORKS}
    for number in range(rounds + 1):
        for work in WORKS:
            for index in range(len(places))[:: 1 if number % 2 else -1]:
                took = await _round(opened[index], work, number, places[index].size)
                if number:  # the first is for warming up
                    times[work][index].append(took)
    for moor in opened:
        await moor.close()
    return times


async def _round(moor: Moorage, work: str, number: int, size: int) -> float:
    do, began = WORKS[work], perf_counter()
    for each in range(OPERATIONS):
        await do(moor, number * OPERATIONS + each, size)
    return (perf_counter() - began) / OPERATIONS


def _counted(server: PostgresServer, place: Place, work: str) -> Touched:
    """Return the cost of one operation, averaged over many; connections report when they end at the latest."""
    before = _touched(server, place)
    asyncio.run(_many(place, work))
    rows, pages = (now - was for now, was in zip(_touched(server, place), before, strict=True))
    return Touched(rows / OPERATIONS, pages / OPERATIONS)


async def _many(place: Place, work: str) -> None:
    async with moorage.connect(place.url) as moor:
        await _round(moor, work, 1000, place.size)


def _touched(server: PostgresServer, place: Place) -> tuple[int, int]:
    (row,) = server.sql(f"SELECT pg_stat_clear_snapshot(); {_TOUCHED}", place.name)[-1:]
    rows, pages = row.split(" ")
    return int(rows), int(pages)


if __name__ == "__main__":
    sys.exit(main())
