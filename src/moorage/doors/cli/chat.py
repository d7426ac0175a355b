"""A chat with an agent at the terminal. Leaving it does not stop the agent: see `leaving`.

The executor runs the agent. The chat prints its events as they come, and reads lines all the time, so commands and
texts work while the agent runs, too. The event loop reads the lines, because a thread would keep the command alive
until the next Enter.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from contextlib import suppress
from typing import Any

from moorage.connection import Connection, LaunchOptions
from moorage.core.approval import Approval
from moorage.core.entry import text_of
from moorage.core.errors import MoorageError
from moorage.core.session import State
from moorage.doors.cli.connection import connect_for_a_loop
from moorage.doors.cli.edge import UsageProblem, at_this_door
from moorage.doors.cli.entries import short_plan
from moorage.doors.cli.output import complain, hint, printable, say
from moorage.doors.cli.waiting import SUSPENDED, Departure, SignalQueue, queued_signals, telling_why, why_yet
from moorage.doors.cli.wording import nearest
from moorage.executor import AgentExecutor, ExecutionEvent, Interaction

HELP = {
    "/approve [note]": "approve; with options: /approve OPTION [note]",
    "/reject [note]": "reject",
    "/stop": "stop the run",
    "/suspend": "suspend the session, and leave",
    "/fork": "continue in a fork of the session",
    "/quit": "leave",
    "/help": "show this",
}
COMMANDS = [shown.split()[0] for shown in HELP]
WITH_NOTE = ("/approve", "/reject")
WORD = re.compile(r"/[A-Za-z-]+")  # a command; a path has another slash
BIRTH = ("name", "purpose", "task_id", "metadata", "project_dir", "parent")  # fields for a new session only
RECENT = 20  # messages that are searched for the latest ones


class Leave(Exception):
    """Raised when the user leaves; the message says why."""


async def chat(url: str | None, agent: str | None, options: dict[str, Any]) -> None:
    """Talk with an agent, in a new session or in an old one, until the user leaves."""
    departure = Departure(url, stops=bool(options.get("stop_on_exit")))
    async with connect_for_a_loop(url) as moor:
        moor.launching = LaunchOptions(one_family=True, drains=False)  # children release their turns and continue later
        session = options.get("session")
        was_suspended = session is not None and (await moor.get(session)).state is State.SUSPENDED
        birth = {name: options[name] for name in BIRTH if name in options}
        talk = AgentExecutor(moor).execute_interactive(agent, session, partial=True, **birth)
        with queued_signals() as signals:  # once there is a session, Ctrl-C leaves it
            async with talk:
                if departure.is_kept:
                    begun = "created" if session is None else "resumed" if was_suspended else "attached"
                    say(f"Session {begun}: {talk.session_id}")
                hint("/help lists the commands." if departure.is_kept else "Nothing is stored.")
                if session is not None:
                    await show_recent(moor, talk)
                await Chat(moor, talk, departure).go(signals)


async def show_recent(moor: Connection, talk: Interaction) -> None:
    """Print the last question and the messages since."""
    page = await moor.messages(talk.session_id, before=talk.session.last_entry + 1, limit=RECENT)
    said = [(each.role, text_of(each.content)) for each in page.items if each.role in ("user", "assistant")]
    asked = max((place for place, (role, _) in enumerate(said) if role == "user"), default=0)
    for role, text in said[asked:]:
        say(f"{'You' if role == 'user' else 'Agent'}: {text}")
    silence = next((run.because for run in talk.earlier if run.because is not None and run.because.is_silence), None)
    if silence is not None:
        hint(f"Your earlier request does not continue: its {silence.in_silence}. New messages wait until then.")
        return
    for run in talk.earlier:
        hint(f"It continues with your earlier request: {run.asked}")


class Chat:
    """One conversation: lines in, answers out."""

    def __init__(self, moor: Connection, talk: Interaction, departure: Departure) -> None:
        self._moor, self._talk, self._departure = moor, talk, departure
        self._lines, self._screen = StdinLines(), Screen()
        self._event: asyncio.Task[ExecutionEvent] | None = None
        moor.on_return = self._tell_return

    async def go(self, signals: SignalQueue) -> None:
        """Chat until the user leaves, hangs up or presses Ctrl-C, or the session is ended elsewhere."""
        left = asyncio.create_task(self._until_left())
        pressed = asyncio.create_task(signals.get())
        await asyncio.wait([left, pressed], return_when=asyncio.FIRST_COMPLETED)
        by = pressed.result() if pressed.done() else None
        for task in (left, pressed):
            task.cancel()
        await asyncio.wait([left, pressed])
        reason = "interrupted" if by is signal.SIGINT else "hung up" if by is not None else left.result()
        await self._leave(reason, by, signals)

    async def _leave(self, reason: str | None, by: signal.Signals | None, signals: SignalQueue) -> None:
        with suppress(OSError):
            self._screen.end_line()
        if reason is not None:
            if self._moor.is_away:
                self._departure.tell_away(self._talk)
            else:
                await self._departure.leave(self._talk, reason, by, signals)
        await self._talk.close()

    async def _until_left(self) -> str | None:
        """Show events and handle lines; return why the user leaves, or None if the session ended."""
        hearing = asyncio.create_task(self._hear_lines())
        self._next_event()
        try:
            async with telling_why(self._why_it_waits, self._show_wait):
                await self._show_events(hearing)
            return None
        except Leave as left:
            return str(left)
        except OSError:  # the terminal is gone
            return "hung up"
        except MoorageError as error:
            complain(error.message)
            return "lost touch"
        finally:
            hearing.cancel()
            if self._event is not None:
                self._event.cancel()

    async def _show_events(self, hearing: asyncio.Task[None]) -> None:
        """Show events until the session is ended elsewhere; read lines meanwhile."""
        while True:
            assert self._event is not None
            await asyncio.wait([self._event, hearing], return_when=asyncio.FIRST_COMPLETED)
            if hearing.done():
                hearing.result()
            elif self._event.done() and not self._event.cancelled():
                if self._show(self._event.result()):
                    return
                self._next_event()

    async def _why_it_waits(self) -> str | None:
        """Return why the agent is not working; None if it works, or asks a question, which is shown already."""
        if self._talk.is_answered or self._talk.approvals:
            return None
        session = await self._moor.get(self._talk.session_id)
        because = session.because
        if because is None or (session.live_turn is not None and not because.is_silence):
            return None
        return why_yet(because, session.session_id, launches=self._moor.launching.launches)

    def _tell_return(self) -> None:
        self._show_wait("The server is back.")
        self._talk.repeat()

    def _show_wait(self, line: str) -> None:
        self._screen.end_line()
        hint(line)

    def _next_event(self) -> None:
        if self._event is not None:
            self._event.cancel()
        self._event = asyncio.create_task(anext(self._talk))

    def _show(self, event: ExecutionEvent) -> bool:
        """Print an event and return whether it ends the conversation."""
        self._screen.show(event)
        if event.is_last:
            complain(f"the session is {event.type}, by {event.data.get('by') or 'another caller'}")
        elif event.type == "waiting_for_input":
            for approval in event.data["approvals"]:
                _show_question(approval)
            self._screen.prompt()
        return event.is_last

    # Typed lines --------------------------------------------------------------------------------

    async def _hear_lines(self) -> None:
        while True:
            line = await self._lines.next()
            self._screen.entered()
            if line is None:
                raise Leave("end of input")
            await self._hear(line.strip())
            if self._screen.is_persons_move:
                self._screen.prompt()

    async def _hear(self, line: str) -> None:
        """Handle a line. After the agent's answer or next question, it is the user's turn again."""
        was_move = self._screen.is_persons_move
        try:
            if line and WORD.fullmatch(line.split()[0]) and not await self._is_agents(line.split()[0]):
                await self._obey(*line.split(maxsplit=1))
            elif line:
                self._screen.is_persons_move = False
                await self._talk.send(line.removeprefix("/") if line.startswith("//") else line)
        except MoorageError as error:
            complain(at_this_door(error))
            self._screen.is_persons_move = was_move

    async def _is_agents(self, word: str) -> bool:
        """Return whether a word is a command of the agent's description, not of the chat."""
        agent = self._talk.session.agent_name
        if word in COMMANDS or agent is None:
            return False
        return word in re.split(r"[^\w/-]+", (await self._moor.agent(agent)).get("description") or "")

    async def _obey(self, word: str, rest: str | None = None) -> None:
        if word not in COMMANDS:
            near = nearest(word, COMMANDS, cutoff=0.4)
            meant = f"did you mean {near}?" if near else "/help lists the commands."
            complain(f"there is no command {word}; {meant} To send it to the agent, type /{word}")
        elif word in WITH_NOTE:
            await self._decide(word.removeprefix("/"), rest)
        elif rest is not None:
            complain(f"{word} takes nothing after it")
        else:
            await getattr(self, f"_{word.removeprefix('/')}")()

    async def _decide(self, decision: str, note: str | None) -> None:
        if not self._talk.approvals:
            hint("Nothing waits for an answer.")
            return
        answers = {each.approval_id: _answer(each, decision, note) for each in self._talk.approvals}
        self._screen.is_persons_move = False
        for approval_id, (answer, rest) in answers.items():
            for approval in await self._talk.decide(answer, approval_id=approval_id, note=rest):
                done = {"approve": "Approved", "reject": "Rejected"}[decision]
                say(f"{done if answer == decision else f'Answered {answer!r}'}: {approval.question}")

    async def _quit(self) -> None:
        raise Leave("left")

    async def _help(self) -> None:
        for shown, told in HELP.items():
            hint(f"{shown:<16} {told}")
        hint(
            "All other text is sent to the agent, and so is a /word that its description names; //word sends any /word."
        )
        hint("Ctrl-C and Ctrl-D leave.")

    async def _stop(self) -> None:
        if self._talk.is_answered:
            hint("No run is active.")
            return
        self._screen.is_persons_move = False
        await self._talk.stop()

    async def _suspend(self) -> None:
        if self._departure.is_remote and (await self._moor.get(self._talk.session_id)).live_turn is not None:
            complain("the agent is at work; /stop it first, or /quit and let it go on")
            return
        raise Leave(SUSPENDED)

    async def _fork(self) -> None:
        if not self._talk.is_answered:
            hint("The agent is at work: /stop it, or wait for its answer.")
            return
        fork = await self._moor.fork(self._talk.session_id)
        talk = await AgentExecutor(self._moor).execute_interactive(None, fork.session_id, partial=True).open()
        self._screen.is_persons_move = False
        former, self._talk = self._talk, talk
        say(f"Session forked: {fork.session_id}")
        self._next_event()  # this event says whose turn it is
        await self._departure.put_away(former, "forked")


def _show_question(approval: dict[str, Any]) -> None:
    say(f"Question: {approval['question']}")
    for line in short_plan(approval.get("plan")):
        say(line)
    options = approval.get("options") or ()
    hint(f"/approve OPTION ({', '.join(options)}) or /reject?" if options else "/approve or /reject?")


def _answer(approval: Approval, decision: str, note: str | None) -> tuple[str, str | None]:
    """Return the answer to a question and the note that goes with it. Raise UsageProblem if an option is missing."""
    if decision != "approve" or not approval.options or "approve" in approval.options:
        return decision, note
    for option in sorted(approval.options, key=len, reverse=True):
        if f"{note} ".startswith(f"{option} "):
            return option, str(note)[len(option) :].strip() or None
    raise UsageProblem(f"choose one: {', '.join(f'/approve {option}' for option in approval.options)}")


class Screen:
    """Prints the agent's output as it comes, and the prompt."""

    def __init__(self) -> None:
        self._is_open = False  # whether the current line has text
        self._is_agents = False  # whether that text is the agent's output
        self._is_prompted = False  # whether that text is the prompt alone
        self.is_persons_move = False

    def show(self, event: ExecutionEvent) -> None:
        """Print an event, unless its chunks have been printed."""
        if event.type == "chunk":
            self._print(event.content)
        elif event.type == "message" and event.data["role"] == "assistant":
            self._print(event.data["rest"])
        elif event.type != "message" or event.data["role"] == "user":
            self.end_line()
            if event.type == "message":
                say(f"{event.data.get('by') or 'Another person'}: {event.content}")
            elif event.type == "cut_off":
                hint(f"The agent ended before it had answered ({event.content}). A new turn goes on.")
            elif event.type == "problem":
                complain(f"problem in {event.content}")
            elif event.type == "failed" and not event.is_last:
                complain(event.content)

    def prompt(self) -> None:
        """Print the prompt, unless it is already printed."""
        self.is_persons_move = True
        if not self._is_prompted:
            self.end_line()
            self._write("You: ")
            self._is_prompted = True

    def entered(self) -> None:
        """Note that the user pressed Enter, which ends the line."""
        self._is_open = self._is_agents = self._is_prompted = False

    def end_line(self) -> None:
        if self._is_open:
            self._write("\n")
        self._is_open = self._is_agents = self._is_prompted = False

    def _print(self, words: str) -> None:
        if not words.strip() and not self._is_agents:
            return
        if not self._is_agents:
            self.end_line()
            self._write("Agent: ")
            words = words.lstrip("\n")
        self._is_agents = True
        self._write(printable(words))

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
        self._is_open = not text.endswith("\n")


class StdinLines:
    """Lines of standard input, for an event loop."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()
        self._left = b""
        self._has_ended = False

    async def next(self) -> str | None:
        """Return the next line; None at the end of input."""
        while b"\n" not in self._left and not self._has_ended:
            await self._readable()
            try:
                data = os.read(self._fd, 65536)
            except OSError:  # the terminal is gone
                data = b""
            self._left += data
            self._has_ended = not data
        if not self._left:
            return None
        line, _, self._left = self._left.partition(b"\n")
        return line.decode(errors="replace")

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        is_readable = asyncio.Event()
        loop.add_reader(self._fd, is_readable.set)
        try:
            await is_readable.wait()
        finally:
            loop.remove_reader(self._fd)
