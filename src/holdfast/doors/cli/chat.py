"""A chat with an agent at the terminal. Whatever ends it, the session is kept: leaving is suspending.

Lines are read by the event loop, not by a thread, which would keep the command alive until somebody
presses Enter. An answer is waited for until it is there, or until the agent asks a person: then the
person has the word.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.client import Holdfast
from holdfast.core.errors import HoldfastError, RunSettled, SessionRunning
from holdfast.core.run import Run, RunState
from holdfast.core.session import Session
from holdfast.doors.cli.output import complain, hint, printable, say
from holdfast.doors.cli.patience import cancelled_by_signals
from holdfast.launcher.undisturbed import undisturbed
from holdfast.service.runs import RunReply

HELP = (
    "/approve and /reject answer what the agent asks, /fork goes on in a copy, "
    "/suspend, /quit, Ctrl-C and Ctrl-D leave: the session is kept. /help shows this."
)
COMMANDS = ("/approve", "/reject", "/fork", "/suspend", "/quit", "/exit", "/help")
LOOK_FOR_QUESTIONS = 0.2  # seconds
FOREVER = 10 * 365 * 24 * 3600  # seconds
STOP_WITHIN = 20.0  # seconds: an agent has five from being asked to being made to
BIRTH = ("name", "purpose", "task_id", "metadata", "project_dir", "parent")  # what a new session is told


class Leave(Exception):
    """The user leaves; why."""


async def chat(url: str | None, agent: str, options: dict[str, Any]) -> None:
    """Talk with an agent, in a new session or in an old one, until the user leaves."""
    from holdfast import config, connect

    is_server = config.is_server(config.pick_url(url))
    if not is_server:
        config.open_registry().get(agent)
    async with connect(url, interface="cli") as hf:
        if is_server:  # which has agents of its own
            await hf.agent(agent)
        hf.one_family = True
        is_kept = not config.pick_url(url).startswith("memory://")
        session = await _begun(hf, agent, options)
        if is_kept:
            say(f"Session {'resumed' if 'session' in options else 'created'}: {session.session_id}")
        hint(HELP if is_kept else "Nothing of this is kept. /quit, Ctrl-C and Ctrl-D leave.")
        asked = reversed((await hf.runs(session=session.session_id, open_only=True)).items)
        await Chat(hf, session.session_id, agent, is_kept=is_kept, earlier=asked).go()


async def _begun(hf: Holdfast, agent: str, options: dict[str, Any]) -> Session:
    if "session" not in options:
        return await hf.create(agent, **{name: options[name] for name in BIRTH if name in options})
    packet = await hf.resume(options["session"])  # refused if it is closed, or somebody else's
    return await hf.release(packet.session.session_id, token=str(packet.hold.token))


class Chat:
    """One conversation: lines in, answers out."""

    def __init__(
        self, hf: Holdfast, session_id: str, agent: str, *, is_kept: bool = True, earlier: Iterable[Run] = ()
    ) -> None:
        self._hf, self._agent, self._is_kept = hf, agent, is_kept
        self.session_id = session_id
        self._earlier = list(earlier)  # what was asked before it was left, and goes on with the next line
        self._lines = Lines()
        self._answers: list[Answer] = []  # outstanding ones, oldest first

    async def go(self) -> None:
        """Until the user leaves, hangs up or presses Ctrl-C."""
        for run in self._earlier:
            hint(f"It goes on with what you have asked before: {run.asked}")
        with cancelled_by_signals():
            reason = "left"
            try:
                while True:
                    await self._hear(await self._lines.next("You: "))
            except Leave as left:
                reason = str(left)
            except asyncio.CancelledError:
                reason = "interrupted"
            except OSError:  # the terminal is gone
                reason = "hung up"
            self._hf.drains = False  # what children are at is given back, and goes on with the session
            await undisturbed(self._leave(reason))

    async def _hear(self, line: str | None) -> None:
        if line is None:
            raise Leave("end of input")
        if line.strip() in COMMANDS:
            await self._obey(line.strip())
        elif line.strip():  # an agent may have commands of its own
            new = partial(self._hf.run, self._agent, line, session=self.session_id, parent=None)
            asked = [*(partial(_settled, self._hf, run.run_id) for run in self._earlier), new]
            self._earlier = []
            heard: list[str] = []
            self._answers += [Answer(self._hf, self.session_id, ask, heard) for ask in asked]
            await self._answer()

    async def _obey(self, line: str) -> None:
        if line in ("/quit", "/exit", "/suspend"):
            raise Leave("suspended" if line == "/suspend" else "left")
        if line in ("/approve", "/reject"):
            await self._decide(line.removeprefix("/"))
        elif line == "/fork":
            await self._fork()
        else:
            hint(HELP)

    async def _decide(self, decision: str) -> None:
        asked = await self._hf.approvals(self.session_id)
        for approval in asked:
            await self._hf.decide(approval.approval_id, decision)
            say(f"{'Approved' if decision == 'approve' else 'Rejected'}: {approval.question}")
        if not asked:
            hint("Nothing waits for an answer.")
        await self._answer()

    async def _fork(self) -> None:
        if self._answers:
            hint("The agent waits for your answer first: /approve or /reject")
            return
        fork = await self._hf.fork(self.session_id)
        await self._put_away("forked")
        self.session_id, self._earlier = fork.session_id, []  # which go on where they were asked
        say(f"Session forked: {fork.session_id}")

    async def _answer(self) -> None:
        """Wait for what is outstanding, in order, unless the agent waits for the user."""
        while self._answers:
            if not await self._answers[0].comes():
                await self._tell_questions()
                return
            self._answers.pop(0).close()

    async def _tell_questions(self) -> None:
        for approval in await self._hf.approvals(self.session_id):
            say(f"Question: {approval.question}")
        hint("/approve or /reject?")

    # Leaving ------------------------------------------------------------------------------------

    async def _leave(self, reason: str) -> None:
        for answer in self._answers:
            answer.cancel()
        if self._is_kept:
            await self._put_away(reason)
        with suppress(OSError):  # nobody may be there to read it
            print()
            if self._is_kept:
                say(f"Session suspended: {self.session_id}")
                hint(f"To go on: holdfast run {self._agent} --session {self.session_id}")

    async def _put_away(self, reason: str) -> None:
        """Suspend, as soon as no turn is at work; what waits for children goes on waiting."""
        try:
            try:
                await self._hf.suspend(self.session_id, reason=reason)
            except SessionRunning:
                await self._stop_turn()
                await self._hf.suspend(self.session_id, reason=reason)
        except HoldfastError as error:
            with suppress(OSError):
                complain(error.message)

    async def _stop_turn(self) -> None:
        for run in await self._hf.runs(session=self.session_id, state=RunState.RUNNING.value):
            with suppress(RunSettled):
                await self._hf.stop_run(run.run_id)
            await self._hf.result(run.run_id, wait=STOP_WITHIN)


async def _settled(hf: Holdfast, run_id: str, **_: object) -> RunReply:
    """What came of a run that was asked for before; what its agent says meanwhile is heard by whoever asks now."""
    run = await hf.result(run_id, wait=FOREVER)
    session = await hf.get(run.session_id)
    return RunReply(session=session, run=run, status=run.state.value, result=run.result, error=run.error)


class Answer:
    """What the agent says to one line, printed while it comes."""

    def __init__(
        self, hf: Holdfast, session_id: str, ask: Callable[..., Coroutine[Any, Any, RunReply]], heard: list[str]
    ) -> None:
        self._hf, self._session_id = hf, session_id
        self._heard = heard  # what was printed while it came, be it for another answer
        self._is_open = False  # whether a line of the agent's is being printed
        self._task: asyncio.Task[RunReply] = asyncio.create_task(ask(on_event=self._see))

    async def comes(self) -> bool:
        """Whether it came; False if the agent waits for the user before it goes on."""
        while not self._task.done():
            await asyncio.wait([self._task], timeout=LOOK_FOR_QUESTIONS)
            if not self._task.done() and await self._hf.approvals(self._session_id, limit=1):
                self._end_line()
                return False
        return True

    def close(self) -> None:
        """Print how it ended."""
        try:
            reply = self._task.result()
        except HoldfastError as error:
            complain(error.message)
            return
        if reply.result and reply.result.strip().removesuffix("…") not in "".join(self._heard):
            self._print(reply.result)
        self._end_line()
        if reply.status != "completed":
            complain(reply.error or f"the run is {reply.status}")

    def cancel(self) -> None:
        """Wait for it no longer."""
        self._task.cancel()

    def _see(self, session_id: str, event: dict[str, Any]) -> None:
        if event["type"] == "chunk" and session_id == self._session_id:
            words = str(event.get("text") or "")
            self._heard.append(words)
            self._print(words)

    def _print(self, words: str) -> None:
        if not self._is_open:
            sys.stdout.write("Agent: ")
            self._is_open = True
        sys.stdout.write(printable(words))
        sys.stdout.flush()

    def _end_line(self) -> None:
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
