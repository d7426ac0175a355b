"""`python -m bench.http`: `moorage serve` under 64 connections, beside what cannot be beaten and a peer.

The floor is a hand-written Starlette app over plain tables, with group commit and the same durability;
the echo is that stack with no work to do; the peer is Google ADK's API server. Every server and the load
are processes of their own. Each round lets all of them do a little; figures are medians of the ratios
in the same round. Afterwards the stores are counted: what was acknowledged has to be there.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench import peerenv
from bench.__main__ import RUNS
from bench.measure import FLOOR_AGAIN, Entrant, race, ratios
from bench.remote import Failed, Took, Worker
from bench.web.load import Request
from bench.web.servers import AdkServer, FloorServer, MoorageServer, Server

CONNECTIONS = 64
MESSAGES = 20
ROUNDS = 9
PATIENCE = 1.0  # seconds a round takes
MOST, MOST_OF_PEER = 20_000, 1_000  # requests in a round
LEAST_OF_PEER = 5.0
MOST_P99 = 5.0  # medians


@dataclass(frozen=True)
class Work:
    """One thing that is asked for, and how fast it has to be beside the floor."""

    name: str
    title: str
    share: float


WORKS = (
    Work("create", "create a session", 0.6),
    Work("append", "append a turn", 0.6),
    Work("get", f"get a session with its last {MESSAGES} messages", 0.7),
)


class Loaded:
    """A server, a load of its own, and the sessions that are used."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.load = Worker(Path(sys.executable), folder / "load.log", {}, module="bench.web.load")
        self.appended: list[str] = []
        self.read: list[str] = []
        self.created = self.said = 0  # acknowledged, all in all

    def prepare(self) -> None:
        """Sessions to append to, and sessions that have messages."""
        if self.server.name == "echo":
            return
        server, count = self.server, self.server.sessions
        made = self._each([server.create()] * (2 * count), server.id_field)
        self.appended, self.read = made[:count], made[count:]
        steps = [server.fill(session_id, MESSAGES) for session_id in self.read]
        for number in range(len(steps[0])):
            self._each([step[number] for step in steps])
        self.created, self.said = 2 * count, MESSAGES * count
        [said] = self._each([server.get(self.read[0])], server.messages_field)
        if len(said) != MESSAGES:
            raise Failed(f"a session has {len(said)} messages, not {MESSAGES}")

    def _each(self, requests: Sequence[Request], field: str | None = None) -> list[Any]:
        """Each request once; that field of the answers."""
        server = self.server
        order = {"port": server.port, "requests": requests, "connections": server.sets_up, "field": field}
        return list(self.load.call("each", 300, **order).get("found", ()))

    def requests(self, work: str) -> list[Request]:
        if work == "create" or self.server.name == "echo":
            return [self.server.create()] * CONNECTIONS
        if work == "append":
            return [self.server.append(session_id, number) for number, session_id in enumerate(self.appended)]
        return [self.server.get(session_id) for session_id in self.read]


@dataclass
class Rounds:
    """One work on one server, as something that can be timed in rounds."""

    loaded: Loaded
    work: str
    medians: list[float] = field(default_factory=list)
    tails: list[float] = field(default_factory=list)  # the 99th of 100
    cpu: list[float] = field(default_factory=list)  # the server's seconds for one request
    failed: int = 0

    def plan(self) -> None:
        server = self.loaded.server
        requests = self.loaded.requests(self.work)
        self.loaded.load.call(
            "plan", port=server.port, requests=requests, connections=CONNECTIONS, may_fail=server.may_fail
        )

    def round(self, operations: int) -> Took:
        before = self.loaded.server.cpu()
        took = self.loaded.load.call("round", operations=max(operations, 2 * CONNECTIONS))
        after = self.loaded.server.cpu()
        self._count(took["operations"])
        self.failed += took["failed"]
        self.medians.append(took["median"])
        self.tails.append(took["p99"])
        if before is not None and after is not None:
            self.cpu.append((after - before) / took["operations"])
        return Took(took["seconds"], took["operations"])

    def _count(self, operations: int) -> None:
        if self.work == "create":
            self.loaded.created += operations
        elif self.work == "append":
            self.loaded.said += 2 * operations

    def check(self) -> str | None:
        """Whether all that was acknowledged is there."""
        if self.failed:
            return f"{self.failed:,} requests were answered with an error and are not counted"
        if self.loaded.server.name == "echo":
            return None
        kept, loaded = self.loaded.server.kept(), self.loaded
        if (kept.sessions, kept.messages) == (loaded.created, loaded.said):
            return None
        return (
            f"acknowledged {loaded.created:,} sessions and {loaded.said:,} messages, "
            f"and {kept.sessions:,} and {kept.messages:,} are there"
        )


class Figures:
    """The figures of one workload."""

    def __init__(self, work: Work, entrants: Sequence[Entrant]) -> None:
        self.work = work
        self.by_name = {each.name: each for each in entrants}

    def rate(self, name: str) -> float | None:
        """Requests in a second."""
        entrant = self.by_name.get(name)
        return 1 / median(entrant.times) if entrant and not entrant.dropped and entrant.times else None

    def share(self, name: str, base: str) -> float | None:
        """The rate of one as a share of another's, in the same rounds."""
        mine, theirs = self.by_name.get(name), self.by_name.get(base)
        if mine is None or theirs is None or mine.dropped or theirs.dropped:
            return None
        return median(1 / each for each in ratios(mine, theirs))

    def spread(self, name: str) -> tuple[float, float, float] | None:
        """Median and 99th of 100 of the seconds a request takes, and how many medians that is."""
        entrant = self.by_name.get(name)
        if entrant is None or entrant.dropped or not isinstance(entrant.rounds, Rounds):
            return None
        middle, tail = entrant.rounds.medians, entrant.rounds.tails
        return median(middle), median(tail), median(t / m for t, m in zip(tail, middle, strict=True))

    def promises(self, has_peer: bool) -> Iterator[tuple[str, float | None, float, bool]]:
        """Yield the targets: a text, the figure, the bound, and whether it is met."""
        share = self.share("moorage", "floor")
        yield "of the floor", share, self.work.share, share is not None and share >= self.work.share
        if has_peer:
            times = self.share("moorage", "ADK")
            yield "× ADK", times, LEAST_OF_PEER, times is not None and times >= LEAST_OF_PEER
        spread = self.spread("moorage")
        tail = spread[2] if spread else None
        yield "medians is p99", tail, MOST_P99, tail is not None and tail <= MOST_P99


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say whether the promises are kept."""
    options = _parser().parse_args(arguments)
    problems = peerenv.install() if options.peers else []
    above = options.dir or RUNS
    above.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="http-", dir=above) as folder, ExitStack() as stack:
        loads, notes = _started(options, Path(folder), stack)
        figures = [_raced(work, loads, options.rounds) for work in WORKS if work.name in options.only]
    has_peer = options.peers
    print("\n\n".join(_shown(each, has_peer) for each in figures))
    print("\n".join(["", *problems, *notes, *_notes(figures)]))
    if options.json:
        options.json.write_text(json.dumps([_document(each) for each in figures], indent=2) + "\n")
    missed = any(not kept for each in figures for *_, kept in each.promises(has_peer))
    return int(options.check and missed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.http", description=__doc__)
    names = [work.name for work in WORKS]
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="WORK", help=f"of {', '.join(names)}"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"of each, in turn ({ROUNDS})")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="measure the peer too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file as well")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where the stores go: the disk that is measured")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="cProfile of our server's event loop; it slows it")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    return parser


def _started(options: argparse.Namespace, folder: Path, stack: ExitStack) -> tuple[list[Loaded], list[str]]:
    kinds: list[type[Server]] = [Server, FloorServer, MoorageServer, *([AdkServer] if options.peers else [])]
    loads, notes = [], []
    for kind in kinds:
        print(f"… starting {kind.name}", file=sys.stderr, flush=True)
        own = folder / kind.name
        try:
            server = kind(own, options.profile.resolve() if options.profile and kind is MoorageServer else None)
            stack.callback(server.end)
            loaded = Loaded(server, own)
            stack.callback(loaded.load.end)
            loaded.prepare()
        except (Failed, OSError) as exc:
            if kind is not AdkServer:
                raise
            notes.append(f"{kind.name} is left out: {exc}")
        else:
            loads.append(loaded)
    return loads, notes


def _raced(work: Work, loads: Sequence[Loaded], rounds: int) -> Figures:
    print(f"… {work.title}", file=sys.stderr, flush=True)
    entrants = []
    for loaded in loads:
        most = MOST_OF_PEER if isinstance(loaded.server, AdkServer) else MOST
        own = Rounds(loaded, work.name)
        own.plan()
        entrants.append(Entrant(loaded.server.name, own, most, PATIENCE))
        if isinstance(loaded.server, FloorServer) and loaded.server.name == "floor":
            entrants.append(Entrant(FLOOR_AGAIN, Rounds(loaded, work.name), most, PATIENCE))
    race(entrants, rounds)
    return Figures(work, entrants)


def _shown(figures: Figures, has_peer: bool) -> str:
    lines = [f"{figures.work.title}, {CONNECTIONS} connections"]
    for name in figures.by_name:
        rate, spread = figures.rate(name), figures.spread(name)
        if rate is None or spread is None:
            continue
        of_echo, of_floor = figures.share(name, "echo"), figures.share(name, "floor")
        entrant = figures.by_name[name].rounds
        cpu = f"  {median(entrant.cpu) * 1e6:7.0f} µs of a core" if isinstance(entrant, Rounds) and entrant.cpu else ""
        lines.append(
            f"  {name:12} {rate:8,.0f} /s  {of_echo or 0:6.3f} of echo  {of_floor or 0:6.2f} of floor"
            f"  median {spread[0] * 1e3:7.2f} ms  p99 {spread[1] * 1e3:8.2f} ms{cpu}"
        )
    for text, value, bound, kept in figures.promises(has_peer):
        sign = "≤" if text.endswith("p99") else "≥"
        told = "–" if value is None else f"{value:.2f}"
        lines.append(f"  {'ok    ' if kept else 'MISSED'}  {told} {text} ({sign} {bound:g})")
    return "\n".join(lines)


def _notes(figures: Sequence[Figures]) -> list[str]:
    every = [(each.work.name, entrant) for each in figures for entrant in each.by_name.values()]
    return [
        f"{entrant.name}: {entrant.dropped or entrant.problem} [{work}]"
        for work, entrant in every
        if entrant.dropped or entrant.problem
    ]


def _document(figures: Figures) -> dict[str, Any]:
    names = list(figures.by_name)
    return {
        "work": figures.work.name,
        "rate": {name: figures.rate(name) for name in names},
        "of_floor": {name: figures.share(name, "floor") for name in names},
        "latency": {name: figures.spread(name) for name in names},
    }


if __name__ == "__main__":
    sys.exit(main())
