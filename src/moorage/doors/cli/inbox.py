"""The inbox: list input that waits for the next turns of sessions, and retry dead letters."""

from __future__ import annotations

from collections.abc import Iterator

import click

from moorage.core.entry import Kind
from moorage.core.inbox import Item, ItemKind, ItemState
from moorage.core.query import MAX_LIMIT
from moorage.doors.cli.app import App, command
from moorage.doors.cli.arguments import id_beginning, optional_session_argument
from moorage.doors.cli.entries import said, sentence
from moorage.doors.cli.hints import command_line
from moorage.doors.cli.output import fields, note, page_of
from moorage.doors.cli.tables import TableRow, named, show_rows, wide_option
from moorage.doors.cli.wording import ago, short_ids

COLUMNS = ("content", "item", "session", "state", "turns", "since")


@command("inbox", "moorage inbox", "moorage inbox --dead-letters", "moorage inbox --send-again ITEM")
@optional_session_argument
@click.option("--dead-letters", is_flag=True, help="List items that three turns failed to process.")
@click.option("--send-again", "item_id", metavar="ITEM", help="Send a dead letter again.")
@click.option("--limit", type=int, default=100, show_default=True, metavar="N", help="Show at most N.")
@wide_option
def inbox(app: App, session: str | None, dead_letters: bool, item_id: str | None, limit: int) -> None:
    """List the input that waits for the next turns of sessions.

    ITEM is the id of a dead letter, or the beginning of it. Piped, one line for each: item, state, kind, session and
    the number of turns that failed with it, separated by tabs.
    """
    if item_id is not None:
        _send_again(app, item_id)
        return
    page = app.moor.inbox(None if session is None else app.id_of(session), dead_letters=dead_letters, limit=limit)
    lines = [(each.item_id, each.state.value, each.kind.value, each.session_id, each.given) for each in page.items]
    nothing = "No dead letters." if dead_letters else "No items in the inbox."
    rows, without = _cells(app, page.items), "state" if dead_letters else None

    def show() -> None:
        show_rows(COLUMNS, rows, lines=lines, without=without, spare=("turns", "since"), nothing=nothing)
        _propose(page.items)

    app.show(page_of(page.items, page.next), show)


def _cells(app: App, items: list[Item]) -> Iterator[TableRow]:
    names = {id: session.session_name for id, session in app.sessions(item.session_id for item in items).items()}
    for item in items:
        session = named(names.get(item.session_id), item.session_id)
        state = item.state.value.replace("_", " ")
        yield " ".join(_content(item).split()), item.item_id, session, state, item.given, ago(item.created_at)


def _content(item: Item) -> str:
    """Return the content of an item as text."""
    if item.kind is ItemKind.MESSAGE:
        return said(item.body.get("content"))
    if item.kind is ItemKind.CALLBACK:
        return sentence(Kind.CALLBACK, item.body)
    return f"{item.body.get('question')} {item.body.get('decision') or item.body.get('state')}"


def _propose(items: list[Item]) -> None:
    """Name the command that sends the first dead letter again."""
    first = next((item.item_id for item in items if item.state is ItemState.DEAD_LETTER), None)
    if first is not None:
        id = short_ids(item.item_id for item in items)[first]
        note(f"Send one again: {command_line('inbox', '--send-again', id)}")


def _send_again(app: App, ref: str) -> None:
    again = app.moor.send_again(_dead_letter(app, ref))
    told = f"Sent again: it waits for the next turn of {app.ref_of(again.session_id)}."
    app.tell(again, told, fields(again.item_id, again.state.value))


def _dead_letter(app: App, ref: str) -> str:
    """Return the id of a dead letter from its id or a prefix of it; else the given word."""
    letters = app.moor.inbox(dead_letters=True, limit=MAX_LIMIT).items
    return id_beginning(ref, [item.item_id for item in letters], "dead letter") or ref
