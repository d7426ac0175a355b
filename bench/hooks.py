"""`python -m bench.hooks`: what a host waits for before it delegates.

Two figures. The whole process, `moorage-hook pre-delegate` from start to exit, beside
`python -c pass` in the same rounds: most of it is the start of Python. And the question
itself, a call of the library, in a small store and in a large one: it must not matter
how many sessions there are.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import moorage.sync
from bench.__main__ import RUNS
from bench.ours import _fast_folder, url
from bench.remote import environment_of

LARGE, SMALL = 100_000, 100
MOST_TIMES_PYTHON = 5.0
MOST_P95 = 0.100  # seconds, on a quiet machine
MOST_FOR_THE_QUESTION = 0.001
FOLDER, AGENT = "/srv/shop", "terraform-architect"
READY_EVERY = 100  # one of so many sessions is in a phase that could be picked up; the newest is, too
QUESTIONS = 300


class Figure(NamedTuple):
    """One line of the answer."""

    what: str
    value: str
    target: str
    kept: bool | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say whether the promises are kept."""
    options = _parser().parse_args(arguments)
    RUNS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hooks-", dir=RUNS) as folder:
        large, small = Path(folder, "large"), Path(folder, "small")
        for place, count in ((large, options.sessions), (small, SMALL)):
            print(f"… making a store of {count:,} sessions", file=sys.stderr, flush=True)
            _fill(place, count)
        figures = [*_processes(large, options.rounds), *_questions(small, large, options.sessions)]
    width = max(len(each.what) for each in figures)
    for each in figures:
        print(f"{each.what:{width}}  {each.value:>24}  {each.target:24} {'' if each.kept is not False else 'MISSED'}")
    return int(options.check and any(each.kept is False for each in figures))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.hooks", description=__doc__)
    parser.add_argument("--sessions", type=int, default=LARGE, metavar="N", help=f"in the large store ({LARGE:,})")
    parser.add_argument("--rounds", type=int, default=60, metavar="N", help="of each process (60)")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    return parser


def _fill(place: Path, count: int) -> None:
    """A store of sessions of one agent in one folder, most of them closed or at work, one for each task."""
    place.mkdir()
    with tempfile.TemporaryDirectory(dir=_fast_folder(place, count * 4_096)) as workshop:
        with moorage.sync.connect(url(Path(workshop))) as moor:
            for number in range(count):
                session = moor.create(AGENT, task_id=f"T{number}", project_dir=FOLDER, purpose="approval_workflow")
                if number % READY_EVERY == READY_EVERY - 1:
                    moor.update(session.id, phase="approval", metadata={"plan_file": "plan.json"})
                elif number % 10 == 0:
                    moor.finalize(session.id)
        for file in Path(workshop).iterdir():
            if not file.name.endswith("-shm"):
                (place / file.name).write_bytes(file.read_bytes())


# Whole processes --------------------------------------------------------------------------------


def _processes(place: Path, rounds: int) -> list[Figure]:
    hook = [str(Path(sys.executable).with_name("moorage-hook"))]
    resumable = {"agent_name": AGENT, "task_id": f"T{READY_EVERY - 1}", "task_description": "Plan", "metadata": {}}
    event = {
        "hook_event_name": "PreToolUse",
        "session_id": "host-1",
        "cwd": FOLDER,
        "tool_name": "Agent",
        "tool_input": {"subagent_type": AGENT, "prompt": "Plan"},
    }
    commands: dict[str, tuple[list[str], Any]] = {
        "python -c pass": ([sys.executable, "-c", "pass"], None),
        "python -c pass, again": ([sys.executable, "-c", "pass"], None),
        "pre-delegate, work to pick up": ([*hook, "pre-delegate"], resumable),
        "pre-delegate, nothing there": ([*hook, "pre-delegate"], {**resumable, "task_id": "T-new", "agent_name": "x"}),
        "PreToolUse of Claude Code": (hook, event),
    }
    env = environment_of({"MOORAGE_URL": url(place), "MOORAGE_HOME": str(place)})
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installation has its bytecode
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        order = list(commands) if number % 2 else list(commands)[::-1]
        for name in order:
            command, said = commands[name]
            began = perf_counter()
            done = subprocess.run(command, env=env, input=json.dumps(said).encode(), capture_output=True, check=False)
            took = perf_counter() - began
            if done.returncode or done.stderr:
                raise SystemExit(f"{name}: exit code {done.returncode}, {done.stderr.decode()}")
            if number:  # the first round warms up
                times[name].append(took)
    bare = times["python -c pass"]
    return [_process(name, each, bare) for name, each in times.items()]


def _process(name: str, mine: list[float], bare: list[float]) -> Figure:
    ratio = median(each / base for each, base in zip(mine, bare, strict=True))
    p95 = sorted(mine)[int(len(mine) * 0.95)]
    value = f"{ratio:.2f} ×  p95 {p95 * 1000:.0f} ms"
    if name.startswith("python"):
        return Figure(name, value, "", None)
    target = f"≤ {MOST_TIMES_PYTHON:.0f} ×, p95 < {MOST_P95 * 1000:.0f} ms"
    return Figure(name, value, target, ratio <= MOST_TIMES_PYTHON and p95 < MOST_P95)


# The question alone -----------------------------------------------------------------------------


def _questions(small: Path, large: Path, count: int) -> list[Figure]:
    figures = []
    with moorage.sync.connect(url(small)) as few, moorage.sync.connect(url(large)) as many:
        asked: dict[str, Callable[[Any, int], Any]] = {
            "by id": lambda moor, _: moor.should_resume(moor.ready),
            "by task": lambda moor, _: moor.should_resume(agent=AGENT, task_id=f"T{READY_EVERY - 1}"),
            "by task, nothing there": lambda moor, number: moor.should_resume(agent=AGENT, task_id=f"T-{number}"),
            "by folder": lambda moor, _: moor.should_resume(agent=AGENT, project_dir=FOLDER),
            "by folder, another agent": lambda moor, _: moor.should_resume(agent="another", project_dir=FOLDER),
        }
        for moor in (few, many):
            moor.ready = moor.list(phase="approval", limit=1).items[0].id
        for name, ask in asked.items():
            mine, base = _timed(ask, many), _timed(ask, few)
            value = f"{mine * 1e6:.0f} µs  ({mine / base:.2f} × that of {SMALL})"
            what = f"should_resume {name}, {count:,} sessions"
            target = f"< {MOST_FOR_THE_QUESTION * 1000:.0f} ms"
            figures.append(Figure(what, value, target, mine < MOST_FOR_THE_QUESTION))
    return figures


def _timed(ask: Callable[[Any, int], Any], moor: Any) -> float:
    """The median seconds of one question."""
    times = []
    for number in range(QUESTIONS):
        began = perf_counter()
        ask(moor, number)
        times.append(perf_counter() - began)
    return median(times)


if __name__ == "__main__":
    sys.exit(main())
