"""Runs: ask an agent for something, print the result, stop it, ask again."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import click
from msgspec import convert
from msgspec.structs import replace

from moorage.connection import Connection
from moorage.core.answer import RunAnswer, answer_of
from moorage.core.entry import Kind, Problem, text_of
from moorage.core.errors import NotFound, RunNotFound, RunSettled, utc_text
from moorage.core.ids import MIN_PREFIX
from moorage.core.query import MAX_LIMIT
from moorage.core.run import Join, Mode, Run, RunState, check_mode
from moorage.core.status import Because, Reason
from moorage.doors.cli import arguments, waiting
from moorage.doors.cli.app import App, command
from moorage.doors.cli.connection import connect_for_a_loop
from moorage.doors.cli.edge import NO, UsageProblem
from moorage.doors.cli.entries import short_plan
from moorage.doors.cli.output import complain, fields, hint, is_terminal, note, page_of, printable, say
from moorage.doors.cli.tables import TableRow, named, show_rows, wide_option
from moorage.doors.cli.wording import ago, command_line, counted, ref_of, shown_id
from moorage.executor import Interaction

STOP_WITHIN = 20.0  # seconds: an agent has five between being asked to stop and being killed
FOREVER = 10 * 365 * 24 * 3600  # seconds
MAX_SHOWN = 5
LOOK_AGAIN = 30.0  # seconds that a server lets a request wait
ASKED_PAUSE = 0.5  # seconds between two checks of a run whose agent waits for a person


@command(
    "run",
    'moorage run echo-agent "hello"',
    'moorage run planner "Plan the change" --name plan-prod --mode async_poll',
    "git diff | moorage run reviewer -",
)
@click.argument("agent", metavar="AGENT")
@click.argument("prompt", required=False, metavar="[PROMPT|-]")
@click.option("--name", metavar="NAME", help="A name for the session.")
@click.option("--session", type=arguments.SESSION, help="Ask in this session instead of a new one.")
@click.option("--parent", type=arguments.SESSION, help="The session that asks. Inside an agent, its own.")
@arguments.choice("--mode", Mode, default=Mode.SYNC.value)
@arguments.choice("--join", Join, default=Join.EACH.value)
@click.option("--correlation", metavar="TEXT", help="A value that the callback returns.")
@click.option("--parameters", type=arguments.OBJECT, help="Parameters for the agent.")
@click.option("--idempotency-key", metavar="KEY", help="Requests with the same key create one run.")
@click.option("--purpose", metavar="TEXT", help="The purpose of the session.")
@click.option("--task-id", metavar="ID", help="The task it belongs to.")
@click.option("--metadata", type=arguments.OBJECT, metavar="JSON", help="Metadata of the session.")
@click.option("--project-dir", type=arguments.FOLDER, help="The folder in which the agent works.")
@arguments.flag("--no-session", "Store nothing. The answer has no session and no run.")
@click.option("--timeout", type=click.FloatRange(0), metavar="SECONDS", help="Stop the run after this long.")
@arguments.queue
@arguments.stop_on_exit
def run(app: App, /, agent: str, prompt: str | None, **options: Any) -> int:
    """Ask an agent and print its answer; without a prompt, chat.

    With a server, the run continues after Ctrl-C, Ctrl-D or a hang-up, and `attach` returns to it; a second Ctrl-C
    within two seconds stops it. Without a server this command is the launcher, so leaving suspends the session. Exit
    code 1 if the run did not complete.
    """
    options = {name: value for name, value in options.items() if value is not None}
    if options.pop("no_session"):
        _keep_nothing(app, options)
    options |= {name: app.id_of(options[name]) for name in ("session", "parent") if options.get(name) is not None}
    if prompt is None:
        start_chat(app, agent, options)
        return 0
    return ask_and_show(app, agent, arguments.read_text(prompt, "prompt"), options)


def _keep_nothing(app: App, options: dict[str, Any]) -> None:
    if "session" in options or "parent" in options:
        raise UsageProblem("--no-session keeps nothing: leave --session and --parent out")
    if check_mode(options["mode"]) is not Mode.SYNC:
        raise UsageProblem("--no-session keeps nothing to ask for later: use --mode sync")
    app.url, options["parent"] = "memory://", None


def _keeps_nothing(app: App) -> bool:
    return app.full_url.startswith("memory://")


def start_chat(app: App, agent: str | None, options: dict[str, Any]) -> None:
    if not app.is_at_terminal:
        raise UsageProblem("say what to ask: a prompt, or - to read it from standard input")
    from moorage.doors.cli.chat import chat

    asyncio.run(chat(app.url, agent, options))


@command("attach", "moorage attach plan-prod", "moorage attach plan-prod --url http://127.0.0.1:8765")
@arguments.session
@arguments.stop_on_exit
def attach(app: App, session: str, stop_on_exit: bool) -> None:
    """Follow a session live and talk in it.

    It shows the last question and all messages since, then new output as it comes. A suspended session is resumed.
    Type to talk; /help lists the commands. Leaving works as for `run`.
    """
    if not app.is_at_terminal:
        raise UsageProblem("attach talks at a terminal; a program follows with `moorage watch`, and says with `send`")
    start_chat(app, None, {"session": app.id_of(session), "stop_on_exit": stop_on_exit})


# One answer -------------------------------------------------------------------------------------


def ask_and_show(app: App, agent: str, prompt: str, options: dict[str, Any]) -> int:
    stream = StreamPrinter(silent=app.as_json or not is_terminal())
    reply = asyncio.run(_ask(app, agent, prompt, options, stream))
    kept = replace(reply, session_id="", run_id=None, run=None, session=None) if _keeps_nothing(app) else reply
    app.show(kept, lambda: _show_reply(app, reply, stream))
    return 0 if reply.status == "completed" or reply.run.mode is not Mode.SYNC else NO


async def _ask(app: App, agent: str, prompt: str, options: dict[str, Any], seen: StreamPrinter) -> RunAnswer:
    moor, departure = connect_for_a_loop(app.url), waiting.Departure(app.url, stops=options.pop("stop_on_exit", False))
    try:
        reply = await _answered_or_left(moor, _answered(moor, agent, prompt, options, seen), seen, departure)
        await _tell_problems(moor, reply.run)
        return reply
    finally:
        with waiting.cancelled_by_signals():  # from here on, Ctrl-C concerns agents that this command does not wait for
            await _close(moor, seen)


async def _answered_or_left(
    moor: Connection, asking: Coroutine[Any, Any, RunAnswer], seen: StreamPrinter, departure: waiting.Departure
) -> RunAnswer:
    """Return the answer. Raises KeyboardInterrupt if the user leaves."""
    with waiting.queued_signals() as signals:
        answer, pressed = asyncio.create_task(asking), asyncio.create_task(signals.get())
        await asyncio.wait([answer, pressed], return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            pressed.cancel()
            return answer.result()
        answer.cancel()
        await asyncio.wait([answer])
        if seen.run_id is not None:
            moor.launching = replace(moor.launching, drains=False)  # running agents are ended, and their turns released
            with suppress(OSError):
                seen.end(None)
            async with Interaction(moor, partial(moor.get, seen.session_id)) as talk:
                await departure.leave(talk, "interrupted", pressed.result(), signals)
    raise KeyboardInterrupt


async def _answered(
    moor: Connection, agent: str, prompt: str, options: dict[str, Any], seen: StreamPrinter
) -> RunAnswer:
    """Return the answer of a run, which is stopped if it has not settled in time."""
    mode, limit = check_mode(options.get("mode", Mode.SYNC)), options.pop("timeout", None)
    launches = mode is Mode.SYNC and moor.launching.launches
    moor.launching = replace(moor.launching, launches=launches, one_family=True)
    async with waiting.telling_why(lambda: _why_it_waits(moor, seen.run_id, hears=True)):
        reply = await moor.run(agent, prompt, on_event=seen.see, timeout=limit, **options)
    run = reply.run
    if mode is not Mode.SYNC or run.is_settled or (run.needs_a_person and not run.is_asking):
        return reply
    with suppress(RunSettled):
        await moor.stop_run(run.run_id)
    over = await moor.result(run.run_id, wait=STOP_WITHIN)
    return answer_of(over, await moor.get(over.session_id))


async def _why_it_waits(moor: Connection, run_id: str | None, *, hears: bool = False) -> str | None:
    """Return why a run waits; None for a question that the caller `hears` anyway."""
    if run_id is None:
        return None
    run = await moor.get_run(run_id)
    if run.because is None or (hears and run.is_asking):
        return None
    return waiting.why_yet(run.because, run.session_id, launches=moor.launching.launches)


async def _tell_problems(moor: Connection, run: Run) -> None:
    """Print the lines of the agent that did not validate, on standard error."""
    if run.problems:
        page = await moor.log(run.session_id, after=run.asked_entry or 0, kinds=(Kind.PROBLEM.value,))
        for entry in page.items:
            complain(f"problem in {convert(entry.data, Problem)}")
        if more := run.problems - len(page.items):
            complain(f"{more:,} more problems")


async def _close(moor: Connection, seen: StreamPrinter) -> None:
    """Close the connection; tell why that takes long if agents run that this command does not wait for."""
    others = len(moor.at_work - {seen.session_id})
    if others and moor.launching.drains:
        hint(f"Waiting for {counted(others, 'other agent')} of this run. Ctrl-C leaves them to the next launcher.")
    try:
        await moor.close()
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


class StreamPrinter:
    """Prints an agent's output while it is produced."""

    def __init__(self, *, silent: bool) -> None:
        self.run_id: str | None = None
        self.text = self.session_id = ""
        self.is_silent = silent

    def see(self, session_id: str, event: dict[str, Any]) -> None:
        """Print the words of the agent that was asked, not those of its children."""
        if event["type"] == "asked":
            self.run_id, self.session_id = event["run_id"], session_id
        elif event["type"] == "chunk" and session_id == self.session_id:
            self._write(str(event.get("text") or ""))
        elif event["type"] == "message" and session_id == self.session_id:
            self._see_message(event)
        elif event["type"] == "approval":
            self._ask(session_id, event)

    def _see_message(self, event: dict[str, Any]) -> None:
        """Print a message of the agent on lines of its own, unless its chunks have been printed."""
        text = text_of(event["content"]) if event.get("role", "assistant") == "assistant" else ""
        if text.strip() and text.strip() not in self.text:
            self._end_line()
            self._write(text if text.endswith("\n") else f"{text}\n")

    def _write(self, words: str) -> None:
        if not self.is_silent:
            self.text += words
            sys.stdout.write(printable(words))
            sys.stdout.flush()

    def _end_line(self) -> None:
        if self.text and not self.text.endswith("\n"):
            self._write("\n")

    def _ask(self, session_id: str, event: dict[str, Any]) -> None:
        self._end_line()
        hint(f"It asks a person: {event.get('question')}")
        for line in short_plan(event.get("plan")):
            hint(line)
        if options := event.get("options"):
            hint(f"Options: {', '.join(map(str, options))}")
        hint(f"Look at it and answer: {command_line('approvals', 'show', shown_id(session_id))}")

    def end(self, result: str | None) -> None:
        """End the line, and print the result unless it has been printed."""
        self._end_line()
        if result and result.strip().removesuffix("…") not in self.text:
            say(result)


def _show_reply(app: App, reply: RunAnswer, stream: StreamPrinter) -> None:
    if not reply.run.is_settled:
        _show_open(reply)
        return
    stream.end(reply.result)
    if stream.is_silent:
        _say_if_cut(reply.run)
    if reply.error:
        complain(reply.error)
    elif reply.status != "completed":
        complain(f"run {shown_id(reply.run.run_id)} is {reply.status}")
    if not _keeps_nothing(app):
        note(f"Run {reply.status}. Go on with: {command_line('attach', ref_of(reply.session))}")


def _show_open(reply: RunAnswer) -> None:
    """Print the id of a run that was not waited for; report a run that was waited for and has not settled."""
    run, session_id = reply.run, reply.session.session_id
    because, next_step = run.because, f"Next: {command_line('result', shown_id(run.run_id), '--wait')}"
    if run.mode is Mode.SYNC:
        complain(f"run {run.run_id} is {run.state.value}")
        hint(next_step if because is None else f"{waiting.why(because, session_id)} {next_step}")
        return
    say(run.run_id)
    note(f"Session {ref_of(reply.session)}. {next_step}")
    if run.mode is Mode.ASYNC_CALLBACK and not run.calls_back:
        hint("It has no parent, so no session is called back: name one with --parent")
    if because is not None and (because.needs_a_person or because.reason is Reason.NO_LAUNCHER):
        hint(waiting.why(because, session_id))


@command("runs", "moorage runs --open", "moorage runs --session plan-prod --json")
@click.option("--session", type=arguments.SESSION, help="Only runs of this session.")
@click.option("--parent", type=arguments.SESSION, help="Only runs that this session requested.")
@click.option("--agent", metavar="NAME", help="Only runs of this agent.")
@arguments.choice("--state", RunState)
@arguments.flag("--open", "open_only", "Only runs that have not settled.")
@click.option("--limit", type=int, default=50, show_default=True, metavar="N", help="Show at most N.")
@click.option("--cursor", metavar="CURSOR", help="The `next` of an earlier --json answer.")
@wide_option
def runs(app: App, /, **filters: Any) -> None:
    """List runs, newest first, and why queued ones wait.

    Piped, one line for each: run, state, agent, session, time asked and reason, separated by tabs.
    """
    filters |= {name: app.id_of(filters[name]) for name in ("session", "parent") if filters[name] is not None}
    page = app.moor.runs(**filters)
    columns, spare = ("agent", "prompt", "run", "state", "session", "asked", "because"), ("session", "asked", "agent")
    without = None if any(run.because for run in page.items) else "because"
    rows, lines = _run_cells(app, page.items), map(_run_fields, page.items)
    app.show(
        page_of(page.items, page.next),
        lambda: show_rows(columns, rows, lines=lines, without=without, spare=spare, nothing="No runs."),
    )
    if page.next is not None and not app.as_json:
        note("There are more: --limit N shows N of them.")


def _run_fields(run: Run) -> TableRow:
    about = (run.run_id, run.state.value, run.agent_name, run.session_id, utc_text(run.created_at))
    return *about, None if run.because is None else run.because.reason.value


def _run_cells(app: App, found: list[Run]) -> Iterator[TableRow]:
    names = {id: session.session_name for id, session in app.sessions(run.session_id for run in found).items()}
    for run in found:
        about = (run.agent_name, " ".join(run.asked.split()), run.run_id, run.state.value)
        because = run.because and run.because.reason.value.replace("_", " ")
        yield *about, named(names.get(run.session_id), run.session_id), ago(run.created_at), because


@command("result", "moorage result 019a4c1e --wait", "moorage result 019a4c1e --wait 60")
@click.argument("run_id", metavar="RUN")
@click.option(
    "--wait",
    type=arguments.DURATION,
    is_flag=False,
    flag_value=str(FOREVER),
    metavar="[SECONDS]",
    help="Wait for its end, without a value as long as it takes.",
)
def result(app: App, run_id: str, wait: float | None) -> int:
    """Print the result of a run.

    Exit code 0 if it completed, 1 if it did not, or not yet.
    """
    asked, moment = _run_id(app, run_id), min(wait or 0.0, waiting.MOMENT)
    found = app.moor.result(asked, wait=moment)
    if wait and wait > moment and not found.is_settled:
        if found.because is not None and not found.needs_a_person:  # else the wait ends with an error
            hint(waiting.why(found.because, found.session_id))
        found = app.moor.result(asked, wait=wait - moment)
    app.show(found, lambda: _show_result(found))
    return 0 if found.state is RunState.COMPLETED else NO


def _run_id(app: App, given: str) -> str:
    """Return the id of a run from its id, or from a prefix, if it is one of the newest."""
    try:
        return str(app.moor.get_run(given).run_id)
    except RunNotFound:
        newest: list[Run] = app.moor.runs(limit=MAX_LIMIT).items if len(given) >= MIN_PREFIX else []
        found = arguments.id_beginning(given, [run.run_id for run in newest], "run")
        if found is None:
            raise
    return found


def _show_result(run: Run) -> None:
    if run.result:
        say(run.result)
    _say_if_cut(run)
    if run.error:
        complain(run.error)
    if not run.is_settled:
        complain(f"run {shown_id(run.run_id)} is {run.state.value}")
        if run.because is not None:
            hint(waiting.why(run.because, run.session_id))
    elif run.state is not RunState.COMPLETED and not run.error:
        complain(f"run {run.run_id} is {run.state.value}" + (f" ({run.reason})" if run.reason else ""))


def _say_if_cut(run: Run) -> None:
    if run.is_cut:
        whole = command_line("log", shown_id(run.session_id), "--kind message")
        complain(f"only the beginning; the log has all of it: {whole}")


@command("stop", "moorage stop plan-prod", "moorage stop --run 019a4c1e")
@arguments.optional_session
@click.option("--run", "run_id", metavar="RUN", help="Stop this run only.")
@arguments.flag("--no-tree", "Do not stop its children.")
def stop(app: App, session: str | None, run_id: str | None, no_tree: bool) -> None:
    """Stop the runs of a session and of its children.

    Piped, one line for each session, or the run and its state.
    """
    if (session is None) is (run_id is None):
        raise UsageProblem("say what to stop: a session, or --run RUN")
    if run_id is not None:
        one = app.moor.stop_run(_run_id(app, run_id))
        state = one.state.value if one.is_settled else "told to stop; it ends with its turn"
        app.tell(one, f"Run {shown_id(one.run_id)}: {state}.", fields(one.run_id, one.state.value))
        _hint_at_silence(one.session_id, one.because)
        return
    running = app.moor.runs(open_only=True, limit=MAX_LIMIT).items if is_terminal() else []  # to say what was stopped
    root = app.id_of(str(session))
    told = app.moor.stop(root, tree=not no_tree)
    last = {each: app.moor.get(each).because for each in told[-MAX_SHOWN:]}  # parents come last
    silent = {each: because for each, because in last.items() if because is not None and because.is_silence}
    app.show({"session_ids": told, "unresponsive": silent}, lambda: _show_stopped(told, running, str(session), root))
    for session_id, because in silent.items():
        _hint_at_silence(session_id, because)


def _show_stopped(told: list[str], running: list[Run], ref: str, root: str) -> None:
    if not is_terminal():
        for session_id in told:
            say(session_id)
        return
    stopped = [run for run in running if run.session_id in told]
    below = len({run.session_id for run in stopped} - {root})
    children = f" and {counted(below, 'session')} below it" if below else ""
    say(f"Stopped {counted(len(stopped), 'run')} in {ref}{children}." if stopped else f"Nothing was running in {ref}.")


def _hint_at_silence(session_id: str, because: Because | None) -> None:
    """Tell if no launcher runs that could confirm a stop, and when the stop takes effect without one."""
    if because is not None and because.is_silence:
        hint(f"Session {session_id} is told to stop, but its {because.in_silence}, and the stop settled.")


@command("retry", "moorage retry plan-prod", "moorage retry 019a4c1e", "moorage retry plan-prod --no-wait")
@click.argument("what", metavar="RUN|SESSION")
@arguments.flag("--no-wait", "Do not wait for the answer.")
def retry(app: App, what: str, no_wait: bool) -> int:
    """Retry a failed run and print its result.

    RUN|SESSION is the failed run, or the session whose last run it is. The retry is a new run with the prompt and the
    dead letters of the failed one; a repeated request returns the same new run. If no launcher is running, this command
    is the launcher. Exit code 1 if the run did not complete.
    """
    try:
        failed = _run_id(app, what)
    except NotFound:
        failed = str(app.moor.get(app.id_of(what)).check_run_ended().id)
    run = asyncio.run(_retried(app, failed, wait=not no_wait))
    app.show(run, lambda: _show_result(run))
    return 0 if no_wait or run.state is RunState.COMPLETED else NO


async def _retried(app: App, run_id: str, *, wait: bool) -> Run:
    moor = connect_for_a_loop(app.url)
    moor.launching = replace(moor.launching, launches=wait, one_family=True)
    try:
        with waiting.cancelled_by_signals():
            run = await moor.retry(run_id)
            async with waiting.telling_why(partial(_why_it_waits, moor, run.run_id)):
                while wait and not run.is_settled and (run.is_asking or not run.needs_a_person):
                    await asyncio.sleep(ASKED_PAUSE if run.is_asking else 0)
                    run = await moor.result(run.run_id, wait=LOOK_AGAIN)
            return run
    finally:
        await moor.close()
