"""Approvals: ask a person, see what waits, answer."""

from __future__ import annotations

from typing import Any

import click

from moorage.core.approval import Approval
from moorage.core.errors import AmbiguousReference, ApprovalNotFound, Forbidden, InvalidRequest, NotFound, utc_text
from moorage.core.query import MAX_LIMIT
from moorage.doors.cli.app import App, command, pass_app
from moorage.doors.cli.arguments import DURATION, JSON, SESSION, session_argument
from moorage.doors.cli.output import fields, is_terminal, note, page_of, say, table

COLUMNS = ("approval", "session", "state", "question", "options")
SPARE_COLUMNS = ("session", "options", "state")  # which go first where a row does not fit

note_option = click.option("--note", metavar="TEXT", help="A word to whoever asked.")
approval_argument = click.argument("approval", type=SESSION, metavar="APPROVAL")
plan_hash_option = click.option(
    "--plan-hash", metavar="HASH", help="Refuse if the plan in question is another one than you looked at."
)


@command(
    "approvals",
    examples=("moorage approvals", "moorage approvals --session plan-prod --all", "moorage approvals --json"),
)
@click.option("--all", "everything", is_flag=True, help="Answered, expired and withdrawn ones too.")
@click.option("--session", type=SESSION, metavar="SESSION", help="Of this session.")
@pass_app
def approvals(app: App, everything: bool, session: str | None) -> None:
    """List what waits for an answer, oldest first.

    Piped, one line for each: approval, session, state, time asked and question, separated by tabs.
    """
    ref = None if session is None else _session_id(app, session)
    found = app.moor.approvals(ref, pending_only=not everything, limit=MAX_LIMIT)
    app.show(page_of(found), lambda: _show_all(found))


def _show_all(found: list[Approval]) -> None:
    if not is_terminal():
        for asked in found:
            say(fields(asked.approval_id, asked.session_id, asked.state, utc_text(asked.asked_at), asked.question))
    elif found:
        rows = [
            (asked.approval_id, asked.session_id, asked.state, asked.question, ", ".join(asked.options))
            for asked in found
        ]
        table(COLUMNS, rows, spare=SPARE_COLUMNS)
        note(f"Next: moorage approve {found[0].approval_id}   or   moorage reject {found[0].approval_id}")
    else:
        note("Nothing waits for an answer.")


@command(
    "approve",
    examples=(
        'moorage approve plan-prod --note "looks good"',
        "moorage approve 0199a3f2-7c1e-7a55-9d0e-3b1f2a4c5d6e",
        "moorage approve plan-prod --option staging-first",
    ),
)
@approval_argument
@note_option
@click.option("--option", metavar="CHOICE", help="Answer with one of the options asked for.")
@plan_hash_option
@pass_app
def approve(app: App, approval: str, note: str | None, option: str | None, plan_hash: str | None) -> None:
    """Say yes to what an agent asked.

    APPROVAL is its id, or a session that waits for exactly one.
    """
    _decide(app, approval, option or "approve", note=note, plan_hash=plan_hash)


@command("reject", examples=('moorage reject plan-prod --note "not on a Friday"',))
@approval_argument
@note_option
@plan_hash_option
@pass_app
def reject(app: App, approval: str, note: str | None, plan_hash: str | None) -> None:
    """Say no to what an agent asked.

    APPROVAL is its id, or a session that waits for exactly one.
    """
    _decide(app, approval, "reject", note=note, plan_hash=plan_hash)


class SeveralWait(InvalidRequest):
    """A session named for an answer that waits for more than one."""

    code = AmbiguousReference.code

    def __init__(self, ref: str, approval_ids: list[str]) -> None:
        super().__init__(
            f"session {ref} waits for {len(approval_ids)} answers; name one of: {', '.join(approval_ids)}",
            candidates=approval_ids,
        )


class NothingWaits(NotFound):
    """A session named for an answer that waits for none."""

    code = ApprovalNotFound.code

    def __init__(self, ref: str) -> None:
        super().__init__(f"session {ref} waits for no answer", session_id=ref)


def _decide(app: App, ref: str, decision: str, **details: Any) -> None:
    decided = app.moor.decide(_approval_id(app, ref), decision, **details)
    app.show(decided, lambda: _show_one(decided))


def _approval_id(app: App, ref: str) -> str:
    """The approval of that id, or the only one that the session of that name waits for."""
    try:
        return app.moor.approval(ref).approval_id
    except ApprovalNotFound as unknown:
        try:
            waiting = app.moor.approvals(_session_id(app, ref), limit=MAX_LIMIT)
        except NotFound:
            raise unknown from None
    if len(waiting) > 1:
        raise SeveralWait(ref, [asked.approval_id for asked in waiting])
    if not waiting:
        raise NothingWaits(ref)
    return waiting[0].approval_id


def _session_id(app: App, ref: str) -> str:
    """Return the id of a session; for a key that may only decide, what was given: the server knows ids and names."""
    try:
        return app.id_of(ref)
    except Forbidden:
        return ref


def _show_one(approval: Approval) -> None:
    if is_terminal():
        say(f"{approval.question} {approval.state.value.capitalize()}. Session {approval.session_id}.")
    else:
        say(fields(approval.approval_id, approval.session_id, approval.state))


@command(
    "request-approval",
    examples=(
        'moorage request-approval plan-prod "Apply to production?" --plan @plan.json --expires 7d',
        'moorage request-approval plan-prod "Which way?" --option staging-first --option all-at-once',
    ),
)
@session_argument()
@click.argument("question")
@click.option("--plan", type=JSON, metavar="JSON|@FILE", help="What would be done; its hash is kept.")
@click.option("--option", "options", multiple=True, metavar="CHOICE", help="A possible answer; may be repeated.")
@click.option("--expires", "expires_in", type=DURATION, metavar="DURATION", help="Give up after: seconds, or 24h, 7d.")
@pass_app
def request_approval(
    app: App, session: str, question: str, plan: Any, options: tuple[str, ...], expires_in: object
) -> None:
    """Put a question to a person; the session waits for the answer."""
    asked = app.moor.request_approval(app.id_of(session), question, plan=plan, options=options, expires_in=expires_in)
    app.show(asked, lambda: say(f"Asked: {asked.approval_id}" if is_terminal() else asked.approval_id))
