"""Conversation: say something, read the log, search."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from moorage.core.entry import ROLES, Entry, Kind
from moorage.core.errors import utc_text
from moorage.core.event import Hit
from moorage.core.query import MAX_LIMIT, Page
from moorage.core.status import Reason
from moorage.doors.cli.app import App, command, pass_app
from moorage.doors.cli.arguments import STDIN, one_of, queue_option, read_stdin, session_argument, token_option
from moorage.doors.cli.edge import UsageProblem
from moorage.doors.cli.output import entry_line, entry_paragraph, fields, hint, is_terminal, note, page_of, say, table
from moorage.doors.cli.waiting import why
from moorage.service.conversation import Reply


@command(
    "send",
    examples=(
        'moorage send plan-prod "Plan the change"',
        "git diff | moorage send plan-prod -",
        'moorage send plan-prod "Done: 2 to add" --role assistant --client-key reply-7',
    ),
)
@session_argument()
@click.argument("text", metavar="TEXT|-")
@click.option(
    "--role", default="user", show_default=True, metavar="ROLE", shell_complete=one_of(*ROLES), help=", ".join(ROLES)
)
@click.option("--client-key", metavar="KEY", help="Makes sending the same again harmless.")
@token_option
@queue_option
@click.option("--no-wake", is_flag=True, help="Let the message wait in a suspended session, which stays so.")
@pass_app
def send(
    app: App,
    /,
    session: str,
    text: str,
    role: str,
    client_key: str | None,
    token: str | None,
    queue: bool,
    no_wake: bool,
) -> None:
    """Say something in a session; print the number of its entry.

    A user's message asks the session's agent for an answer if that agent can be started, else it is only kept, as is
    a message with --token; a line on standard error says which, and with --json `run_id` does.
    `-` reads standard input, without the line end that closes it.
    """
    said = _from_stdin() if text == STDIN else text
    if role == "user":
        known: dict[str, Any] = {"client_key": client_key, "token": token, "queue": queue, "wake": not no_wake}
        reply = app.moor.send(app.id_of(session), said, **known)
    else:
        message = {"role": role, "content": said, "client_key": client_key}
        entry = app.moor.append(app.id_of(session), [message], token=token)[0]
        reply = Reply(session_id=str(entry.session_id), message=entry)
    app.show(reply, lambda: _show_sent(reply))


def _show_sent(reply: Reply) -> None:
    number = reply.message.number
    say(f"Entry {number} of {reply.session_id}." if is_terminal() else str(number))
    if reply.run_id is None:
        if reply.message.role == "user":
            hint("Kept: no agent was asked for an answer.")
        return
    hint(f"Asked for an answer. Next: moorage result {reply.run_id} --wait")
    if reply.because is not None and reply.because.reason is not Reason.LAUNCHER_BUSY:
        hint(why(reply.because, reply.session_id))


def _from_stdin() -> str:
    text = read_stdin("message")
    return text.removesuffix("\n").removesuffix("\r")


@command(
    "log",
    examples=(
        "moorage log plan-prod --last 20",
        "moorage log plan-prod --kind message --kind error",
        "moorage --json log plan-prod --after 12",
    ),
)
@session_argument()
@click.option(
    "--kind", "kinds", multiple=True, metavar="KIND", shell_complete=one_of(*Kind), help="Only these; may be repeated."
)
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the last N.")
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="N", help="Only what comes after entry N.")
@pass_app
def log(app: App, session: str, kinds: tuple[str, ...], last: int | None, after: int) -> None:
    """Show the log: what was said and what happened.

    Piped, one line for each entry: number, time, kind, role and text, separated by tabs.
    """
    session_id = app.id_of(session)
    wanted = kinds or None
    entries = _last(app, session_id, wanted, last, after) if last else _all(app, session_id, wanted, after)
    if app.as_json:
        app.show(page_of(list(entries)), lambda: None)
        return
    shown = entry_paragraph if is_terminal() else entry_line
    for entry in entries:
        say(shown(entry))


def _all(app: App, session_id: str, kinds: tuple[str, ...] | None, after: int) -> Iterator[Entry]:
    cursor: int | str | None = after
    while cursor is not None:
        page: Page[Entry] = app.moor.log(session_id, after=cursor, limit=MAX_LIMIT, kinds=kinds)
        yield from page.items
        cursor = page.next


def _last(app: App, session_id: str, kinds: tuple[str, ...] | None, last: int, after: int) -> Iterator[Entry]:
    found: list[Entry] = []
    before: int | str | None = None
    while len(found) < last:
        limit = min(last - len(found), MAX_LIMIT)
        page = app.moor.log(session_id, after=after, before=before, limit=limit, kinds=kinds, newest_first=True)
        found += page.items
        before = page.next
        if before is None:
            break
    return reversed(found)


@command(
    "compact",
    examples=(
        'moorage compact plan-prod "The plan was approved; two buckets are left to add."',
        "moorage compact plan-prod --agent summarizer",
    ),
)
@session_argument()
@click.argument("summary", required=False, metavar="[SUMMARY|-]")
@click.option("--agent", metavar="NAME", help="Let this agent write it.")
@click.option("--upto", type=click.IntRange(min=1), metavar="N", help="Sum up to entry N; to the last if not given.")
@token_option
@pass_app
def compact(
    app: App, session: str, summary: str | None, agent: str | None, upto: int | None, token: str | None
) -> None:
    """Add a summary, yours or an agent's, that later windows begin with; the log stays whole.

    Prints the number of its entry.
    """
    if (summary is None) == (agent is None):
        raise UsageProblem("say what to sum up with: a summary, or --agent")
    text = _from_stdin() if summary == STDIN else summary
    entry = app.moor.compact(app.id_of(session), text, agent=agent, upto=upto, token=token)
    app.show(entry, lambda: say(f"Entry {entry.number}." if is_terminal() else str(entry.number)))


@command("search", examples=("moorage search bucket", 'moorage --json search "terraform apply*" --limit 5'))
@click.argument("words", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, MAX_LIMIT), default=20, show_default=True, help="At most so many.")
@pass_app
def search(app: App, words: tuple[str, ...], limit: int) -> None:
    """Find entries that have all these words; `word*` finds what begins so.

    Piped, one line for each: session, entry, kind, role and the place found, separated by tabs.
    """
    hits = app.moor.search(" ".join(words), limit=limit)
    app.show(page_of(hits), lambda: _show_hits(hits))


def _show_hits(hits: list[Hit]) -> None:
    if not is_terminal():
        for hit in hits:
            say(fields(hit.session_id, hit.number, hit.kind, hit.role, hit.snippet))
    elif hits:
        rows = [(hit.session_id, hit.number, hit.role or hit.kind, utc_text(hit.at)[:16], hit.snippet) for hit in hits]
        table(("session", "entry", "who", "when", "found"), rows, spare=("when", "who"))
    else:
        note("Nothing found.")
