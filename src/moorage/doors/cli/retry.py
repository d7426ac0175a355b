"""Retry: ask again what a failed run was asked, and wait for the answer."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import click

from moorage.core.errors import NotFound
from moorage.core.run import Run, RunState
from moorage.doors.cli.app import App, command
from moorage.doors.cli.connection import connect_for_a_loop
from moorage.doors.cli.runs import run_id_of, show_result
from moorage.doors.cli.verdicts import NO
from moorage.doors.cli.waiting import telling_why, why

if TYPE_CHECKING:
    from moorage.client import Moorage

LOOK_AGAIN = 30.0  # seconds that a server lets a request wait


@command("retry", examples=("moorage retry plan-prod", "moorage retry 019a4c1e", "moorage retry plan-prod --no-wait"))
@click.argument("what", metavar="RUN|SESSION")
@click.option("--no-wait", is_flag=True, help="Do not wait for the answer.")
@click.pass_context
def retry(ctx: click.Context, what: str, no_wait: bool) -> None:
    """Ask again what a failed run was asked, or the last run of a session.

    That is a new run, with the prompt and the dead letters of the failed one; asked again, the same new run answers.
    Without a launcher running, this command is one until it ends. Exit code 1 if the run did not complete.
    """
    app = ctx.ensure_object(App)
    run = asyncio.run(_retried(app, _failed_run(app, what), wait=not no_wait))
    app.show(run, lambda: show_result(run))
    ctx.exit(0 if no_wait or run.state is RunState.COMPLETED else NO)


def _failed_run(app: App, what: str) -> str:
    """The run that is named, or the last one of the session that is."""
    try:
        return run_id_of(app, what)
    except NotFound:
        return str(app.moor.get(app.id_of(what)).check_run_ended().id)


async def _why_it_waits(moor: Moorage, run_id: str) -> str | None:
    run = await moor.get_run(run_id)
    return None if run.because is None else why(run.because, run.session_id)


async def _retried(app: App, run_id: str, *, wait: bool) -> Run:
    from moorage.doors.cli.patience import cancelled_by_signals

    moor = connect_for_a_loop(app.url)
    moor.launches, moor.one_family = wait, True
    try:
        with cancelled_by_signals():
            run = await moor.retry(run_id)
            async with telling_why(partial(_why_it_waits, moor, run.run_id)):
                while wait and not (run.is_settled or run.needs_a_person):
                    run = await moor.result(run.run_id, wait=LOOK_AGAIN)
            return run
    finally:
        await moor.close()
