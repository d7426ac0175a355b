"""The supervisor: a small process that starts one agent, reads its output, and ends it in time.

`python -m moorage.launcher.supervisor FOLDER` does the job in FOLDER/job.json. It communicates with its
launcher through files only, so either process may be absent for a while:

    job.json     the job; turn.json and mcp.json are written beside it, for the agent
    pid.json     process ids and start times of supervisor and agent, written before the agent runs
    out.jsonl    the agent's events; the result comes last, when no process of the agent is left
    in.jsonl     the launcher's commands
    stderr       the last 64 KiB of the agent's standard error
    lock         held while a supervisor runs

It ends the agent and all processes that the agent started when it is told to, when a limit is reached, and when
the launcher has been silent for too long: by then another launcher may have the turn. The agent gets
SIGTERM, and SIGKILL five seconds later. Processes that the agent leaves behind become children of
this one (Linux) and are ended too. If this process itself is killed, the system kills the agent (Linux);
the launcher finds the processes that the agent started by their mark (`handles.end_leftovers`).

It starts in about thirty milliseconds: it imports neither an event loop nor msgspec.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
import time

from moorage.agents.allowance import Allowance
from moorage.launcher import processes
from moorage.launcher.agent_process import AgentProcess, CannotStart
from moorage.launcher.drivers import driver_for
from moorage.launcher.processes import clock
from moorage.launcher.turn_files import Follower, Outbox, StderrTail, locked, write_private, write_turn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    AgentEvent = dict[str, Any]

TICK = 0.05  # seconds between two checks of the commands and the clock
TERM_GRACE = 5.0  # seconds between SIGTERM and SIGKILL
LEAVE_GRACE = 5.0  # seconds for an agent to exit after its answer
WAKE_GRACE = 20.0  # seconds for a launcher to renew after the machine has slept: it renews every ten seconds
SLEEP = 5.0  # a pause of this many seconds counts as sleep
DRAIN = 1.0  # seconds to read the last output of an ended agent while another process still holds its pipes
NOT_INHERITED = (
    *("AGENT_SESSION_ID", "AGENT_SESSION_NAME", "AGENT_TASK_ID", "AGENT_RUN_ID", "AGENT_MCP_CONFIG"),
    *("MOORAGE_TOKEN", "MOORAGE_KEY", "MOORAGE_HOLDER"),
)
TAKEN = 3  # the exit code of a second supervisor


class Supervisor:
    """Supervises one agent: reads its output, follows commands, enforces the limits."""

    def __init__(self, folder: str, job: AgentEvent, *, parent: int | None = None) -> None:
        self._folder, self._job, self._limits = folder, job, job["limits"]
        self._parent = parent  # the process that this one ends with
        self._outbox = Outbox(self._path("out.jsonl"))
        self._stderr = StderrTail(self._path("stderr"))
        self._commands = Follower(self._path("in.jsonl"))
        self._selector = selectors.DefaultSelector()
        self._driver = driver_for(job, self)
        self._agent: AgentProcess | None = None
        self._mark = os.urandom(12).hex()
        self._allowance = Allowance(self._limits.get("timeout"), self._limits.get("idle_timeout"), clock())
        self._room = self._limits.get("max_output_bytes")
        self._lost_after = float(job["lost_after"])
        self._renewed_at = min(float(job.get("given_at") or clock()), clock())
        self._slept = processes.slept()
        self._is_to_stop = False  # set by a signal handler, acted on between two steps
        self._verdict: tuple[str, str, str | None] | None = None  # outcome, reason, error, if we end the agent
        self._ended_at: float | None = None
        self._leave_by: float | None = None
        self._term_at: float | None = None
        self._kill_at: float | None = None

    def run(self) -> None:
        """Start the agent, supervise it until it ends, and record how it ended."""
        try:
            agent = self._start()
        except CannotStart as error:
            reason = "not_found" if error.is_missing else "cannot_start"
            ending = self._driver.account.failing(reason, str(error))
        else:
            self._driver.begin()
            while not (agent.is_gone and self._is_drained(agent, clock())):
                self._step(agent)
            agent.reap()
            ending = self._conclusion(agent)
        self._conclude(ending)

    def give_up(self, why: str) -> None:
        """End the agent at once and report why: this process itself has failed."""
        if self._agent is not None:
            self._agent.signal(signal.SIGKILL)
            self._agent.reap()
        self._conclude(self._driver.account.failing("supervisor_failed", why, cut_off=True))

    def hear_signals(self) -> None:
        """Stop the agent at the step after a SIGTERM; wake up when a child ends."""
        ours, theirs = os.pipe()
        os.set_blocking(ours, False)
        os.set_blocking(theirs, False)
        self._selector.register(ours, selectors.EVENT_READ, lambda: os.read(ours, 4096))
        signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop_soon)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _stop_soon(self, *_: object) -> None:
        self._is_to_stop = True

    # The agent's line, for its driver (`DriverChannel`)

    def send(self, data: bytes) -> None:
        if self._agent is not None:
            self._agent.send(data)

    def close_input(self) -> None:
        if self._agent is not None:
            self._agent.close_input()

    def emit(self, event: AgentEvent) -> None:
        """Write an event; while its question waits for an answer, the agent's clock is paused."""
        if event["type"] == "approval" and event["wait"]:
            self._allowance.wait_for(f"approval {event['id']}", clock())
        self._outbox.put(event)

    def errors(self) -> str:
        return self._stderr.text()

    # Starting

    def _start(self) -> AgentProcess:
        self._write_pids()
        argv, env, cwd = self._driver.argv(), self._environment(), self._job["cwd"]
        self._agent = AgentProcess(argv, env, cwd, self._selector, out=self._hear, err=self._hear_errors)
        self._write_pids()
        self._agent.let_in()
        return self._agent

    def _environment(self) -> dict[str, str]:
        """Return the agent's variables: ours, the driver's, the definition's, the job's, the turn's; later ones win."""
        agent = self._job["agent"]
        env = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
        env |= self._driver.env() | agent.get("env", {}) | self._job.get("env", {})
        beside = [path for path in (agent.get("source"), sys.executable) if path]  # our folder has `moorage`
        env["PATH"] = os.pathsep.join((env.get("PATH") or os.defpath, *map(os.path.dirname, beside)))
        env |= {"AGENT_TURN_FILE": self._path("turn.json"), "MOORAGE_MARK": self._mark}
        if agent.get("mcp_servers"):
            env["AGENT_MCP_CONFIG"] = self._path("mcp.json")
        return env

    def _write_pids(self) -> None:
        """Write the process ids to disk before the agent can do anything."""
        me, agent = os.getpid(), self._agent
        facts = {
            "supervisor": {"pid": me, "start_time": processes.start_time(me)},
            "agent": agent and {"pid": agent.pid, "pgid": agent.pid, "start_time": processes.start_time(agent.pid)},
            "boot_id": processes.boot_id(),
            "mark": self._mark,
        }
        write_private(self._path("pid.json"), json.dumps(facts).encode())

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    # One step

    def _step(self, agent: AgentProcess) -> None:
        for key, _ in self._selector.select(TICK):
            key.data()
        self._obey()
        agent.look()
        if agent.exit is not None and self._ended_at is None:
            self._ended_at = clock()
        self._keep_limits(agent)
        self._carry_out(agent)
        self._outbox.flush()
        self._stderr.save()

    def _hear(self, data: bytes) -> None:
        """Read output of the agent, up to its limit."""
        if not data:
            self._driver.hear_end()
            return
        self._allowance.heard(clock())
        self._driver.hear(data[: self._room])
        if self._room is not None:
            if len(data) > self._room:
                limit = self._limits["max_output_bytes"]
                self._end("failed", "output_too_large", f"it printed more than {limit:,} bytes")
            self._room = max(0, self._room - len(data))

    def _hear_errors(self, data: bytes) -> None:
        self._allowance.heard(clock())
        self._stderr.add(data)

    def _obey(self) -> None:
        for command in self._commands.news():
            self._obey_one(command, clock())
        if self._parent is not None and os.getppid() != self._parent:
            self._end("stopped", "launcher_gone", at_once=True)
        if self._is_to_stop:
            self._is_to_stop = False
            self._end("stopped", "stopped")

    def _obey_one(self, command: AgentEvent, now: float) -> None:
        kind = command.get("type")
        if kind == "renewed":
            at = command.get("at")
            self._renewed_at = max(self._renewed_at, min(now, at if isinstance(at, (int, float)) else now))
        elif kind == "decision":
            self._allowance.go_on(f"approval {command.get('id')}", now)
            self._driver.told(command)
        elif kind == "pause":
            self._allowance.wait_for("a child", now)
        elif kind == "go_on":
            self._allowance.go_on("a child", now)
        elif kind == "stop":
            self._end("stopped", str(command.get("reason") or "stopped"))

    def _keep_limits(self, agent: AgentProcess) -> None:
        now = clock()
        self._wake_up(now)
        if now - self._renewed_at >= patience(self._lost_after):
            self._end("failed", "launcher_silent", "its launcher was silent for too long", at_once=True)
        if self._driver.is_done and self._leave_by is None:
            self._leave_by = now + LEAVE_GRACE
            agent.close_input()
        if agent.exit is not None or self._driver.is_done:
            return
        if (used_up := self._allowance.is_used_up(now)) is not None:
            self._end("failed", *used_up)

    def _wake_up(self, now: float) -> None:
        """Give the launcher time to renew after the machine has slept; the agent's clock was paused."""
        asleep = processes.slept() - self._slept
        if asleep < SLEEP:
            return
        self._slept += asleep
        self._renewed_at = max(self._renewed_at, now - max(0.0, patience(self._lost_after) - WAKE_GRACE))
        self._allowance.slept(asleep, now)

    # Ending

    def _end(self, outcome: str, reason: str, error: str | None = None, *, at_once: bool = False) -> None:
        """End the agent for this reason, unless it has ended by itself or for another reason."""
        is_running = self._ended_at is None and not self._driver.is_done
        if self._verdict is None and is_running:
            self._verdict = (outcome, reason, error)
            self._driver.ask_to_stop()
        term_at = clock() + (self._driver.grace if is_running and not at_once else 0)
        self._term_at = term_at if self._term_at is None else min(self._term_at, term_at)

    def _carry_out(self, agent: AgentProcess) -> None:
        """Send the signals that are due."""
        now = clock()
        if self._term_at is None and self._has_stayed_too_long(agent, now):
            self._term_at = now
        if self._term_at is None or (now < self._term_at and not self._driver.is_done):
            return
        if self._kill_at is None:  # sooner if the turn is lost so early that everything must end sooner
            self._kill_at = now + min(TERM_GRACE, (self._lost_after - patience(self._lost_after)) / 2)
        agent.signal(signal.SIGKILL if now >= self._kill_at else signal.SIGTERM)

    def _has_stayed_too_long(self, agent: AgentProcess, now: float) -> bool:
        """Return whether the agent answered but does not exit, or exited but left processes behind."""
        if agent.exit is None:
            return self._leave_by is not None and now >= self._leave_by
        return self._is_drained(agent, now) and bool(agent.leftovers())

    def _is_drained(self, agent: AgentProcess, now: float) -> bool:
        return agent.is_silent or (self._ended_at is not None and now >= self._ended_at + DRAIN)

    def _conclusion(self, agent: AgentProcess) -> AgentEvent:
        assert agent.exit is not None
        if self._verdict is None:
            return self._driver.result(agent.exit)
        outcome, reason, error = self._verdict
        facts = {"reason": reason, "error": error, "cut_off": reason == "launcher_silent" or None}
        return self._driver.account.ending(outcome, self._driver.last_words(), **facts)

    def _conclude(self, ending: AgentEvent) -> None:
        """Write the last lines; on a full disk, retry for as long as a launcher may read them."""
        self._stderr.save(now=True)
        self._outbox.put(ending)
        until = clock() + self._lost_after
        while not self._outbox.flush() and clock() < until:
            time.sleep(TICK)


def patience(lost_after: float) -> float:
    """Return how long a launcher may be silent before its agents are ended: they must end before the turn is lost."""
    return max(lost_after - 30, lost_after / 3)


# The process ------------------------------------------------------------------------------------


def main(folder: str, *flags: str) -> int:
    """Do the job in a folder, once: a second supervisor exits at once."""
    options = dict(flag.removeprefix("--").split("=") for flag in flags)
    parent = int(options["tied"]) if "tied" in options else None  # the launcher that we end with
    folder = os.path.abspath(folder)
    if not _has_lock(folder, options.get("lock")):
        return _refuse("another supervisor works here")
    if os.path.exists(os.path.join(folder, "pid.json")):
        return _refuse("this job was started before; an agent is never started twice")
    if os.getsid(0) != os.getpid():
        os.setsid()  # a hang-up of the launcher's terminal must not end this process
    if parent is not None and os.getppid() != parent:  # it was killed before we had begun
        _remove(folder)
        return 0
    processes.adopt_orphans()
    supervisor = Supervisor(folder, _read_job(folder), parent=parent)
    supervisor.hear_signals()
    try:
        supervisor.run()
    except Exception as error:
        supervisor.give_up(f"{type(error).__name__}: {error}")
        raise
    if parent is not None and os.getppid() != parent:
        _remove(folder)
    return 0


def _remove(folder: str) -> None:
    """Remove the files of a job whose launcher has ended for good: no other launcher looks for them."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
    try:
        os.rmdir(os.path.dirname(folder))  # the launcher's own folder, unless other jobs still use it
    except OSError:
        return


def _has_lock(folder: str, inherited: str | None) -> bool:
    """Return whether we hold the folder's lock: we inherited it, or it was free. The agent must not inherit it."""
    if inherited is None:
        return locked(os.path.join(folder, "lock")) is not None
    os.set_inheritable(int(inherited), False)
    return True


def _read_job(folder: str) -> AgentEvent:
    """Return the job, with defaults for what the launcher left open; write the turn file for the agent."""
    with open(os.path.join(folder, "job.json"), "rb") as file:
        job: AgentEvent = json.loads(file.read())
    agent = job["agent"]
    job["cwd"] = os.path.abspath(os.path.expanduser(agent.get("cwd") or job.get("cwd") or os.getcwd()))
    job["system_prompt"] = job.get("system_prompt") or agent.get("system_prompt")
    job["turn_line"] = write_turn(folder, job)
    return job


def _refuse(why: str) -> int:
    print(f"supervisor: {why}", file=sys.stderr)
    return TAKEN


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
