"""Waiting for a run at the terminal: why it has not started, signals that end the wait, and leaving.

Leaving a session does not stop it. On a server the run continues, and its question stays open. Without a server no
process is left to work on it, so the session is suspended and its turn is released as cut off. A second Ctrl-C, or
`--stop-on-exit`, stops the run.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING

from moorage import config
from moorage.core.errors import MoorageError, SessionRunning
from moorage.core.status import Because, Reason
from moorage.doors.cli.output import complain, hint, say
from moorage.doors.cli.wording import command_line, shown_id

if TYPE_CHECKING:
    from moorage.executor import Interaction

MOMENT = 1.0  # seconds; most runs start sooner, so there is nothing to report
LINGER = 2.0  # seconds in which a second Ctrl-C stops the run
SUSPENDED = "suspended"  # the reason recorded when the user leaves by pausing the session
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Look = Callable[[], Awaitable[str | None]]
SignalQueue = asyncio.Queue[signal.Signals]


def why(because: Because, session_id: str) -> str:
    """Return why a run does not start, and the command that helps."""
    approval = shown_id(because.approval_id or "")
    ways = {
        Reason.HELD: f" Free it: {command_line('release', shown_id(session_id))}",
        Reason.SUSPENDED: f" Let it go on: {command_line('agent', 'resume', shown_id(session_id))}",
        Reason.WAITING_FOR_APPROVAL: f" Look at it: {command_line('approvals', 'show', approval)}",
        Reason.NO_LAUNCHER: f" Start one: {command_line('launcher')}",
    }
    return f"The run waits {because.in_words}.{ways.get(because.reason, '')}"


def why_yet(because: Because, session_id: str, *, launches: bool) -> str | None:
    """Return why a run has not started yet; None while the launcher of this process starts."""
    return None if launches and because.reason is Reason.NO_LAUNCHER else why(because, session_id)


@asynccontextmanager
async def telling_why(look: Look, show: Callable[[str], None] = hint) -> AsyncIterator[None]:
    """Within the block, show the line of `look` after a moment, and again whenever it changes."""

    async def tell() -> None:
        told = None
        while True:
            await asyncio.sleep(MOMENT)
            with suppress(MoorageError):  # the caller that waits for the answer gets the error, too
                line = await look()
                if line is not None and line != told:
                    show(line)
                told = line

    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        telling.cancel()
        await asyncio.wait([telling])


# Signals ------------------------------------------------------------------------------------------


@contextmanager
def cancelled_by_signals() -> Iterator[None]:
    """Within the block, cancel this task on Ctrl-C, SIGTERM or a hang-up, once; later signals have no effect."""
    task, told = asyncio.current_task(), list[signal.Signals]()
    assert task is not None

    def tell(number: signal.Signals) -> None:
        if not told:
            task.cancel()
        told.append(number)

    with _handled(tell):
        yield


@contextmanager
def queued_signals() -> Iterator[SignalQueue]:
    """Within the block, put Ctrl-C, SIGTERM and a hang-up into a queue; they end nothing by themselves."""
    queue = SignalQueue()
    with _handled(queue.put_nowait):
        yield queue


@contextmanager
def _handled(tell: Callable[[signal.Signals], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in ENDING:
        loop.add_signal_handler(number, tell, number)
    try:
        yield
    finally:
        for number in ENDING:
            loop.remove_signal_handler(number)


# Leaving ------------------------------------------------------------------------------------------


class Departure:
    """Decides what happens to a session when the user leaves its terminal."""

    def __init__(self, url: str | None, *, stops: bool = False) -> None:
        """`url` is the URL of the command line, if given. `stops`: leaving stops the run."""
        full = config.pick_url(url)
        self.is_remote = config.is_server(full)
        self.is_kept = not full.startswith("memory://")
        self._is_agent = config.run_from_environment() is not None  # its own run is over, so it cannot wait
        self._stops = stops or self._is_agent

    async def leave(self, talk: Interaction, reason: str, by: signal.Signals | None, signals: SignalQueue) -> None:
        """Leave the session; print what happens to it and how to come back."""
        if not self.is_kept:
            return
        with suppress(OSError):  # the terminal may be gone
            try:
                await self._leave(talk, reason, by, signals)
            except MoorageError as error:
                complain(error.message)

    async def _leave(self, talk: Interaction, reason: str, by: signal.Signals | None, signals: SignalQueue) -> None:
        if self._stops and not talk.is_answered:
            await self._stop(talk)
        if self._is_agent:
            return
        if not self.is_remote or reason == SUSPENDED:
            await self._suspend(talk, reason)
            return
        self._tell(talk, by)
        if by is signal.SIGINT and not talk.is_answered and await _is_pressed_again(signals):
            await self._stop(talk)

    async def put_away(self, talk: Interaction, reason: str) -> None:
        if self.is_remote or not self.is_kept:
            await talk.close()
        else:
            await talk.suspend(reason)

    def tell_away(self, talk: Interaction) -> None:
        """Leave a session whose server does not answer: it cannot be stopped or paused from here."""
        with suppress(OSError):
            hint(
                "The server does not answer; once it is back, the session is as it was. "
                f"To come back: {command_line('attach', talk.session_id)}"
            )

    def _tell(self, talk: Interaction, by: signal.Signals | None) -> None:
        told = "The session stays open" if talk.is_answered else "The agent goes on"
        if talk.approvals:
            told += ", its question stays open"
        if by is signal.SIGINT and not talk.is_answered:
            told += f"; Ctrl-C again within {LINGER:.0f} seconds stops it"
        hint(f"{told}. To come back: {command_line('attach', talk.session_id)}")

    async def _suspend(self, talk: Interaction, reason: str) -> None:
        """Pause the session; report it only on success."""
        try:
            await talk.suspend(reason)
        except SessionRunning:
            because = (await talk.look()).because
            told = "Another launcher works on it, so it goes on"
            if because is not None and because.is_silence:
                told = f"Its {because.in_silence}"
            hint(f"{told}. To come back: {command_line('attach', talk.session_id)}")
            return
        say(f"Session suspended: {talk.session_id}")
        hint(f"To come back: {command_line('attach', talk.session_id)}")

    async def _stop(self, talk: Interaction) -> None:
        await talk.stop()
        say(f"Stopped: {talk.session_id}")


async def _is_pressed_again(signals: SignalQueue) -> bool:
    """Return whether Ctrl-C is pressed again in time. A hang-up ends the wait."""
    try:
        async with asyncio.timeout(LINGER):
            return await signals.get() is signal.SIGINT
    except TimeoutError:
        return False
