"""Paginated lists, printed as a table, as lines or as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from moorage.core.query import Page, pages
from moorage.doors.cli.app import App
from moorage.doors.cli.hints import command_line
from moorage.doors.cli.output import hint, is_terminal, note, page_of

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
ROWS = 50  # of a table, without --limit


def page_options(command: F) -> F:
    """Add `--limit` and `--cursor`."""
    most = f"Show at most N; by default {ROWS} in a table, all in a pipe."
    limited = click.option("--limit", type=click.IntRange(min=1), metavar="N", help=most)
    told = "Continue from the `next` of an earlier --json answer."
    return limited(click.option("--cursor", metavar="CURSOR", help=told)(command))


def show_list(
    app: App,
    ask: Callable[..., Page[T]],
    show: Callable[[Sequence[T]], None],
    *,
    limit: int | None,
    cursor: str | None,
    nothing: str,
) -> None:
    """Print a list: all of it in a pipe, some rows on a terminal, one JSON document for a program."""
    if not app.as_json and not is_terminal():
        for page in pages(ask, cursor, limit=limit):
            show(page.items)
        return
    items, following = list[T](), None
    for page in pages(ask, cursor, limit=limit if app.as_json else limit or ROWS):
        items, following = items + page.items, page.next
    app.show(page_of(items, following), lambda: show(items) if items else hint(nothing))
    if following is not None and not app.as_json:
        words = click.get_current_context().command_path.split()[1:]
        note(f"There are more: --limit N shows N of them, `{command_line(*words)} | cat` all.")
