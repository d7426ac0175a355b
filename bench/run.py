"""From a line of `works.py` to a line of the table: workers are started, set up, raced and closed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench import peerenv, works
from bench.measure import FLOOR, FLOOR_AGAIN, OURS, PATIENCE, PEER_PATIENCE, Entrant, race, ratio, typical
from bench.remote import Crew, Failed, Order, Programs, Worker
from bench.works import Growth, Work

OPEN_SECONDS = 1_800.0  # a million sessions may have to be made
PEER_OPEN_SECONDS = 180.0
RAM = Path("/dev/shm")
_FACES = {
    "floor": {"inline": "bench.floor:Floor", "awaited": "bench.floor:GroupCommit", "tasks": "bench.floor:GroupCommit"},
    "ours": {"inline": "bench.ours:Ours", "awaited": "bench.ours:OursAwaited", "tasks": "bench.ours:OursAwaited"},
}


@dataclass(frozen=True)
class Plan:
    """How the whole run is to be done."""

    folder: Path
    rounds: int
    quick: bool
    peers: bool


@dataclass
class Line:
    """One line of the answer. Figures are by entrant: multiples of the floor, or of the small place for growth."""

    section: str
    name: str
    title: str
    target: float | None
    unit: str = "seconds"
    base: float | None = None  # the floor's own figure in `unit`
    ours: float | None = None
    again: float | None = None  # the floor against itself
    floor: float | None = None  # growth only: the floor's own growth
    peers: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)  # by entrant: why there is no figure, or what it hides

    @property
    def kept(self) -> bool | None:
        """Is the promise kept? None when nothing was promised; a missing figure keeps no promise."""
        if self.target is None:
            return None
        return self.ours is not None and self.ours <= self.target and OURS not in self.notes


class Runner:
    """Runs lines one after another; workers live as long as they are well."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._workers: dict[tuple[str, int], Worker] = {}

    def work(self, work: Work) -> Line:
        """A line of the main table."""
        line = Line("works", work.name, work.said(self.plan.quick), work.target)
        size = work.at(self.plan.quick)
        if work.ram and not RAM.is_dir():
            return replace(line, target=None, notes={OURS: "there is no RAM disk here"})
        with self._folder(RAM if work.ram else self.plan.folder) as folder, ExitStack() as stack:
            entrants = [self._enter(stack, work, size, folder, *each) for each in self._contenders(work)]
            os.sync()  # what preparing wrote is not written back during the rounds
            race(entrants, work.rounds(self.plan.rounds))
        return _filled(line, {each.name: each for each in entrants})

    def growth(self, growth: Growth) -> Line:
        """The same in a small and a large place, of moorage and of the floor."""
        line = Line("growth", growth.name, growth.said(self.plan.quick), growth.limit)
        places = {"small": growth.small, "large": growth.at(self.plan.quick), "small again": growth.small}
        with self._folder(self.plan.folder) as folder, ExitStack() as stack:
            entrants = {
                (who, place): self._enter(stack, _as_work(growth), size, folder, f"{who} {place}", contender)
                for who, contender in ((OURS, _FACES["ours"]["inline"]), (FLOOR, _FACES["floor"]["inline"]))
                for place, size in places.items()
                if who == FLOOR or place != "small again"
            }
            os.sync()
            race(list(entrants.values()), _as_work(growth).rounds(self.plan.rounds))
        line.base = typical(entrants[OURS, "small"])
        line.ours = ratio(entrants[OURS, "large"], entrants[OURS, "small"])
        line.floor = ratio(entrants[FLOOR, "large"], entrants[FLOOR, "small"])
        line.again = ratio(entrants[FLOOR, "small again"], entrants[FLOOR, "small"])
        line.notes = {who: reason for (who, _), entrant in entrants.items() if (reason := _reason(entrant))}
        return line

    def startup(self, work: Work) -> Line:
        """Whole processes against `python -c pass`."""
        line = Line("startup", work.name, work.title, work.target)
        with self._folder(self.plan.folder) as folder:
            home = {"MOORAGE_HOME": str(folder)}
            bare = [sys.executable, "-c", "pass"]
            entrants = [Entrant(name, Programs(bare, {}), work.operations) for name in (FLOOR, FLOOR_AGAIN)]
            try:
                ours = Programs(_command(work, folder), home)
                entrants.insert(1, Entrant(OURS, ours, work.operations))
            except Failed as exc:
                line.notes[OURS] = str(exc)
            race(entrants, self.plan.rounds)
        return _filled(line, {each.name: each for each in entrants})

    def size(self) -> Line:
        """Bytes on disk per small session, the log written back."""
        line = Line("size", works.SIZE, works.SIZE_TITLE, works.SIZE_LIMIT, unit="bytes")
        line.base = self._weighed(line, FLOOR, _FACES["floor"]["inline"], works.SIZE_SESSIONS)
        line.ours = self._weighed(line, OURS, _FACES["ours"]["inline"], works.SIZE_SESSIONS)
        return line

    def end(self) -> None:
        for worker in self._workers.values():
            worker.end()

    def _contenders(self, work: Work) -> list[tuple[str, str]]:
        floor, ours = _FACES["floor"][work.face], _FACES["ours"][work.face]
        listed = [(FLOOR, floor), (OURS, ours), (FLOOR_AGAIN, floor)]
        if work.peers and self.plan.peers:
            listed += [(peer.name, peer.contender) for peer in peerenv.PEERS]
        return listed

    def _enter(self, stack: ExitStack, work: Work, size: int, folder: Path, name: str, contender: str) -> Entrant:
        """Open the stage for one contender; who cannot is entered as dropped."""
        peer = contender.startswith("bench.peers.")
        crew = Crew([self._worker(name, peer, member) for member in range(work.processes)])
        entrant = Entrant(name, crew, work.operations, PEER_PATIENCE if peer else PATIENCE)
        where = self._seeded(contender, size) if work.seeded else folder / name.replace(" ", "-")
        try:
            order = Order(contender, work.stage, where, size, size if work.seeded else 0)
            crew.open(order, PEER_OPEN_SECONDS if peer else OPEN_SECONDS)
        except Failed as exc:
            entrant.dropped = str(exc)
        stack.callback(_leave, crew)
        return entrant

    def _worker(self, name: str, peer: bool, member: int) -> Worker:
        """The entrant's living worker, or a new one."""
        found = self._workers.get((name, member))
        if found is None or not found.alive:
            python, extra = (peerenv.python(), peerenv.QUIET) if peer else (Path(sys.executable), {})
            log = self.plan.folder / f"{name.replace(' ', '-')}-{member}.log"
            found = self._workers[name, member] = Worker(python, log, extra)
        return found

    def _seeded(self, contender: str, size: int) -> Path:
        """One store for each contender and size, made once and shared by every line that reads it."""
        return self.plan.folder / "seeded" / f"{contender.rpartition(':')[2]}-{size}"

    def _weighed(self, line: Line, name: str, contender: str, count: int) -> float | None:
        crew = Crew([self._worker(name, False, 0)])
        with self._folder(self.plan.folder) as folder:
            try:
                crew.open(Order(contender, "size", folder, count), OPEN_SECONDS)
                return crew.close() / count
            except Failed as exc:
                line.notes[name] = str(exc)
                _leave(crew)
                return None

    @contextmanager
    def _folder(self, parent: Path) -> Iterator[Path]:
        made = Path(tempfile.mkdtemp(prefix="bench-", dir=parent))
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)


def _filled(line: Line, entrants: dict[str, Entrant]) -> Line:
    """Take the figures over into the line."""
    floor = entrants[FLOOR]
    line.base = typical(floor)
    line.ours = ratio(entrants.get(OURS), floor)
    line.again = ratio(entrants[FLOOR_AGAIN], floor)
    for peer in peerenv.PEERS:
        if (figure := ratio(entrants.get(peer.name), floor)) is not None:
            line.peers[peer.name] = figure
    line.notes |= {name: reason for name, entrant in entrants.items() if (reason := _reason(entrant))}
    return line


def _reason(entrant: Entrant) -> str | None:
    return entrant.dropped or entrant.problem


def _leave(crew: Crew) -> None:
    with suppress(Failed):  # it is dropped already, and its worker is replaced when needed
        crew.close()


def _as_work(growth: Growth) -> Work:
    return Work(growth.name, growth.title, growth.stage, growth.operations, seeded=growth.seeded)


def _command(work: Work, folder: Path) -> Sequence[str]:
    if work.name == "import":
        return [sys.executable, "-c", "import moorage"]
    url = f"sqlite:///{folder / 'moorage.db'}"
    return [*_moorage(), "should-resume", _some_session(url), "--url", url]


def _moorage() -> list[str]:
    """The installed command beside this Python, or the package run as a module."""
    script = Path(sys.executable).with_name("moorage.exe" if sys.platform == "win32" else "moorage")
    return [str(script)] if script.exists() else [sys.executable, "-m", "moorage"]


def _some_session(url: str) -> str:
    """A session in a phase that can be resumed, so that the command's answer is yes and its exit code 0."""
    made = _output([*_moorage(), "create", "--agent", "agent-00", "--json", "--url", url])
    session_id = str(json.loads(made)["session_id"])
    _output([*_moorage(), "update", session_id, "--phase", "planning", "--url", url])
    return session_id


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise Failed(lines[-1] if lines else f"exit code {done.returncode}")
    return done.stdout
