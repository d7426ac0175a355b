"""A session of 100,000 messages costs what one of 2,000 does to page, to stream and to look at through a window.

Counted, not timed: the steps that SQLite takes for each, and the rows it hands over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import apsw
import pytest

from moorage import sync
from moorage.client import LocalMoorage, OpenStore
from moorage.core.entry import Entry
from moorage.service.deps import Caller, Deps, Settings
from moorage.service.inline import drive
from moorage.stores.sqlite.store import SqliteStore
from moorage.testing.builders import FakeClock

SHORT, LONG = 2_000, 100_000
AT_ONCE = 1_000
ROWS = 1_100  # what one statement may hand over, whatever the length of the log


class Meter:
    """Counts the work of SQLite."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db, self.steps, self.rows, self.most_rows = db, 0, 0, 0

    @contextmanager
    def running(self) -> Iterator[Meter]:
        self.steps = self.rows = self.most_rows = 0
        self._db.trace_v2(apsw.SQLITE_TRACE_PROFILE | apsw.SQLITE_TRACE_ROW, self._count)
        try:
            yield self
        finally:
            self._db.trace_v2(0, None)

    def _count(self, event: dict[str, Any]) -> None:
        if event["code"] == apsw.SQLITE_TRACE_ROW:
            self.rows += 1
        else:
            self.steps += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]
            self.most_rows, self.rows = max(self.most_rows, self.rows), 0


class Bench:
    """A short session and a long one, alike in everything else."""

    def __init__(self, folder: Path) -> None:
        self.store = SqliteStore.open(folder / "long.db")
        clock = FakeClock()
        deps = Deps(self.store, clock, lambda size: b"\1" * size, Settings())
        self.moor = sync.Moorage(LocalMoorage(OpenStore(lambda: deps, threaded=False), Caller(by="ann", holder="ann")))
        inline: Any = self.store._access
        self.meter = Meter(inline._db.raw)
        for ref, size in (("short", SHORT), ("long", LONG)):
            self.moor.create(session_id=ref)
            self.moor.append(ref, {"role": "system", "content": "Be brief."})
            for start in range(0, size, AT_ONCE):
                self.moor.append(ref, _talk(start, min(AT_ONCE, size - start)))

    def cost(self, deed: Callable[[], Any]) -> int:
        with self.meter.running():
            deed()
        return self.meter.steps


def _talk(start: int, count: int) -> list[dict[str, Any]]:
    """Words, and a call with its result now and then."""
    said: list[dict[str, Any]] = []
    for number in range(start, start + count, 4):
        call = [{"type": "tool_call", "id": f"c-{number}", "name": "look", "input": {"n": number}}]
        result = [{"type": "tool_result", "call_id": f"c-{number}", "output": "seen"}]
        said += [{"role": "user", "content": f"word {number}"}, {"role": "assistant", "content": call}]
        said += [{"role": "tool", "content": result}, {"role": "assistant", "content": "done"}]
    return said


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("long"))
    yield made
    drive(made.store.close())


Read = Callable[[sync.Moorage, str, int], Any]
READS: dict[str, Read] = {
    "the last 20": lambda moor, ref, middle: moor.messages(ref, last=20),
    "the last 10 turns": lambda moor, ref, middle: moor.messages(ref, turns=10),
    "2,000 tokens": lambda moor, ref, middle: moor.messages(ref, tokens=2_000),
    "8,000 bytes": lambda moor, ref, middle: moor.messages(ref, max_bytes=8_000),
    "an older window": lambda moor, ref, middle: moor.messages(ref, tokens=2_000, before=middle),
    "the session with its last": lambda moor, ref, middle: moor.get(ref, messages=20),
    "the newest page": lambda moor, ref, middle: moor.messages(ref, limit=50),
    "a page before": lambda moor, ref, middle: moor.messages(ref, before=middle, limit=50),
    "a page after": lambda moor, ref, middle: moor.messages(ref, after=middle, limit=50),
    "a page of the log": lambda moor, ref, middle: moor.log(ref, after=middle, limit=50),
    "what seldom happens": lambda moor, ref, middle: moor.log(ref, after=middle, kinds=("summary", "phase", "created")),
    "the beginning of a stream": lambda moor, ref, middle: list(islice(moor.events(ref, follow=False), 50)),
    "a stream from a cursor": lambda moor, ref, middle: list(islice(moor.events(ref, after=middle, follow=False), 50)),
}


@pytest.mark.parametrize("name", READS)
def test_reading_a_page_costs_the_same_in_a_long_session(bench: Bench, name: str) -> None:
    read = READS[name]
    short = bench.cost(lambda: read(bench.moor, "short", SHORT // 2))
    long = bench.cost(lambda: read(bench.moor, "long", LONG // 2))
    assert long <= 1.2 * short, f"{long} steps instead of {short}"
    assert bench.meter.most_rows <= ROWS


def test_a_fork_and_a_summary_make_it_no_dearer(bench: Bench) -> None:
    costs = {}
    for ref, size in (("short", SHORT), ("long", LONG)):
        bench.moor.fork(ref, at=size // 2, session_id=f"{ref}-fork")
        bench.moor.append(f"{ref}-fork", "elsewhere")
        alone = bench.cost(lambda ref=ref: bench.moor.messages(f"{ref}-fork", last=20))  # type: ignore[misc]
        summing = bench.cost(lambda ref=ref: bench.moor.compact(f"{ref}-fork", "so far"))  # type: ignore[misc]
        after = bench.cost(lambda ref=ref: bench.moor.messages(f"{ref}-fork", last=20))  # type: ignore[misc]
        costs[ref] = (alone, summing, after)
    assert all(long <= 1.2 * short for short, long in zip(costs["short"], costs["long"], strict=True)), costs


def test_resuming_costs_the_same_in_a_long_session(bench: Bench) -> None:
    costs = {}
    for ref in ("short", "long"):
        packets: list[Any] = []
        costs[ref] = bench.cost(lambda ref=ref, packets=packets: packets.append(bench.moor.resume(ref)))  # type: ignore[misc]
        bench.moor.release(ref, token=packets[0].hold.token)
        assert len(packets[0].messages) <= 60
    assert costs["long"] <= 1.2 * costs["short"], costs


def test_all_of_a_long_session_is_streamed_without_being_held(bench: Bench) -> None:
    with bench.meter.running() as meter:
        count = sum(1 for _ in bench.moor.export("long"))
    assert count >= LONG
    assert meter.most_rows <= ROWS


def test_the_rows_are_counted_at_all(bench: Bench) -> None:
    with bench.meter.running() as meter:
        bench.moor.log("long", limit=1_000)
    assert 1_000 <= meter.most_rows <= ROWS


def test_custom_counter_decides_the_window(bench: Bench) -> None:
    def one_each(_: Entry) -> int:
        return 1

    page = bench.moor.messages("long", tokens=30, count_tokens=one_each)
    assert 26 <= len(page.items) <= 30, "the system message is paid for, and no pair is parted"
    with bench.meter.running() as meter:
        bench.moor.messages("long", tokens=30, count_tokens=one_each)
    assert meter.most_rows <= ROWS
