"""Care: throw away what is old, bring the schema up to date."""

from __future__ import annotations

import os
from typing import Any

import click

from holdfast.core.errors import Unsupported
from holdfast.core.session import State
from holdfast.doors.cli.app import App, command, pass_app
from holdfast.doors.cli.arguments import one_of
from holdfast.doors.cli.connection import connect
from holdfast.doors.cli.output import facts, fields, is_terminal, note, say, table
from holdfast.doors.cli.progress import counting
from holdfast.service.retention import Cleanup


@command(
    "cleanup",
    examples=(
        "holdfast cleanup --hours 24 --dry-run",
        "holdfast cleanup --hours 168 --state completed --state failed",
    ),
)
@click.option("--hours", type=float, metavar="N", help="Untouched for so long; 24 unless configured otherwise.")
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    shell_complete=one_of(*State),
    help="Only in these states; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@pass_app
def cleanup(app: App, hours: float | None, states: tuple[str, ...], dry_run: bool) -> None:
    """Delete what nobody touched for long, and what is past its time to live.

    A tree goes only when every member may: none that runs, is held or waits for an answer.
    """
    with counting("Cleaning up") as progress:
        done = app.hf.cleanup(hours, states=states or None, dry_run=dry_run, progress=progress)
    app.show(done, lambda: _show_gone(done))


def _show_gone(done: Cleanup) -> None:
    rows = [(gone.session_id, gone.state, gone.agent_name, gone.session_name, gone.reason) for gone in done.sessions]
    if not is_terminal():
        for row in rows:
            say(fields(*row))
        return
    if rows:
        table(("session", "state", "agent", "name", "why"), rows)
    note(f"{'Would delete' if done.dry_run else 'Deleted'} {done.removed} sessions.")


@command("migrate", examples=("holdfast migrate --dry-run", "holdfast migrate", "holdfast --json migrate"))
@click.option("--dry-run", is_flag=True, help="Only say what is missing.")
@pass_app
def migrate(app: App, dry_run: bool) -> None:
    """Bring the database to the newest schema. Twice is harmless.

    Every command does so by itself; this one tells what it did.
    """
    from holdfast.stores.sqlite.migrate import LATEST

    before = schema_of(sqlite_file(app))
    missing = list(range(before + 1, LATEST + 1))
    if not dry_run:
        connect(app.url).close()  # opening the store applies what is missing, or says why it cannot
    done: dict[str, Any] = {
        "url": app.full_url,
        "schema_before": before,
        "schema": before if dry_run else LATEST,
        "missing" if dry_run else "applied": missing,
    }
    app.show(done, lambda: say(facts((name, value or "nothing") for name, value in done.items())))


def sqlite_file(app: App) -> str:
    """The file behind the URL. Raises Unsupported for a store that is none."""
    from holdfast.config import sqlite_path

    if not app.full_url.startswith("sqlite://"):
        raise Unsupported(f"{app.full_url!r} is no SQLite file; only those have a schema to look at")
    return sqlite_path(app.full_url)


def schema_of(path: str) -> int:
    """The schema's version; 0 if there is no file yet. Changes nothing."""
    if not os.path.exists(path):
        return 0
    from holdfast.stores.sqlite.connection import Connection, translating
    from holdfast.stores.sqlite.migrate import schema_version

    db = Connection(path)
    try:
        with translating(path):
            return schema_version(db)
    finally:
        db.close()
