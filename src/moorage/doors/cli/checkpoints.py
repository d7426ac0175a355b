"""Checkpoints: state an agent hands over."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from moorage.core.codec import encode_text
from moorage.core.errors import utc_text
from moorage.core.query import every
from moorage.doors.cli.app import App, group
from moorage.doors.cli.arguments import OBJECT, session_argument, token_option
from moorage.doors.cli.output import is_terminal, page_of, say
from moorage.doors.cli.tables import show_rows, wide_option
from moorage.doors.cli.wording import ago
from moorage.service.sessions import Checkpoint


@group(
    "checkpoint", 'moorage checkpoint save plan-prod \'{"applied": ["bucket-a"]}\'', "moorage checkpoint show plan-prod"
)
def checkpoint() -> None:
    """Save, show and list checkpoints: state for a later resume."""


@checkpoint.subcommand(
    "save",
    'moorage checkpoint save plan-prod \'{"applied": ["bucket-a"]}\'',
    "moorage checkpoint save plan-prod @checkpoint.json",
)
@session_argument
@click.argument("checkpoint", type=OBJECT, metavar="JSON|@FILE")
@token_option
def save(app: App, session: str, checkpoint: Any, token: str | None) -> None:
    """Save a checkpoint without suspending the session."""
    kept = app.moor.save_checkpoint(app.id_of(session), checkpoint, token=token)
    app.tell(kept, f"Kept as entry {kept.number}.", str(kept.number))


@checkpoint.subcommand("show", "moorage checkpoint show plan-prod", "moorage --json checkpoint show plan-prod 12")
@session_argument
@click.argument("number", type=int, required=False)
def show(app: App, session: str, number: int | None) -> None:
    """Show the newest checkpoint, or the one of that entry."""
    found = app.moor.checkpoint(app.id_of(session), number)
    app.show(found, lambda: say(encode_text(found.checkpoint)))


@checkpoint.subcommand("list", "moorage checkpoint list plan-prod")
@session_argument
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Show at most N.")
@wide_option
def list_(app: App, session: str, limit: int | None) -> None:
    """List checkpoints, newest first."""
    found = list(every(partial(app.moor.checkpoints, app.id_of(session)), limit=limit, by="before"))
    columns, nothing = ("entry", "when", "by", "checkpoint"), f"{session} has no checkpoints."
    app.show(page_of(found), lambda: show_rows(columns, map(_row, found), nothing=nothing))


def _row(kept: Checkpoint) -> tuple[object, ...]:
    when = ago(kept.at) if is_terminal() else utc_text(kept.at)
    return kept.number, when, kept.by, encode_text(kept.checkpoint)
