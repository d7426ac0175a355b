"""A turn's folder, from the launcher's side: store a job, start its supervisor, read events, send commands.

The supervisor is another process, which an earlier process of this launcher may have started.
The two communicate only through the files that `supervisor` describes.
"""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from moorage.agents.interface import AgentCommand, AgentEvent, Job
from moorage.launcher import processes
from moorage.launcher.turn_files import locked, private, write_private


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
    """The folder of one job."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)

    # Beginning

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

    # While it works

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

    # After it

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
