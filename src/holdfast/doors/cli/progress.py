"""Progress of long work, for a person at a terminal; for nobody else.

It is drawn on standard error, so that what is piped away stays clean.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def counting(doing: str) -> Iterator[Callable[[int], None] | None]:
    """Give a function that shows how many are done; None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{doing} …") as status:
        yield lambda done: status.update(f"{doing} … {done}")


@contextmanager
def reading(doing: str, total: int) -> Iterator[Callable[[int], None]]:
    """Give a function that moves a bar by so many bytes."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(doing, total=total)
        yield lambda size: progress.advance(task, size)
