"""Cleanup and audit: delete old sessions, and list deleted ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import click

from moorage.core.duration import duration_text
from moorage.core.errors import MoorageError
from moorage.core.family import Tombstone
from moorage.core.session import State
from moorage.doors.cli.app import App, command
from moorage.doors.cli.arguments import INSTANT, many_option, one_of
from moorage.doors.cli.hints import command_line
from moorage.doors.cli.output import complain, is_terminal, say
from moorage.doors.cli.progress import counting
from moorage.doors.cli.tables import TableRow, page_options, show_list, show_rows, wide_option
from moorage.doors.cli.wording import ago, counted, seconds_text, span
from moorage.service.retention import Cleanup, Removal


@command(
    "cleanup",
    "moorage cleanup --dry-run",
    "moorage cleanup",
    "moorage cleanup --hours 168 --state completed --state failed",
)
@click.option("--hours", type=float, metavar="N", help="Delete sessions idle for this long, in every state.")
@many_option("--state", "states", told="Only sessions in this state.", words=State, metavar="STATE")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and delete nothing.")
@wide_option
def cleanup(app: App, hours: float | None, states: tuple[str, ...], dry_run: bool) -> None:
    """Delete sessions that were idle for too long.

    Sessions past their time to live are deleted as well. The configuration sets the age for each state; the default
    is 24 hours. A tree is deleted only if no member is running, held or waiting for an approval. Piped, one line for
    each: id, state, agent, name, reason, time idle, its limit, and the setting that says so.
    """
    deleted = 0

    def count(number: int) -> None:
        nonlocal deleted
        deleted = number
        if progress is not None:
            progress(number)

    try:
        with counting("Cleaning up") as progress:
            done = app.moor.cleanup(hours, states=states or None, dry_run=dry_run, progress=count)
    except MoorageError:
        if deleted and not dry_run:
            went = f"{counted(deleted, 'session')} {'was' if deleted == 1 else 'were'} deleted"
            complain(f"before this failed, {went}; `{command_line('audit')}` lists what was deleted")
        raise
    app.show(done, lambda: _show_gone(done))


def _show_gone(done: Cleanup) -> None:
    lines = [_row(gone) for gone in done.sessions]
    columns = ("name", "session", "state", "agent", "why", "idle", "limit", "set by")
    rows = [(name, session, state, agent, *rest) for session, state, agent, name, *rest in lines]
    show_rows(columns, rows, lines=lines, spare=("set by", "limit", "idle", "agent", "state"))
    if is_terminal():
        say(f"{'Would delete' if done.dry_run else 'Deleted'} {counted(done.removed, 'session')}.")


def _row(gone: Removal) -> TableRow:
    idle = (gone.deleted_at - gone.last_activity_at).total_seconds()
    limit = None if gone.limit_seconds is None else duration_text(timedelta(seconds=gone.limit_seconds))
    who = (gone.session_id, gone.state, gone.agent_name, gone.session_name)
    return (*who, gone.reason, span(idle), limit, gone.limit_from)


# Audit --------------------------------------------------------------------------------------------

REASONS = ("deleted", "retention", "expired")


@command(
    "audit",
    "moorage audit",
    "moorage audit --since 7d --reason retention",
    "moorage audit --since 2026-01-31 | cut -f1",
    "moorage --json audit --limit 100",
)
@click.option(
    "--reason",
    metavar="REASON",
    shell_complete=one_of(*REASONS),
    help="Only this reason: deleted, expired or retention.",
)
@click.option("--since", type=INSTANT, metavar="TIME", help="Only deletions since then: 24h, 7d, 2026-01-31.")
@wide_option
@page_options
def audit(app: App, /, reason: str | None, since: datetime | None, **pages: Any) -> None:
    """List deleted sessions, newest first: when, by whom and why.

    The reason is `deleted` (on request), `retention` (cleanup) or `expired` (its time to live
    ended). Piped, one line for each: id, when, by, why, state, agent, name, task, and the
    session it went with, separated by tabs, without a header, all of them.
    """
    ask = partial(app.moor.deleted, reason=reason, since=since)
    show_list(app, ask, _show, nothing="Nothing was deleted.", **pages)


def _show(tombstones: Sequence[Tombstone]) -> None:
    columns = ("name", "session", "when", "why", "by", "state", "agent", "task", "went with")
    rows, lines = map(_tombstone_cells, tombstones), map(_tombstone_fields, tombstones)
    show_rows(columns, rows, lines=lines, spare=("task", "went with", "state", "agent", "by"))


def _tombstone_cells(tombstone: Tombstone) -> TableRow:
    session, _, by, why, state, agent, name, task, went_with = _tombstone_fields(tombstone)
    own_task = None if task in (session, went_with) else task  # a task without a label has the id of its first session
    return name, session, ago(tombstone.deleted_at), why, by, state, agent, own_task, went_with


def _tombstone_fields(tombstone: Tombstone) -> TableRow:
    went = (tombstone.session_id, seconds_text(tombstone.deleted_at), tombstone.deleted_by, tombstone.reason)
    about = (tombstone.state, tombstone.agent_name, tombstone.session_name, tombstone.task_id)
    return (*went, *about, None if tombstone.root_of_deletion == tombstone.session_id else tombstone.root_of_deletion)
