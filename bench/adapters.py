"""`python -m bench.adapters`: adapters beside the backends of their frameworks, in one run and on one disk.

LangGraph: `MoorageSaver` on SQLite beside `SqliteSaver`. Both keep a write-ahead log and wait for the disk at every
commit. A turn is what a graph with one node stores for it: two checkpoints, each with one more message. "bytes" is how
much more of the database was in use after a turn. The other frameworks and their stores are in `bench.adapter_peers`.
Figures are medians of interleaved rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import multiprocessing
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from bench.__main__ import RUNS
from bench.adapter_peers import PEERS, UNSYNCED, Opened

SIZES = (10, 1_000, 10_000)
ROUNDS, TURNS, LISTED, WRITERS = 5, 10, 50, 4
LANGGRAPH = "langgraph"
FRAMEWORKS = (LANGGRAPH, *PEERS)

Savers = dict[str, Callable[[Path], Any]]

_start: Any  # a barrier, in a process of its own: writers begin together


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print one line for each figure."""
    options = _parser().parse_args(arguments)
    if options.unsynced:
        os.environ[UNSYNCED] = "1"  # for the processes that race, too
    with _folder() as folder:
        for framework in options.frameworks or FRAMEWORKS:
            print(f"{framework:34}{'its own':>12}{'moorage':>12}{'ratio':>8}")
            place = folder / framework
            place.mkdir()
            if framework == LANGGRAPH:
                _show_langgraph(place, options)
            else:
                _show_peer(framework, place, options)
    return 0


def _show_langgraph(folder: Path, options: argparse.Namespace) -> None:
    for size in options.sizes:
        _show_conversation(folder / str(size), size, options.rounds)
    _show(f"list 50 of {options.many}", _lists(folder / "list", options.many, options.rounds))
    _show("four processes, 25 turns each", _races(folder / "race", options.rounds))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.adapters", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="N", help="messages of history")
    parser.add_argument("--many", type=int, default=20_000, metavar="N", help="checkpoints or sessions to list 50 of")
    parser.add_argument("--unsynced", action="store_true", help="do not make the files of frameworks wait for the disk")
    parser.add_argument("frameworks", nargs="*", choices=FRAMEWORKS, metavar="FRAMEWORK", help="all, if none is named")
    return parser


@contextmanager
def _folder() -> Iterator[Path]:
    folder = RUNS / f"adapters-{time.time_ns()}"
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _show(name: str, figures: dict[str, list[float]], unit: str = "ms", scale: float = 1000) -> None:
    ours = statistics.median(figures["ours"]) * scale
    if "theirs" not in figures:
        print(f"{name:34}{'-':>12}{ours:9.2f} {unit}{'-':>8}", flush=True)
        return
    theirs = statistics.median(figures["theirs"]) * scale
    print(f"{name:34}{theirs:9.2f} {unit}{ours:9.2f} {unit}{ours / theirs:8.2f}", flush=True)


# Savers ---------------------------------------------------------------------------------------------


@contextmanager
def theirs(path: Path) -> Iterator[Any]:
    """LangGraph's own saver."""
    from langgraph.checkpoint.sqlite import SqliteSaver

    with SqliteSaver.from_conn_string(str(path)) as saver:
        saver.setup()
        saver.conn.execute("PRAGMA synchronous = FULL")
        yield saver


@contextmanager
def ours(path: Path) -> Iterator[Any]:
    """MoorageSaver."""
    from moorage.adapters.langgraph import MoorageSaver

    with MoorageSaver(f"sqlite:///{path}") as saver:
        yield saver


SAVERS: Savers = {"theirs": theirs, "ours": ours}


class Conversation:
    """One thread, put as a graph with one node does."""

    def __init__(self, saver: Any, thread: str = "t") -> None:
        self._saver, self._start = saver, {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        self._config, self._version = self._start, None
        self.messages: list[Any] = []

    def fill(self, count: int) -> None:
        """Store a history at once."""
        self.messages = [self._message(number) for number in range(count)]
        self._put()

    def load(self) -> None:
        """Read the newest checkpoint, and go on from it."""
        found = self._saver.get_tuple(self._start)
        self.messages, self._config = found.checkpoint["channel_values"]["messages"], found.config

    def turn(self) -> None:
        """Store a question and its answer."""
        for _ in range(2):
            self.messages = [*self.messages, self._message(len(self.messages))]
            self._put()

    def _message(self, number: int) -> Any:
        from langchain_core.messages import AIMessage, HumanMessage

        kind = HumanMessage if number % 2 == 0 else AIMessage
        return kind(content=f"{number} " + "lorem ipsum " * 16, id=f"message-{number}")

    def _put(self) -> None:
        from langgraph.checkpoint.base import empty_checkpoint

        self._version = self._saver.get_next_version(self._version, None)
        checkpoint, versions = empty_checkpoint(), {"messages": self._version}
        checkpoint["channel_values"], checkpoint["channel_versions"] = {"messages": self.messages}, versions
        self._config = self._saver.put(self._config, checkpoint, {"source": "loop", "step": 1, "parents": {}}, versions)


# Works ----------------------------------------------------------------------------------------------


def _timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _show_conversation(folder: Path, size: int, rounds: int) -> None:
    turns, loads, grown = ({name: [] for name in SAVERS} for _ in range(3))
    for number in range(rounds):
        for name in _order(number):
            place = folder / f"{number}-{name}"
            place.mkdir(parents=True)
            file = place / "bench.db"
            with SAVERS[name](file) as saver:
                Conversation(saver).fill(size)
            before = _size(place)
            with SAVERS[name](file) as saver:
                conversation = Conversation(saver)
                conversation.load()  # the first one reads from the disk
                loads[name].append(_timed(conversation.load))
                turns[name].append(statistics.median([_timed(conversation.turn) for _ in range(TURNS)]))
            grown[name].append((_size(place) - before) / TURNS)
    _show(f"turn at {size} messages", turns)
    _show(f"load of {size} messages", loads)
    _show(f"bytes of a turn at {size} messages", grown, "kB", 1 / 1000)


def _order(number: int) -> list[str]:
    return list(SAVERS) if number % 2 == 0 else list(SAVERS)[::-1]


def _size(folder: Path) -> int:
    """Return how much of a database is in use."""
    db = apsw.Connection(str(folder / "bench.db"))
    pages, free, size = (db.pragma(name) for name in ("page_count", "freelist_count", "page_size"))
    db.close()
    return int((pages - free) * size)


def _lists(folder: Path, count: int, rounds: int) -> dict[str, list[float]]:
    folder.mkdir()
    figures: dict[str, list[float]] = {name: [] for name in SAVERS}
    for name in SAVERS:
        with SAVERS[name](folder / f"{name}.db") as saver:
            conversation = Conversation(saver)
            for _ in range(count // 2):
                conversation.messages = conversation.messages[-1:]
                conversation.turn()
    for number in range(rounds):
        for name in _order(number):
            with SAVERS[name](folder / f"{name}.db") as saver:
                start = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
                listing = lambda it=saver, at=start: list(it.list(at, limit=LISTED))  # noqa: E731
                listing()  # the first one opens the file, as the first load of a conversation does
                figures[name].append(_timed(listing))
    return figures


def _races(folder: Path, rounds: int) -> dict[str, list[float]]:
    folder.mkdir()
    figures: dict[str, list[float]] = {name: [] for name in SAVERS}
    for number in range(rounds):
        for name in _order(number):
            file = folder / f"{number}-{name}.db"
            with SAVERS[name](file) as saver:
                Conversation(saver).fill(10)
            figures[name].append(max(_race(name, file)))
    return figures


def _race(name: str, file: Path) -> list[float]:
    return _together(_write, [(name, file, f"thread-{number}") for number in range(WRITERS)])


def _together(write: Callable[..., float], arguments: Sequence[tuple[Any, ...]]) -> list[float]:
    """Run writers in processes of their own. They have opened the file and written once before the first one begins."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(len(arguments), _set_start, (context.Barrier(len(arguments)),)) as pool:
        return pool.starmap(write, arguments, chunksize=1)


def _set_start(barrier: Any) -> None:
    global _start
    _start = barrier


def _write(name: str, file: Path, thread: str) -> float:
    with SAVERS[name](file) as saver:
        conversation = Conversation(saver, thread)
        conversation.turn()
        _start.wait()
        return _timed(lambda: [conversation.turn() for _ in range(25)])


# Other frameworks -----------------------------------------------------------------------------------


def _show_peer(framework: str, folder: Path, options: argparse.Namespace) -> None:
    stores = PEERS[framework]
    for size in options.sizes:
        turns, loads = ({name: [] for name in stores} for _ in range(2))
        for number in range(options.rounds):
            for name in list(stores)[:: 1 if number % 2 else -1]:
                turn, load = asyncio.run(_conversation(stores[name], folder / f"{size}-{number}-{name}", size))
                turns[name].append(turn)
                loads[name].append(load)
        _show(f"turn at {size} messages", turns)
        _show(f"load of {size} messages", loads)
    listed = {name: asyncio.run(_listing(stores[name], folder / name, options)) for name in stores}
    _show(f"list 50 of {options.many}", listed)
    _show("four processes, 25 turns each", _peer_races(framework, folder / "race", options.rounds))


async def _conversation(opened: Opened, path: Path, size: int) -> tuple[float, float]:
    peer = opened(path)
    await peer.open()
    await peer.fill(size)
    await peer.turn()
    await peer.load()
    turns = [await _taken(peer.turn) for _ in range(TURNS)]
    loads = [await _taken(peer.load) for _ in range(3)]
    await peer.close()
    return statistics.median(turns), statistics.median(loads)


async def _listing(opened: Opened, path: Path, options: argparse.Namespace) -> list[float]:
    peer = opened(path)
    await peer.open()
    for number in range(options.many):
        await peer.add_other(number)
    await peer.list()
    taken = [await _taken(peer.list) for _ in range(options.rounds)]
    await peer.close()
    return taken


async def _taken(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


def _peer_races(framework: str, folder: Path, rounds: int) -> dict[str, list[float]]:
    """Four processes write to one file, each in a session of its own. They begin together."""
    folder.mkdir()
    figures: dict[str, list[float]] = {name: [] for name in PEERS[framework]}
    for number in range(rounds):
        for name in figures:
            file = folder / f"{number}-{name}"
            asyncio.run(_opened_once(framework, name, file))
            figures[name].append(max(_together(_write_peer, [(framework, name, file)] * WRITERS)))
    return figures


async def _opened_once(framework: str, name: str, file: Path) -> None:
    peer = PEERS[framework][name](file)
    await peer.open()
    await peer.fill(10)
    await peer.close()


def _write_peer(framework: str, name: str, file: Path) -> float:
    async def write() -> float:
        peer = PEERS[framework][name](file)
        try:
            await peer.join()
            await peer.turn()
            await asyncio.to_thread(_start.wait)
            return await _taken(lambda: _turns(peer, 25))
        except Exception:
            _start.abort()
            if name == "ours":
                raise
            return math.inf  # a backend that several processes cannot share
        finally:
            await peer.close()

    return asyncio.run(write())


async def _turns(peer: Any, count: int) -> None:
    for _ in range(count):
        await peer.turn()


if __name__ == "__main__":
    sys.exit(main())
