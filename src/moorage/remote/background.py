"""An event loop in a thread of its own, for callers without one: the sync door to a server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from types import AsyncGeneratorType, CoroutineType
from typing import Any, TypeVar

from moorage.core.errors import StoreUnavailable, Unsupported

T = TypeVar("T")
NAME = "moorage-remote"
LAST_WORK = 5.0  # seconds for last work on closing


class Background:
    """Runs coroutines for other threads."""

    def __init__(self) -> None:
        self.is_open = True  # it accepts work before the loop runs: that may take a while on a busy machine
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name=NAME, daemon=True)
        self._thread.start()
        self._lock = threading.Lock()
        self._streams: set[Any] = set()  # open iterations

    def driven(self, result: Any) -> Any:
        """Return the answer of an asynchronous method; of a stream, each of its items."""
        if type(result) is AsyncGeneratorType:
            return self._each(result)
        return self.run(result) if type(result) is CoroutineType else result

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run the coroutine and return its result. An interrupt of the wait interrupts it."""
        if threading.current_thread() is self._thread:  # an event handler must not wait for later events
            work.close()
            raise Unsupported("a callback cannot ask the server on its own connection; connect a second time for it")
        return _result(self.submit(work))

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start work, and return a future for its result."""
        if not self.is_open:
            work.close()
            raise _closed()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _each(self, stream: AsyncIterator[Any]) -> Iterator[Any]:
        """Iterate over a stream; close it if the caller leaves early."""
        self._streams.add(stream)
        alone = asyncio.Lock()  # an interrupted caller leaves a step that still has to end
        try:
            while True:
                try:
                    yield self.run(_next(stream, alone))
                except StopAsyncIteration:
                    return
        finally:
            if self.is_open and stream in self._streams:
                self._streams.discard(stream)
                self.run(_close(stream, alone))

    def close(self) -> None:
        """End the loop and its thread. A second call has no effect."""
        with self._lock:
            if not self.is_open:
                return
            self.run(self._end())
            self.is_open = False
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    async def _end(self) -> None:
        """Cancel waiting callers, then close streams from outside to inside."""
        waiting = asyncio.all_tasks() - {asyncio.current_task()}
        for task in waiting:
            task.cancel()
        if waiting:
            await asyncio.wait(waiting, timeout=LAST_WORK)
        while self._streams:
            await self._streams.pop().aclose()
        await _finalized()

    def _work(self) -> None:
        self._loop.run_forever()
        if left := asyncio.all_tasks(self._loop):
            self._loop.run_until_complete(asyncio.wait(left, timeout=LAST_WORK))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


async def _next(stream: AsyncIterator[Any], alone: asyncio.Lock) -> Any:
    async with alone:
        return await stream.__anext__()


async def _close(stream: Any, alone: asyncio.Lock) -> None:
    async with alone:
        await stream.aclose()


async def _finalized() -> None:
    """Wait while generators inside of closed streams are finalized, each by the end of the one around it.

    The rest is left to `shutdown_asyncgens`, which closes all at once and breaks nested generators.
    """
    quiet = 0
    while quiet < 2:  # the loop creates the task of a finalizer one step after the generator is released
        await asyncio.sleep(0)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        quiet = 0 if others else quiet + 1
        if others and not (await asyncio.wait(others, timeout=LAST_WORK))[0]:
            return


def _result(future: Future[Any]) -> Any:
    try:
        return future.result()
    except CancelledError:
        raise _closed() from None
    except BaseException:
        future.cancel()
        raise


def _closed() -> Exception:
    return StoreUnavailable("this connection is closed; connect again")
