"""Checks of stored data: every head can be read, and every log has all its entries."""

from __future__ import annotations

from typing import Any

from moorage.core.errors import MoorageError
from moorage.stores.redis import heads
from moorage.stores.redis.db import Op, RedisDb
from moorage.stores.redis.log import parts_of
from moorage.stores.redis.server_facts import summary

OPS = 5  # for each session


async def look(url: str) -> tuple[dict[str, Any], list[str]]:
    """Return the servers' facts, and what a crash or a failover can lose, as text."""
    db = RedisDb(url)
    try:
        return summary(await db.facts(), db.options.durability)
    finally:
        await db.close()


async def problems_of(db: RedisDb, owner: str, session_ids: list[str]) -> list[str]:
    """Return the problems of some sessions, as text."""
    keys, ops = db.keys(owner), list[Op]()
    for id_ in session_ids:
        log = keys.of("l", id_)
        ops += [*heads.view_ops(keys, id_), ("XLEN", log), ("XREVRANGE", log, "+", "-", "COUNT", 1)]
    answers, problems = await db.read(ops), list[str]()
    for place, id_ in enumerate(session_ids):
        if (why := _problem(db, id_, answers[OPS * place : OPS * (place + 1)])) is not None:
            problems.append(f"{id_} of {owner}: {why}")
    return problems


def _problem(db: RedisDb, session_id: str, answers: list[Any]) -> str | None:
    *view, count, newest = answers
    try:
        loaded = heads.loaded(db, session_id, view)
    except MoorageError as error:
        return error.message
    if loaded is None:
        return "it is listed, and gone: something else deleted it, or the server evicted it"
    first, last = parts_of(loaded)[-1].first, loaded.session.last_entry
    ends_at = int(newest[0][0].partition(b"-")[0]) if newest else first - 1
    if (count, ends_at) != (last - first + 1, last):
        return f"its log has {count} entries up to {ends_at}, and should have {last - first + 1} up to {last}"
    return None
