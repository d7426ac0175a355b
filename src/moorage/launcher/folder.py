"""A turn's folder, from the launcher's side: put a job in, start its supervisor, read events, send commands.

The supervisor at the other end is another process, maybe started by a former life of this launcher.
Everything between the two is in the files that `supervisor` describes; nothing else is shared.
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
from moorage.launcher.turn_file import locked, private, write_private


class Who(Struct, frozen=True):
    """A process: its id, and when it was started, because ids are used again."""

    pid: int
    start_time: int | None = None
    pgid: int | None = None

    @property
    def is_alive(self) -> bool:
        """Whether that very process runs."""
        return processes.is_alive(self.pid, self.start_time)


class Pids(Struct, frozen=True):
    """Who works in a folder."""

    supervisor: Who
    agent: Who | None = None
    boot_id: str | None = None
    mark: str | None = None


class TurnFolder:
    """One job's folder."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)

    # Beginning

    def prepare(self, job: Job) -> None:
        """Make the folder, readable by this user only, and put a job into it."""
        agent = job.agent.for_session(session_id=job.session_id, session_name=job.session_name)
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        whole = {**msgspec.to_builtins(replace(job, agent=agent)), "given_at": processes.clock()}
        write_private(self._at("job.json"), msgspec.json.encode(whole))

    def start(self, *, tied: bool = False) -> subprocess.Popen[bytes]:
        """Start the supervisor. It outlives this process; with `tied` it stops when this process is gone.

        It is a child of this process, which has to reap it (`poll` or `wait`). The lock of the folder is
        handed over to it without a gap: from now on, until it ends, the folder is attended.
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
        """The events after an offset in the file, and the offset of the next.

        Of a long file, those of the next so many bytes; one that is longer is read whole.
        """
        data = self._read("out.jsonl", offset, at_most)
        whole = data[: data.rfind(b"\n") + 1]
        if not whole and len(data) == at_most:
            return self.events(offset, at_most * 4)
        return [_event(line) for line in whole.split(b"\n") if line], offset + len(whole)

    def send(self, command: AgentCommand) -> None:
        """Tell the supervisor something."""
        line = msgspec.json.encode(command) + b"\n"
        file = os.open(self._at("in.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, line)
        finally:
            os.close(file)

    def told(self) -> list[AgentCommand]:
        """All that the supervisor was told so far."""
        return [_event(line) for line in self._read("in.jsonl").split(b"\n") if line]

    def renewed(self, at: float | None = None) -> None:
        """Say that the lease lives since `at` (`processes.clock()` before it was asked for)."""
        self.send({"type": "renewed", "at": processes.clock() if at is None else at})

    def job(self) -> Job:
        """The job, as it was put here."""
        return msgspec.json.decode(self._read("job.json"), type=Job)

    def pids(self) -> Pids | None:
        """Who works here, or did; None if nothing was started."""
        try:
            return msgspec.json.decode(self._read("pid.json"), type=Pids)
        except msgspec.DecodeError:
            return None

    @property
    def is_attended(self) -> bool:
        """Whether its supervisor lives, be it that it has not even begun."""
        try:
            lock = locked(self._at("lock"))
        except FileNotFoundError:
            return False
        if lock is not None:
            os.close(lock)
        return lock is None

    def errors(self) -> str:
        """The last of what the agent wrote to its standard error."""
        return self._read("stderr").decode("utf-8", "replace")

    # After it

    def end_leftovers(self) -> list[int]:
        """Kill what a supervisor that was itself killed could not end; the ids of what was found.

                The system kills the agent when its supervisor goes. Processes of the agent are
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
    """An event; what cannot be read is told instead of raised, because what comes after it can."""
    try:
        event = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        return {"type": "note", "note": f"an event that cannot be read ({error})"}
    return event if isinstance(event, dict) and "type" in event else {"type": "note", "note": "no event", "data": event}
