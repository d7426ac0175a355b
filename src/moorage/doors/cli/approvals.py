"""Approvals: ask a person, list and show open questions, answer them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from difflib import unified_diff
from functools import partial
from operator import attrgetter
from typing import Any

import click

from moorage.core.approval import Approval, ApprovalState
from moorage.core.errors import AmbiguousReference, ApprovalNotFound, Forbidden, NotFound, error_from, utc_text
from moorage.core.ids import MIN_PREFIX
from moorage.core.query import MAX_LIMIT
from moorage.core.render import to_json
from moorage.core.session import Session
from moorage.doors.cli import arguments
from moorage.doors.cli.app import App, command, group, pass_app
from moorage.doors.cli.edge import UsageProblem
from moorage.doors.cli.entries import plan_lines
from moorage.doors.cli.output import facts, fields, hint, is_terminal, note, page_of, printable, say
from moorage.doors.cli.tables import TableRow, named, show_rows, wide_option
from moorage.doors.cli.terminal import STATE_STYLES, paint
from moorage.doors.cli.wording import ago, command_line, ref_of, short_ids, shown_id

_DIFFERENCE_COLOURS = {"+": "green", "-": "red"}
note_option = click.option("--note", metavar="TEXT", help="A note for the agent.")
approval_argument = click.argument("approval", type=arguments.SESSION, metavar="APPROVAL")
plan_hash = click.option("--plan-hash", metavar="HASH", help="The plan you looked at; refuse if it is another one now.")


@group(
    "approvals",
    "moorage approvals",
    "moorage approvals --session plan-prod --all",
    "moorage approvals show 0199a3f2-7c1e",
    invoke_without_command=True,
)
@arguments.flag("--all", "everything", "Also list answered, expired and withdrawn approvals.")
@click.option("--session", type=arguments.SESSION, help="Only approvals of this session.")
@wide_option
@pass_app
@click.pass_context
def approvals(ctx: click.Context, app: App, everything: bool, session: str | None) -> None:
    """List open approvals; `show` one with its plan.

    Piped, one line for each: approval, session, state, time asked and question, separated by tabs.
    """
    if ctx.invoked_subcommand is not None:
        return
    ref = None if session is None else _session_id(app, session)
    found = app.moor.approvals(ref, pending_only=not everything, limit=MAX_LIMIT)
    app.show(page_of(found), lambda: _show_all(app, found, everything))


def _show_all(app: App, found: list[Approval], everything: bool) -> None:
    columns = ("question", "approval", "session", "agent", "state", "asked", "expires")
    rows, without = _cells(app, found), None if everything else "state"
    lines = [(each.approval_id, each.session_id, each.state, utc_text(each.asked_at), each.question) for each in found]
    nothing = "No approvals." if everything else "No open approvals."
    show_rows(columns, rows, lines=lines, without=without, spare=("agent", "state"), nothing=nothing)
    if is_terminal():
        _propose(found)


def _cells(app: App, found: list[Approval]) -> Iterator[TableRow]:
    sessions = app.sessions(asked.session_id for asked in found)
    for asked in found:
        session = sessions.get(asked.session_id)
        name, agent = (None, None) if session is None else (session.session_name, session.agent_name)
        about = (asked.question, asked.approval_id, named(name, asked.session_id), agent)
        expires = ago(asked.expires_at) if asked.state is ApprovalState.PENDING else None
        yield *about, asked.state, ago(asked.asked_at), expires


def _propose(found: list[Approval]) -> None:
    """Print how to answer the first open question; print nothing if all are decided."""
    first = next((asked for asked in found if asked.state is ApprovalState.PENDING), None)
    if first is not None:
        id = short_ids(asked.approval_id for asked in found)[first.approval_id]
        note(f"Look at one: {command_line('approvals', 'show', id)}")
    if len(found) >= MAX_LIMIT:
        note(f"Only the oldest {MAX_LIMIT:,} are shown; --session SESSION lists those of one session.")


@approvals.subcommand("show", "moorage approvals show plan-prod", "moorage approvals show 0199a3f2-7c1e --json")
@approval_argument
def show(app: App, approval: str) -> None:
    """Show one approval, its plan, and the changes to it.

    The changes are those since the session's last plan. APPROVAL is its id, the beginning of it, or a session that
    waits for exactly one.
    """
    asked = app.moor.approval(_approval_id(app, approval))
    others = app.moor.approvals(asked.session_id, pending_only=False, limit=MAX_LIMIT)
    earlier = _earlier_plan(asked, others)
    shown = {**to_json(asked), "earlier_plan": None if earlier is None else to_json(earlier)}
    app.show(shown, lambda: _show_one(app, asked, earlier))


def _show_one(app: App, asked: Approval, earlier: Approval | None) -> None:
    if not is_terminal():
        say(facts(to_json(asked).items()))
        return
    session = app.sessions([asked.session_id]).get(asked.session_id)
    lines = [paint(printable(asked.question), "bold"), *_circumstances(asked, session)]
    if asked.plan is not None:
        lines += ["", paint("Plan", "bold"), *(f"  {line}" for line in plan_lines(asked.plan))]
        lines += _compared(asked, earlier)
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
    if asked.state is ApprovalState.PENDING:
        _propose_answers(asked)


def _circumstances(asked: Approval, session: Session | None) -> list[str]:
    name = shown_id(asked.session_id) if session is None else ref_of(session)
    agent = f" ({session.agent_name})" if session is not None and session.agent_name else ""
    state = paint(asked.state.value.capitalize(), STATE_STYLES.get(asked.state.value))
    by = f" by {asked.decided_by}" if asked.decided_by else ""
    lines = [f"Asked {ago(asked.asked_at)} in session {printable(name)}{agent}."]
    if asked.state is ApprovalState.PENDING:
        ends = f"; expires {ago(asked.expires_at)}" if asked.expires_at else ""
        lines.append(f"{state}{ends}.")
    else:
        answer = f" ({asked.decision})" if asked.state is ApprovalState.ANSWERED else ""
        told = f": {asked.note}" if asked.note else "."
        lines.append(f"{state}{answer}{by} {ago(asked.decided_at)}{printable(told)}")
    if asked.options:
        lines.append(f"Options: {printable(', '.join(asked.options))}")
    return lines


def _compared(asked: Approval, earlier: Approval | None) -> list[str]:
    if earlier is None:
        return []
    when = ago(earlier.decided_at or earlier.asked_at)
    which = f"the plan of {shown_id(earlier.approval_id)}, {earlier.state.value} {when}"
    if earlier.plan_hash == asked.plan_hash:
        return ["", f"The same as {which}."]
    title = paint(f"Difference from {which}", "bold")
    return ["", title, *(f"  {line}" for line in _difference(earlier.plan, asked.plan))]


def _earlier_plan(asked: Approval, others: list[Approval]) -> Approval | None:
    """Return the last of the other approvals that is earlier and has a plan."""
    order = attrgetter("asked_at", "approval_id")
    return max(
        (each for each in others if each.plan is not None and order(each) < order(asked)), key=order, default=None
    )


def _difference(before: Any, after: Any) -> Iterator[str]:
    """Yield the lines that differ between two plans, with their neighbours, in colour."""
    lines = unified_diff(plan_lines(before), plan_lines(after), lineterm="", n=2)
    for line in lines:
        if not line.startswith(("---", "+++")):
            yield paint(line, "dim" if line.startswith("@@") else _DIFFERENCE_COLOURS.get(line[:1]))


def _propose_answers(asked: Approval) -> None:
    id = shown_id(asked.approval_id)
    for option in asked.options or ("",):
        chosen = ("--option", shlex.quote(option)) if option else ()
        hint(f"Approve: {command_line('approve', id, *chosen)}")
    hint(f"Reject:  {command_line('reject', id)}")


# Answers ----------------------------------------------------------------------------------------


@command(
    "approve",
    'moorage approve plan-prod --note "looks good"',
    "moorage approve 0199a3f2-7c1e",
    "moorage approve plan-prod --option staging-first",
)
@approval_argument
@note_option
@click.option("--option", metavar="CHOICE", help="Answer with one of the options of the question.")
@plan_hash
def approve(app: App, /, approval: str, option: str | None, **details: Any) -> None:
    """Approve a question of an agent.

    APPROVAL is its id, the beginning of it, or a session that waits for exactly one. If the question has options,
    give one with --option; on a terminal you are asked which.
    """
    asked = app.moor.approval(_approval_id(app, approval))
    if option is None and asked.options and asked.state is ApprovalState.PENDING:
        option = _chosen(app, asked)
    _decide(app, asked, option or "approve", details)


def _chosen(app: App, asked: Approval) -> str:
    """Ask which option is meant. Raise UsageProblem without a terminal."""
    if "approve" in asked.options:
        return "approve"
    if not app.is_at_terminal:
        shown = ", ".join(f"--option {shlex.quote(option)}" for option in asked.options)
        raise UsageProblem(f"approval {asked.approval_id} has options; choose one of: {shown}")
    click.echo(printable(asked.question), err=True)
    for number, option in enumerate(asked.options, 1):
        click.echo(f"  {number}  {printable(option)}", err=True)
    return str(click.prompt("Which one? Its number or name", value_proc=partial(_option_of, asked.options), err=True))


def _option_of(options: Sequence[str], answer: str) -> str:
    """Return the option that an answer names, or whose number it is. Raise UsageError, to be asked again."""
    answer = answer.strip()
    if answer in options:
        return answer
    if answer.isascii() and answer.isdigit() and 1 <= int(answer) <= len(options):
        return options[int(answer) - 1]
    raise click.UsageError(f"there is no option {answer!r}")


@command("reject", 'moorage reject plan-prod --note "not on a Friday"')
@approval_argument
@note_option
@plan_hash
def reject(app: App, /, approval: str, **details: Any) -> None:
    """Reject a question of an agent.

    APPROVAL is its id, the beginning of it, or a session that waits for exactly one.
    """
    _decide(app, app.moor.approval(_approval_id(app, approval)), "reject", details)


def _decide(app: App, asked: Approval, decision: str, details: dict[str, Any]) -> None:
    decided = app.moor.decide(asked.approval_id, decision, **details)
    name = app.ref_of(decided.session_id)
    answer = f"Answered {decision!r}" if decided.state is ApprovalState.ANSWERED else decided.state.value.capitalize()
    line = fields(decided.approval_id, decided.session_id, decided.state)
    app.tell(decided, f"{answer}: {decided.question} Session {name}.", line)


def _approval_id(app: App, ref: str) -> str:
    """Return the id of an approval from its id, the beginning of it, or the session that waits for it alone."""
    try:
        return str(app.moor.approval(ref).approval_id)
    except ApprovalNotFound as unknown:
        if (begun := _begun(app, ref)) is not None:
            return begun
        try:
            waiting = app.moor.approvals(_session_id(app, ref), limit=MAX_LIMIT)
        except NotFound:
            raise unknown from None
    ids = [asked.approval_id for asked in waiting]
    if len(ids) > 1:
        told = f"session {ref} waits for {len(ids)} answers; name one of: {', '.join(ids)}"
        raise error_from(AmbiguousReference.code, told, {"candidates": ids})
    if not ids:
        decided = f"`moorage approvals --session {ref} --all` lists the decided ones"
        told = f"session {ref} has no open approval; {decided}"
        raise error_from(ApprovalNotFound.code, told, {"session_id": ref})
    return ids[0]


def _begun(app: App, ref: str) -> str | None:
    """Return the id of the approval with this prefix: an open one, else a decided one; None if it names a session."""
    if len(ref) < MIN_PREFIX:
        return None
    with suppress(NotFound, Forbidden):
        app.moor.get(ref)
        return None
    with suppress(Forbidden):  # a key with only the decide scope sees open approvals
        for pending_only in (True, False):
            found = app.moor.approvals(pending_only=pending_only, limit=MAX_LIMIT)
            if begun := arguments.id_beginning(ref, [asked.approval_id for asked in found], "approval"):
                return begun
    return None


def _session_id(app: App, ref: str) -> str:
    """Return the id of a session; with a key that may only decide, return the given word: the server resolves it."""
    try:
        return app.id_of(ref)
    except Forbidden:
        return ref


@command(
    "request-approval",
    'moorage request-approval plan-prod "Apply to production?" --plan @plan.json --expires 7d',
    'moorage request-approval plan-prod "Which way?" --option staging-first --option all-at-once',
)
@arguments.session
@click.argument("question")
@click.option("--plan", type=arguments.JSON, help="The plan to approve; its hash is stored with the answer.")
@arguments.many("--option", "options", told="A possible answer.", metavar="CHOICE")
@click.option("--expires", "expires_in", type=arguments.DURATION, help="Expire after: seconds, or 24h, 7d.")
def request_approval(app: App, /, session: str, question: str, **known: Any) -> None:
    """Ask a person for approval.

    Prints the id of the approval. The session waits for the answer.
    """
    asked = app.moor.request_approval(app.id_of(session), question, **known)
    look = command_line("approvals", "show", shown_id(asked.approval_id))
    app.tell(asked, f"Asked: {asked.question} Look at it: {look}", asked.approval_id)
