"""Watch: what happens, while it happens; replay: the log as it happened."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import click

from moorage.core.codec import encode_text
from moorage.core.entry import Entry, text_of
from moorage.core.errors import utc_text
from moorage.core.event import Event
from moorage.core.query import MAX_LIMIT
from moorage.core.render import to_json
from moorage.doors.cli.app import App, command, pass_app
from moorage.doors.cli.arguments import session_argument
from moorage.doors.cli.output import entry_line, entry_paragraph, fields, is_terminal, say


@command("watch", examples=("moorage watch plan-prod", "moorage watch --after 120 --json"))
@session_argument(required=False)
@click.option("--after", type=int, default=None, metavar="N", help="Begin after this event; else with what is new.")
@click.option("--once", is_flag=True, help="Print what is there and end.")
@pass_app
def watch(app: App, session: str | None, after: int | None, once: bool) -> None:
    """Print what happens in a session, or in all of them, until Ctrl-C.

    With --json, a document in each line.
    """
    ref = None if session is None else app.id_of(session)
    begin = after if after is not None else (0 if once else "end")
    for event in app.moor.events(ref, after=begin, follow=not once):
        say(encode_text(to_json(event)) if app.as_json else _line(event))
        sys.stdout.flush()  # whoever reads is waiting for it


def _line(event: Event) -> str:
    data = event.data
    said = text_of(data["content"]) if "content" in data else encode_text(_told(data))
    return fields(event.id, utc_text(event.timestamp), event.session_id, event.type, data.get("role") or "-", said)


def _told(data: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in data.items() if key not in ("number", "by", "interface")}


@command("replay", examples=("moorage replay plan-prod", "moorage replay plan-prod --speed 60"))
@session_argument()
@click.option("--speed", type=click.FloatRange(0), default=0.0, metavar="N", help="So many times as fast; 0: at once.")
@pass_app
def replay(app: App, session: str, speed: float) -> None:
    """Print a session's log as it happened, with its pauses if a speed is given.

    With --json, a document in each line.
    """
    entries = _all(app, app.id_of(session))
    before: Entry | None = None
    for entry in entries:
        if speed and before is not None:
            time.sleep(max(0.0, (entry.at - before.at).total_seconds()) / speed)
        say(_entry(app, entry))
        sys.stdout.flush()
        before = entry


def _entry(app: App, entry: Entry) -> str:
    if app.as_json:
        return encode_text(to_json(entry))
    return entry_paragraph(entry) if is_terminal() else entry_line(entry)


def _all(app: App, session_id: str) -> Iterator[Entry]:
    after = "0"
    while True:
        page = app.moor.log(session_id, after=after, limit=MAX_LIMIT)
        yield from page.items
        if page.next is None:
            return
        after = page.next
