"""Families: trees, children, and deleting them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress

import click

from moorage.core.codec import encode_text
from moorage.core.errors import SessionGone
from moorage.core.family import Deletion
from moorage.core.query import MAX_LIMIT, Page
from moorage.core.render import to_json
from moorage.core.session import Session
from moorage.doors.cli.app import App, command, pass_app
from moorage.doors.cli.arguments import session_argument
from moorage.doors.cli.output import complain, is_terminal, note, page_of, printable, say, show_sessions
from moorage.doors.cli.verdicts import NO
from moorage.service.family import TreeNode

SHOWN = 20  # ids a question lists
LOOK_EVERY = 0.3  # seconds, to see whether a tree has changed
CLEAR = "\x1b[2J\x1b[H"  # what a terminal takes for an empty screen


@command("tree", examples=("moorage tree plan-prod", "moorage tree plan-prod --watch"))
@session_argument()
@click.option("--watch", is_flag=True, help="Draw it again whenever it changes, until Ctrl-C.")
@pass_app
def tree(app: App, session: str, watch: bool) -> None:
    """Draw a session with all that hangs on it.

    With --watch and --json, a document in each line.
    """
    if watch:
        _watch(app, app.id_of(session))
        return
    root = app.moor.tree(app.id_of(session))
    app.show(root, lambda: say("\n".join(_drawn(root))))


def _watch(app: App, session_id: str) -> None:
    """Draw the tree as it is, and again after every change, until it is deleted."""
    shown = ""
    with suppress(SessionGone):
        while True:
            root = app.moor.tree(session_id)
            if (drawn := "\n".join(_drawn(root))) != shown:
                _draw_again(root, drawn, as_json=app.as_json)
                shown = drawn
            time.sleep(LOOK_EVERY)


def _draw_again(root: TreeNode, drawn: str, *, as_json: bool) -> None:
    if as_json:
        drawn = encode_text(to_json(root))
    elif is_terminal():
        sys.stdout.write(CLEAR)
    else:
        drawn += "\n"  # an empty line between two
    say(drawn)
    sys.stdout.flush()


def _drawn(node: TreeNode, lead: str = "", below: str = "") -> Iterator[str]:
    yield lead + _label(node.session)
    for child in node.children:
        last = child is node.children[-1]
        yield from _drawn(child, below + ("└── " if last else "├── "), below + ("    " if last else "│   "))


def _label(session: Session) -> str:
    words = (session.session_id, session.session_name, session.agent_name, f"[{session.status}, {session.phase}]")
    return "  ".join(word for word in words if word)


@command("children", examples=("moorage children plan-prod", "moorage --json children plan-prod"))
@session_argument()
@pass_app
def children(app: App, session: str) -> None:
    """List a session's children, oldest first."""
    found = list(_children(app, app.id_of(session)))
    app.show(page_of(found), lambda: show_sessions(found) if found else note("No children."))


def _children(app: App, session_id: str) -> Iterator[Session]:
    page: Page[Session] = app.moor.children(session_id, limit=MAX_LIMIT)
    yield from page.items
    while page.next is not None:
        page = app.moor.children(session_id, limit=MAX_LIMIT, cursor=page.next)
        yield from page.items


# Deleting ---------------------------------------------------------------------------------------


@command(
    "delete",
    examples=(
        "moorage delete plan-prod --dry-run",
        "moorage delete plan-prod --yes",
        "moorage delete plan-prod --no-cascade",
    ),
)
@session_argument()
@click.option("--force", is_flag=True, help="Even if something in the tree is running.")
@click.option("--no-cascade", is_flag=True, help="Refuse if it has children.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def delete(ctx: click.Context, session: str, force: bool, no_cascade: bool, dry_run: bool, yes: bool) -> None:
    """Delete a session with its tree.

    On a terminal it shows what would go and asks; elsewhere it never does.
    """
    app = ctx.ensure_object(App)
    session_id, cascade = app.id_of(session), not no_cascade
    if not (dry_run or yes) and is_terminal() and sys.stdin.isatty():
        preview = app.moor.delete(session_id, cascade=cascade, force=force, dry_run=True)
        if not _confirmed(preview):
            note("Nothing was deleted.")
            ctx.exit(NO)
    gone = app.moor.delete(session_id, cascade=cascade, force=force, dry_run=dry_run)
    app.show(gone, lambda: _show_gone(gone))


def _confirmed(preview: Deletion) -> bool:
    ids = preview.session_ids
    click.echo(printable("\n".join(ids[:SHOWN])), err=True)
    if len(ids) > SHOWN:
        click.echo(f"… and {len(ids) - SHOWN} more", err=True)
    return click.confirm(f"Delete {_counted(preview)}?", err=True)


def _counted(deletion: Deletion) -> str:
    sessions = "1 session" if deletion.deleted_sessions == 1 else f"{deletion.deleted_sessions} sessions"
    return f"{sessions} with {deletion.messages} messages and {deletion.checkpoints} checkpoints"


def _show_gone(deletion: Deletion) -> None:
    for session_id in deletion.session_ids:
        say(session_id)
    if deletion.unconfirmed:
        complain(f"deleted, but nobody confirms that their agents have ended: {', '.join(deletion.unconfirmed)}")
    if is_terminal():
        say(f"{'Would delete' if deletion.dry_run else 'Deleted'} {_counted(deletion)}.")
