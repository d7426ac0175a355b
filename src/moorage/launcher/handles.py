"""Handles of running agents, inside the launcher or under a supervisor.

An agent inside the launcher is a task. An agent under a supervisor is a process group that outlives the launcher: its
output and its commands are files in its folder, so a restarted launcher continues reading.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from glob import escape, glob
from hashlib import sha256

import msgspec

from moorage.agents.inside import run_inside
from moorage.agents.interface import SUPERVISOR_LOST, AgentEvent, Commands, Emit, Job, failed, stopped
from moorage.core.agent import AgentDefinition
from moorage.core.turn import Turn
from moorage.launcher.attending import AgentHandle
from moorage.launcher.folder import TurnFolder

RunJob = Callable[[Job, Emit, Commands], Awaitable[None]]  # ends with exactly one result

LOOK = (0.01, 0.1)  # seconds: first and longest pause between reads
BITE = 1024 * 1024  # bytes of output read at once; lease renewals share the event loop
STOP_WITHIN = 5.0
EPOCH = "epoch.json"
KEPT = "kept.json"
KEYED = ("message", "approval")  # when repeated, they are recognized by their key
REMEMBERED = ("phase", "metadata", "error", "checkpoint")  # these have no key, so their storage is recorded
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)  # stands for the queue time of an adopted turn, which is not needed


async def run_here(job: Job, emit: Emit, commands: Commands) -> None:
    """Do a job in this process, with the keys in its environment."""
    await run_inside(job, emit, commands, os.environ.get)


class StarterByKind:
    """Starts agents by their kind: inside the launcher, or under a supervisor."""

    def __init__(self, folder: str, run: RunJob = run_here, *, dies_with_us: bool = False) -> None:
        self._folder, self._run, self._dies_with_us = folder, run, dies_with_us

    async def start(self, job: Job, definition: AgentDefinition) -> AgentHandle:
        """Start the agent of a turn."""
        if not definition.is_supervised:
            return InProcessHandle(job, self._run)
        folder = TurnFolder(os.path.join(self._folder, sha256(job.turn_id.encode()).hexdigest()[:24]))
        await asyncio.to_thread(folder.prepare, job)
        process = await asyncio.to_thread(lambda: folder.start(tied=self._dies_with_us))
        return SupervisedHandle(folder, job, process, dies_with_us=self._dies_with_us)

    async def found(self) -> list[tuple[Job, Turn, SupervisedHandle]]:
        """Return the agents that a former launcher process left running."""
        return await asyncio.to_thread(self._found)

    def _found(self) -> list[tuple[Job, Turn, SupervisedHandle]]:
        left = []
        for path in sorted(glob(os.path.join(escape(self._folder), "*"))):
            folder = TurnFolder(path)
            try:
                job = folder.job()
            except (OSError, msgspec.MsgspecError):  # the job was never started
                shutil.rmtree(folder.path, ignore_errors=True)
                continue
            facts = folder.remembered(EPOCH)
            turn = Turn(
                turn_id=job.turn_id,
                session_id=job.session_id,
                agent_name=job.agent.name,
                queued_at=_NEVER,
                epoch=int(facts.get("epoch", job.epoch)),
                launcher_id=facts.get("adopting"),
            )
            left.append((job, turn, SupervisedHandle(folder, job, None)))
        return left


class InProcessHandle(AgentHandle):
    """An agent that runs inside the launcher."""

    def __init__(self, job: Job, run: RunJob = run_here) -> None:
        self._events: asyncio.Queue[AgentEvent] = asyncio.Queue()
        self._commands: asyncio.Queue[AgentEvent] = asyncio.Queue()
        self._job, self._is_over = job, False
        self._stopping: asyncio.TimerHandle | None = None
        self._task = asyncio.create_task(self._work(run))

    async def _work(self, run: RunJob) -> None:
        try:
            await run(self._job, self._events.put, self._commands)
        except asyncio.CancelledError:  # it did not stop in time
            await self._events.put(stopped())

    async def events(self) -> AsyncGenerator[AgentEvent]:
        """Yield its events up to its result."""
        number = 0
        while not self._is_over:
            event = await self._events.get()
            number += 1
            self._is_over = event["type"] == "result"
            yield _keyed(event, self._job, number)

    async def tell(self, command: AgentEvent) -> None:
        """Pass a command on; cancel an agent that does not stop in time."""
        if command["type"] == "stop" and self._stopping is None:
            self._stopping = asyncio.get_running_loop().call_later(STOP_WITHIN, self._task.cancel)
        await self._commands.put(command)

    async def close(self) -> None:
        """Release the agent's task."""
        if self._stopping is not None:
            self._stopping.cancel()
        if not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class SupervisedHandle(AgentHandle):
    """An agent under a supervisor, identified by its folder."""

    def __init__(
        self, folder: TurnFolder, job: Job, process: subprocess.Popen[bytes] | None, *, dies_with_us: bool = False
    ) -> None:
        self._folder, self._job, self._process = folder, job, process
        self.dies_with_us = dies_with_us
        self._number = 0  # of the last event read
        self._answered: set[str] | None = None  # questions that the former process has answered, once they are read

    async def events(self) -> AsyncGenerator[AgentEvent]:
        """Yield the events of its file up to its result, or to its end if the supervisor has ended.

        After a restart the file is read again, without the events known to be stored. The next event is `doubtful`: the
        former process may have been killed between storing it and recording that.
        """
        offset, pause, kept = 0, LOOK[0], self._folder.remembered(KEPT) if self._process is None else {}
        while True:
            # Check before reading, so that its last output is read before we give up.
            is_attended = self._folder.is_attended if self._process is None else self._process.poll() is None
            events, offset = self._folder.events(offset, BITE)
            for event in events:
                self._number += 1
                if event["type"] in REMEMBERED and self._process is None:
                    if self._number <= kept.get("number", 0):
                        continue
                    event["doubtful"] = kept.get("entry", 0)
                yield _keyed(event, self._job, self._number)
                if event["type"] == "result":
                    return
            if not events and not is_attended:
                gone = "the agent's supervisor is gone, and the agent with it"
                yield failed(SUPERVISOR_LOST, gone, cut_off=True)
                return
            pause = LOOK[0] if events else min(pause * 1.5, LOOK[1])
            await asyncio.sleep(pause)

    async def tell(self, command: AgentEvent) -> None:
        """Add a command to its file; skip an answer that the former process has passed on already."""
        if command["type"] == "decision" and command["key"] in self._answered_before():
            return
        with suppress(OSError):  # the turn is over and its folder removed
            self._folder.send(command)

    def _answered_before(self) -> set[str]:
        if self._answered is None:
            told = self._folder.told() if self._process is None else []
            self._answered = {str(command.get("key")) for command in told if command.get("type") == "decision"}
        return self._answered

    async def kept(self, entry: int) -> None:
        """Record that the last event is in the log, at this entry or before it: a restart does not report it again."""
        with suppress(OSError):
            self._folder.remember(KEPT, {"number": self._number, "entry": entry}, lasting=False)

    async def adopting(self, turn: Turn, launcher_id: str) -> None:
        """Record which launcher is about to adopt the turn: if it is killed right after, the next epoch is known."""
        await self._remember({"epoch": turn.epoch, "adopting": launcher_id})

    async def adopted(self, turn: Turn) -> None:
        """Record the epoch under which the turn continues."""
        await self._remember({"epoch": turn.epoch})

    async def _remember(self, facts: AgentEvent) -> None:
        await asyncio.to_thread(self._folder.remember, EPOCH, facts)

    async def close(self) -> None:
        """Remove its folder, and end the processes that the agent left behind."""
        await asyncio.to_thread(self._clean_up)

    def _clean_up(self) -> None:
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_WITHIN * 3)
        self._folder.end_leftovers()
        shutil.rmtree(self._folder.path, ignore_errors=True)


def _keyed(event: AgentEvent, job: Job, number: int) -> AgentEvent:
    """Return an event with a key that identifies its repetition; each epoch of a turn has its own keys."""
    if event["type"] in KEYED:
        event["key"] = f"{job.turn_id}#{job.epoch}:{number}"[-256:]
    return event
