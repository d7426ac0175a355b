"""Sessions: create, look at, list, change, close, fork."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import click
from msgspec import UNSET, UnsetType

from moorage.core.errors import NotFound
from moorage.core.query import MAX_LIMIT, SORTS, STATUSES, Page
from moorage.core.session import OUTCOMES, WORKING_PHASES, Phase, Session, State
from moorage.doors.cli.app import App, command, pass_app
from moorage.doors.cli.arguments import (
    FOLDER,
    INSTANT,
    SESSION,
    metadata_option,
    one_of,
    read_value,
    session_argument,
    token_option,
    ttl_option,
    version_option,
)
from moorage.doors.cli.edge import UsageProblem
from moorage.doors.cli.output import (
    called,
    complain,
    is_terminal,
    note,
    page_of,
    say,
    session_facts,
    session_line,
    show_sessions,
)

ROWS = 50  # of a table, unless --limit says otherwise


# New ones ---------------------------------------------------------------------------------------


@command(
    "create",
    examples=(
        "moorage create --agent terraform-architect --name plan-prod --purpose approval_workflow",
        'moorage create --agent reviewer --parent plan-prod --metadata \'{"workspace": "prod"}\'',
        "moorage create --session-id build-42 --ttl 7d",
    ),
)
@click.option("--agent", metavar="NAME", help="The agent whose session this is.")
@click.option("--purpose", metavar="TEXT", help="What it is for.")
@click.option("--name", metavar="NAME", help="A name, unique among open sessions.")
@click.option("--session-id", metavar="ID", help="Its id; made if not given.")
@click.option("--parent", type=SESSION, metavar="SESSION", help="The session it works for.")
@click.option("--no-parent", is_flag=True, help="A root, even inside an agent.")
@click.option("--task-id", metavar="ID", help="The task it belongs to; the parent's or a new one if not given.")
@click.option("--project-dir", type=FOLDER, metavar="FOLDER", help="The folder it works in.")
@metadata_option
@ttl_option
@pass_app
def create(app: App, /, parent: str | None, no_parent: bool, **wanted: Any) -> None:
    """Open a new session and print its id.

    Inside an agent (AGENT_SESSION_ID or AGENT_SESSION_NAME is set) the parent is that
    agent's session, unless --parent or --no-parent says otherwise.
    """
    if parent is not None and no_parent:
        raise UsageProblem("--parent and --no-parent exclude each other; choose one")
    session = app.moor.create(parent=None if no_parent else _parent(app, parent), **wanted)
    _show_new(app, session, "Created")


def _parent(app: App, ref: str | None) -> str | UnsetType:
    if ref is None:
        return UNSET  # the environment may name one
    try:
        return app.id_of(ref)
    except NotFound:
        return ref  # `create` says that there is no such parent


def _show_new(app: App, session: Session, done: str) -> None:
    warn_of_secrets(session)

    def as_text() -> None:
        if is_terminal():
            say(f"{done} session {called(session)}. Next: moorage send {session.session_id} TEXT")
        else:
            say(session.session_id)

    app.show(session, as_text)


@command(
    "fork",
    examples=(
        "moorage fork plan-prod",
        "moorage fork plan-prod --at 12 --name plan-b",
    ),
)
@session_argument()
@click.option("--at", type=int, metavar="N", help="The entry to go on from; the last if not given.")
@click.option("--name", metavar="NAME", help="A name for the new session.")
@click.option("--session-id", metavar="ID", help="Its id; made if not given.")
@click.option("--agent", metavar="NAME", help="Another agent.")
@click.option("--purpose", metavar="TEXT", help="Another purpose.")
@click.option("--task-id", metavar="ID", help="Another task.")
@metadata_option
@ttl_option
@pass_app
def fork(app: App, /, session: str, **wanted: Any) -> None:
    """Start a new session from an entry of another, and print its id.

    Nothing is copied and nothing happens to the source, which may be closed.
    """
    _show_new(app, app.moor.fork(app.id_of(session), **wanted), "Forked")


# Looking ----------------------------------------------------------------------------------------


@command("get", examples=("moorage get plan-prod", "moorage get 0199a3f2 --json"))
@session_argument()
@pass_app
def get(app: App, session: str) -> None:
    """Show one session."""
    found = app.moor.get(app.id_of(session))
    app.show(found, lambda: say(session_facts(found)))


@command(
    "list",
    examples=(
        "moorage list --active-only",
        "moorage list --agent terraform-architect --state suspended --limit 20",
        "moorage list --created-after 2026-01-31 --sort created | cut -f1",
        "moorage --json list --limit 100",
    ),
)
@click.option("--agent", metavar="NAME", help="Of this agent.")
@click.option("--state", metavar="STATE", shell_complete=one_of(*State), help="In this state.")
@click.option("--active-only", is_flag=True, help="Not completed, failed or abandoned.")
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help=f"At most so many ({ROWS} in a table, else all)."
)
@click.option("--status", metavar="STATUS", shell_complete=one_of(*STATUSES), help="With this status.")
@click.option("--phase", metavar="PHASE", shell_complete=one_of(*Phase), help="In this phase.")
@click.option("--task-id", metavar="ID", help="Of this task.")
@click.option("--parent", type=SESSION, metavar="SESSION", help="Children of this session.")
@click.option("--root", type=SESSION, metavar="SESSION", help="In the tree of this root.")
@click.option("--name-prefix", metavar="TEXT", help="Whose name begins so.")
@click.option("--project-dir", type=FOLDER, metavar="FOLDER", help="Working in this folder.")
@click.option("--metadata-key", metavar="KEY", help="With this key in the metadata.")
@click.option("--metadata-value", metavar="JSON", help="… and this value under it.")
@click.option(
    *("--created-after", "--since", "created_after"),
    type=INSTANT,
    metavar="TIME",
    help="Created after, such as 2026-01-31T09:30:00Z, or 7d for seven days ago.",
)
@click.option(*("--created-before", "--until", "created_before"), type=INSTANT, metavar="TIME", help="Created before.")
@click.option("--updated-after", type=INSTANT, metavar="TIME", help="Changed after.")
@click.option("--updated-before", type=INSTANT, metavar="TIME", help="Changed before.")
@click.option(
    "--sort",
    metavar="ORDER",
    shell_complete=one_of(*SORTS),
    help="-created (newest first), created, -updated (by the newest entry) or updated.",
)
@click.option("--cursor", metavar="CURSOR", help="Go on from the `next` of an earlier --json answer.")
@pass_app
def list_(app: App, /, limit: int | None, cursor: str | None, **filters: Any) -> None:
    """List sessions, newest first.

    Piped, one line for each: id, state, phase, agent, name, time of the last change,
    separated by tabs, without a header, all of them.
    """
    wanted = _filters(app, filters)
    if app.as_json or is_terminal():
        found = _gathered(_pages(app, wanted, limit if app.as_json else limit or ROWS, cursor))
        app.show(page_of(found.items, found.next), lambda: _show_table(found))
    else:
        for page in _pages(app, wanted, limit, cursor):
            show_sessions(page.items)


def _filters(app: App, given: dict[str, Any]) -> dict[str, Any]:
    """What was asked for, in the library's words."""
    wanted = {name: value for name, value in given.items() if value is not None}
    for name in ("parent", "root"):
        if name in wanted:
            wanted[name] = app.id_of(wanted[name])
    if "metadata_value" in wanted:
        wanted["metadata_value"] = read_value(wanted["metadata_value"], "metadata_value")
    return wanted


def _pages(app: App, filters: dict[str, Any], limit: int | None, cursor: str | None) -> Iterator[Page[Session]]:
    """Page after page, up to a limit or the end."""
    left = limit
    while left is None or left > 0:
        page = app.moor.list(limit=min(left or MAX_LIMIT, MAX_LIMIT), cursor=cursor, **filters)
        yield page
        left = None if left is None else left - len(page.items)
        cursor = page.next
        if cursor is None:
            return


def _gathered(pages: Iterable[Page[Session]]) -> Page[Session]:
    """All of them as one page."""
    sessions: list[Session] = []
    cursor = None
    for page in pages:
        sessions += page.items
        cursor = page.next
    return Page(sessions, cursor)


def _show_table(page: Page[Session]) -> None:
    if page.items:
        show_sessions(page.items)
    else:
        note("No sessions. Create one: moorage create --agent NAME")
    if page.next is not None:
        note("There are more: --limit N shows N of them, `moorage list | cat` all.")


# Changing ---------------------------------------------------------------------------------------


@command(
    "update",
    examples=(
        "moorage update plan-prod --phase planning",
        'moorage update plan-prod --metadata \'{"plan_file": "plan.json"}\' --expected-version 3',
        'moorage update plan-prod --error "terraform init failed"',
    ),
)
@session_argument()
@click.option("--phase", metavar="PHASE", shell_complete=one_of(*WORKING_PHASES), help="What the agent does now.")
@metadata_option
@click.option("--error", metavar="TEXT", help="Something that went wrong; it is counted.")
@click.option("--resume-ready/--no-resume-ready", default=None, help="Whether the work may be picked up.")
@version_option
@token_option
@pass_app
def update(app: App, /, session: str, expected_version: int | None, token: str | None, **changes: Any) -> None:
    """Change phase, metadata or readiness, or count an error; all of it or nothing."""
    if all(value is None for value in changes.values()):
        raise UsageProblem("say what to change: --phase, --metadata, --error or --resume-ready")
    changed = app.moor.update(app.id_of(session), version=expected_version, token=token, **changes)
    show_changed(app, changed, "Updated")


@command(
    "finalize",
    examples=(
        'moorage finalize plan-prod completed --summary "Applied"',
        "moorage finalize plan-prod abandoned",
    ),
)
@session_argument()
@click.argument("outcome", metavar="completed|failed|abandoned", shell_complete=one_of(*OUTCOMES))
@click.option("--summary", metavar="TEXT", help="What came of it.")
@version_option
@token_option
@pass_app
def finalize(
    app: App, session: str, outcome: str, summary: str | None, expected_version: int | None, token: str | None
) -> None:
    """Close a session for good.

    The same outcome again is harmless, another one is refused.
    """
    closed = app.moor.finalize(app.id_of(session), outcome, summary=summary, version=expected_version, token=token)
    show_changed(app, closed, "Finalized")


def show_changed(app: App, session: Session, done: str) -> None:
    """Tell what became of a session."""
    warn_of_secrets(session)

    def as_text() -> None:
        if is_terminal():
            say(f"{done} {called(session)}: {session.state}, {session.phase}, version {session.version}")
        else:
            say(session_line(session))

    app.show(session, as_text)


def warn_of_secrets(session: Session) -> None:
    """Say what was not kept because its key is a secret's name."""
    if session.redacted:
        complain(f"warning: kept as [redacted], because its key names a secret: {', '.join(session.redacted)}")
