"""Moorage without `await`: the same methods, driven to their end.

On SQLite and in memory nothing ever suspends, so no event loop is needed and `asyncio` is
not even imported. A server is asked by an event loop in a thread of its own. `sync.pyi` beside
this file spells the methods out for type checkers; a test keeps it fresh.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import AsyncGeneratorType, CoroutineType
from typing import Any

from moorage import config
from moorage.client import Moorage as AsyncMoorage
from moorage.client import caller_for
from moorage.service.inline import NEEDS_A_LOOP, drive, drive_each

TYPE_CHECKING = False
if TYPE_CHECKING:
    from moorage.remote.background import Background


ASKING = ("run", "compact")


def _driven(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method without `await`: one call more than the method itself, no loop."""

    def call(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        if type(result) is not CoroutineType:
            return drive_each(result) if type(result) is AsyncGeneratorType else result
        try:
            result.send(None)
        except StopIteration as done:
            return done.value
        result.close()
        raise RuntimeError(NEEDS_A_LOOP)

    return call


class _Sync:
    """Every public method of an asynchronous object, without `await`."""

    def __init__(self, target: object, drive: Callable[..., Any] | None = None) -> None:
        self._target, self._drive = target, drive or _driven

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        method = self._drive(getattr(self._target, name))
        setattr(self, name, method)
        return method

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._target) if not name.startswith("_")]


class ContextDoor(_Sync):
    """`moor.context`: a session's keyed memory."""


class Moorage(_Sync):
    """Sessions on one store."""

    _target: AsyncMoorage

    def __init__(self, target: AsyncMoorage, drive: Callable[..., Any] | None = None) -> None:
        super().__init__(target, drive)
        self.context = ContextDoor(target.context, drive)

    def __getattr__(self, name: str) -> Any:
        if name in ASKING:  # an agent needs an event loop: one is made, for as long as it takes
            return partial(_asked, self._target, name)
        return super().__getattr__(name)

    def __enter__(self) -> Moorage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _OnServer(Moorage):
    """Sessions on a server: a thread of their own does the waiting, until they are closed."""

    def __init__(self, target: AsyncMoorage, background: Background) -> None:
        super().__init__(target, background.driven)
        self._background = background

    def __getattr__(self, name: str) -> Any:
        return _Sync.__getattr__(self, name)

    def close(self) -> None:
        """Let the server go. Nothing acknowledged depends on it."""
        if self._background.is_open:
            self._background.run(self._target.close())
            self._background.close()


def _asked(target: AsyncMoorage, name: str, /, *args: Any, **kwargs: Any) -> Any:
    if name == "compact" and kwargs.get("agent") is None:
        return _driven(target.compact)(*args, **kwargs)
    from asyncio import get_running_loop, run

    work = _apart(target, name, args, kwargs)
    try:
        get_running_loop()
    except RuntimeError:
        return run(work)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as thread:  # a loop runs here already, as in a notebook
        return thread.submit(run, work).result()


async def _apart(target: AsyncMoorage, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    async with target._for_a_loop() as moor:
        mode = str(kwargs.get("mode", "sync")).strip().lower()
        moor.launches = mode == "sync"  # what is not waited for is left to others
        return await getattr(moor, name)(*args, **kwargs)


def connect(
    url: str | None = None,
    *,
    owner: str = "local",
    by: str | None = None,
    interface: str = "python",
    holder: str | None = None,
    key: str | None = None,
    deadline: float | None = None,
) -> Moorage:
    """Sessions on the store that `url` names, opened at once, or on a server.

    Without a URL: MOORAGE_URL, else an SQLite file in the user's data folder. `key` and `deadline` are
    for servers: what to show at the door (else MOORAGE_TOKEN, else MOORAGE_KEY), and after how many
    seconds without an answer the server counts as unreachable (30).
    """
    picked = config.pick_url(url)
    if config.is_server(picked):
        from moorage.remote import client as remote

        return on_server(
            remote.connect(picked, owner=owner, by=by, interface=interface, holder=holder, key=key, deadline=deadline)
        )
    caller = caller_for(owner=owner, by=by, interface=interface, holder=holder)
    opened = AsyncMoorage(lambda: config.open_deps(picked, threaded=False), caller, threaded=False, url=picked)
    drive(opened._open())
    return Moorage(opened)


def on_server(moor: AsyncMoorage) -> Moorage:
    """What a server's sessions are without `await`."""
    from moorage.remote.background import Background

    return _OnServer(moor, Background())
