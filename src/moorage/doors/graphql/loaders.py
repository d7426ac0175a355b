"""Batched reads for lists: the fields of all items are read with one call of the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from moorage.client import LocalMoorage
from moorage.core.approval import Approval
from moorage.core.entry import Entry
from moorage.core.query import Page, SessionQuery
from moorage.core.session import Session
from moorage.core.window import WindowSize
from moorage.service import approvals, conversation, sessions

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Loader(Generic[K, V]):
    """Collects keys until the next turn of the event loop, then loads all of them, each once."""

    def __init__(self, load: Callable[[list[K]], Awaitable[list[V]]]) -> None:
        self._load = load
        self._known: dict[K, asyncio.Future[V]] = {}
        self._waiting: list[K] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, key: K) -> asyncio.Future[V]:
        """Return the value once it is loaded."""
        known = self._known.get(key)
        if known is None:
            loop = asyncio.get_running_loop()
            known = self._known[key] = loop.create_future()
            if not self._waiting:
                loop.call_soon(self._begin)
            self._waiting.append(key)
        return known

    def know(self, key: K, value: V) -> None:
        """Store a value that need not be loaded."""
        known = self._known[key] = asyncio.get_running_loop().create_future()
        known.set_result(value)

    def _begin(self) -> None:
        keys, self._waiting = self._waiting, []
        task = asyncio.create_task(self._fill(keys))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fill(self, keys: list[K]) -> None:
        try:
            values = await self._load(keys)
        except Exception as error:
            for key in keys:
                self._known[key].set_exception(error)
                self._known[key].exception()  # retrieve it, in case no caller waits any more
            return
        for key, value in zip(keys, values, strict=True):
            if not self._known[key].cancelled():
                self._known[key].set_result(value)


class Loaders:
    """The batched reads of one operation."""

    def __init__(self, moor: LocalMoorage) -> None:
        self._moor = moor
        self.session: Loader[str, Session | None] = Loader(lambda ids: moor.call(sessions.sessions_of, ids))
        self.page: Loader[SessionQuery, Page[Session]] = Loader(lambda asked: moor.call(sessions.pages_of, asked))
        self._histories: dict[tuple[int, int | None], Loader[str, Page[Entry]]] = {}
        self._approvals: dict[tuple[bool, int], Loader[str, list[Approval]]] = {}

    async def session_with_history(self, ref: str, last: int) -> Session:
        """Return a session whose history will be requested next: one read instead of two."""
        session, page = await self._moor.call(conversation.session_and_window, ref, WindowSize(last=last))
        self._history(last, None).know(session.session_id, page)
        return session

    def history(self, session_id: str, last: int, before: int | None) -> asyncio.Future[Page[Entry]]:
        """Return a window of a session's messages."""
        return self._history(last, before)(session_id)

    def _history(self, last: int, before: int | None) -> Loader[str, Page[Entry]]:
        loader = self._histories.get((last, before))
        if loader is None:
            moor, size = self._moor, WindowSize(last=last)
            loader = self._histories[last, before] = Loader(
                lambda ids: moor.call(conversation.windows_of, ids, size, before=before)
            )
        return loader

    def approvals(self, session_id: str, pending_only: bool, limit: int) -> asyncio.Future[list[Approval]]:
        """Return a session's questions to people."""
        loader = self._approvals.get((pending_only, limit))
        if loader is None:
            moor = self._moor
            loader = self._approvals[pending_only, limit] = Loader(
                lambda ids: moor.call(approvals.approvals_of, ids, pending_only=pending_only, limit=limit)
            )
        return loader(session_id)
