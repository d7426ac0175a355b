"""A chat with an agent at the terminal. Whatever ends it, the session is kept: leaving is suspending.

The executor does the talking; here its events are printed, and lines are read when it is the person's move.
Lines are read by the event loop, not by a thread, which would keep the command alive until somebody
presses Enter.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from typing import Any

from moorage.client import Moorage
from moorage.core.errors import MoorageError
from moorage.doors.cli.output import complain, hint, printable, say
from moorage.doors.cli.patience import cancelled_by_signals
from moorage.executor import AgentExecutor, ExecutionEvent, Interaction
from moorage.launcher.undisturbed import undisturbed

HELP = (
    "/approve and /reject answer what the agent asks, /fork goes on in a copy, "
    "/suspend, /quit, Ctrl-C and Ctrl-D leave: the session is kept. /help shows this."
)
COMMANDS = ("/approve", "/reject", "/fork", "/suspend", "/quit", "/exit", "/help")
BIRTH = ("name", "purpose", "task_id", "metadata", "project_dir", "parent")  # what a new session is told


class Leave(Exception):
    """The user leaves; why."""


async def chat(url: str | None, agent: str, options: dict[str, Any]) -> None:
    """Talk with an agent, in a new session or in an old one, until the user leaves."""
    from moorage import config, connect

    async with connect(url, interface="cli") as moor:
        moor.one_family = True
        is_kept = not config.pick_url(url).startswith("memory://")
        session = options.get("session")
        birth = {name: options[name] for name in BIRTH if name in options}
        talk = AgentExecutor(moor).execute_interactive(agent, session, partial=True, **birth)
        async with talk:
            if is_kept:
                say(f"Session {'created' if session is None else 'resumed'}: {talk.session_id}")
            hint(HELP if is_kept else "Nothing of this is kept. /quit, Ctrl-C and Ctrl-D leave.")
            for run in talk.earlier:
                hint(f"It goes on with what you have asked before: {run.asked}")
            await Chat(moor, talk, agent, is_kept=is_kept).go()


class Chat:
    """One conversation: lines in, answers out."""

    def __init__(self, moor: Moorage, talk: Interaction, agent: str, *, is_kept: bool = True) -> None:
        self._hf, self._talk, self._agent, self._is_kept = moor, talk, agent, is_kept
        self._lines, self._voice = Lines(), Voice()

    async def go(self) -> None:
        """Until the user leaves, hangs up or presses Ctrl-C, or the session is ended elsewhere."""
        with cancelled_by_signals():
            reason: str | None = None
            try:
                await self._converse()
            except Leave as left:
                reason = str(left)
            except asyncio.CancelledError:
                reason = "interrupted"
            except OSError:  # the terminal is gone
                reason = "hung up"
            except MoorageError as error:
                complain(error.message)
                reason = "lost touch"
            self._hf.drains = False  # what children are at is given back, and goes on with the session
            await undisturbed(self._leave(reason))

    async def _converse(self) -> None:
        while True:
            event = await anext(self._talk)
            self._voice.utter(event)
            if event.type == "waiting_for_input":
                await self._persons_move(event)
            elif event.is_last:
                complain(f"the session is {event.type}, by {event.data.get('by') or 'somebody else'}")
                return

    async def _persons_move(self, event: ExecutionEvent) -> None:
        """Read lines until one of them is something for the agent."""
        for approval in event.data["approvals"]:
            say(f"Question: {approval['question']}")
        if event.data["approvals"]:
            hint("/approve or /reject?")
        while not await self._hear(await self._lines.next("You: ")):
            continue

    async def _hear(self, line: str | None) -> bool:
        """Whether the line was something to go on with."""
        if line is None:
            raise Leave("end of input")
        if line.strip() in COMMANDS:
            return await self._obey(line.strip())
        if not line.strip():
            return False
        try:
            await self._talk.send(line)  # an agent may have commands of its own
        except MoorageError as error:
            complain(error.message)
        return True

    async def _obey(self, line: str) -> bool:
        if line in ("/quit", "/exit", "/suspend"):
            raise Leave("suspended" if line == "/suspend" else "left")
        if line in ("/approve", "/reject"):
            return await self._decide(line.removeprefix("/"))
        if line == "/fork":
            return await self._fork()
        hint(HELP)
        return False

    async def _decide(self, decision: str) -> bool:
        decided = await self._talk.decide(decision)
        for approval in decided:
            say(f"{'Approved' if decision == 'approve' else 'Rejected'}: {approval.question}")
        if not decided:
            hint("Nothing waits for an answer.")
        return bool(decided)

    async def _fork(self) -> bool:
        if not self._talk.is_answered:
            hint("The agent waits for your answer first: /approve or /reject")
            return False
        fork = await self._hf.fork(self._talk.session_id)
        await self._put_away("forked")
        talk = AgentExecutor(self._hf).execute_interactive(self._agent, fork.session_id, partial=True)
        self._talk = await talk.open()
        say(f"Session forked: {fork.session_id}")
        return True

    # Leaving ------------------------------------------------------------------------------------

    async def _leave(self, reason: str | None) -> None:
        """Without a reason, others have ended it."""
        session_id = self._talk.session_id
        if self._is_kept and reason is not None:
            await self._put_away(reason)
        await self._talk.close()
        with suppress(OSError):  # nobody may be there to read it
            print()
            if self._is_kept and reason is not None:
                say(f"Session suspended: {session_id}")
                hint(f"To go on: moorage run {self._agent} --session {session_id}")

    async def _put_away(self, reason: str) -> None:
        try:
            await self._talk.suspend(reason)
        except MoorageError as error:
            with suppress(OSError):
                complain(error.message)


class Voice:
    """What the agent says, printed while it comes."""

    def __init__(self) -> None:
        self._text = ""  # since it was last the person's move
        self._is_open = False  # whether a line of the agent's is being printed

    def utter(self, event: ExecutionEvent) -> None:
        """Print what an event says, unless its words have been heard."""
        if event.type == "chunk":
            self._text += event.content
            self._print(event.content)
        elif event.type == "message":
            if event.data["role"] == "assistant" and event.content.strip() not in self._text:
                self._print(f"\n{event.content}" if self._is_open else event.content)
        else:
            self._end_line()
            if event.type == "failed" and not event.is_last:
                complain(event.content)

    def _print(self, words: str) -> None:
        if not self._is_open:
            sys.stdout.write("Agent: ")
            self._is_open = True
        sys.stdout.write(printable(words))
        sys.stdout.flush()

    def _end_line(self) -> None:
        self._text = ""
        if self._is_open:
            print()
            self._is_open = False


class Lines:
    """Lines of standard input, for an event loop."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()
        self._left = b""
        self._has_ended = False

    async def next(self, question: str) -> str | None:
        """The next line; None at the end of input."""
        sys.stdout.write(question)
        sys.stdout.flush()
        while b"\n" not in self._left and not self._has_ended:
            await self._readable()
            self._read()
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

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # the terminal is gone
            data = b""
        self._left += data
        self._has_ended = not data
