"""Holdfast without `await`: the same methods, driven to their end.

On SQLite and in memory nothing ever suspends, so no event loop is needed and `asyncio` is
not even imported. `sync.pyi` beside this file spells the methods out for type checkers; a
test keeps it fresh.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import AsyncGeneratorType, CoroutineType
from typing import Any

from holdfast import config
from holdfast.client import Holdfast as AsyncHoldfast
from holdfast.client import caller_for
from holdfast.service.inline import NEEDS_A_LOOP, drive, drive_each


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

    def __init__(self, target: object) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        method = _driven(getattr(self._target, name))
        setattr(self, name, method)
        return method

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._target) if not name.startswith("_")]


class ContextDoor(_Sync):
    """`hf.context`: a session's keyed memory."""


class Holdfast(_Sync):
    """Sessions on one store."""

    _target: AsyncHoldfast

    def __init__(self, target: AsyncHoldfast) -> None:
        super().__init__(target)
        self.context = ContextDoor(target.context)

    def __getattr__(self, name: str) -> Any:
        if name == "run":  # an agent needs an event loop: one is made, for as long as it takes
            return partial(_run_apart, self._target)
        return super().__getattr__(name)

    def __enter__(self) -> Holdfast:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _run_apart(target: AsyncHoldfast, *args: Any, **kwargs: Any) -> Any:
    from asyncio import get_running_loop, run

    work = _apart(target, args, kwargs)
    try:
        get_running_loop()
    except RuntimeError:
        return run(work)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as thread:  # a loop runs here already, as in a notebook
        return thread.submit(run, work).result()


async def _apart(target: AsyncHoldfast, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    async with target._for_a_loop() as hf:
        mode = str(kwargs.get("mode", "sync")).strip().lower()
        hf.launches = mode == "sync"  # what is not waited for is left to others
        return await hf.run(*args, **kwargs)


def connect(
    url: str | None = None,
    *,
    owner: str = "local",
    by: str | None = None,
    interface: str = "python",
    holder: str | None = None,
) -> Holdfast:
    """Sessions on the store that `url` names; opened at once.

    Without a URL: HOLDFAST_URL, else an SQLite file in the user's data folder.
    """
    caller = caller_for(owner=owner, by=by, interface=interface, holder=holder)
    opened = AsyncHoldfast(lambda: config.open_deps(url, threaded=False), caller, threaded=False, url=url)
    drive(opened._open())
    return Holdfast(opened)
