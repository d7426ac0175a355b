"""`python -m bench`: run the benchmark and print the tables."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from bench import peerenv, works
from bench.report import render
from bench.run import Line, Plan, Runner

RUNS = Path(__file__).resolve().parent / ".runs"  # on the project's disk: a temporary folder is often in RAM
ROUNDS, QUICK_ROUNDS = 15, 5


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    chosen = _chosen(options.only)
    problems = peerenv.install() if options.peers and _wants_peers(chosen) else []
    with _folder(options.dir) as folder:
        rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
        plan = Plan(folder, rounds, options.quick, options.peers)
        lines = _run(plan, chosen)
    peers = [peer.name for peer in peerenv.PEERS] if options.peers else []
    print("\n\n".join(filter(None, [render(lines, peers), "\n".join(problems)])))
    if options.json:
        options.json.write_text(json.dumps(_document(plan, lines), indent=2, ensure_ascii=False) + "\n")
    return int(options.check and any(line.kept is False for line in lines))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure moorage beside plain SQLite tables (the floor) and its peers. Figures are multiples of "
        "the floor in the same run; A/A is the floor against itself, the noise.",
        epilog=f"names: {', '.join(works.NAMES)}; sections: {', '.join(works.SECTIONS)}. "
        "Apart: python -m bench.hooks, bench.runs, bench.http, bench.grpc, bench.postgres, bench.scale, bench.adapters",
    )
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", choices=[*works.NAMES, *works.SECTIONS], help="lines or sections to run"
    )
    parser.add_argument(
        "--rounds", type=_positive, metavar="N", help=f"interleaved rounds (default {ROUNDS}; quick {QUICK_ROUNDS})"
    )
    parser.add_argument(
        "--quick", action="store_true", help="few rounds and stores of 10,000: a look, not a measurement"
    )
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="measure the peers too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file as well")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where the stores go: the disk that is measured")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed or has no figure")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def _chosen(only: Sequence[str] | None) -> set[str]:
    if not only:
        return set(works.NAMES)
    return {name for each in only for name in works.SECTIONS.get(each, (each,))}


def _wants_peers(chosen: set[str]) -> bool:
    return any(work.peers for work in works.WORKS if work.name in chosen)


def _run(plan: Plan, chosen: set[str]) -> list[Line]:
    runner = Runner(plan)
    try:
        return list(_lines(runner, chosen))
    finally:
        runner.end()


def _lines(runner: Runner, chosen: set[str]) -> Iterator[Line]:
    quick = runner.plan.quick
    steps: list[tuple[str, str, Callable[[], Line]]] = [
        *((each.name, each.said(quick), partial(runner.work, each)) for each in works.WORKS),
        *((each.name, each.said(quick), partial(runner.growth, each)) for each in works.GROWTH),
        *((each.name, each.title, partial(runner.startup, each)) for each in works.STARTUP),
        (works.SIZE, works.SIZE_TITLE, runner.size),
    ]
    for name, title, measure in steps:
        if name in chosen:
            print(f"… {title}", file=sys.stderr, flush=True)
            yield measure()


@contextmanager
def _folder(parent: Path | None) -> Iterator[Path]:
    """A folder of our own below the chosen one, gone afterwards."""
    above = parent or RUNS
    above.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="run-", dir=above)).resolve()
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _document(plan: Plan, lines: Sequence[Line]) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "rounds": plan.rounds,
        "quick": plan.quick,
        "lines": [{**asdict(line), "kept": line.kept} for line in lines],
    }


if __name__ == "__main__":
    sys.exit(main())
