"""The log and the feed. Appending is the hot path: one statement commits all waiting appends, in one round trip."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from moorage.core.entry import Entry, Message
from moorage.core.session import HOLD_FOR, Stamp, message_entries
from moorage.stores.postgres.connection import PostgresConnection
from moorage.stores.rows import Row, entry_row, micros
from moorage.stores.sql import lookup
from moorage.stores.sql.query import Query

# Appending --------------------------------------------------------------------------------------


class AppendedMessages:
    """The messages of one append call."""

    __slots__ = ("messages", "owner", "ref", "stamp", "token", "weight")

    def __init__(self, owner: str, ref: str, messages: list[Message], stamp: Stamp, token: str | None) -> None:
        self.owner, self.ref, self.messages, self.stamp, self.token = owner, ref, messages, stamp, token
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


# The feed ---------------------------------------------------------------------------------------


async def number(db: PostgresConnection, owner: str) -> None:
    """Assign cursors to new feed rows. Later commits get later cursors, whenever they began."""
    while True:
        row = await db.one("SELECT moor.number_feed(?)", (owner,))
        if row is None or not row[0]:
            return


async def number_all(db: PostgresConnection) -> None:
    """Assign cursors to all new feed rows."""
    for (owner,) in await db.all("SELECT DISTINCT owner FROM moor.arrivals"):
        await number(db, owner)
