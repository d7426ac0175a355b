"""Pausing and picking up: suspend, resume, release, and whether to resume at all."""

from __future__ import annotations

import sys
from typing import Any

import click

from moorage.core.codec import encode_text
from moorage.core.errors import AgentNotFound, InvalidDefinition, utc_text
from moorage.doors.cli.app import App, command, pass_app
from moorage.doors.cli.arguments import (
    FOLDER,
    OBJECT,
    SESSION,
    STDIN,
    read_stdin,
    session_argument,
    token_option,
    version_option,
)
from moorage.doors.cli.output import (
    called,
    entry_paragraph,
    facts,
    hint,
    is_terminal,
    note,
    page_of,
    say,
    show_sessions,
)
from moorage.doors.cli.sessions import show_changed
from moorage.doors.cli.verdicts import judge, tell
from moorage.service.sessions import ResumePacket

HOLDER = "[env: MOORAGE_HOLDER; else this terminal, else this process]"


@command(
    "suspend",
    examples=(
        'moorage suspend plan-prod --checkpoint \'{"step": 3}\' --reason "awaiting approval"',
        "moorage suspend plan-prod --checkpoint @checkpoint.json",
    ),
)
@session_argument()
@click.option("--checkpoint", type=OBJECT, metavar="JSON|@FILE", help="What whoever resumes it needs: a JSON object.")
@click.option("--reason", metavar="TEXT", help="Why it is paused.")
@version_option
@token_option
@pass_app
def suspend(
    app: App, session: str, checkpoint: Any, reason: str | None, expected_version: int | None, token: str | None
) -> None:
    """Pause a session, keeping what its agent hands over."""
    paused = app.moor.suspend(
        app.id_of(session), checkpoint=checkpoint, reason=reason, version=expected_version, token=token
    )
    show_changed(app, paused, "Suspended")


@command(
    "resume",
    examples=(
        "moorage resume",
        "moorage resume plan-prod",
        "moorage --json resume plan-prod --holder nightly-job",
        'moorage resume plan-prod "Go on"',
    ),
)
@session_argument(required=False)
@click.argument("prompt", required=False, metavar="[PROMPT|-]")
@click.option("--holder", metavar="NAME", help=f"Who takes it.  {HOLDER}")
@version_option
@click.pass_context
def resume(
    ctx: click.Context, session: str | None, prompt: str | None, holder: str | None, expected_version: int | None
) -> None:
    """Take a session to drive: its hold, checkpoint, context and last messages.

    Without SESSION: what could be picked up. Somebody else's hold keeps you away until it
    ends; resuming again as the same holder renews your own, and asking its agent something
    (`send`, `run`, `attach`, PROMPT) hands the session over to the agent. All commands at one terminal
    are one holder; in a script, set MOORAGE_HOLDER to a name for all of them.

    With PROMPT the session's agent drives it: it is asked that, as by `run`, and its answer is
    printed; exit code 1 if the run did not complete.
    """
    app = ctx.ensure_object(App)
    if session is None:
        _suggest(app)
        return
    known: dict[str, Any] = {"holder": holder, "version": expected_version}
    if prompt is not None:
        ctx.exit(_go_on(app, app.id_of(session), prompt, known))
    packet = app.moor.resume(app.id_of(session), **known)
    app.show(packet, lambda: _show_packet(app, packet))


@command(
    "resume",
    examples=("moorage agent resume", "moorage agent resume plan-prod", 'moorage agent resume plan-prod "Go on"'),
)
@session_argument(required=False)
@click.argument("prompt", required=False, metavar="[PROMPT|-]")
@version_option
@click.pass_context
def agent_resume(ctx: click.Context, session: str | None, prompt: str | None, expected_version: int | None) -> None:
    """Let a session's agent go on; on a terminal, talk with it.

    A suspended session becomes active; what waits in it is taken up. Without SESSION: what could be picked
    up. With PROMPT its agent is asked that, as by `run`, and its answer is printed; exit code 1 if the run
    did not complete.
    """
    app = ctx.ensure_object(App)
    if session is None:
        _suggest(app)
        return
    session_id, known = app.id_of(session), dict[str, Any](version=expected_version)
    if prompt is not None:
        ctx.exit(_go_on(app, session_id, prompt, known))
    found = app.moor.get(session_id)
    found.check_version(expected_version)
    agent = found.agent_name
    if sys.stdin.isatty() and is_terminal() and not app.as_json and agent and _can_be_asked(app, agent):
        from moorage.doors.cli.runs import start_chat

        start_chat(app, agent, {"session": session_id})  # which resumes it, and says so
        return
    packet = app.moor.resume(session_id, hold=False, **known)
    app.show(packet, lambda: _show_packet(app, packet))


def _go_on(app: App, session_id: str, prompt: str, known: dict[str, Any]) -> int:
    """Let the session's agent go on, ask it, and print the answer."""
    from moorage.doors.cli.runs import ask_and_show

    said = read_stdin("prompt").removesuffix("\n") if prompt == STDIN else prompt
    agent = app.moor.get(session_id).agent_name
    if agent is None:
        raise AgentNotFound("")
    app.moor.agent(agent)  # before anything is changed: there is one, here or on the server
    app.moor.resume(session_id, hold=False, **known)
    return ask_and_show(app, agent, said, {"session": session_id})


def _suggest(app: App) -> None:
    found = app.moor.resumable()

    def as_text() -> None:
        show_sessions(found)
        if found:
            hint(f"Next: moorage resume {found[0].session_id}")
        else:
            hint("Nothing waits to be picked up. All sessions: moorage list")

    app.show(page_of(found), as_text)


def _show_packet(app: App, packet: ResumePacket) -> None:
    session, hold = packet.session, packet.hold
    held = (("holder", hold.holder), ("token", hold.token), ("until", utc_text(hold.until))) if hold else ()
    known = facts(
        (
            ("session", called(session)),
            ("agent", session.agent_name),
            ("state", f"{session.state}, {session.phase}"),
            *held,
            ("checkpoint", packet.checkpoint),
            ("context", packet.context),
        )
    )
    say(known)
    for message in packet.messages:
        say(entry_paragraph(message))
    for item in packet.inbox:
        say(f"{item.kind.value}: {encode_text(item.body)}")
    if is_terminal() and hold:
        note(f"To give it back: moorage release {session.session_id}")
        if session.agent_name and _can_be_asked(app, session.agent_name):
            note(f"To hand it over and talk to its agent: moorage attach {session.session_id}")


def _can_be_asked(app: App, agent: str) -> bool:
    try:
        app.moor.agent(agent)
    except (AgentNotFound, InvalidDefinition):
        return False
    return True


@command("release", examples=("moorage release plan-prod", "moorage release plan-prod --token 5f2c9a"))
@session_argument()
@token_option
@pass_app
def release(app: App, session: str, token: str | None) -> None:
    """Give the hold up, so that others may resume."""
    show_changed(app, app.moor.release(app.id_of(session), token=token), "Released")


@command(
    "should-resume",
    examples=(
        "moorage should-resume plan-prod",
        "moorage --json should-resume --agent terraform-architect --task-id T001",
    ),
)
@session_argument(required=False)
@click.option("--agent", metavar="NAME", help="Without SESSION: the newest of this agent …")
@click.option("--task-id", metavar="ID", help="… and this task …")
@click.option("--host", type=SESSION, metavar="SESSION", help="… or under this session …")
@click.option("--project-dir", type=FOLDER, metavar="FOLDER", help="… or working in this folder.")
@click.option("--holder", metavar="NAME", help=f"Who would take it.  {HOLDER}")
@click.pass_context
def should_resume(ctx: click.Context, /, session: str | None, holder: str | None, **place: Any) -> None:
    """Say whether work may be picked up: exit code 0 for yes, 1 for no.

    The reason is the first criterion that failed; --json shows all of them.
    """
    app = ctx.ensure_object(App)
    if session is None:
        host = place.pop("host")
        verdict = app.moor.should_resume(holder=holder, host=None if host is None else app.id_of(host), **place)
    else:
        verdict = judge(app.moor, session, holder=holder)
    ctx.exit(tell(verdict, as_json=app.as_json))
