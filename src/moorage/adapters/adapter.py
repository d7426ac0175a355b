"""The common part of all adapters: where they store sessions, how they open, close and write.

An adapter writes the data of its framework unchanged, as records, and the same content as messages of the log
(`moorage.adapters.projection`), both in one commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from importlib import metadata
from typing import Any, Self, TypeVar

from moorage.adapters.channel import Channel, ConnectionWork, ConnectTarget, channel_to, settled
from moorage.adapters.foreign_ids import HASHED, as_text, parts_of, session_id_of
from moorage.api import Moorage
from moorage.core.entry import Message
from moorage.core.errors import IdTaken, SessionGone, SessionNotFound, StoreUnavailable, Unsupported
from moorage.core.extras import install_command
from moorage.core.query import each_page
from moorage.core.record import RecordRequest
from moorage.core.session import MAX_LABEL_LENGTH, Session, check_metadata
from moorage.records import Record, RecordsWritten

T = TypeVar("T")


class FrameworkMissing(Unsupported, ImportError):
    """The package of a framework is not installed, or too old for its adapter."""

    def __init__(self, extra: str, package: str, why: str) -> None:
        super().__init__(f"{package} {why}; run: {install_command(extra)}", extra=extra, package=package)


def require(extra: str, package: str, floor: str) -> None:
    """Raise FrameworkMissing, with the command to run, unless a framework's package is installed and new enough."""
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:
        raise FrameworkMissing(extra, package, "is not installed") from None
    if _numbers(found) < _numbers(floor):
        raise FrameworkMissing(extra, package, f"{found} is too old, {floor} is needed")


def _numbers(version: str) -> list[int]:
    numbers = []
    for part in version.split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return numbers


def parts_in(session: Session) -> tuple[str, ...]:
    """Return the parts by which a framework identifies a session; none if they are not known.

    They are in its id: the metadata of a fork names its source.
    """
    known = session.session_id
    if known.startswith(HASHED):
        known = session.metadata.get("framework_id", HASHED)
    return () if known.startswith(HASHED) else parts_of(known)


class Adapter:
    """A framework's session store. It opens on first use; `with`, `async with`, `close` or `aclose` close it."""

    framework: str  # one of FRAMEWORKS

    def __init__(
        self,
        target: ConnectTarget = None,
        *,
        owner: str = "local",
        key: str | None = None,
        agent: str | None = None,
        ttl: object = None,
        metadata: dict[str, Any] | None = None,
        projection: bool = True,
    ) -> None:
        self._channel: Channel = channel_to(target, owner=owner, interface=self.framework, key=key)
        self._channel.join(self)
        self._agent, self._ttl, self._projection = agent or self.framework, ttl, projection
        self._metadata = check_metadata(metadata or {})  # of sessions that are created
        self._generations: dict[tuple[str, ...], int] = {}  # of sessions whose earlier generations were deleted
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def close(self) -> None:
        """Close the store, unless it was given as an open connection. Acknowledged data is safe without this."""
        if not self._is_closed:
            self._is_closed = True
            self._channel.leave(self)

    async def aclose(self) -> None:
        """Close the store from an event loop."""
        await asyncio.to_thread(self.close)

    # For the adapters -------------------------------------------------------------------------------

    async def _read(self, work: ConnectionWork[T]) -> T:
        self._check_open()
        return await self._channel.run(work)

    async def _write(self, work: ConnectionWork[T]) -> T:
        self._check_open()
        return await settled(self._channel.run(work))

    def _drive(self, work: ConnectionWork[T]) -> T:
        self._check_open()
        return self._channel.drive(work)

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailable(f"this {type(self).__name__} is closed; make a new one")

    async def _in_session(self, parts: tuple[str, ...], work: Callable[[str], Coroutine[Any, Any, T]]) -> T:
        """Run work in the session that the framework identifies by these parts, the newest if others were deleted."""
        generation = self._generations.get(parts, 1)
        while True:
            try:
                return await work(session_id_of(*parts, generation=generation))
            except SessionGone:
                generation += 1
                self._generations[parts] = generation

    def _if_known(
        self, parts: tuple[str, ...], work: Callable[[Moorage, str], Coroutine[Any, Any, T]]
    ) -> ConnectionWork[T | None]:
        """Return this work in the session of these parts; it gives None if there is no such session."""

        async def within(moor: Moorage) -> T | None:
            with suppress(SessionNotFound):
                return await self._in_session(parts, lambda ref: work(moor, ref))
            return None

        return within

    async def _commit(
        self,
        moor: Moorage,
        parts: tuple[str, ...],
        writes: Sequence[RecordRequest],
        messages: Sequence[Message] = (),
        **birth: Any,
    ) -> RecordsWritten:
        """Write records and messages in one commit, in a session that is created if it does not exist."""
        return await self._in_session(parts, lambda ref: self._commit_to(moor, ref, parts, writes, messages, **birth))

    async def _commit_to(
        self,
        moor: Moorage,
        ref: str,
        parts: tuple[str, ...],
        writes: Sequence[RecordRequest],
        messages: Sequence[Message] = (),
        **birth: Any,
    ) -> RecordsWritten:
        """Do the same in one session of those that the framework identifies by these parts. Raises SessionGone."""
        try:
            return await moor.records.write(ref, writes, messages=messages)
        except SessionNotFound:
            with suppress(IdTaken):
                await moor.create(session_id=ref, **self._birth(parts, **birth))
            return await moor.records.write(ref, writes, messages=messages)

    async def _with_record(
        self, moor: Moorage, start: tuple[str, ...], count: int, key: str
    ) -> list[tuple[tuple[str, ...], Session, Record]]:
        """Return the sessions whose ids have so many parts and begin with these, oldest first, and one record of each.

        Sessions without the record are left out, as are forks with an id that the framework cannot ask for.
        """
        found = []
        async for page in each_page(partial(moor.list, label=self._label(*start), sort="created", limit=1000)):
            ids = [session.session_id for session in page.items]
            records = await moor.records.of_sessions(ids, self.framework, key) if ids else []
            for session, record in zip(page.items, records, strict=True):
                parts = parts_in(session)
                if record is not None and len(parts) == count and parts[: len(start)] == start:
                    found.append((parts, session, record))
        return found

    def _label(self, *parts: str) -> str:
        """Return the label of all sessions that share these parts of an id, such as those of one user."""
        text = f"{self.framework}:{as_text(*parts)}"
        return text if len(text) <= MAX_LABEL_LENGTH else f"{self.framework}:h:{sha256(text.encode()).hexdigest()[:40]}"

    def _birth(self, parts: tuple[str, ...], **fields: Any) -> dict[str, Any]:
        """Return the fields that a session is created with."""
        metadata = {**self._metadata, "framework": self.framework, "framework_id": as_text(*parts)}
        return {"agent": self._agent, "ttl": self._ttl, "metadata": metadata, **fields}
