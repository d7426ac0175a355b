"""What a piece of work is about: the ids that every line of the log about it carries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

IDS = ("session", "task", "run", "request_id")
_NOTHING: dict[str, str] = {}
_about: ContextVar[dict[str, str]] = ContextVar("moorage_about", default=_NOTHING)


def about() -> dict[str, str]:
    """The ids of what is being done here and now."""
    return _about.get()


def learn(**ids: str | None) -> None:
    """The work is about these as well, until the block that it began with ends."""
    _about.set({**_about.get(), **{name: value for name, value in ids.items() if value is not None}})


@contextmanager
def working_on(**ids: str | None) -> Iterator[None]:
    """For as long as the block lasts, the work is about these, besides what it was about before."""
    before = _about.set(_about.get())
    learn(**ids)
    try:
        yield
    finally:
        _about.reset(before)
