"""Conversation: say something, read the log, follow it, search."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any

import click

from moorage.core.answer import Answer, kept
from moorage.core.codec import encode_text
from moorage.core.entry import ROLES, Entry, Kind
from moorage.core.inbox import Item, ItemKind, ItemState
from moorage.core.query import MAX_LIMIT, every
from moorage.core.render import to_json
from moorage.core.status import Reason
from moorage.doors.cli import arguments
from moorage.doors.cli.app import App, command
from moorage.doors.cli.edge import UsageProblem
from moorage.doors.cli.entries import Reader, entry_line, event_line, said, sentence
from moorage.doors.cli.output import fields, hint, is_terminal, note, page_of, say
from moorage.doors.cli.tables import TableRow, named, show_rows, wide_option
from moorage.doors.cli.terminal import cut
from moorage.doors.cli.waiting import why
from moorage.doors.cli.wording import ago, command_line, short_ids, shown_id

LABEL_WIDTH = 16  # columns of a session's name in front of its events


@command(
    "send",
    'moorage send plan-prod "Plan the change"',
    "git diff | moorage send plan-prod -",
    'moorage send plan-prod "Done: 2 to add" --role assistant --client-key reply-7',
)
@arguments.session
@click.argument("text", metavar="TEXT|-")
@arguments.choice("--role", ROLES, default="user")
@click.option("--agent", metavar="AGENT", help="Ask this agent instead of the session's own.")
@click.option("--parameters", type=arguments.OBJECT, help="Parameters for the agent.")
@click.option("--client-key", metavar="KEY", help="A message with the same key is stored once.")
@arguments.token
@arguments.queue
@arguments.flag("--no-wake", "Do not resume a suspended session; the message waits.")
def send(app: App, /, session: str, text: str, role: str, no_wake: bool, queue: bool, **known: Any) -> None:
    """Send a message to a session; print the number of its entry.

    A user's message asks the session's agent for an answer if the agent can be started. Otherwise, and with --token,
    it is only stored. A line on standard error says which; with --json, `run_id` does. `-` reads standard input,
    without its last line end.
    """
    said = arguments.read_text(text, "message")
    if role == "user":
        reply = app.moor.send(app.id_of(session), said, queue=queue, wake=not no_wake, **known)
    else:
        message = {"role": role, "content": said, "client_key": known["client_key"]}
        entry = app.moor.append(app.id_of(session), [message], token=known["token"])[0]
        reply = kept([entry])
    told = {name: getattr(reply, name) for name in ("session_id", "message", "run_id", "because")}
    app.show(told, lambda: _show_sent(reply, session))


def _show_sent(reply: Answer, ref: str) -> None:
    number = reply.message.number
    say(f"Sent: entry {number} of {ref}." if is_terminal() else str(number))
    if reply.run_id is None:
        if reply.message.role == "user":
            hint("Kept: no agent was asked for an answer.")
        return
    hint(f"Asked for an answer. Next: {command_line('result', shown_id(reply.run_id), '--wait')}")
    if reply.because is not None and reply.because.reason is not Reason.LAUNCHER_BUSY:
        hint(why(reply.because, reply.session_id))


@command(
    "log",
    "moorage log plan-prod --last 20",
    "moorage log plan-prod --kind message --kind error",
    "moorage log plan-prod --follow",
    "moorage --json log plan-prod --after 12",
)
@arguments.session
@arguments.many("--kind", "kinds", told="Only this kind.", words=Kind, metavar="KIND")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the last N entries.")
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="N", help="Only entries after number N.")
@arguments.flag("-f", "--follow", "Keep printing new entries until Ctrl-C.")
def log(app: App, session: str, kinds: tuple[str, ...], last: int | None, after: int, follow: bool) -> None:
    """Show the log of a session.

    On a terminal: number, time, who, and a sentence. Piped, one line for each entry: number, time, kind, role and
    text, separated by tabs. With --follow and --json, a document in each line.
    """
    session_id = app.id_of(session)
    ask = partial(app.moor.log, session_id, kinds=kinds or None)
    entries: Iterable[Entry] = every(ask, after, by="after")
    if last:
        newest = every(partial(ask, after=after, newest_first=True), limit=last, by="before")
        entries = reversed(list(newest))
    if app.as_json and not follow:
        app.show(page_of(list(entries)), lambda: None)
        return
    show, shown = _printer(app), after
    for entry in entries:
        show(entry)
        shown = entry.number
    for _ in app.moor.events(session_id, after=shown) if follow else ():  # print new entries, each once
        for entry in every(ask, shown, by="after"):
            show(entry)
            shown = entry.number


def _printer(app: App) -> Callable[[Entry], None]:
    """Return the function that prints an entry: a JSON document, sentences on a terminal, else a line."""
    if not app.as_json and is_terminal():
        return Reader().show_entry

    def show(entry: Entry) -> None:
        say(encode_text(to_json(entry)) if app.as_json else entry_line(entry))
        sys.stdout.flush()  # a reader may follow the output

    return show


@command(
    "compact",
    'moorage compact plan-prod "The plan was approved; two buckets are left to add."',
    "moorage compact plan-prod --agent summarizer",
)
@arguments.session
@click.argument("summary", required=False, metavar="[SUMMARY|-]")
@click.option("--agent", metavar="NAME", help="Let this agent write the summary.")
@click.option("--upto", type=click.IntRange(min=1), metavar="N", help="Summarize up to entry N; by default all.")
@arguments.token
def compact(app: App, /, session: str, summary: str | None, agent: str | None, **known: Any) -> None:
    """Add a summary that later windows begin with.

    You give the summary, or an agent writes it. The log keeps every entry. Prints the number of the new entry.
    """
    if (summary is None) == (agent is None):
        raise UsageProblem("give a summary, or --agent to let an agent write it")
    text = None if summary is None else arguments.read_text(summary, "message")
    entry = app.moor.compact(app.id_of(session), text, agent=agent, **known)
    app.tell(entry, f"Entry {entry.number}.", str(entry.number))


@command("search", "moorage search bucket", 'moorage --json search "invoice 2026*" --limit 5')
@click.argument("words", nargs=-1, required=True)
@arguments.number("--limit", 1, MAX_LIMIT, 20, "Show at most N.")
@wide_option
def search(app: App, words: tuple[str, ...], limit: int) -> None:
    """Find entries that contain all these words.

    `word*` finds words with this beginning. Piped, one line for each: session, entry, kind, role and the place found,
    separated by tabs.
    """
    hits = app.moor.search(" ".join(words), limit=limit)
    columns, spare = ("session", "entry", "who", "when", "found"), ("when", "who")
    rows = [(hit.session_id, hit.number, hit.role or hit.kind, ago(hit.at), hit.snippet) for hit in hits]
    lines = [(hit.session_id, hit.number, hit.kind, hit.role, hit.snippet) for hit in hits]
    app.show(page_of(hits), lambda: show_rows(columns, rows, lines=lines, spare=spare, nothing="Nothing found."))


# Following ----------------------------------------------------------------------------------------


@command("watch", "moorage watch plan-prod", "moorage watch --after 120 --json")
@arguments.optional_session
@click.option("--after", type=int, default=None, metavar="N", help="Start after this event; by default with new ones.")
@arguments.flag("--once", "Print the events so far and exit.")
def watch(app: App, session: str | None, after: int | None, once: bool) -> None:
    """Print the events of one session or of all, until Ctrl-C.

    On a terminal: session, time, who, and a sentence. Piped, one line for each event: number, time, session, type,
    role and text, separated by tabs. With --json, a document in each line.
    """
    ref = None if session is None else app.id_of(session)
    begin = after if after is not None else (0 if once else "end")
    is_read = is_terminal() and not app.as_json
    reader, name_of = Reader(), cache(app.ref_of)
    if is_read and not once:
        hint(f"Watching {session or 'all sessions'}. Ctrl-C ends it.")
    for event in app.moor.events(ref, after=begin, follow=not once):
        if is_read:
            name = cut(name_of(event.session_id), LABEL_WIDTH)
            reader.show_event(event, f"{name:<{LABEL_WIDTH}}")
        else:
            say(encode_text(to_json(event)) if app.as_json else event_line(event))
        sys.stdout.flush()  # the reader waits for it


@command("replay", "moorage replay plan-prod", "moorage replay plan-prod --speed 60")
@arguments.session
@click.option(
    "--speed", type=click.FloatRange(0), default=0.0, metavar="N", help="Speed factor; 0 prints without pauses."
)
def replay(app: App, session: str, speed: float) -> None:
    """Print a session's log again, as it happened.

    --speed keeps the pauses between entries. With --json, a document in each line.
    """
    before: Entry | None = None
    show = _printer(app)
    for entry in every(partial(app.moor.log, app.id_of(session)), by="after"):
        if speed and before is not None:
            time.sleep(max(0.0, (entry.at - before.at).total_seconds()) / speed)
        show(entry)
        before = entry


# Inbox --------------------------------------------------------------------------------------------


@command("inbox", "moorage inbox", "moorage inbox --dead-letters", "moorage inbox --send-again ITEM")
@arguments.optional_session
@arguments.flag("--dead-letters", "List items that three turns failed to process.")
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

    columns, spare = ("content", "item", "session", "state", "turns", "since"), ("turns", "since")

    def show() -> None:
        show_rows(columns, rows, lines=lines, without=without, spare=spare, nothing=nothing)
        _propose(page.items)

    app.show(page_of(page.items, page.next), show)


def _cells(app: App, items: list[Item]) -> Iterator[TableRow]:
    names = {id: session.session_name for id, session in app.sessions(item.session_id for item in items).items()}
    for item in items:
        session = named(names.get(item.session_id), item.session_id)
        state = item.state.value.replace("_", " ")
        yield " ".join(_content(item).split()), item.item_id, session, state, item.given, ago(item.created_at)


def _content(item: Item) -> str:
    if item.kind is ItemKind.MESSAGE:
        return said(item.body.get("content"))
    if item.kind is ItemKind.CALLBACK:
        return sentence(Kind.CALLBACK, item.body)
    return f"{item.body.get('question')} {item.body.get('decision') or item.body.get('state')}"


def _propose(items: list[Item]) -> None:
    first = next((item.item_id for item in items if item.state is ItemState.DEAD_LETTER), None)
    if first is not None:
        id = short_ids(item.item_id for item in items)[first]
        note(f"Send one again: {command_line('inbox', '--send-again', id)}")


def _send_again(app: App, ref: str) -> None:
    """Send the dead letter with this id, or with the only id that begins so."""
    letters = app.moor.inbox(dead_letters=True, limit=MAX_LIMIT).items
    again = app.moor.send_again(arguments.id_beginning(ref, [each.item_id for each in letters], "dead letter") or ref)
    told = f"Sent again: it waits for the next turn of {app.ref_of(again.session_id)}."
    app.tell(again, told, fields(again.item_id, again.state.value))
