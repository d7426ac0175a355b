"""The log and the feed. Appending is the hot path: one statement commits all waiting appends, in one round trip.

An append never waits for company: a single one is sent at once, by its own task. Appends that arrive while a group is
under way share the next one. Two groups may be under way, so that one is assembled while the other is synced to disk; a
session is in only one of them at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from moorage.core.entry import Entry, Kind, Message
from moorage.core.errors import NotFound, SessionCorrupt
from moorage.core.session import HOLD_FOR, Stamp, message_entries
from moorage.ports import Tail
from moorage.stores.postgres.access import PostgresAccess
from moorage.stores.postgres.connection import PostgresConnection
from moorage.stores.rows import ENTRY, Row, entries_of, entry_row, micros, stored_kinds
from moorage.stores.sql import lookup
from moorage.stores.sql.db import Query
from moorage.stores.sql.history import tail_before
from moorage.stores.sql.lookup import SessionColumns

MAX_GROUP = 64
MAX_GROUP_BYTES = 1024 * 1024
AT_ONCE = 2  # groups under way

# Appending --------------------------------------------------------------------------------------


class AppendedMessages:
    """The messages of one append call."""

    __slots__ = ("messages", "owner", "place", "ref", "stamp", "token", "weight")

    def __init__(self, owner: str, ref: str, messages: list[Message], stamp: Stamp, token: str | None) -> None:
        self.owner, self.ref, self.messages, self.stamp, self.token = owner, ref, messages, stamp, token
        self.place = owner, ref
        self.weight = sum([message.size for message in messages])

    @property
    def is_plain(self) -> bool:
        """Return whether it can join a group: it needs no lookup first."""
        return lookup.may_be_ref(self.ref) and all(message.client_key is None for message in self.messages)


_encode = msgspec.json.Encoder().encode
_APPEND_ALL, _APPEND_ONE = Query("append_all"), Query("append_one")


async def append_all(db: PostgresConnection, group: Sequence[AppendedMessages]) -> list[list[Entry] | None]:
    """Append plain messages to several different sessions; None for those that were refused."""
    if len(group) == 1:
        return [await append_one(db, group[0])]
    asked = [_asked(one) for one in group]
    entries = [(place, *row) for place, one in enumerate(group, 1) for row in _rows(db, one)]
    db.changes = len(group)
    rows = await db.commit_one(_APPEND_ALL(db), (*zip(*asked, strict=True), *zip(*entries, strict=True)))
    done: list[list[Entry] | None] = [None] * len(group)
    for place, last, task in rows:
        one = group[place - 1]
        done[place - 1] = message_entries(one.messages, one.stamp, last + 1, one.ref, task)
    return done


async def append_one(db: PostgresConnection, one: AppendedMessages) -> list[Entry] | None:
    """Append plain messages to a session; None if they were refused."""
    rows = await db.commit_one(_APPEND_ONE(db), (*_asked(one), _encode(_rows(db, one)).decode()))
    return message_entries(one.messages, one.stamp, rows[0][0] + 1, one.ref, rows[0][1]) if rows else None


def _asked(one: AppendedMessages) -> Row:
    """Return owner, session, number of messages, and their effect on the session."""
    hold_until = None if one.token is None else micros(one.stamp.at + HOLD_FOR)
    has_pins = any(message.role == "system" for message in one.messages)
    return one.owner, one.ref, len(one.messages), micros(one.stamp.at), one.token, hold_until, has_pins


def _rows(db: PostgresConnection, one: AppendedMessages) -> list[Row]:
    """Return messages as entries, numbered from 1."""
    at, entries = micros(one.stamp.at), message_entries(one.messages, one.stamp, 1, one.ref, "")
    return [entry_row(entry, 0, at, db.sealer)[1:9] for entry in entries]


Waiting = tuple[AppendedMessages, "asyncio.Future[list[Entry] | None]"]


class Groups:
    """The queue of waiting appends."""

    def __init__(self, access: PostgresAccess) -> None:
        self._access = access
        self._waiting: list[Waiting] = []
        self._under_way: set[tuple[str, str]] = set()  # owners with ids of sessions
        self._senders: set[asyncio.Task[None]] = set()
        self._alone = 0  # single appends under way
        self._none_alone = asyncio.Event()

    async def append(self, one: AppendedMessages) -> list[Entry] | None:
        """Add messages in one commit with those of other callers; return None if they were refused."""
        if self._has_room and not self._waiting and one.place not in self._under_way:
            return await self._append_alone(one)
        future: asyncio.Future[list[Entry] | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((one, future))
        self._send()
        return await future

    async def finish(self) -> None:
        """Wait for all appends. This includes single ones, because the next group may start after them."""
        while self._senders or self._alone:
            if self._senders:
                await asyncio.wait(self._senders)
            else:
                await self._none_alone.wait()

    async def _append_alone(self, one: AppendedMessages) -> list[Entry] | None:
        self._under_way.add(one.place)
        self._alone += 1
        self._none_alone.clear()
        try:
            return await self._access.write(lambda db: append_one(db, one))
        finally:
            self._alone -= 1
            self._under_way.discard(one.place)
            self._send()
            if not self._alone:
                self._none_alone.set()

    @property
    def _has_room(self) -> bool:
        return len(self._senders) + self._alone < AT_ONCE

    def _send(self) -> None:
        while self._waiting and self._has_room and (group := self._next_group()):
            sender = asyncio.create_task(self._commit(group))
            self._senders.add(sender)
            sender.add_done_callback(self._sent)

    def _sent(self, sender: asyncio.Task[None]) -> None:
        self._senders.discard(sender)
        self._send()

    def _next_group(self) -> list[Waiting]:
        """Return the oldest appends that can go together: each session once, and none of a session in another group."""
        group, left, weight = list[Waiting](), list[Waiting](), 0
        for one in self._waiting:
            is_full = len(group) == MAX_GROUP or weight > MAX_GROUP_BYTES
            if is_full or one[0].place in self._under_way:
                left.append(one)
                continue
            self._under_way.add(one[0].place)
            group.append(one)
            weight += one[0].weight
        self._waiting = left
        return group

    async def _commit(self, group: list[Waiting]) -> None:
        try:
            done = await self._access.write(lambda db: append_all(db, [one for one, _ in group]))
        except BaseException as error:  # an error fails the whole group
            for _, future in group:
                if not future.done():
                    future.set_exception(error)
            if not isinstance(error, Exception):
                raise
        else:
            for (_, future), entries in zip(group, done, strict=True):
                if not future.done():
                    future.set_result(entries)
        finally:
            self._under_way -= {one.place for one, _ in group}


# The feed ---------------------------------------------------------------------------------------


async def number(db: PostgresConnection, owner: str) -> None:
    """Assign cursors to new feed rows. Later commits get later cursors, whenever they began."""
    while (await db.all("SELECT moor.number_feed(?)", (owner,)))[0][0]:
        pass


async def number_all(db: PostgresConnection) -> None:
    """Assign cursors to all new feed rows."""
    for (owner,) in await db.all("SELECT DISTINCT owner FROM moor.arrivals"):
        await number(db, owner)


# Many conversations -----------------------------------------------------------------------------

_NEWEST = Query("newest_of_many", entry=ENTRY)
_NO_END = 1 << 62


async def tails(
    db: PostgresConnection,
    owner: str,
    session_ids: list[str],
    limit: int,
    pins: int = 100,
    *,
    before: int | None = None,
) -> list[Tail]:
    """Return the end of each conversation, or the part before a number; with one statement for all, if possible."""
    ids = [session_id for session_id in session_ids if lookup.may_be_ref(session_id)]
    found_keys = await db.all(f"{lookup.KEY} WHERE owner = ? AND id = ANY(?::text[])", (owner, ids))
    keys = {row[1]: SessionColumns(*row) for row in found_keys}
    plain = [key for key in keys.values() if not key.shared_upto and (before is not None or not key.has_pins)]
    places = ([key.root for key in plain], [key.pk for key in plain])
    kinds = stored_kinds((Kind.MESSAGE.value,))
    of_key: list[list[Row]] = [[] for _ in plain]
    for place, *row in await db.all(_NEWEST(db), (owner, *places, _NO_END if before is None else before, kinds, limit)):
        of_key[place - 1].append(tuple(row))
    found = dict[str, Tail]()
    for key, rows in zip(plain, of_key, strict=True):
        with suppress(SessionCorrupt):  # a damaged session must not hide others
            found[key.session_id] = Tail([], entries_of(rows, key.session_id, key.task_id, db.opener))
    for key in keys.values():
        if key.session_id not in found:
            with suppress(NotFound, SessionCorrupt):
                found[key.session_id] = await tail_before(db, owner, key.session_id, limit, pins, before)
    return [found.get(session_id, Tail([], [])) for session_id in session_ids]
