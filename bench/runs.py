"""`python -m bench.runs`: runs from the queue to their end, beside a bare loop that does the same to rows.

The floor queues, claims, starts and finishes rows of one SQLite table, with the same durability
and as many commits as a run takes here: four. Besides: how long it takes from a child's end to its
parent's next turn, and what a launcher costs that has nothing to do.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter

import apsw

from bench.__main__ import RUNS
from moorage import config
from moorage.core.query import LogQuery
from moorage.launcher.embedded import Embedded
from moorage.service import runs
from moorage.service.deps import Caller, Deps
from moorage.service.runs import Wish

LEAST_OF_THE_FLOOR = 0.6
MOST_TO_PARENT = 0.015
MOST_IDLE = 0.01
IDLE_SECONDS = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say whether the promises are kept."""
    parser = argparse.ArgumentParser(prog="python -m bench.runs", description=__doc__)
    parser.add_argument("--runs", type=int, default=300, metavar="N", help="in one round (300)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="of each, in turn (5)")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    options = parser.parse_args(arguments)
    RUNS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="runs-", dir=RUNS) as folder:
        kept = asyncio.run(_measure(Path(folder), options.runs, options.rounds))
    return int(options.check and not all(kept))


async def _measure(folder: Path, count: int, rounds: int) -> list[bool]:
    deps = Deps(
        config.open_store(f"sqlite:///{folder / 'moorage.db'}", threaded=True),
        config.SystemClock(),
        config.entropy,
        find_agent=config.find_agent,
    )
    floor = _Floor(folder / "floor.db")
    ratios, ours, theirs = [], [], []
    async with Embedded(deps, config.agents):
        await _rate(deps, count // 10)
        for number in range(rounds):
            if number % 2:
                mine, bare = await _rate(deps, count), await asyncio.to_thread(floor.rate, count)
            else:
                bare, mine = await asyncio.to_thread(floor.rate, count), await _rate(deps, count)
            ours.append(mine)
            theirs.append(bare)
            ratios.append(mine / bare)
        to_parent = await _to_parent(deps, 30)
        idle = await _idle()
    await deps.store.close()
    share = median(ratios)
    print(f"runs from queue to end    {median(ours):8.0f} /s  floor {median(theirs):.0f} /s   {share:.2f} × (≥ 0.6)")
    print(f"child's end to parent     {to_parent * 1000:8.1f} ms (< 15 ms)")
    print(f"idle launcher             {idle * 100:8.2f} % of a core (< 1 %)")
    return [share >= LEAST_OF_THE_FLOOR, to_parent < MOST_TO_PARENT, idle < MOST_IDLE]


async def _rate(deps: Deps, count: int) -> float:
    began = perf_counter()
    asked = await asyncio.gather(
        *[runs.start_run(deps, Caller(), "echo-agent", f"number {number}") for number in range(count)]
    )
    for each in asked:
        run = await runs.wait_for_run(deps, Caller(), each.run.run_id, timeout=60)
        assert run.state.value == "completed"
    return count / (perf_counter() - began)


class _Floor:
    """A hand-written queue: one table, one row per run, four commits each."""

    def __init__(self, path: Path) -> None:
        self._db = apsw.Connection(str(path))
        for pragma in ("journal_mode = WAL", "synchronous = FULL"):
            self._db.execute(f"PRAGMA {pragma}").fetchall()
        self._db.execute("CREATE TABLE work (id INTEGER PRIMARY KEY, state TEXT, body TEXT, result TEXT)")
        self._db.execute("CREATE INDEX queued ON work (id) WHERE state = 'queued'")

    def rate(self, count: int) -> float:
        began = perf_counter()
        for number in range(count):
            self._commit("INSERT INTO work (state, body) VALUES ('queued', ?)", (f"number {number}",))
        for _ in range(count):
            [(key,)] = self._db.execute("SELECT id FROM work WHERE state = 'queued' ORDER BY id LIMIT 1").fetchall()
            self._commit("UPDATE work SET state = 'claimed' WHERE id = ?", (key,))
            self._commit("UPDATE work SET state = 'running' WHERE id = ?", (key,))
            self._commit("UPDATE work SET state = 'done', result = ? WHERE id = ?", ("echo", key))
        return count / (perf_counter() - began)

    def _commit(self, sql: str, values: tuple[object, ...]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute(sql, values)
        self._db.execute("COMMIT")


async def _to_parent(deps: Deps, count: int) -> float:
    """The median seconds from a child's settled run to its parent's turn."""
    parent = await runs.start_run(deps, Caller(), "echo-agent", "parent")
    await runs.wait_for_run(deps, Caller(), parent.run.run_id, timeout=60)
    session_id = parent.session.session_id
    for _ in range(count):
        wish = Wish(mode="async_callback", parent=session_id)
        child = await runs.start_run(deps, Caller(), "echo-agent", "child", wish=wish)
        await runs.wait_for_run(deps, Caller(), child.run.run_id, timeout=60)
        await asyncio.sleep(0.05)
    entries = await deps.store.log("local", session_id, LogQuery(limit=1000, kinds=("callback", "turn_started")))
    waits = [
        (later.at - first.at).total_seconds()
        for first, later in pairwise(entries)
        if (first.kind, later.kind) == ("callback", "turn_started")
    ]
    return median(waits)


async def _idle() -> float:
    """The share of a core that waiting takes."""
    before, began = _cpu(), perf_counter()
    await asyncio.sleep(IDLE_SECONDS)
    return (_cpu() - before) / (perf_counter() - began)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
