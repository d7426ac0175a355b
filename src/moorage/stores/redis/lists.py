"""Pages of lists: a cursor names the place of the last item returned.

Every list is walked from the cursor on, in parts. Filters without a list of their own are applied to the values.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from math import inf
from typing import TypeVar

from msgspec.structs import replace

from moorage.core.inbox import Item, ItemState
from moorage.core.query import Page
from moorage.stores.redis.db import RedisDb, scored
from moorage.stores.redis.keys import Keys
from moorage.stores.redis.values import BODIES, ITEMS, Rows

P = TypeVar("P")
T = TypeVar("T")

PlacedId = tuple[int, str]  # a score, and a member


async def walk(
    db: RedisDb, key: str, position: int | None, count: int, *, newest_first: bool
) -> AsyncIterator[PlacedId]:
    """Yield the places of a list after a position, from one end."""
    while True:
        start = "+inf" if newest_first else "-inf"
        start = start if position is None else f"({position}"
        ends = (start, "-inf") if newest_first else (start, "+inf")
        command = "ZREVRANGEBYSCORE" if newest_first else "ZRANGEBYSCORE"
        [found] = await db.read([(command, key, *ends, "WITHSCORES", "LIMIT", 0, count)])
        for position, member in scored(found):
            yield position, member
        if len(found) < 2 * count:
            return


async def page_of(
    places: AsyncIterator[tuple[P, str]],
    read: Callable[[list[str]], Awaitable[Sequence[T | None]]],
    admits: Callable[[T], bool],
    limit: int,
    cursor_at: Callable[[P], str],
    most_looked_at: float = inf,
) -> Page[T]:
    """Return a page of the values in a list; `cursor_at` makes a cursor of the place where it ends.

    A page that has any values ends after `most_looked_at` places.
    """
    found: list[tuple[P, T]] = []
    looked_at = 0
    async for part in parts(places, limit + 1):
        values = await read([member for _, member in part])
        found += [(n, v) for (n, _), v in zip(part, values, strict=True) if v is not None and admits(v)]
        looked_at += len(part)
        if len(found) > limit:
            break
        if found and looked_at >= most_looked_at:
            return Page([value for _, value in found], cursor_at(part[-1][0]))
    page = found[:limit]
    more = cursor_at(page[-1][0]) if len(found) > limit else None
    return Page([value for _, value in page], more)


async def parts(places: AsyncIterator[P], size: int) -> AsyncIterator[list[P]]:
    """Yield places, several at a time."""
    part: list[P] = []
    async for place in places:
        part.append(place)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part


async def rows_of(db: RedisDb, keys: Keys, rows: Rows[T], ids: list[str]) -> list[T | None]:
    """Return values by id; None for a missing one."""
    if not ids:
        return []
    found = await db.one("HMGET", keys(rows.where), *ids)
    return [None if row is None else rows.value(db, id_, row)[1] for id_, row in zip(ids, found, strict=True)]


# Items -----------------------------------------------------------------------------------------


async def items_of(db: RedisDb, owner: str, names: list[tuple[str, str]]) -> list[Item | None]:
    """Return items with their bodies, by session and id."""
    keys = db.keys(owner)
    answers = await db.read([op for of, id_ in names for op in (
        ("HGET", keys.of("i", of), id_), ("HGET", keys.of("b", of), id_)
    )])  # fmt: skip
    found: list[Item | None] = []
    for place, (of, id_) in enumerate(names):
        row, body = answers[2 * place : 2 * place + 2]
        if row is None or body is None:
            found.append(None)
            continue
        item = ITEMS.value(db, id_, row, of)[1]
        found.append(replace(item, body=BODIES.value(db, f"{of} {id_}", body, of)[1]))
    return found


async def dead_letters(db: RedisDb, owner: str, session_id: str, run_id: str) -> list[tuple[int, Item]]:
    """Return the dead letters of a run, oldest first, without bodies, each with its number."""
    keys = db.keys(owner)
    ids = await db.one("ZRANGE", keys.list(f"inbox_{ItemState.DEAD_LETTER.value}", session_id), 0, -1)
    if not ids:
        return []
    rows = await db.one("HMGET", keys.of("i", session_id), *ids)
    every = [ITEMS.value(db, id_.decode(), row, session_id) for id_, row in zip(ids, rows, strict=True) if row]
    return [one for one in every if one[1].run_id == run_id and one[1].state is ItemState.DEAD_LETTER]
