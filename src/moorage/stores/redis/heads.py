"""Finding and loading sessions: by id, by name, many at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from msgspec.json import Decoder

from moorage.core.errors import NotFound, SessionCorrupt, SessionNotFound
from moorage.core.family import Tombstone
from moorage.core.ids import looks_like_ref
from moorage.core.session import Session
from moorage.stores import Stale
from moorage.stores.redis.db import Op, RedisDb, pairs
from moorage.stores.redis.keys import Keys
from moorage.stores.redis.values import APPROVALS, HEAD, ITEMS, RUNS, TURNS, Rows, head_of
from moorage.stores.seam import Loaded, Out

T = TypeVar("T")

OUT: Rows[Out] = Rows(Out, "out")
_KINDS: dict[str, Rows[Any]] = {"a": APPROVALS, "c": OUT, "r": RUNS, "t": TURNS, "i": ITEMS}
PART = 200  # sessions read at once
read_tombstone = Decoder(Tombstone).decode


def head_ops(keys: Keys, session_id: str) -> list[Op]:
    """Return the reads of a head and of what it waits for."""
    return [("HMGET", keys.of("h", session_id), *HEAD), ("HGETALL", keys.of("o", session_id))]


def view_ops(keys: Keys, session_id: str) -> list[Op]:
    """Return the reads of a session with its open work."""
    return [*head_ops(keys, session_id), ("HGETALL", keys.of("w", session_id))]


def loaded(db: RedisDb, session_id: str, answers: list[Any]) -> Loaded | None:
    """Return a session from the answers of `head_ops` or `view_ops`; None if it does not exist."""
    fields, *hashes = answers
    if fields[0] is None:
        return None
    session, guard = head_of(db, session_id, fields)
    found = Loaded(session, guard)
    rows = [row for each in hashes for row in _rows(db, session_id, each)]
    for number, kind, id_, value in sorted(rows, key=lambda row: row[0]):
        guard.numbers[kind, id_] = number
        if isinstance(value, Out):
            found.out[id_] = value
        else:
            found.add(value)
    return found


def _rows(db: RedisDb, session_id: str, flat: list[bytes]) -> Iterable[tuple[int, type, str, Any]]:
    for name, row in pairs(flat):
        rows, id_ = _KINDS[name[0]], name[1:]
        number, value = rows.value(db, id_, row, session_id)
        yield number, rows.kind, id_, value


def add_row(found: Loaded, kind: type, id_: str, row: tuple[int, Any]) -> Any:
    """Add a stored value that was requested."""
    found.guard.numbers[kind, id_] = row[0]
    if (kind, id_) not in found.values:
        found.add(row[1])
    return row[1]


Ops = Callable[[str], list[Op]]  # reads of a session, by its id


async def load(db: RedisDb, owner: str, session_id: str) -> Loaded | None:
    """Return the session with exactly this id, and its open work."""
    if not looks_like_ref(session_id):
        return None
    return loaded(db, session_id, await db.read(*view_ops(db.keys(owner), session_id)))


async def found(
    db: RedisDb, owner: str, ref: str, of_head: Callable[[Keys, str], list[Op]], beside: Ops = lambda _: []
) -> tuple[Loaded, list[Any]]:
    """Return a session and the answers of other reads, all at one instant.

    The session is found by id, else by open name, else it is the newest that had the name. `of_head` is `head_ops` or
    `view_ops`.
    """
    keys, session_id = db.keys(owner), ref if looks_like_ref(ref) else await id_of(db, owner, ref)
    while True:
        ops = of_head(keys, session_id)
        answers = await db.read(*ops, *beside(session_id))
        one = loaded(db, session_id, answers[: len(ops)])
        if one is not None:
            return one, answers[len(ops) :]
        session_id = await id_of(db, owner, ref)  # the reference is a name, or the session was deleted meanwhile


async def head_loaded(db: RedisDb, owner: str, ref: str) -> Loaded:
    """Return a session without its open work, and what a commit has to know of it."""
    return (await found(db, owner, ref, head_ops))[0]


async def head(db: RedisDb, owner: str, ref: str) -> Session:
    """Return a session without its open work."""
    return (await head_loaded(db, owner, ref)).head()


async def id_of(db: RedisDb, owner: str, ref: str) -> str:
    """Return the id of a session. Raises SessionNotFound, SessionGone."""
    if not looks_like_ref(ref):
        raise SessionNotFound(ref)
    keys = db.keys(owner)
    is_id, named, newest, raw_tombstone = await db.read(
        ("EXISTS", keys.of("h", ref)),
        ("HGET", keys("names"), ref),
        ("ZREVRANGEBYLEX", keys.list("named"), f"({ref}\x01", f"[{ref}\0", "LIMIT", 0, 1),
        ("HGET", keys("dead"), ref),
    )
    if is_id:
        return ref
    if named is not None:
        return str(named.decode())
    if newest:
        return str(newest[0].decode().partition("\0")[2].partition(":")[2])
    if raw_tombstone is not None:
        raise read_tombstone(raw_tombstone).gone()
    raise SessionNotFound(ref)


async def many(db: RedisDb, owner: str, session_ids: list[str], *, strict: bool = False) -> list[Session | None]:
    """Return the heads of these sessions; None for a missing one or, unless `strict`, a corrupt one."""
    keys, found = db.keys(owner), list[Session | None]()
    for start in range(0, len(session_ids), PART):
        part = session_ids[start : start + PART]
        answers = await db.read(*(op for id_ in part for op in head_ops(keys, id_)))
        for place, id_ in enumerate(part):
            try:
                one = loaded(db, id_, answers[2 * place : 2 * place + 2])
            except SessionCorrupt:
                if strict:
                    raise
                one = None
            found.append(None if one is None else one.head())
    return found


# Reads by id ------------------------------------------------------------------------------------


async def row(db: RedisDb, owner: str, rows: Rows[T], id_: str) -> tuple[int, T] | None:
    """Return the number and the value of one of an owner's rows."""
    text = await db.one("HGET", db.keys(owner)(rows.where), id_)
    return None if text is None else rows.value(db, id_, text)


async def one(db: RedisDb, owner: str, rows: Rows[T], id_: str, missing: type[NotFound]) -> T:
    """Return one of an owner's values. Raises `missing` if it does not exist."""
    stored = await row(db, owner, rows, id_)
    if stored is None:
        raise missing(id_)
    return stored[1]


async def named(db: RedisDb, owner: str, found: Loaded, rows: Rows[Any], id_: str, missing: type[NotFound]) -> Any:
    """Return one value of a session in any state. Raises `missing` if it does not exist or is another session's."""
    stored = await row(db, owner, rows, id_)
    if stored is None or stored[1].session_id != found.session_id:
        raise missing(id_)
    add_row(found, rows.kind, id_, stored)
    if found.values[rows.kind, id_] != stored[1]:  # it changed between two reads
        raise Stale(id_)
    return stored[1]
