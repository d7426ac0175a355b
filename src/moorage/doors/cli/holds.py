"""Pause and resume: suspend, resume, release, and whether to resume at all."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import click

from moorage.core.codec import as_text, encode_text
from moorage.core.errors import AgentNotFound, InvalidDefinition, utc_text
from moorage.core.query import every
from moorage.doors.cli import arguments
from moorage.doors.cli.app import App, command, group
from moorage.doors.cli.edge import UsageProblem
from moorage.doors.cli.entries import Reader, entry_text
from moorage.doors.cli.output import facts, groups, hint, is_terminal, note, page_of, say
from moorage.doors.cli.sessions import show_changed, titled
from moorage.doors.cli.tables import show_rows, show_sessions, wide_option
from moorage.doors.cli.terminal import paint
from moorage.doors.cli.verdicts import judge, tell
from moorage.doors.cli.wording import ago, command_line, ref_of, seconds_text
from moorage.service.packet import ResumePacket

HOLDER = "[env: MOORAGE_HOLDER; else this terminal, else this process]"


@command(
    "suspend",
    'moorage suspend plan-prod --checkpoint \'{"step": 3}\' --reason "awaiting approval"',
    "moorage suspend plan-prod --checkpoint @checkpoint.json",
)
@arguments.session
@click.option("--checkpoint", type=arguments.OBJECT, help="State for the next process: a JSON object.")
@click.option("--reason", metavar="TEXT", help="The reason for the pause.")
@arguments.version
@arguments.token
def suspend(app: App, /, session: str, **known: Any) -> None:
    """Pause a session, with a checkpoint if given."""
    show_changed(app, app.moor.suspend(app.id_of(session), **known), "Suspended")


@command(
    "resume",
    "moorage resume",
    "moorage resume plan-prod",
    "moorage --json resume plan-prod --holder nightly-job",
    'moorage resume plan-prod "Go on"',
)
@arguments.optional_session
@click.argument("prompt", required=False, metavar="[PROMPT|-]")
@click.option("--holder", metavar="NAME", help=f"The name of the holder.  {HOLDER}")
@arguments.version
@wide_option
def resume(app: App, /, session: str | None, prompt: str | None, **known: Any) -> int:
    """Resume a session and hold it, so that no other process can.

    Prints the hold with its token, the checkpoint, the context and the last messages. Without SESSION: list sessions
    that could be resumed. A session that another holder has is refused; the same holder renews its hold and gets a new
    token. All commands at one terminal are one holder; in a script, MOORAGE_HOLDER names the holder.

    With PROMPT, the session's agent is asked, as by `run`, and its answer is printed. The same holds for `send`, `run`
    and `attach`: they end your hold and let the agent continue. Exit code 1 if the run did not complete.
    """
    if session is None:
        return _suggest(app)
    if prompt is not None:
        return _go_on(app, app.id_of(session), prompt, known)
    return _show_packet(app, app.moor.resume(app.id_of(session), **known))


@command("resume", "moorage agent resume", "moorage agent resume plan-prod", 'moorage agent resume plan-prod "Go on"')
@arguments.optional_session
@click.argument("prompt", required=False, metavar="[PROMPT|-]")
@arguments.version
def agent_resume(app: App, session: str | None, prompt: str | None, version: int | None) -> int:
    """Let a session's agent continue, and talk with it.

    A suspended session becomes active, and a turn starts if input waits. On a terminal, a chat follows. Without
    SESSION: list sessions that could be resumed. With PROMPT, its agent is asked, as by `run`, and its answer is
    printed; exit code 1 if the run did not complete.
    """
    if session is None:
        return _suggest(app)
    session_id = app.id_of(session)
    if prompt is not None:
        return _go_on(app, session_id, prompt, {"version": version})
    found = app.moor.get(session_id)
    found.check_version(version)
    agent = found.agent_name
    if app.is_at_terminal and agent and _can_be_asked(app, agent):
        from moorage.doors.cli.runs import start_chat

        start_chat(app, agent, {"session": session_id})  # the chat resumes it and reports that
        return 0
    return _show_packet(app, app.moor.resume(session_id, hold=False, version=version))


def _go_on(app: App, session_id: str, prompt: str, known: dict[str, Any]) -> int:
    from moorage.doors.cli.runs import ask_and_show

    said = arguments.read_text(prompt, "prompt")
    agent = app.moor.get(session_id).agent_name
    if agent is None:
        raise UsageProblem(f"session {session_id} has no agent to ask: `{command_line('run')} AGENT --session …`")
    app.moor.agent(agent)  # check first that the agent exists, here or on the server
    app.moor.resume(session_id, hold=False, **known)
    return ask_and_show(app, agent, said, {"session": session_id})


def _suggest(app: App) -> int:
    found = app.moor.resumable()

    def show() -> None:
        show_sessions(found)
        all_ = f"No session can be picked up. All sessions: {command_line('list')}"
        hint(f"Next: {command_line('resume', ref_of(found[0]))}" if found else all_)

    app.show(page_of(found), show)
    return 0


def _show_packet(app: App, packet: ResumePacket) -> int:
    app.show(packet, lambda: _describe_packet(app, packet) if is_terminal() else _print_packet(packet))
    return 0


def _print_packet(packet: ResumePacket) -> None:
    session, hold = packet.session, packet.hold
    name = f" ({session.session_name})" if session.session_name else ""
    about = {"session": session.session_id + name, "agent": session.agent_name}
    state = {"state": f"{session.state}, {session.phase}"}
    held = {"holder": hold.holder, "token": hold.token, "until": utc_text(hold.until)} if hold else {}
    say(facts({**about, **state, **held, "checkpoint": packet.checkpoint, "context": packet.context}.items()))
    for message in packet.messages:
        head = f"{message.number:>4}  {seconds_text(message.at)}  {message.role or message.kind}"
        say(f"{head}: {entry_text(message)}".replace("\n", "\n      "))
    for item in packet.inbox:
        say(f"{item.kind.value}: {encode_text(item.body)}")


def _describe_packet(app: App, packet: ResumePacket) -> None:
    session, hold, ref = packet.session, packet.hold, ref_of(packet.session)
    say(f"You hold {titled(session)}." if hold else f"Resumed {titled(session)}: {session.state}.")
    about = [("Agent", session.agent_name), ("Phase", session.phase)]
    held = [("Token", hold.token), ("Until", f"{seconds_text(hold.until)}, {ago(hold.until)}")] if hold else []
    kept = {"Checkpoint": _pairs(packet.checkpoint), "Context": _pairs(packet.context)}
    print(groups({"Session": [*about, *held], **kept}))
    if packet.messages:
        print(f"\n{paint('Last messages', 'bold')}")
    reader = Reader()
    for message in packet.messages:
        reader.show_entry(message)
    for item in packet.inbox:
        say(f"Waiting {item.kind.value}: {encode_text(item.body)}")
    if hold:
        note(f"To give it back: {command_line('release', ref)}")
        if _can_be_asked(app, session.agent_name):
            note(f"To hand it over and talk to its agent: {command_line('attach', ref)}")


def _pairs(values: dict[str, Any] | None) -> list[tuple[str, object]]:
    return [(name, as_text(value)) for name, value in (values or {}).items()]


def _can_be_asked(app: App, agent: str | None) -> bool:
    with suppress(AgentNotFound, InvalidDefinition):
        return bool(agent and app.moor.agent(agent))
    return False


@command("release", "moorage release plan-prod", "moorage release plan-prod --token 5f2c9a")
@arguments.session
@arguments.token
def release(app: App, session: str, token: str | None) -> None:
    """End the hold of a session, so that others can resume it."""
    show_changed(app, app.moor.release(app.id_of(session), token=token), "Released")


@command(
    "should-resume", "moorage should-resume plan-prod", "moorage --json should-resume --agent reviewer --task-id T001"
)
@arguments.optional_session
@click.option("--agent", metavar="NAME", help="Without SESSION: find the newest session of this agent …")
@click.option("--task-id", metavar="ID", help="… and of this task …")
@click.option("--host", type=arguments.SESSION, help="… or a child of this session …")
@click.option("--project-dir", type=arguments.FOLDER, help="… or in this project folder.")
@click.option("--holder", metavar="NAME", help=f"The name of the holder.  {HOLDER}")
def should_resume(app: App, /, session: str | None, holder: str | None, **place: Any) -> int:
    """Say whether a session should be resumed automatically.

    Exit code 0 for yes, 1 for no. The reason is the first criterion that failed; --json shows all of them.
    """
    if session is None:
        host = place.pop("host")
        verdict = app.moor.should_resume(holder=holder, host=None if host is None else app.id_of(host), **place)
    else:
        verdict = judge(app.moor, session, holder=holder)
    return tell(verdict, as_json=app.as_json)


# Checkpoints --------------------------------------------------------------------------------------


@group(
    "checkpoint", 'moorage checkpoint save plan-prod \'{"applied": ["bucket-a"]}\'', "moorage checkpoint show plan-prod"
)
def checkpoint() -> None:
    """Save, show and list checkpoints: state for a later resume."""


@checkpoint.subcommand(
    "save",
    'moorage checkpoint save plan-prod \'{"applied": ["bucket-a"]}\'',
    "moorage checkpoint save plan-prod @checkpoint.json",
)
@arguments.session
@click.argument("checkpoint", type=arguments.OBJECT, metavar="JSON|@FILE")
@arguments.token
def save(app: App, session: str, checkpoint: Any, token: str | None) -> None:
    """Save a checkpoint without suspending the session."""
    kept = app.moor.save_checkpoint(app.id_of(session), checkpoint, token=token)
    app.tell(kept, f"Kept as entry {kept.number}.", str(kept.number))


@checkpoint.subcommand("show", "moorage checkpoint show plan-prod", "moorage --json checkpoint show plan-prod 12")
@arguments.session
@click.argument("number", type=int, required=False)
def show(app: App, session: str, number: int | None) -> None:
    """Show the newest checkpoint, or the one of that entry."""
    found = app.moor.checkpoint(app.id_of(session), number)
    app.show(found, lambda: say(encode_text(found.checkpoint)))


@checkpoint.subcommand("list", "moorage checkpoint list plan-prod")
@arguments.session
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Show at most N.")
@wide_option
def list_(app: App, session: str, limit: int | None) -> None:
    """List checkpoints, newest first."""
    found = list(every(partial(app.moor.checkpoints, app.id_of(session)), limit=limit, by="before"))
    columns, nothing = ("entry", "when", "by", "checkpoint"), f"{session} has no checkpoints."
    when = ago if is_terminal() else utc_text
    rows = [(kept.number, when(kept.at), kept.by, encode_text(kept.checkpoint)) for kept in found]
    app.show(page_of(found), lambda: show_rows(columns, rows, nothing=nothing))
