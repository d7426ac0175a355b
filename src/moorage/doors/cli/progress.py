"""Progress of long work, shown only at a terminal.

It is drawn on standard error, so that piped output stays clean.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def counting(doing: str) -> Iterator[Callable[[int], None] | None]:
    """Yield a function that shows how many are done; None without a terminal."""
    with stating(doing) as state:
        yield None if state is None else lambda done: state(f"{doing} … {done}")


@contextmanager
def stating(doing: str) -> Iterator[Callable[[str], None] | None]:
    """Yield a function that shows a status line; None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{doing} …") as status:
        yield status.update


@contextmanager
def reading(doing: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function that shows how much of the total is read; None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(doing, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
