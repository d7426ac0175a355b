"""Holdfast without `await`: the same methods, driven to their end.

On SQLite and in memory nothing ever suspends, so no event loop is needed and `asyncio` is
not even imported. `sync.pyi` beside this file spells the methods out for type checkers; a
test keeps it fresh.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import AsyncGeneratorType, CoroutineType
from typing import Any, TypeVar

from holdfast import config
from holdfast.client import Holdfast as AsyncHoldfast
from holdfast.client import caller_for

T = TypeVar("T")
_NEEDS_A_LOOP = "this store needs an event loop; use holdfast.connect"


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError(_NEEDS_A_LOOP)


def drive_each(stream: AsyncIterator[T]) -> Iterator[T]:
    """Walk an asynchronous stream that never suspends."""
    while True:
        try:
            yield drive(stream.__anext__())  # type: ignore[arg-type]  # an async generator's step is a coroutine to us
        except StopAsyncIteration:
            return


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
        raise RuntimeError(_NEEDS_A_LOOP)

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
