"""Checkpoints: state an agent hands over."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import click

from moorage.core.codec import encode_text
from moorage.core.errors import utc_text
from moorage.core.query import MAX_LIMIT, Page
from moorage.doors.cli.app import App, group, pass_app
from moorage.doors.cli.arguments import OBJECT, session_argument, token_option
from moorage.doors.cli.output import fields, is_terminal, page_of, say, table
from moorage.service.sessions import Checkpoint


@group(
    "checkpoint",
    examples=(
        'moorage checkpoint save plan-prod \'{"applied": ["bucket-a"]}\'',
        "moorage checkpoint show plan-prod",
    ),
)
def checkpoint() -> None:
    """Keep, show and list checkpoints: state an agent hands over."""


@checkpoint.command(
    "save",
    examples=(
        'moorage checkpoint save plan-prod \'{"applied": ["bucket-a"]}\'',
        "moorage checkpoint save plan-prod @checkpoint.json",
    ),
)
@session_argument()
@click.argument("checkpoint", type=OBJECT, metavar="JSON|@FILE")
@token_option
@pass_app
def save(app: App, session: str, checkpoint: Any, token: str | None) -> None:
    """Keep a checkpoint without pausing."""
    kept = app.moor.save_checkpoint(app.id_of(session), checkpoint, token=token)
    app.show(kept, lambda: say(f"Kept as entry {kept.number}." if is_terminal() else str(kept.number)))


@checkpoint.command(
    "show", examples=("moorage checkpoint show plan-prod", "moorage --json checkpoint show plan-prod 12")
)
@session_argument()
@click.argument("number", type=int, required=False)
@pass_app
def show(app: App, session: str, number: int | None) -> None:
    """Show the newest checkpoint, or the one with that entry's number."""
    found = app.moor.checkpoint(app.id_of(session), number)
    app.show(found, lambda: say(encode_text(found.checkpoint)))


@checkpoint.command("list", examples=("moorage checkpoint list plan-prod",))
@session_argument()
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many.")
@pass_app
def list_(app: App, session: str, limit: int | None) -> None:
    """List checkpoints, newest first."""
    found = list(islice(_all(app, app.id_of(session), min(limit or MAX_LIMIT, MAX_LIMIT)), limit))
    app.show(page_of(found), lambda: _show_all(found))


def _all(app: App, session_id: str, at_once: int) -> Iterator[Checkpoint]:
    page: Page[Checkpoint] = app.moor.checkpoints(session_id, limit=at_once)
    yield from page.items
    while page.next is not None:
        page = app.moor.checkpoints(session_id, before=page.next, limit=at_once)
        yield from page.items


def _show_all(found: list[Checkpoint]) -> None:
    rows = [(kept.number, utc_text(kept.at), kept.by, encode_text(kept.checkpoint)) for kept in found]
    if is_terminal():
        table(("entry", "at", "by", "checkpoint"), rows)
        return
    for row in rows:
        say(fields(*row))
