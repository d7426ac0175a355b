"""A wrapper for callers without an event loop: scripts, commands, hooks.

A loop on a separate thread does the waiting, until the store is closed. Here a coroutine never
suspends, so it can be driven to its end like those of the other stores.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from inspect import iscoroutinefunction
from typing import Any

from moorage.core.errors import StoreUnavailable
from moorage.ports import Capability

NAME = "moorage-store"


class InlineStore:
    """Runs every method of a store that needs an event loop, at once."""

    def __init__(self, store: Any) -> None:
        self._store, self._process = store, os.getpid()
        self.capabilities: frozenset[Capability] = getattr(store, "capabilities", frozenset())
        self.clock = getattr(store, "clock", None)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=NAME, daemon=True)
        self._thread.start()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return self._run(method(*args, **kwargs))

        async def on_the_loop(args: Any, kwargs: Any) -> Any:
            return method(*args, **kwargs)

        def call_plain(*args: Any, **kwargs: Any) -> Any:
            return self._run(on_the_loop(args, kwargs))

        setattr(self, name, call if iscoroutinefunction(method) else call_plain)
        return getattr(self, name)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        if os.getpid() != self._process or self._loop.is_closed():
            work.close()
            raise StoreUnavailable("this store is closed, or was opened before this process forked; connect again")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def close(self) -> None:
        """Close the store. A second call is harmless."""
        if self._loop.is_closed() or os.getpid() != self._process:
            return
        self._run(self._store.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
