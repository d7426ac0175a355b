"""Handles of running agents, inside the launcher or under a supervisor.

An agent inside the launcher is a task. An agent under a supervisor is a process group that outlives the launcher: its
output and its commands are files in its folder (see `supervisor`), so a restarted launcher continues reading.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from glob import escape, glob
from hashlib import sha256

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from moorage.agents.inside import run_inside
from moorage.agents.interface import SUPERVISOR_LOST, AgentCommand, AgentEvent, Commands, Emit, Job, failed, stopped
from moorage.core.agent import AgentDefinition
from moorage.core.turn import Turn
from moorage.launcher import processes
from moorage.launcher.attending import AgentHandle
from moorage.launcher.turn_files import locked, private, write_private

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

    async def found(self) -> Sequence[tuple[Job, Turn, AgentHandle]]:
        """Return the agents that a former launcher process left running: job, turn, handle."""
        return await asyncio.to_thread(self._found)

    def _found(self) -> list[tuple[Job, Turn, AgentHandle]]:
        left: list[tuple[Job, Turn, AgentHandle]] = []
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


# The folder of a turn --------------------------------------------------------------------------


class Who(Struct, frozen=True):
    """A process: its id, and its start time, because ids are reused."""

    pid: int
    start_time: int | None = None

    @property
    def is_alive(self) -> bool:
        """Return whether exactly this process runs."""
        return processes.is_alive(self.pid, self.start_time)


class Pids(Struct, frozen=True):
    """The processes of a folder."""

    supervisor: Who
    agent: Who | None = None
    boot_id: str | None = None
    mark: str | None = None


class TurnFolder:
    """The folder of one job, from the launcher's side."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)

    def prepare(self, job: Job) -> None:
        """Create the folder, readable by this user only, and store a job in it."""
        agent = job.agent.for_session(session_id=job.session_id, session_name=job.session_name)
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        whole = {**msgspec.to_builtins(replace(job, agent=agent)), "given_at": processes.clock()}
        write_private(self._at("job.json"), msgspec.json.encode(whole))

    def start(self, *, tied: bool = False) -> subprocess.Popen[bytes]:
        """Start the supervisor. It outlives this process; with `tied` it stops when this process ends.

        It is a child of this process, which has to reap it (`poll` or `wait`). The supervisor inherits the
        folder's lock without a gap: from now on, until it ends, the folder is attended.
        """
        lock = locked(self._at("lock"))
        if lock is None:
            raise FileExistsError(f"another launcher works in {self.path}")
        command = [sys.executable, "-P", "-m", "moorage.launcher.supervisor", self.path, f"--lock={lock}"]
        try:
            with open(self._at("supervisor.log"), "ab", opener=private) as log:
                return subprocess.Popen(
                    [*command, f"--tied={os.getpid()}"] if tied else command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=(lock,),
                )
        finally:
            os.close(lock)

    def events(self, offset: int = 0, at_most: int = -1) -> tuple[list[AgentEvent], int]:
        """Return the events after an offset in the file, and the offset of the next one.

        Read at most so many bytes of a long file; an event that is longer is read completely.
        """
        data = self._read("out.jsonl", offset, at_most)
        whole = data[: data.rfind(b"\n") + 1]
        if not whole and len(data) == at_most:
            return self.events(offset, at_most * 4)
        return [_event(line) for line in whole.split(b"\n") if line], offset + len(whole)

    def send(self, command: AgentCommand) -> None:
        """Send a command to the supervisor."""
        line = msgspec.json.encode(command) + b"\n"
        file = os.open(self._at("in.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, line)
        finally:
            os.close(file)

    def told(self) -> list[AgentCommand]:
        """Return all commands sent to the supervisor so far."""
        return [_event(line) for line in self._read("in.jsonl").split(b"\n") if line]

    def remember(self, name: str, facts: AgentEvent, *, lasting: bool = True) -> None:
        """Store facts for the next process of this launcher."""
        write_private(self._at(name), msgspec.json.encode(facts), lasting=lasting)

    def remembered(self, name: str) -> AgentEvent:
        """Return those facts; none if they cannot be read."""
        try:
            return msgspec.json.decode(self._read(name), type=AgentEvent)
        except msgspec.MsgspecError:
            return {}

    def job(self) -> Job:
        """Return the stored job."""
        return msgspec.json.decode(self._read("job.json"), type=Job)

    def pids(self) -> Pids | None:
        """Return the processes that run or ran here; None if none was started."""
        try:
            return msgspec.json.decode(self._read("pid.json"), type=Pids)
        except msgspec.DecodeError:
            return None

    @property
    def is_attended(self) -> bool:
        """Return whether its supervisor runs, even if it has not begun its work yet."""
        try:
            lock = locked(self._at("lock"))
        except FileNotFoundError:
            return False
        if lock is not None:
            os.close(lock)
        return lock is None

    def end_leftovers(self) -> list[int]:
        """Kill the processes that a killed supervisor could not end; return the ids of those found.

        The system kills the agent when its supervisor ends. The agent's own processes are
        recognised by the mark in their environment and by the agent's process group.
        """
        pids = self.pids()
        if pids is None or pids.boot_id != processes.boot_id() or pids.supervisor.is_alive:
            return []
        found = {pid: processes.start_time(pid) for pid in processes.marked(pids.mark or "-")}
        if pids.agent is not None and pids.agent.is_alive:
            found[pids.agent.pid] = pids.agent.start_time
        found.pop(os.getpid(), None)
        return [pid for pid, started in found.items() if processes.end_exactly(pid, started)]

    def _at(self, name: str) -> str:
        return os.path.join(self.path, name)

    def _read(self, name: str, offset: int = 0, at_most: int = -1) -> bytes:
        try:
            with open(self._at(name), "rb") as file:
                file.seek(offset)
                return file.read(at_most)
        except FileNotFoundError:
            return b""


def _event(line: bytes) -> AgentEvent:
    """Return an event; an unreadable one becomes a problem and no exception, because later ones may be readable."""
    try:
        event = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        return {"type": "note", "note": f"an event that cannot be read ({error})"}
    return event if isinstance(event, dict) and "type" in event else {"type": "note", "note": "no event", "data": event}
