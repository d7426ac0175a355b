"""Lists: the places of values in them, and their pages.

A place is (list, member) and a score: a serial number, a number of arrival, or a time in microseconds. All of them stay
below 2**53, where a score is exact. A commit writes the changes of places.

A page is walked from its cursor on, in parts; a cursor names the place of the last item returned. Filters without a
list of their own are applied to the values.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from math import inf
from operator import attrgetter
from typing import TypeVar

from msgspec.structs import replace

from moorage.core.approval import Approval, ApprovalState
from moorage.core.inbox import OPEN_ITEMS, Item, ItemKind, ItemState
from moorage.core.query import Page
from moorage.core.run import Run, RunState
from moorage.core.session import Session
from moorage.core.turn import Turn, TurnState
from moorage.stores.redis.db import Op, RedisDb, scored
from moorage.stores.redis.keys import Keys
from moorage.stores.redis.values import BODIES, ITEMS, Rows
from moorage.stores.rows import micros
from moorage.stores.work_rows import due_at

P = TypeVar("P")
T = TypeVar("T")

SortPlaces = dict[tuple[str, str], int]
WIDTH = 16  # digits, so that numbers sort as text
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
        [found] = await db.read((command, key, *ends, "WITHSCORES", "LIMIT", 0, count))
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


# Places ----------------------------------------------------------------------------------------


def padded(number: int) -> str:
    """Return a number as part of a member that sorts by its bytes."""
    return f"{number:0{WIDTH}d}"


_OF_SESSION = attrgetter(
    "created_at", "last_activity_at", "state", "task_id", "agent_name", "project_dir", "session_name", "expires_at"
)


def session_moved(keys: Keys, before: Session, after: Session, serial: int) -> list[Op]:
    """Return the writes from a session's old places to its new ones; usually there are few."""
    if _OF_SESSION(before) == _OF_SESSION(after):
        return []
    return moved(of_session(keys, before, serial), of_session(keys, after, serial))


def of_session(keys: Keys, session: Session, serial: int) -> SortPlaces:
    """Return the lists of a session. `updated`, by the feed's cursor, is written with the entries."""
    list_, id_ = keys.list, session.session_id
    places = {
        (list_("ids"), id_): 0,
        (list_("sessions"), id_): serial,
        (list_("born"), f"{padded(serial)}:{id_}"): micros(session.created_at),
        (list_("idle"), id_): micros(session.last_activity_at),
        (list_("state", session.state.value), id_): serial,
        (list_("task", session.task_id), id_): serial,
    }
    if session.agent_name is not None:
        places[list_("agent", session.agent_name), id_] = serial
    if session.project_dir is not None:
        places[list_("project", session.project_dir), id_] = serial
    if session.session_name is not None:
        places[list_("named"), f"{session.session_name}\0{padded(serial)}:{id_}"] = 0
    if session.expires_at is not None:
        places[list_("ends"), id_] = micros(session.expires_at)
    if session.parent_session_id is not None:
        places[list_("children", session.parent_session_id), id_] = serial
        places[list_("below", session.root_session_id), id_] = serial
        if not session.is_final:
            places[list_("open_below", session.root_session_id), id_] = serial
    return places


def of_approval(keys: Keys, approval: Approval, number: int) -> SortPlaces:
    """Return the lists of an approval."""
    list_, id_ = keys.list, approval.approval_id
    places = {(list_("approvals"), id_): number, (list_("approvals_of", approval.session_id), id_): number}
    if approval.state is ApprovalState.PENDING:
        places[list_("pending"), id_] = number
        if approval.expires_at is not None:
            places[list_("asked_until"), id_] = micros(approval.expires_at)
    return places


def of_run(keys: Keys, run: Run, number: int) -> SortPlaces:
    """Return the lists of a run."""
    list_, id_ = keys.list, run.run_id
    places = {(list_("runs"), id_): number, (list_("runs_of", run.session_id), id_): number}
    if run.parent_session_id is not None:
        places[list_("runs_for", run.parent_session_id), id_] = number
    if run.agent_name is not None:
        places[list_("runs_by", run.agent_name), id_] = number
    if not run.is_settled:
        places[list_("open_runs"), id_] = number
    if run.state is RunState.QUEUED and not run.turns and run.expires_at is not None:
        places[list_("untaken"), id_] = micros(run.expires_at)
    return places


def of_turn(keys: Keys, turn: Turn, number: int, root: str) -> SortPlaces:
    """Return the lists of a turn: queues by agent, with turns for a later time apart; leases."""
    list_, id_, agent = keys.list, turn.turn_id, turn.agent_name or ""
    places = {(list_("turns_of", turn.session_id), id_): number, (list_("turns"), id_): number}
    if turn.state is TurnState.QUEUED:
        places[list_("queued"), id_] = micros(turn.queued_at)
        places[list_("queue_of", root), id_] = number
        if turn.not_before is None:
            places[list_("queue", agent), id_] = number
        else:
            places[list_("later", agent), id_] = micros(turn.not_before)
    elif (due := due_at(turn)) is not None:
        places[list_("leases"), id_] = due
        places[list_("launcher", str(turn.launcher_id)), id_] = number
    return places


def of_item(keys: Keys, item: Item, number: int) -> SortPlaces:
    """Return the lists of an item, by state."""
    list_, id_, state = keys.list, item.item_id, item.state.value
    member = f"{item.session_id}\0{id_}"
    places = {(list_("inbox", state), member): number, (list_(f"inbox_{state}", item.session_id), id_): number}
    if item.state is not ItemState.CONSUMED:
        places[list_("items"), f"{id_}\0{padded(number)}:{item.session_id}"] = 0
    if item.kind is ItemKind.CALLBACK and item.state in OPEN_ITEMS:
        places[list_("callbacks"), member] = number
    return places


def moved(before: SortPlaces, after: SortPlaces) -> list[Op]:
    """Return the writes from some places to others."""
    gone: list[Op] = [("ZREM", key, member) for key, member in before if (key, member) not in after]
    new = [(place, score) for place, score in after.items() if before.get(place) != score]
    return [*gone, *(("ZADD", key, str(score), member) for (key, member), score in new)]


# Items -----------------------------------------------------------------------------------------


async def items_of(db: RedisDb, owner: str, names: list[tuple[str, str]]) -> list[Item | None]:
    """Return items with their bodies, by session and id."""
    keys = db.keys(owner)
    answers = await db.read(*(op for of, id_ in names for op in (
        ("HGET", keys.of("i", of), id_), ("HGET", keys.of("b", of), id_)
    )))  # fmt: skip
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
