"""Runs: ask an agent for something, see what became of it, stop it."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from datetime import timedelta
from functools import partial
from signal import Signals
from typing import TYPE_CHECKING, Any

import click
from msgspec import convert

from moorage.core.entry import Kind
from moorage.core.errors import InvalidField, RunNotFound, RunSettled, utc_text
from moorage.core.ids import MIN_PREFIX
from moorage.core.inbox import Item
from moorage.core.problem import Problem
from moorage.core.query import MAX_LIMIT
from moorage.core.run import Join, Mode, Run, RunState, check_mode
from moorage.core.status import Because, Reason
from moorage.doors.cli.app import App, command, pass_app
from moorage.doors.cli.arguments import (
    DURATION,
    FOLDER,
    OBJECT,
    SESSION,
    STDIN,
    one_of,
    queue_option,
    read_stdin,
    session_argument,
)
from moorage.doors.cli.connection import connect_for_a_loop
from moorage.doors.cli.edge import UsageProblem
from moorage.doors.cli.leaving import Departure, SignalQueue, stop_on_exit_option
from moorage.doors.cli.output import complain, fields, hint, is_terminal, note, page_of, printable, say, table
from moorage.doors.cli.patience import cancelled_by_signals, queued_signals
from moorage.doors.cli.verdicts import NO
from moorage.doors.cli.waiting import MOMENT, telling_why, why
from moorage.executor import Interaction
from moorage.service.runs import RunReply

if TYPE_CHECKING:
    from moorage.client import Moorage

STOP_WITHIN = 20.0  # seconds: an agent has five from being asked to being made to
FOREVER = 10 * 365 * 24 * 3600  # seconds
MAX_SHOWN = 5


@command(
    "run",
    examples=(
        'moorage run echo-agent "hello"',
        'moorage run planner "Plan the change" --name plan-prod --mode async_poll',
        "git diff | moorage run reviewer -",
    ),
)
@click.argument("agent", metavar="AGENT")
@click.argument("prompt", required=False, metavar="[PROMPT|-]")
@click.option("--name", metavar="NAME", help="What the session is called.")
@click.option("--session", type=SESSION, metavar="SESSION", help="Ask in this session, not in one of its own.")
@click.option("--parent", type=SESSION, metavar="SESSION", help="The session that asks; inside an agent, its own.")
@click.option("--mode", default=Mode.SYNC.value, show_default=True, shell_complete=one_of(*Mode), help=", ".join(Mode))
@click.option("--join", default=Join.EACH.value, show_default=True, shell_complete=one_of(*Join), help=", ".join(Join))
@click.option("--correlation", metavar="TEXT", help="Handed back with the callback.")
@click.option("--idempotency-key", metavar="KEY", help="Asking twice with one key asks once.")
@click.option("--purpose", metavar="TEXT", help="Why.")
@click.option("--task-id", metavar="ID", help="What it belongs to.")
@click.option("--metadata", type=OBJECT, metavar="JSON", help="Anything to remember.")
@click.option("--project-dir", type=FOLDER, metavar="FOLDER", help="Where the agent works.")
@click.option("--no-session", is_flag=True, help="Keep nothing.")
@click.option("--timeout", type=click.FloatRange(0), metavar="SECONDS", help="Stop the run if it takes longer.")
@queue_option
@stop_on_exit_option
@click.pass_context
def run(ctx: click.Context, /, agent: str, prompt: str | None, **options: Any) -> None:
    """Ask an agent for something and print its answer; on a terminal without a prompt, chat with it.

    Leaving is not stopping. On a server the run goes on after Ctrl-C, Ctrl-D or a hang-up, and `attach`
    comes back to it; a second Ctrl-C within two seconds stops it. Without a server this command is the
    launcher, so leaving suspends the session. Exit code 1 if the run did not complete.
    """
    app = ctx.ensure_object(App)
    options = {name: value for name, value in options.items() if value is not None}
    if options.pop("no_session"):
        _keep_nothing(app, options)
    for name in ("session", "parent"):
        if options.get(name) is not None:
            options[name] = app.id_of(options[name])
    if prompt is None:
        start_chat(app, agent, options)
        return
    said = read_stdin("prompt").removesuffix("\n") if prompt == STDIN else prompt
    ctx.exit(ask_and_show(app, agent, said, options))


def _keep_nothing(app: App, options: dict[str, Any]) -> None:
    if "session" in options or "parent" in options:
        raise UsageProblem("--no-session keeps nothing: leave --session and --parent out")
    if check_mode(options["mode"]) is not Mode.SYNC:
        raise UsageProblem("--no-session keeps nothing to ask for later: use --mode sync")
    app.url, options["parent"] = "memory://", None


def on_terminal(app: App) -> bool:
    """Whether a person reads and types."""
    return sys.stdin.isatty() and is_terminal() and not app.as_json


def start_chat(app: App, agent: str | None, options: dict[str, Any]) -> None:
    """Talk with an agent until the person at the terminal leaves."""
    if not on_terminal(app):
        raise UsageProblem("say what to ask: a prompt, or - to read it from standard input")
    from moorage.doors.cli.chat import chat

    asyncio.run(chat(app.url, agent, options))


@command("attach", examples=("moorage attach plan-prod", "moorage attach plan-prod --url http://127.0.0.1:8765"))
@session_argument()
@stop_on_exit_option
@pass_app
def attach(app: App, session: str, stop_on_exit: bool) -> None:
    """Follow a session live, and talk in it; a suspended one goes on.

    It shows what was asked last and what was said since, then what is being said. Type to talk; /help
    lists the commands. Leaving is as for `run`.
    """
    if not on_terminal(app):
        raise UsageProblem("attach talks at a terminal; a program follows with `moorage watch`, and says with `send`")
    start_chat(app, None, {"session": app.id_of(session), "stop_on_exit": stop_on_exit})


# One answer -------------------------------------------------------------------------------------


def ask_and_show(app: App, agent: str, prompt: str, options: dict[str, Any]) -> int:
    """Ask, print what comes of it, and give the exit code that says how it went."""
    stream = Stream() if is_terminal() and not app.as_json else None
    reply = asyncio.run(_ask(app, agent, prompt, options, stream))
    app.show(reply, lambda: _show_reply(app, reply, stream))
    return 0 if reply.status == "completed" or reply.run.mode is not Mode.SYNC else NO


async def _ask(app: App, agent: str, prompt: str, options: dict[str, Any], stream: Stream | None) -> RunReply:
    moor, seen = connect_for_a_loop(app.url), stream or Stream(silent=True)
    departure = Departure(app.url, stops=options.pop("stop_on_exit", False))
    try:
        reply = await _answered_or_left(moor, agent, prompt, options, seen, departure)
        await _tell_problems(moor, reply.run)
        return reply
    finally:
        with cancelled_by_signals():  # from here on, Ctrl-C is about agents that nobody waits for
            await _close(moor, seen)


async def _answered_or_left(
    moor: Moorage, agent: str, prompt: str, options: dict[str, Any], seen: Stream, departure: Departure
) -> RunReply:
    """The answer. Raises KeyboardInterrupt once somebody has left."""
    with queued_signals() as signals:
        answer = asyncio.create_task(_answered(moor, agent, prompt, options, seen))
        pressed = asyncio.create_task(signals.get())
        await asyncio.wait([answer, pressed], return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            pressed.cancel()
            return answer.result()
        answer.cancel()
        await asyncio.wait([answer])
        if seen.run_id is not None:
            await _leave(moor, seen, departure, pressed.result(), signals)
    raise KeyboardInterrupt


async def _leave(moor: Moorage, seen: Stream, departure: Departure, by: Signals, signals: SignalQueue) -> None:
    moor.drains = False  # agents at work are ended, and their turns given back
    with suppress(OSError):
        seen.end(None)
    async with Interaction(moor, partial(moor.get, seen.session_id)) as talk:
        await departure.leave(talk, "interrupted", by, signals)


async def _answered(moor: Moorage, agent: str, prompt: str, options: dict[str, Any], seen: Stream) -> RunReply:
    mode, limit = check_mode(options.get("mode", Mode.SYNC)), options.pop("timeout", None)
    moor.launches, moor.one_family = mode is Mode.SYNC and moor.launches, True
    async with telling_why(partial(_why_it_waits, moor, seen)):
        reply = await moor.run(agent, prompt, on_event=seen.see, timeout=limit, **options)
    if mode is not Mode.SYNC or reply.run.is_settled or reply.run.needs_a_person:
        return reply
    return await _stopped(moor, reply.run.run_id)


async def _why_it_waits(moor: Moorage, seen: Stream) -> str | None:
    if seen.run_id is None:
        return None
    run = await moor.get_run(seen.run_id)
    return None if run.because is None else why(run.because, run.session_id)


async def _tell_problems(moor: Moorage, run: Run) -> None:
    """Print what the agent said wrongly, on standard error."""
    if run.problems:
        page = await moor.log(run.session_id, after=run.asked_entry or 0, kinds=(Kind.PROBLEM.value,))
        for entry in page.items:
            complain(f"problem in {convert(entry.data, Problem)}")
        if more := run.problems - len(page.items):
            complain(f"{more:,} more problems")


async def _close(moor: Moorage, seen: Stream) -> None:
    try:
        _hint_at_others(moor, seen.session_id)
        await moor.close()
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _hint_at_others(moor: Moorage, session_id: str) -> None:
    """Say why the command does not end, if agents are at work that nobody waits for."""
    others = len(getattr(moor, "_at_work", set()) - {session_id})  # a server's launchers go on by themselves
    if others and moor.drains:
        agents = "1 agent is" if others == 1 else f"{others} agents are"
        hint(f"{agents} still at work for it, and may end. Ctrl-C leaves what they do to the next launcher.")


async def _stopped(moor: Moorage, run_id: str) -> RunReply:
    """Stop a run, and see it end."""
    with suppress(RunSettled):
        await moor.stop_run(run_id)
    over = await moor.result(run_id, wait=STOP_WITHIN)
    session = await moor.get(over.session_id)
    return RunReply(session=session, run=over, status=over.state.value, result=over.result, error=over.error)


class Stream:
    """What an agent says, printed while it says it."""

    def __init__(self, *, silent: bool = False) -> None:
        self.run_id: str | None = None
        self.text = ""
        self.session_id, self._silent = "", silent

    def see(self, session_id: str, event: dict[str, Any]) -> None:
        """Print the words of the agent that was asked; its children speak for themselves."""
        if event["type"] == "asked":
            self.run_id, self.session_id = event["run_id"], session_id
        elif event["type"] == "chunk" and session_id == self.session_id and not self._silent:
            words = str(event.get("text") or "")
            self.text += words
            sys.stdout.write(printable(words))
            sys.stdout.flush()
        elif event["type"] == "approval":
            hint(f"It asks a person: {event.get('question')} See moorage approvals --session {session_id}")

    def end(self, result: str | None) -> None:
        """Close the line, and print the result unless it has been said."""
        if self.text and not self.text.endswith("\n"):
            sys.stdout.write("\n")
        if result and result.strip().removesuffix("…") not in self.text:
            say(result)


def _show_reply(app: App, reply: RunReply, stream: Stream | None) -> None:
    if not reply.run.is_settled:
        _show_open(reply)
        return
    run_id = reply.run.run_id
    (stream or Stream()).end(reply.result)
    if stream is None:
        _say_if_cut(reply.run)
    if reply.error:
        complain(reply.error)
    elif reply.status != "completed":
        complain(f"run {run_id} is {reply.status}")
    if not app.full_url.startswith("memory://"):
        name = reply.session.session_name or reply.session.session_id
        note(f"Run {reply.status}. Go on with: {Departure(app.url).way_back(name)}")


def _show_open(reply: RunReply) -> None:
    """Tell of a run that has not settled. Its id is the answer to whoever did not want to wait, and only to them."""
    run, session_id = reply.run, reply.session.session_id
    because, next_step = run.because, f"Next: moorage result {run.run_id} --wait"
    if run.mode is Mode.SYNC:
        complain(f"run {run.run_id} is {run.state.value}")
        hint(next_step if because is None else f"{why(because, session_id)} {next_step}")
        return
    say(run.run_id)
    note(f"Session {session_id}. {next_step}")
    if run.mode is Mode.ASYNC_CALLBACK and not run.calls_back:
        hint("It has no parent, so nobody is called back: name one with --parent")
    if because is not None and (because.needs_a_person or because.reason is Reason.NO_LAUNCHER):
        hint(why(because, session_id))


@command("runs", examples=("moorage runs --open", "moorage runs --session plan-prod --json"))
@click.option("--session", type=SESSION, metavar="SESSION", help="Only of this session.")
@click.option("--parent", type=SESSION, metavar="SESSION", help="Only those that this session has asked for.")
@click.option("--agent", metavar="NAME", help="Only of this agent.")
@click.option("--state", metavar="STATE", shell_complete=one_of(*RunState), help=", ".join(RunState))
@click.option("--open", "open_only", is_flag=True, help="Only those that have not settled.")
@click.option("--limit", type=int, default=50, show_default=True, metavar="N", help="How many.")
@click.option("--cursor", metavar="CURSOR", help="Where the last page ended.")
@pass_app
def runs(app: App, /, session: str | None, parent: str | None, **filters: Any) -> None:
    """List runs, newest first, and why those that have not started wait.

    Piped, one line for each: run, state, agent, session, time asked and reason, separated by tabs.
    """
    page = app.moor.runs(
        session=None if session is None else app.id_of(session),
        parent=None if parent is None else app.id_of(parent),
        **filters,
    )
    app.show(page_of(page.items, page.next), lambda: _show_runs(page.items))


def _show_runs(found: list[Run]) -> None:
    rows = [
        (run.run_id, run.state.value, run.agent_name, run.session_id, utc_text(run.created_at), _reason_of(run))
        for run in found
    ]
    if is_terminal():
        table(("run", "state", "agent", "session", "asked", "because"), rows, spare=("asked",))
    else:
        for row in rows:
            say(fields(*row))


def _reason_of(run: Run) -> str:
    return "" if run.because is None else run.because.reason.value


@command("result", examples=("moorage result 019a4c1e --wait", "moorage result 019a4c1e --wait 60"))
@click.argument("run_id", metavar="RUN")
@click.option(
    "--wait",
    type=DURATION,
    is_flag=False,
    flag_value=str(FOREVER),
    metavar="[SECONDS]",
    help="Wait for its end: as long as it takes, or so long.",
)
@click.pass_context
def result(ctx: click.Context, /, run_id: str, wait: Any) -> None:
    """Print what a run came to: exit code 0 if it completed, 1 if it did not, or not yet."""
    app = ctx.ensure_object(App)
    seconds = wait.total_seconds() if isinstance(wait, timedelta) else wait
    asked, moment = run_id_of(app, run_id), min(seconds or 0.0, MOMENT)
    found = app.moor.result(asked, wait=moment)
    if seconds and seconds > moment and not found.is_settled:
        _hint_at_wait(found)
        found = app.moor.result(asked, wait=seconds - moment)
    app.show(found, lambda: show_result(found))
    ctx.exit(0 if found.state is RunState.COMPLETED else NO)


def _hint_at_wait(run: Run) -> None:
    """Say why a run that is about to be waited for has not started; what needs a person ends the wait and says it."""
    if run.because is not None and not run.needs_a_person:
        hint(why(run.because, run.session_id))


def run_id_of(app: App, given: str) -> str:
    """The run that is meant by its id, or by the beginning of it, if that is one of the newest."""
    try:
        return str(app.moor.get_run(given).run_id)
    except RunNotFound:
        newest: list[Run] = app.moor.runs(limit=MAX_LIMIT).items if len(given) >= MIN_PREFIX else []
        fitting = [run.run_id for run in newest if run.run_id.startswith(given)]
        if not fitting:
            raise
    if len(fitting) > 1:
        shown = ", ".join(fitting[:MAX_SHOWN])
        raise InvalidField("run", f"{given!r} fits {len(fitting)} runs ({shown} …); give more characters")
    return fitting[0]


def show_result(run: Run) -> None:
    if run.result:
        say(run.result)
    _say_if_cut(run)
    if run.error:
        complain(run.error)
    if not run.is_settled:
        complain(f"run {run.run_id} is {run.state.value}")
        if run.because is not None:
            hint(why(run.because, run.session_id))
    elif run.state is not RunState.COMPLETED and not run.error:
        complain(f"run {run.run_id} is {run.state.value}" + (f" ({run.reason})" if run.reason else ""))


def _say_if_cut(run: Run) -> None:
    if run.is_cut:
        complain(f"only the beginning; the log has all of it: moorage log {run.session_id} --kind message")


@command("stop", examples=("moorage stop plan-prod", "moorage stop --run 019a4c1e"))
@session_argument(required=False)
@click.option("--run", "run_id", metavar="RUN", help="Stop one run, not all of a session.")
@click.option("--no-tree", is_flag=True, help="Leave what the session has started alone.")
@pass_app
def stop(app: App, session: str | None, run_id: str | None, no_tree: bool) -> None:
    """Stop what runs in a session, and in all that hang on it."""
    if (session is None) is (run_id is None):
        raise UsageProblem("say what to stop: a session, or --run RUN")
    if run_id is not None:
        one = app.moor.stop_run(run_id_of(app, run_id))
        app.show(one, lambda: say(fields(one.run_id, one.state.value)))
        _hint_at_silence(one.session_id, one.because)
        return
    told = app.moor.stop(app.id_of(str(session)), tree=not no_tree)
    app.show({"session_ids": told}, lambda: say("\n".join(told)) if told else None)
    for session_id in told[-MAX_SHOWN:]:  # the one that is meant comes last
        _hint_at_silence(session_id, app.moor.get(session_id).because)


def _hint_at_silence(session_id: str, because: Because | None) -> None:
    """Say so if nobody is there to confirm a stop, and when it counts without that."""
    if because is not None and because.is_silence:
        hint(f"Session {session_id} is told to stop, but its {because.in_silence}, and the stop settled.")


@command("inbox", examples=("moorage inbox", "moorage inbox --set-aside", "moorage inbox --send-again ITEM"))
@session_argument(required=False)
@click.option("--set-aside", is_flag=True, help="What could not be delivered, rather than what waits.")
@click.option("--send-again", "item_id", metavar="ITEM", help="Let an item that was set aside wait again.")
@click.option("--limit", type=int, default=100, show_default=True, metavar="N", help="How many.")
@pass_app
def inbox(app: App, session: str | None, set_aside: bool, item_id: str | None, limit: int) -> None:
    """List what waits for sessions' next turns."""
    if item_id is not None:
        again = app.moor.send_again(item_id)
        app.show(again, lambda: say(fields(again.item_id, again.state.value)))
        return
    page = app.moor.inbox(None if session is None else app.id_of(session), set_aside=set_aside, limit=limit)
    app.show(page_of(page.items, page.next), lambda: _show_items(page.items))


def _show_items(found: list[Item]) -> None:
    rows = [(item.item_id, item.state.value, item.kind.value, item.session_id, item.given) for item in found]
    if is_terminal():
        table(("item", "state", "kind", "session", "given"), rows)
    else:
        for row in rows:
            say(fields(*row))
