#!/usr/bin/env python3
"""Let a server and a launcher work for a while, and fail if something grows: memory, descriptors, threads, log, times.

    ./dev soak --minutes 30                            on a SQLite file
    ./dev soak --minutes 30 --store postgresql         on a PostgreSQL server of its own; `valkey` likewise
    ./dev soak --minutes 30 --store URL --seed 17      on a store that is there; the same mix again

Clients on the loopback address create sessions, append, ask echo-agent, suspend, resume, use context, list and delete.
The first fifth of the samples is warm-up. Of the rest, the median of the last third is compared with that of the first
third. The exit code is 1 if something grew beyond its bound or an operation failed. Linux only: it reads /proc.

A claim takes from a question in the log to the start of its turn. The log tells it, not /metrics: launchers wait for
turns inside their request, so `turn_claim` is mostly waiting there.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TypeVar

import moorage
from moorage.connection import Connection
from moorage.testing.postgres import PostgresServer
from moorage.testing.redis import RedisServer

CLIENTS = 4
CYCLES_A_SECOND = 4.0  # of all clients together; a cycle is the life of one session, about ten operations
SAMPLES = 60
LEAST_INTERVAL = 0.25  # seconds between two samples
WARM_UP = 0.2  # of all samples
LEAST_MINUTES = 1.0  # a shorter run ends before caches are full, so it judges nothing
PATIENCE = 60.0
STATUS = {"memory": r"^RssAnon:\s+(\d+)", "threads": r"^Threads:\s+(\d+)"}
COMMITS = re.compile(r'^moorage_commit_seconds_bucket\{le="([^"]+)"\} (\S+)', re.MULTILINE)
SMALL_WAL = {"max_wal_size": "64MB", "min_wal_size": "32MB"}  # else PostgreSQL lets it grow to 1 GB

T = TypeVar("T")
Values = dict[str, float]
Buckets = dict[float, float]  # how many commits took at most so many seconds


@dataclass(frozen=True)
class Bound:
    """How much of a value may be more in the end: a share of it, and something besides."""

    unit: str
    share: float
    slack: float


BOUNDS = {
    "server memory": Bound("MiB", 0.1, 6),
    "server descriptors": Bound("", 0, 5),
    "server threads": Bound("", 0, 3),
    "launcher memory": Bound("MiB", 0.1, 6),
    "launcher descriptors": Bound("", 0, 5),
    "launcher threads": Bound("", 0, 3),
    "WAL": Bound("MiB", 0.5, 4),
    "commit p99": Bound("ms", 1, 20),
    "claim p99": Bound("ms", 1, 40),
}


@dataclass(frozen=True)
class Row:
    """One line of the table: medians of the first and of the last third, and the most that the last may be."""

    name: str
    first: float
    last: float
    most: float

    @property
    def is_flat(self) -> bool:
        return self.last <= self.most


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="how long to work (30)")
    parser.add_argument("--store", default="sqlite", help="sqlite, postgresql, valkey, or the URL of a store (sqlite)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the mix; printed")
    given = parser.parse_args(arguments)
    if not Path("/proc/self/status").exists():
        parser.error("it reads /proc, which only Linux has")
    print(f"== soak: {given.minutes:g} minutes on {given.store}, seed {given.seed}", flush=True)
    try:
        return asyncio.run(soak(given.minutes, given.store, given.seed))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("== soak: interrupted; nothing is left running", flush=True)
        return 128 + signal.SIGINT


async def soak(minutes: float, store: str, seed: int) -> int:
    """Work for so long, print the table, and return the exit code."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with ExitStack() as stack:
        place = stack.enter_context(opened(store))
        print(f"== soak: server and launcher at work at {place.url}", flush=True)
        work = Work(place.url, seed)
        working = [asyncio.create_task(work.client(number)) for number in range(CLIENTS)]
        try:
            samples = await sampled(place, work, 60 * minutes)
        finally:
            work.is_over = True  # each client deletes its session first
            await asyncio.wait(working, timeout=PATIENCE)
            for each in working:
                each.cancel()
            await asyncio.gather(*working, return_exceptions=True)
    return report(samples, work, judged=minutes >= LEAST_MINUTES)


# Judgement ------------------------------------------------------------------------------------------------------------


def judge(samples: Sequence[Values]) -> list[Row]:
    """Compare the last third of the samples with the first, after the warm-up; a sample may lack values."""
    warm = samples[math.ceil(len(samples) * WARM_UP) :]
    third = len(warm) // 3
    rows = []
    for name, bound in BOUNDS.items():
        first, last = (
            [each[name] for each in part if name in each] for part in (warm[:third], warm[len(warm) - third :])
        )
        if first and last:
            before = median(first)
            rows.append(Row(name, before, median(last), before * (1 + bound.share) + bound.slack))
    return rows


def p99(values: Sequence[float]) -> float:
    """Return the value that 99 of 100 do not exceed."""
    return sorted(values)[math.ceil(len(values) * 0.99) - 1]


def p99_of(before: Buckets, after: Buckets) -> float | None:
    """Return the p99 of what two readings of a histogram have between them, or None if that is nothing."""
    counts = {edge: after[edge] - before.get(edge, 0) for edge in sorted(after)}
    wanted = 0.99 * counts[math.inf] if counts else 0
    if not wanted:
        return None
    for (low, below), (high, count) in pairwise([(0.0, 0.0), *counts.items()]):
        if count >= wanted:
            return low if high == math.inf else low + (high - low) * (wanted - below) / (count - below)
    raise AssertionError("the last bucket has all of them")


def report(samples: Sequence[Values], work: Work, *, judged: bool) -> int:
    """Print the table and what failed; return the exit code."""
    rows = judge(samples)
    print(f"{'':22}{'first third':>14}{'last third':>14}{'at most':>14}")
    for row in rows:
        unit = BOUNDS[row.name].unit
        figures = "".join(f"{f'{value:.1f} {unit}'.strip():>14}" for value in (row.first, row.last, row.most))
        print(f"{row.name:22}{figures}  {'' if not judged else 'flat' if row.is_flat else 'GROWS'}".rstrip())
    done = ", ".join(f"{count} {name}" for name, count in sorted(work.done.items()))
    print(f"{len(samples)} samples; {sum(work.done.values())} operations: {done}; {len(work.failures)} failed")
    print(*work.failures[:5], sep="\n", end="\n" if work.failures else "")
    grows = [row.name for row in rows if not row.is_flat] if judged else []
    said = f"grows: {', '.join(grows)}" if grows else "flat" if judged else "too short to judge growth"
    print(f"== soak: {said}; seed {work.seed}", flush=True)
    return int(bool(grows or work.failures or not rows))


# The work -------------------------------------------------------------------------------------------------------------


@dataclass
class Work:
    """Clients that have so many sessions at once and delete each in the end, and a record of what they did."""

    url: str
    seed: int
    is_over: bool = False
    done: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    claims: list[float] = field(default_factory=list)  # seconds from question to turn, since the last sample

    async def client(self, number: int) -> None:
        """Let sessions live and die, one after the other, at a steady pace."""
        chance = random.Random(f"{self.seed}/{number}")
        async with moorage.connect(self.url) as moor:
            while not self.is_over:
                pause = asyncio.create_task(asyncio.sleep(CLIENTS / CYCLES_A_SECOND))
                try:
                    await self._life(moor, chance)
                except Exception as error:  # the run goes on, and fails in the end
                    self.failures.append(f"{type(error).__name__}: {error}")
                await pause

    async def _life(self, moor: Connection, chance: random.Random) -> None:
        session_id = (await self._did("create", moor.create("echo-agent"))).session_id
        steps: list[Callable[[], Awaitable[None]]] = [
            *[partial(self._append, moor, session_id, chance.randrange(1, 4000)) for _ in range(3)],
            *[partial(self._ask, moor, session_id)] * 2,
            partial(self._pause, moor, session_id),
            partial(self._use_context, moor, session_id, chance.randrange(1, 2000)),
        ]
        try:
            for step in chance.sample(steps, len(steps)):
                await step()
            await self._did("list", moor.list(limit=20))
        finally:
            await self._did("delete", moor.delete(session_id))

    async def _append(self, moor: Connection, session_id: str, size: int) -> None:
        await self._did("append", moor.append(session_id, {"role": "user", "content": "x" * size}))

    async def _ask(self, moor: Connection, session_id: str) -> None:
        await self._did("ask", moor.run("echo-agent", "hello", session=session_id))
        entries = (await moor.log(session_id, kinds=("message", "turn_started"))).items
        waits = [(b.at - a.at).total_seconds() for a, b in pairwise(entries) if b.kind == "turn_started"]
        self.claims.append(waits[-1])

    async def _pause(self, moor: Connection, session_id: str) -> None:
        await self._did("suspend", moor.suspend(session_id))
        await self._did("resume", moor.resume(session_id, hold=False))

    async def _use_context(self, moor: Connection, session_id: str, size: int) -> None:
        await self._did("context", moor.context.merge(session_id, {"note": "x" * size}))
        await self._did("context", moor.context.get(session_id))

    async def _did(self, name: str, asked: Awaitable[T]) -> T:
        answer = await asked
        self.done[name] += 1
        return answer


# Samples --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A server and a launcher at work, and where the write-ahead log of their store is."""

    url: str
    processes: dict[str, subprocess.Popen[bytes]]
    wal: Path | None


async def sampled(place: Place, work: Work, seconds: float) -> list[Values]:
    """Take samples at equal intervals until the time is up."""
    interval = max(LEAST_INTERVAL, seconds / SAMPLES)
    began, samples, before = time.monotonic(), [], await asyncio.to_thread(commits, place.url)
    for number in range(1, int(seconds / interval) + 1):
        await asyncio.sleep(began + number * interval - time.monotonic())
        after = await asyncio.to_thread(commits, place.url)
        samples.append(sample(place, work, p99_of(before, after)))
        before = after
    return samples


def sample(place: Place, work: Work, commit: float | None) -> Values:
    """Return what can be measured now; times are those since the last sample."""
    values = {key: value for name, each in place.processes.items() for key, value in process_values(name, each)}
    if place.wal is not None and place.wal.exists():
        files = place.wal.iterdir() if place.wal.is_dir() else [place.wal]
        values["WAL"] = sum(each.stat().st_size for each in files if each.is_file()) / 2**20
    if commit is not None:
        values["commit p99"] = 1000 * commit
    if work.claims:
        values["claim p99"] = 1000 * p99(work.claims)
        work.claims.clear()
    return values


def process_values(name: str, process: subprocess.Popen[bytes]) -> Iterator[tuple[str, float]]:
    """Yield memory in MiB, threads and descriptors of a process."""
    if process.poll() is not None:
        raise SystemExit(f"the {name} has ended with {process.returncode}")
    folder = Path(f"/proc/{process.pid}")
    status = (folder / "status").read_text()
    for key, pattern in STATUS.items():
        found = re.search(pattern, status, re.MULTILINE)
        assert found is not None, pattern
        yield f"{name} {key}", int(found[1]) / (1024 if key == "memory" else 1)
    yield f"{name} descriptors", len([*(folder / "fd").iterdir()])


def commits(url: str) -> Buckets:
    """Read how long commits took from /metrics."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE) as answer:
        return {float(edge): float(count) for edge, count in COMMITS.findall(answer.read().decode())}


# Processes ------------------------------------------------------------------------------------------------------------


@contextmanager
def opened(store: str) -> Iterator[Place]:
    """Start a server and a launcher on that store; end them, and remove all that was made for them."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="moorage-soak-")))
        url, wal = store_of(store, folder, stack)
        address = f"http://127.0.0.1:{free_port()}"
        serve = ("serve", "--store", url, "--port", address.rpartition(":")[2], "--no-launcher", "--no-grpc")
        server = stack.enter_context(started(folder, "server", *serve))
        wait_for(address, server, folder / "server.log")
        launcher = stack.enter_context(started(folder, "launcher", "launcher", "--url", address))
        yield Place(address, {"server": server, "launcher": launcher}, wal)


def store_of(store: str, folder: Path, stack: ExitStack) -> tuple[str, Path | None]:
    """Return the URL of a store, and the file or folder of its write-ahead log if we can see it."""
    match store:
        case "sqlite":
            return f"sqlite:///{folder / 'soak.db'}", folder / "soak.db-wal"
        case "postgresql":
            postgres = stack.enter_context(PostgresServer(settings=SMALL_WAL))
            return stack.enter_context(postgres.database()), postgres.data / "pg_wal"
        case "valkey":
            return stack.enter_context(RedisServer()).url(), None
    return store, None


@contextmanager
def started(folder: Path, name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start `moorage` with a home of its own; Ctrl-C reaches only us, and we end it."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("MOORAGE_", "AGENT_"))}
    command = [sys.executable, "-m", "moorage", *arguments]
    with (folder / f"{name}.log").open("wb") as log:
        environment = kept | {"MOORAGE_HOME": str(folder / "home")}
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the server answers."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            urllib.request.urlopen(f"{url}/readyz", timeout=PATIENCE).close()
            return
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the server does not start: {log.read_text()[-2000:]}") from None
            time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
