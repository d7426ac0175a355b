"""Holdfast without `await`: the same methods, driven to their end.

On SQLite and in memory nothing ever suspends, so no event loop is needed and `asyncio` is
not even imported. `sync.pyi` beside this file spells the methods out for type checkers; a
test keeps it fresh.
"""

from __future__ import annotations

from collections.abc import Callable
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

    def __init__(self, target: AsyncHoldfast) -> None:
        super().__init__(target)
        self.context = ContextDoor(target.context)

    def __enter__(self) -> Holdfast:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
    opened = AsyncHoldfast(lambda: config.open_deps(url, threaded=False), caller, threaded=False)
    drive(opened._open())
    return Holdfast(opened)
