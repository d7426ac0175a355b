"""Strands: `MoorageSessionRepository`, for sessions of agents, and `MoorageStorage`, for bytes by key.

::

    manager = RepositorySessionManager("s-1", MoorageSessionRepository("sqlite:///moorage.db"))
    agent = Agent(session_manager=manager)

A session of the repository is a session here. Each message is a record and a message of the log, in one commit. The
interface lets the writer choose the number of a message: if two processes write the same number, one is refused.

A storage has no sessions: its values are records of the owner's memory.
"""

from __future__ import annotations

from moorage.adapters.adapter import require

require("strands", "strands-agents", "1.62")

import builtins
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import fields
from functools import partial, wraps
from typing import Any, TypeVar

from strands.session.session_repository import SessionRepository
from strands.storage.search.keyword import KeywordSearchStrategy
from strands.types.exceptions import SessionException, StorageError
from strands.types.session import Session, SessionAgent, SessionMessage, decode_bytes_values

from moorage.adapters.adapter import Adapter
from moorage.adapters.foreign_ids import as_text
from moorage.adapters.formats import strands
from moorage.adapters.payload import form_of, packed, unpacked
from moorage.adapters.projection import with_distinct_keys
from moorage.api import Moorage
from moorage.core.errors import IdTaken, MoorageError, VersionConflict
from moorage.core.query import each_item
from moorage.records import Put, Record

__all__ = ["MoorageSessionRepository", "MoorageStorage"]

SESSION, AGENTS, GROUPS, MESSAGES = "session", "agents/", "multi-agents/", "messages/"
FILES = "strands.files"  # the namespace of a storage
DIGITS = 12  # digits in the number of a message
PAGE = 1000

T = TypeVar("T")
Values = dict[str, Any]


class MoorageSessionRepository(Adapter, SessionRepository):
    """Sessions, agents and their messages in the interface of Strands."""

    framework = strands.FRAMEWORK

    def create_session(self, session: Session, **_: Any) -> Session:
        """Create a session. Raises SessionException if it exists."""
        self._drive(lambda moor: self._create(moor, session))
        return session

    def read_session(self, session_id: str, **_: Any) -> Session | None:
        """Return a session, or None."""
        held = self._get(session_id, SESSION)
        if held is None:
            return None
        # The record of a fork has the id of its source.
        return Session.from_dict({**unpacked(held.value), "session_id": session_id})

    def delete_session(self, session_id: str, **_: Any) -> None:
        """Delete a session with its log. Raises SessionException if it does not exist."""
        if self._drive(self._if_known((session_id,), lambda moor, ref: moor.delete(ref))) is None:
            raise _missing(session_id)

    def create_agent(self, session_id: str, session_agent: SessionAgent, **_: Any) -> None:
        """Add an agent to a session."""
        what = f"agent {session_agent.agent_id}"
        self._put(session_id, _agent(session_agent.agent_id), session_agent.to_dict(), what)

    def read_agent(self, session_id: str, agent_id: str, **_: Any) -> SessionAgent | None:
        """Return an agent, or None."""
        held = self._get(session_id, _agent(agent_id))
        return None if held is None else SessionAgent.from_dict(unpacked(held.value))

    def update_agent(self, session_id: str, session_agent: SessionAgent, **_: Any) -> None:
        """Replace the state of an agent."""
        old = self._required(session_id, _agent(session_agent.agent_id), f"agent {session_agent.agent_id}")
        session_agent.created_at = unpacked(old.value)["created_at"]
        self._replace(session_id, old, session_agent.to_dict())

    def create_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **_: Any) -> None:
        """Add a message. Raises SessionException if its number is taken."""
        number, values = session_message.message_id, session_message.to_dict()
        said: builtins.list[Any] = []
        if self._projection:
            said = with_distinct_keys(strands.said(values["message"], f"{agent_id}/{number}"))
        self._put(session_id, _message(agent_id, number), values, f"message {number}", said)

    def read_message(self, session_id: str, agent_id: str, message_id: int, **_: Any) -> SessionMessage | None:
        """Return a message, or None."""
        held = self._get(session_id, _message(agent_id, message_id))
        return None if held is None else _session_message(held)

    def update_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **_: Any) -> None:
        """Replace a message. The log keeps the earlier text."""
        number = session_message.message_id
        old = self._required(session_id, _message(agent_id, number), f"message {number}")
        session_message.created_at = unpacked(old.value)["created_at"]
        self._replace(session_id, old, session_message.to_dict())

    def list_messages(
        self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **_: Any
    ) -> builtins.list[SessionMessage]:
        """Return the messages of an agent in the order of their numbers."""
        self._required(session_id, _agent(agent_id), f"agent {agent_id}")
        most = None if limit is None else offset + limit

        async def read(moor: Moorage) -> builtins.list[Record]:
            prefix = f"{MESSAGES}{as_text(agent_id)}/"
            return await self._in_session((session_id,), lambda ref: self._list(moor, ref, prefix, most))

        held = self._drive(read)[offset:most]
        return [_session_message(record) for record in held]

    def create_multi_agent(self, session_id: str, multi_agent: Any, **_: Any) -> None:
        """Add the state of a group of agents."""
        what = f"multi-agent {multi_agent.id}"
        self._put(session_id, GROUPS + as_text(multi_agent.id), multi_agent.serialize_state(), what)

    def read_multi_agent(self, session_id: str, multi_agent_id: str, **_: Any) -> Values | None:
        """Return the state of a group of agents, or None."""
        held = self._get(session_id, GROUPS + as_text(multi_agent_id))
        return None if held is None else dict(unpacked(held.value))

    def update_multi_agent(self, session_id: str, multi_agent: Any, **_: Any) -> None:
        """Replace the state of a group of agents."""
        old = self._required(session_id, GROUPS + as_text(multi_agent.id), f"multi-agent {multi_agent.id}")
        self._replace(session_id, old, multi_agent.serialize_state())

    # Records ----------------------------------------------------------------------------------------

    async def _create(self, moor: Moorage, session: Session) -> None:
        parts = (session.session_id,)

        async def create(ref: str) -> None:
            with suppress(IdTaken):
                await moor.create(session_id=ref, **self._birth(parts))
            await moor.records.write(ref, [self._write_of(SESSION, session.to_dict(), 0)])

        try:
            await self._in_session(parts, create)
        except VersionConflict:
            raise SessionException(f"Session {session.session_id} already exists") from None

    def _get(self, session_id: str, key: str) -> Record | None:
        parts = (session_id,)
        return self._drive(self._if_known(parts, lambda moor, ref: moor.records.get(ref, self.framework, key)))

    def _required(self, session_id: str, key: str, what: str) -> Record:
        held = self._get(session_id, key)
        if held is None:
            raise SessionException(f"{what} in session {session_id} does not exist")
        return held

    def _put(
        self, session_id: str, key: str, values: Values, what: str, messages: builtins.list[Any] | None = None
    ) -> None:
        """Write records that must be new, in an existing session."""
        try:
            self._commit_in(session_id, self._write_of(key, values, 0), messages or [])
        except VersionConflict:
            raise SessionException(f"{what} in session {session_id} already exists") from None

    def _replace(self, session_id: str, old: Record, values: Values) -> None:
        self._commit_in(session_id, self._write_of(old.key, values, None), [])

    def _commit_in(self, session_id: str, put: Put, messages: builtins.list[Any]) -> None:
        write = self._if_known((session_id,), lambda moor, ref: moor.records.write(ref, [put], messages=messages))
        if self._drive(write) is None:
            raise _missing(session_id)

    def _write_of(self, key: str, values: Values, version: int | None) -> Put:
        data = packed(values, key)
        return Put(namespace=self.framework, key=key, value=data, form=form_of(data), version=version)

    async def _list(self, moor: Moorage, ref: str, prefix: str, most: int | None) -> builtins.list[Record]:
        found: builtins.list[Record] = []
        after = None
        while most is None or len(found) < most:
            limit = PAGE if most is None else min(most - len(found), PAGE)
            page = await moor.records.list(ref, self.framework, prefix=prefix, after=after, limit=limit)
            found += page.items
            after = page.next
            if after is None:
                break
        return found


def _session_message(record: Record) -> SessionMessage:
    """Return a message as `SessionMessage.from_dict` does, which takes six times as long to look its fields up."""
    values = decode_bytes_values(unpacked(record.value))
    return SessionMessage(**{name: values[name] for name in _FIELDS if name in values})


_FIELDS = [field.name for field in fields(SessionMessage)]


def _missing(session_id: str) -> SessionException:
    return SessionException(f"Session {session_id} does not exist")


def _agent(agent_id: str) -> str:
    return AGENTS + as_text(agent_id)


def _message(agent_id: str, number: int) -> str:
    if not isinstance(number, int):
        raise ValueError(f"the number of a message is {number!r}; it must be an integer")
    return f"{MESSAGES}{as_text(agent_id)}/{number:0{DIGITS}d}"


# A storage ------------------------------------------------------------------------------------------


def _as_storage_error(method: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
    @wraps(method)
    async def call(*args: Any) -> T:
        try:
            return await method(*args)
        except MoorageError as error:
            raise StorageError(str(error)) from error

    return call


class MoorageStorage(Adapter):
    """Bytes by key, in the interface of `strands.storage.Storage`."""

    framework = strands.FRAMEWORK

    @_as_storage_error
    async def write(self, key: str, data: bytes) -> None:
        """Store bytes under a key, replacing earlier ones. Raises StorageError for anything else than bytes."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise StorageError(f"the value of {key!r} is of the type {type(data).__name__}; it must be bytes")
        put = Put(namespace=FILES, key=_key(key), value=bytes(data))
        await self._write(lambda moor: moor.memory.write([put]))

    @_as_storage_error
    async def read(self, key: str) -> bytes | None:
        """Return the bytes under a key, or None."""
        name = _key(key)
        held = await self._read(lambda moor: moor.memory.get(FILES, name))
        return None if held is None else held.value

    @_as_storage_error
    async def delete(self, key: str) -> None:
        """Delete the bytes under a key, if there are any."""
        name = _key(key)
        await self._write(lambda moor: moor.memory.delete(FILES, name))

    @_as_storage_error
    async def list(self, query: str = "") -> builtins.list[str]:
        """Return the keys with this prefix, in order."""
        prefix = _prefix(query)

        async def read(moor: Moorage) -> builtins.list[str]:
            ask = partial(moor.memory.list, FILES, prefix=prefix, limit=PAGE, values=False)
            return [record.key async for record in each_item(ask, by="after")]

        return await self._read(read)

    async def search(self, query: str) -> builtins.list[Any]:
        """Return keys whose bytes contain words of the query, best first, as the storages of Strands find them."""
        found: builtins.list[Any] = await KeywordSearchStrategy().search(self, query)
        return found


def _key(key: str) -> str:
    """Return the normalized form of a key, as the storages of Strands do."""
    name = _prefix(key).rstrip("/")
    if not name:
        raise StorageError("a storage key must not be empty")
    return name


def _prefix(text: str) -> str:
    if "\\" in text or ".." in text.split("/"):
        raise StorageError(f"a storage key must not have backslashes or '..' in it: {text!r}")
    return re.sub(r"/+", "/", text).lstrip("/")
