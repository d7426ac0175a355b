"""Families: trees, children, and deleting them; the cleanup of old sessions, and the audit of deletions."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import click

from moorage.core.codec import encode_text
from moorage.core.duration import duration_text
from moorage.core.errors import MoorageError, SessionGone
from moorage.core.family import Deletion, Tombstone
from moorage.core.query import every
from moorage.core.render import to_json
from moorage.core.session import Session, State
from moorage.doors.cli import arguments
from moorage.doors.cli.app import App, command
from moorage.doors.cli.edge import NO
from moorage.doors.cli.output import complain, counting, is_terminal, note, page_of, printable, say
from moorage.doors.cli.sessions import titled
from moorage.doors.cli.tables import LEAST, TableRow, page_options, show_list, show_rows, show_sessions, wide_option
from moorage.doors.cli.terminal import STATE_STYLES, columns, cut, paint, width_of
from moorage.doors.cli.wording import ago, command_line, counted, seconds_text, short_ids, span
from moorage.service.family import TreeNode
from moorage.service.retention import Cleanup, Removal

SHOWN = 20  # ids a question lists
REASONS = ("deleted", "retention", "expired")
LOOK_EVERY = 0.3  # seconds between two checks for a change of the tree
CLEAR = "\x1b[2J\x1b[H"  # clears a terminal


@command("tree", "moorage tree plan-prod", "moorage tree plan-prod --watch")
@arguments.session
@arguments.flag("--watch", "Redraw on every change, until Ctrl-C.")
def tree(app: App, session: str, watch: bool) -> None:
    """Draw a session with all its descendants.

    With --watch and --json, a document in each line.
    """
    if watch:
        _watch(app, app.id_of(session))
        return
    root = app.moor.tree(app.id_of(session))
    app.show(root, lambda: print("\n".join(_drawn(root))))


def _watch(app: App, session_id: str) -> None:
    """Draw the tree now and after every change, until it is deleted."""
    shown = ""
    with suppress(SessionGone):
        while True:
            root = app.moor.tree(session_id)
            if (drawn := "\n".join(_drawn(root))) != shown:
                shown = drawn
                if app.as_json:
                    drawn = encode_text(to_json(root))
                elif is_terminal():
                    sys.stdout.write(CLEAR)
                else:
                    drawn += "\n"  # an empty line between two drawings
                print(drawn, flush=True)
            time.sleep(LOOK_EVERY)


def _drawn(root: TreeNode) -> Iterator[str]:
    """Yield the lines of a tree: on a terminal names before short ids, elsewhere whole ids first."""
    short = short_ids(node.session.session_id for node in _nodes(root)) if is_terminal() else None
    yield from _branch(root, short)


def _nodes(node: TreeNode) -> Iterator[TreeNode]:
    yield node
    for child in node.children:
        yield from _nodes(child)


def _branch(node: TreeNode, short: dict[str, str] | None, lead: str = "", below: str = "") -> Iterator[str]:
    yield lead + (_label(node.session) if short is None else _painted(node.session, short, columns() - len(lead)))
    for child in node.children:
        last = child is node.children[-1]
        yield from _branch(child, short, below + ("└── " if last else "├── "), below + ("    " if last else "│   "))


def _label(session: Session) -> str:
    words = (session.session_id, session.session_name, session.agent_name, f"[{session.status}, {session.phase}]")
    return "  ".join(printable(word) for word in words if word)


def _painted(session: Session, short: dict[str, str], room: int) -> str:
    """Return a session as a line of the tree; on a narrow terminal its name and its agent are cut."""
    status, id = session.status.replace("_", " "), printable(short[session.session_id])
    name, agent = printable(session.session_name or ""), printable(session.agent_name or "")
    left = max(room - width_of(id) - len(f"{status}, {session.phase}") - 6, 2 * LEAST)
    name = cut(name, max(left - width_of(agent), left // 2))
    agent = cut(agent, left - width_of(name))
    status_text = f"{paint(status, STATE_STYLES.get(status))}, {session.phase}"
    return "  ".join(word for word in (paint(name, "bold"), paint(id, "dim"), agent, status_text) if word)


@command("children", "moorage children plan-prod", "moorage --json children plan-prod")
@arguments.session
@wide_option
def children(app: App, session: str) -> None:
    """List a session's children, oldest first."""
    found = list(every(partial(app.moor.children, app.id_of(session))))
    app.show(page_of(found), lambda: show_sessions(found, f"{session} has no children."))


# Deleting ---------------------------------------------------------------------------------------


@command(
    "delete",
    "moorage delete plan-prod --dry-run",
    "moorage delete plan-prod --yes",
    "moorage delete plan-prod --no-cascade",
)
@arguments.session
@arguments.flag("--force", "Also delete running sessions; their agents are stopped.")
@arguments.flag("--no-cascade", "Refuse if it has children.")
@arguments.flag("--dry-run", "Show what would be deleted, and delete nothing.")
@arguments.flag("--yes", "Do not ask for confirmation.")
def delete(app: App, session: str, force: bool, no_cascade: bool, dry_run: bool, yes: bool) -> int:
    """Delete a session with its tree.

    On a terminal it shows what would be deleted and asks for confirmation. Elsewhere it does not ask.
    """
    delete = partial(app.moor.delete, app.id_of(session), cascade=not no_cascade, force=force)
    if not (dry_run or yes) and is_terminal() and sys.stdin.isatty() and not _confirmed(app, delete(dry_run=True)):
        note("Nothing was deleted.")
        return NO
    gone = delete(dry_run=dry_run)
    app.show(gone, lambda: _show_gone(gone, session))
    return 0


def _confirmed(app: App, preview: Deletion) -> bool:
    ids = preview.session_ids
    for session in app.sessions(ids[:SHOWN]).values():
        click.echo(printable(titled(session)), err=True)
    if len(ids) > SHOWN:
        click.echo(f"… and {len(ids) - SHOWN} more", err=True)
    return click.confirm(f"Delete {_counted(preview)}?", err=True)


def _counted(deletion: Deletion) -> str:
    sessions = counted(deletion.deleted_sessions, "session")
    checkpoints = f" and {counted(deletion.checkpoints, 'checkpoint')}" if deletion.checkpoints else ""
    return f"{sessions} with {counted(deletion.messages, 'message')}{checkpoints}"


def _show_gone(deletion: Deletion, ref: str) -> None:
    if not is_terminal():
        for session_id in deletion.session_ids:
            say(session_id)
    else:
        say(f"{'Would delete' if deletion.dry_run else 'Deleted'} {ref}: {_counted(deletion)}.")
    if deletion.unconfirmed:
        complain(f"deleted, but no launcher confirms that their agents have ended: {', '.join(deletion.unconfirmed)}")


@command(
    "cleanup",
    "moorage cleanup --dry-run",
    "moorage cleanup",
    "moorage cleanup --hours 168 --state completed --state failed",
)
@click.option("--hours", type=float, metavar="N", help="Delete sessions idle for this long, in every state.")
@arguments.many("--state", "states", told="Only sessions in this state.", words=State, metavar="STATE")
@arguments.flag("--dry-run", "Show what would be deleted, and delete nothing.")
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
    app.show(done, lambda: _show_cleaned(done))


def _show_cleaned(done: Cleanup) -> None:
    lines = [_removal_fields(gone) for gone in done.sessions]
    columns = ("name", "session", "state", "agent", "why", "idle", "limit", "set by")
    rows = [(name, session, state, agent, *rest) for session, state, agent, name, *rest in lines]
    show_rows(columns, rows, lines=lines, spare=("set by", "limit", "idle", "agent", "state"))
    if is_terminal():
        say(f"{'Would delete' if done.dry_run else 'Deleted'} {counted(done.removed, 'session')}.")


def _removal_fields(gone: Removal) -> TableRow:
    idle = (gone.deleted_at - gone.last_activity_at).total_seconds()
    limit = None if gone.limit_seconds is None else duration_text(timedelta(seconds=gone.limit_seconds))
    who = (gone.session_id, gone.state, gone.agent_name, gone.session_name)
    return (*who, gone.reason, span(idle), limit, gone.limit_from)


@command(
    "audit",
    "moorage audit",
    "moorage audit --since 7d --reason retention",
    "moorage audit --since 2026-01-31 | cut -f1",
    "moorage --json audit --limit 100",
)
@arguments.choice("--reason", REASONS, "Only this reason: deleted, expired or retention.")
@click.option("--since", type=arguments.INSTANT, help="Only deletions since then: 24h, 7d, 2026-01-31.")
@wide_option
@page_options
def audit(app: App, /, reason: str | None, since: datetime | None, **pages: Any) -> None:
    """List deleted sessions, newest first: when, by whom and why.

    The reason is `deleted` (on request), `retention` (cleanup) or `expired` (its time to live
    ended). Piped, one line for each: id, when, by, why, state, agent, name, task, and the
    session it went with, separated by tabs, without a header, all of them.
    """
    ask = partial(app.moor.deleted, reason=reason, since=since)
    show_list(app, ask, _show_tombstones, nothing="Nothing was deleted.", **pages)


def _show_tombstones(tombstones: Sequence[Tombstone]) -> None:
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
