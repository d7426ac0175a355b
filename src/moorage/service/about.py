"""The ids of the present work: every log line about it carries them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

IDS = ("session", "task", "run", "request_id")
_NOTHING: dict[str, str] = {}
_about: ContextVar[dict[str, str]] = ContextVar("moorage_about", default=_NOTHING)


def about() -> dict[str, str]:
    """Return the ids of the present work."""
    return _about.get()


def learn(**ids: str | None) -> None:
    """Add ids to the present work, until its block ends."""
    _about.set({**_about.get(), **{name: value for name, value in ids.items() if value is not None}})


@contextmanager
def working_on(**ids: str | None) -> Iterator[None]:
    """Within the block, add these ids to the present work."""
    before = _about.set(_about.get())
    learn(**ids)
    try:
        yield
    finally:
        _about.reset(before)
