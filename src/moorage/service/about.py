"""The ids of the current work, which every log line about it has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

IDS = ("session", "task", "run", "request_id")
_NOTHING: dict[str, str] = {}
_about: ContextVar[dict[str, str]] = ContextVar("moorage_about", default=_NOTHING)


def about() -> dict[str, str]:
    """Return the ids of the current work."""
    return _about.get()


def learn(**ids: str | None) -> None:
    """Add ids to the current work, until its block ends."""
    _about.set({**_about.get(), **{name: value for name, value in ids.items() if value is not None}})


@contextmanager
def working_on(**ids: str | None) -> Iterator[None]:
    """Add these ids to the current work within the block."""
    before = _about.set(_about.get())
    learn(**ids)
    try:
        yield
    finally:
        _about.reset(before)
