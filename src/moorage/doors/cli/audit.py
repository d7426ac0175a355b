"""The audit: what was deleted, when, by whom and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import click

from moorage.core.errors import utc_text
from moorage.core.family import Tombstone
from moorage.core.query import MAX_LIMIT, Page
from moorage.doors.cli.app import App, command, pass_app
from moorage.doors.cli.arguments import INSTANT, one_of
from moorage.doors.cli.output import fields, is_terminal, note, page_of, say, table

ROWS = 50  # of a table, unless --limit says otherwise
REASONS = ("deleted", "retention", "expired")
COLUMNS = ("session", "when", "by", "why", "state", "agent", "name", "task", "went with")
SPARE = ("went with", "task", "state", "agent", "name")  # which go first where a row does not fit


@command(
    "audit",
    examples=(
        "moorage audit",
        "moorage audit --since 7d --reason retention",
        "moorage audit --since 2026-01-31 | cut -f1",
        "moorage --json audit --limit 100",
    ),
)
@click.option(
    "--reason", metavar="REASON", shell_complete=one_of(*REASONS), help="Only what went for this: deleted, expired, …"
)
@click.option("--since", type=INSTANT, metavar="TIME", help="Only what went since then: 24h, 7d, 2026-01-31.")
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help=f"At most so many ({ROWS} in a table, else all)."
)
@click.option("--cursor", metavar="CURSOR", help="Go on from the `next` of an earlier --json answer.")
@pass_app
def audit(app: App, reason: str | None, since: datetime | None, limit: int | None, cursor: str | None) -> None:
    """List what was deleted: when, by whom and why; newest first.

    The reason is `deleted` (somebody asked), `retention` (cleanup) or `expired` (its time to live
    ended). Piped, one line for each: id, when, by, why, state, agent, name, task, and the
    session it went with, separated by tabs, without a header, all of them.
    """
    wanted = {"reason": reason, "since": since}
    if app.as_json or is_terminal():
        found = _gathered(_pages(app, wanted, limit if app.as_json else limit or ROWS, cursor))
        app.show(page_of(found.items, found.next), lambda: _show_table(found))
    else:
        for page in _pages(app, wanted, limit, cursor):
            for stone in page:
                say(fields(*_row(stone)))


def _pages(app: App, wanted: dict[str, Any], limit: int | None, cursor: str | None) -> Iterator[Page[Tombstone]]:
    """Page after page, up to a limit or the end."""
    left = limit
    while left is None or left > 0:
        page = app.moor.deleted(limit=min(left or MAX_LIMIT, MAX_LIMIT), cursor=cursor, **wanted)
        yield page
        left = None if left is None else left - len(page)
        cursor = page.next
        if cursor is None:
            return


def _gathered(pages: Iterable[Page[Tombstone]]) -> Page[Tombstone]:
    """All of them as one page."""
    stones: list[Tombstone] = []
    cursor = None
    for page in pages:
        stones += page.items
        cursor = page.next
    return Page(stones, cursor)


def _show_table(page: Page[Tombstone]) -> None:
    if page.items:
        table(COLUMNS, map(_row, page), spare=SPARE)
    else:
        note("Nothing was deleted.")
    if page.next is not None:
        note("There is more: --limit N shows N of them, `moorage audit | cat` all.")


def _row(stone: Tombstone) -> tuple[object, ...]:
    return (
        stone.session_id,
        utc_text(stone.deleted_at.replace(microsecond=0)),
        stone.deleted_by,
        stone.reason,
        stone.state,
        stone.agent_name,
        stone.session_name,
        stone.task_id,
        None if stone.root_of_deletion == stone.session_id else stone.root_of_deletion,
    )
