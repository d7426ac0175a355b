"""Sessions: create, look at, list, change, close, fork."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import click
from msgspec import UNSET, UnsetType

from moorage.core.errors import NotFound
from moorage.core.query import SORTS, STATUSES
from moorage.core.render import session_json
from moorage.core.session import OUTCOMES, WORKING_PHASES, Phase, Session, State
from moorage.doors.cli.app import App, command
from moorage.doors.cli.arguments import (
    FOLDER,
    INSTANT,
    SESSION,
    labels_option,
    metadata_option,
    one_of,
    read_value,
    session_argument,
    token_option,
    ttl_option,
    version_option,
)
from moorage.doors.cli.edge import UsageProblem
from moorage.doors.cli.hints import command_line, ref_of
from moorage.doors.cli.output import facts, is_terminal, say, warn_of_secrets
from moorage.doors.cli.pages import page_options, show_list
from moorage.doors.cli.session_text import described, titled
from moorage.doors.cli.tables import session_line, show_sessions, wide_option

# New ones ---------------------------------------------------------------------------------------


@command(
    "create",
    "moorage create --agent planner --name plan-prod --purpose approval_workflow",
    'moorage create --agent reviewer --parent plan-prod --metadata \'{"workspace": "prod"}\'',
    "moorage create --session-id build-42 --ttl 7d",
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
@labels_option
@ttl_option
def create(app: App, /, parent: str | None, no_parent: bool, **wanted: Any) -> None:
    """Open a new session and print its id.

    Inside an agent (AGENT_SESSION_ID or AGENT_SESSION_NAME is set) the parent is that
    agent's session, unless --parent or --no-parent says otherwise.
    """
    if parent is not None and no_parent:
        raise UsageProblem("--parent and --no-parent exclude each other; choose one")
    _show_new(app, app.moor.create(parent=None if no_parent else _parent(app, parent), **wanted), "Created")


def _parent(app: App, ref: str | None) -> str | UnsetType:
    if ref is None:
        return UNSET  # the environment may name one
    try:
        return app.id_of(ref)
    except NotFound:
        return ref  # `create` says that there is no such parent


def _show_new(app: App, session: Session, done: str) -> None:
    warn_of_secrets(session.redacted)
    told = f"{done} session {titled(session)}. Next: {command_line('send', ref_of(session), 'TEXT')}"
    app.tell(session, told, session.session_id)


@command("fork", "moorage fork plan-prod", "moorage fork plan-prod --at 12 --name plan-b")
@session_argument
@click.option("--at", type=int, metavar="N", help="The entry to go on from; the last if not given.")
@click.option("--name", metavar="NAME", help="A name for the new session.")
@click.option("--session-id", metavar="ID", help="Its id; made if not given.")
@click.option("--agent", metavar="NAME", help="Another agent.")
@click.option("--purpose", metavar="TEXT", help="Another purpose.")
@click.option("--task-id", metavar="ID", help="Another task.")
@metadata_option
@ttl_option
def fork(app: App, /, session: str, **wanted: Any) -> None:
    """Start a new session from an entry of another.

    Nothing is copied and nothing happens to the source, which may be closed.
    """
    _show_new(app, app.moor.fork(app.id_of(session), **wanted), "Forked")


@command("rename", "moorage rename plan-prod plan-2026", "moorage rename plan-prod --no-name")
@session_argument
@click.argument("name", required=False)
@click.option("--no-name", is_flag=True, help="Take its name away.")
def rename(app: App, session: str, name: str | None, no_name: bool) -> None:
    """Give a session another name, or none."""
    if no_name is (name is not None):
        raise UsageProblem("say what to call it: either NAME or --no-name")
    renamed = app.moor.rename(app.id_of(session), name)
    told = (
        f"Renamed session {renamed.session_id}: it is called {name} now."
        if name
        else f"Session {renamed.session_id} has no name now."
    )
    app.tell(renamed, told, renamed.session_id)


# Looking ----------------------------------------------------------------------------------------


@command("get", "moorage show plan-prod", "moorage show 0199a3f2 --json")
@session_argument
def get(app: App, session: str) -> None:
    """Show one session: its status, its facts, what it waits for.

    Piped, one line for each field: its name and its value.
    """
    found = app.moor.get(app.id_of(session))
    app.show(found, lambda: _show_one(app, found))


def _show_one(app: App, session: Session) -> None:
    if not is_terminal():
        say(facts(session_json(session).items()))
        return
    waiting = app.moor.approvals(session.session_id) if session.pending_approvals else []
    sys.stdout.write(described(session, waiting) + "\n")


@command(
    "list",
    "moorage list --active-only",
    "moorage list --agent reviewer --state suspended --limit 20",
    "moorage list --created-after 2026-01-31 --sort created | cut -f1",
    "moorage --json list --limit 100",
)
@click.option("--agent", metavar="NAME", help="Of this agent.")
@click.option("--state", metavar="STATE", shell_complete=one_of(*State), help="In this state.")
@click.option("--active-only", is_flag=True, help="Not completed, failed or abandoned.")
@click.option("--status", metavar="STATUS", shell_complete=one_of(*STATUSES), help="With this status.")
@click.option("--phase", metavar="PHASE", shell_complete=one_of(*Phase), help="In this phase.")
@click.option("--task-id", metavar="ID", help="Of this task.")
@click.option("--parent", type=SESSION, metavar="SESSION", help="Children of this session.")
@click.option("--root", type=SESSION, metavar="SESSION", help="In the tree of this root.")
@click.option("--name-prefix", metavar="TEXT", help="With a name that begins so.")
@click.option("--project-dir", type=FOLDER, metavar="FOLDER", help="Working in this folder.")
@click.option("--label", metavar="WORD", help="With this label.")
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
@wide_option
@page_options
def list_(app: App, /, limit: int | None, cursor: str | None, **filters: Any) -> None:
    """List sessions, newest first.

    On a terminal ids are short; commands take them as they are shown. Piped, one line for each: id, state, phase,
    agent, name, time of the last change, separated by tabs, without a header, all of them.
    """
    ask = partial(app.moor.list, **_filters(app, filters))
    nothing = f"No sessions. Create one: {command_line('create', '--agent NAME')}"
    if any(value for value in filters.values()):
        nothing = f"No sessions that fit. All of them: {command_line('list')}"
    show_list(app, ask, show_sessions, limit=limit, cursor=cursor, nothing=nothing)


def _filters(app: App, given: dict[str, Any]) -> dict[str, Any]:
    """Return the filters as the library takes them."""
    wanted = {name: value for name, value in given.items() if value is not None}
    for name in ("parent", "root"):
        if name in wanted:
            wanted[name] = app.id_of(wanted[name])
    if "metadata_value" in wanted:
        wanted["metadata_value"] = read_value(wanted["metadata_value"], "metadata_value")
    return wanted


# Changing ---------------------------------------------------------------------------------------


@command(
    "update",
    "moorage update plan-prod --phase planning",
    'moorage update plan-prod --metadata \'{"plan_file": "plan.json"}\' --expected-version 3',
    'moorage update plan-prod --error "the upload failed"',
)
@session_argument
@click.option("--phase", metavar="PHASE", shell_complete=one_of(*WORKING_PHASES), help="What the agent does now.")
@metadata_option
@labels_option
@click.option("--error", metavar="TEXT", help="Something that went wrong; it is counted.")
@click.option("--resume-ready/--no-resume-ready", default=None, help="Whether the work may be picked up.")
@version_option
@token_option
def update(app: App, /, session: str, version: int | None, token: str | None, **changes: Any) -> None:
    """Change phase, metadata or labels, or count an error.

    All of it is changed, or nothing. Labels replace those that it had.
    """
    if all(value is None for value in changes.values()):
        raise UsageProblem("say what to change: --phase, --metadata, --label, --error or --resume-ready")
    show_changed(app, app.moor.update(app.id_of(session), version=version, token=token, **changes), "Updated")


@command("finalize", 'moorage finalize plan-prod completed --summary "Applied"', "moorage finalize plan-prod abandoned")
@session_argument
@click.argument("outcome", metavar="completed|failed|abandoned", shell_complete=one_of(*OUTCOMES))
@click.option("--summary", metavar="TEXT", help="What came of it.")
@version_option
@token_option
def finalize(app: App, /, session: str, outcome: str, **known: Any) -> None:
    """Close a session for good.

    The same outcome again is harmless, another one is refused.
    """
    show_changed(app, app.moor.finalize(app.id_of(session), outcome, **known), "Finalized")


def show_changed(app: App, session: Session, done: str) -> None:
    """Print the state of a session after a change."""
    warn_of_secrets(session.redacted)
    told = f"{done} {ref_of(session)}: {session.state}, phase {session.phase}, version {session.version}."
    app.tell(session, told, session_line(session))
