"""Several processes on one file: nothing lost, nothing doubled, none refused; and processes that die any time."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import moorage
from moorage import sync
from moorage.core.entry import Entry
from moorage.testing.faults import Worker, race


def whole_log(moor: sync.Moorage, ref: str) -> list[Entry]:
    entries: list[Entry] = []
    while more := moor.log(ref, after=entries[-1].number if entries else 0, limit=1000).items:
        entries += more
    return entries


def assert_numbered_without_gaps(entries: list[Entry]) -> None:
    assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))


UPDATER = """
import sys
from moorage import sync
url, me, updates = sys.argv[1], sys.argv[2], int(sys.argv[3])
moor = sync.connect(url, by=me)
print("ready", flush=True)
sys.stdin.readline()
for count in range(updates):
    moor.update("s-1", metadata={me: count})
    if count % 10 == 0:
        moor.append("s-1", f"{me} {count}")
print("done")
"""


def test_eight_processes_of_five_hundred_updates_lose_and_double_nothing(url: str) -> None:
    with sync.connect(url) as moor:
        moor.create("agent", session_id="s-1")
        names = [f"process-{number}" for number in range(8)]

        answers = race(UPDATER, [(url, name, 500) for name in names], within=110)

        assert answers == [["done"]] * 8, "no error reached a caller"
        session, log = moor.get("s-1"), whole_log(moor, "s-1")
        assert session.metadata == dict.fromkeys(names, 499)
        assert session.version == 1 + 8 * 500
        assert_numbered_without_gaps(log)
        for name in names:
            updates = [
                entry.data["metadata"] for entry in log if entry.by == name and entry.kind == "metadata" and entry.data
            ]
            assert updates == [{name: count} for count in range(500)]
            said = [entry.content for entry in log if entry.by == name and entry.is_message]
            assert said == [f"{name} {count}" for count in range(0, 500, 10)]
        assert len(log) == 1 + 8 * 550
        assert moor.check() == []


OPENER = """
import sys
from moorage import sync
print("ready", flush=True)
sys.stdin.readline()
with sync.connect(sys.argv[1]) as moor:
    moor.create("agent", session_id=sys.argv[2])
    print(len(moor.list(limit=100)) >= 1)
"""


@pytest.mark.parametrize("attempt", range(4))
def test_first_opens_of_one_file_race_without_harm(tmp_path: Path, attempt: int) -> None:
    url = f"sqlite:///{tmp_path / 'fresh.db'}"
    names = [f"s-{number}" for number in range(8)]

    answers = race(OPENER, [(url, name) for name in names])

    assert answers == [["True"]] * 8
    with sync.connect(url) as moor:
        assert {session.id for session in moor.list()} == set(names)
        assert moor.check() == []


APPENDER = """
import sys
from moorage import sync
moor = sync.connect(sys.argv[1], by=sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for count in range(int(sys.argv[3])):
    moor.append("s-1", f"{sys.argv[2]} {count}")
"""


async def test_threads_tasks_and_processes_at_once_all_land_in_order(url: str) -> None:
    each = 60
    with sync.connect(url) as shared:
        shared.create("agent", session_id="s-1")

        def in_thread(me: str, moor: sync.Moorage) -> None:
            for count in range(each):
                moor.append("s-1", f"{me} {count}")

        async def in_task(me: str, moor: moorage.Moorage) -> None:
            for count in range(each):
                await moor.append("s-1", f"{me} {count}")

        threads = [threading.Thread(target=in_thread, args=(f"thread-{n}", shared)) for n in range(3)]
        processes = asyncio.to_thread(race, APPENDER, [(url, f"process-{n}", each) for n in range(3)])
        async with moorage.connect(url) as moor, asyncio.timeout(90):
            for thread in threads:
                thread.start()
            await asyncio.gather(processes, *(in_task(f"task-{n}", moor) for n in range(10)))
        for thread in threads:
            thread.join(60)

        log = whole_log(shared, "s-1")
        assert_numbered_without_gaps(log)
        by_writer: dict[str, list[str]] = {}
        for entry in log[1:]:
            writer, count = str(entry.content).split()
            by_writer.setdefault(writer, []).append(count)
        assert len(by_writer) == 16
        assert all(counts == list(map(str, range(each))) for counts in by_writer.values())
        assert shared.check() == []


# Death ------------------------------------------------------------------------------------------

MORTAL = """
import sys
from moorage import sync
moor = sync.connect(sys.argv[1])
print("ready", flush=True)
for count in range(int(sys.argv[2]), 10**9):
    moor.append("s-1", [f"{count}", f"{count}"])
    moor.update("s-1", metadata={"count": count})
    print(count, flush=True)
"""


def test_acknowledged_writes_survive_kill_9_at_any_moment(url: str) -> None:
    chance = random.Random(20260301)
    with sync.connect(url) as moor:
        moor.create("agent", session_id="s-1")
    acknowledged = -1
    for _ in range(20):
        with Worker(MORTAL, url, acknowledged + 1) as mortal:
            mortal.line()
            time.sleep(chance.uniform(0.0, 0.06))  # any moment is the right one to die
            said = [int(line) for line in mortal.kill()]
        acknowledged = max([acknowledged, *said])
        with sync.connect(url) as moor:
            assert moor.check() == []
            log = whole_log(moor, "s-1")
            assert_numbered_without_gaps(log)
            counts = Counter(str(entry.content) for entry in log if entry.is_message)
            kept = max(map(int, counts), default=-1)
            # One more than was acknowledged may be there: its writer died before it could say so.
            assert acknowledged <= kept <= acknowledged + 1
            assert counts == {str(count): 2 for count in range(kept + 1)}, "no half append, none lost, none doubled"
            assert moor.get("s-1").metadata.get("count", -1) in (kept - 1, kept)
            assert moor.get("s-1").last_entry == len(log)
            acknowledged = kept
            if moor.get("s-1").metadata.get("count", -1) < kept:
                moor.update("s-1", metadata={"count": kept})
    assert acknowledged > 20, "the writers got somewhere"


FAMILY = """
import sys
from moorage import sync
moor = sync.connect(sys.argv[1])
print("ready", flush=True)
for count in range(10**9):
    root = moor.create("agent").id
    child = moor.create("agent", parent=root).id
    moor.append(child, ["needle", "hay"])
    fork = moor.fork(child).id
    moor.search("needle")
    moor.delete(root)
    moor.delete(fork)
    print(count, flush=True)
"""


def test_trees_forks_and_deletions_are_whole_or_absent_after_kill_nine(url: str) -> None:
    chance = random.Random(7)
    for _ in range(15):
        with Worker(FAMILY, url) as mortal:
            mortal.line()
            mortal.line()
            time.sleep(chance.uniform(0.0, 0.05))
            mortal.kill()
        with sync.connect(url) as moor:
            assert moor.check() == []
            for session in moor.list(limit=100):
                assert_numbered_without_gaps(whole_log(moor, session.id))
                if session.parent_session_id is not None:
                    assert moor.get(session.parent_session_id).id == session.root_session_id
            found = {(hit.session_id, hit.number) for hit in moor.search("needle", limit=1000)}
            there = {
                (session.id, entry.number)
                for session in moor.list(limit=100)
                for entry in whole_log(moor, session.id)
                if entry.content == "needle"
            }
            assert found <= there
            moor.cleanup(0)


def test_dead_writer_releases_its_lock(url: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from moorage.testing.faults import write_lock

    is_waiting = threading.Event()

    def jitter() -> float:
        is_waiting.set()
        return 0.001

    monkeypatch.setattr("moorage.stores.sqlite.connection._jitter", jitter)
    with sync.connect(url) as moor:
        moor.create("agent", session_id="s-1")
        is_waiting.clear()
        with write_lock(path) as locker:
            told: list[Any] = []
            waiting = threading.Thread(target=lambda: told.append(moor.append("s-1", "patient")))
            waiting.start()
            assert is_waiting.wait(10)
            locker.kill()
            waiting.join(30)
            assert told[0][0].number == 2


def test_a_writer_that_is_stopped_in_the_middle_loses_nothing_when_it_goes_on(url: str) -> None:
    with sync.connect(url) as moor:
        moor.create("agent", session_id="s-1")
        with Worker(MORTAL, url, 0) as sleeper:
            sleeper.line()
            sleeper.line()
            sleeper.stop()
            assert_numbered_without_gaps(whole_log(moor, "s-1"))  # whatever it holds, it holds up no reader
            said = [int(line) for line in sleeper.heard()]
            sleeper.go_on()
            said.append(int(sleeper.line()))
            said += [int(line) for line in sleeper.kill()]
        counts = Counter(str(entry.content) for entry in whole_log(moor, "s-1") if entry.is_message)
        assert set(counts.values()) == {2}
        assert all(str(count) in counts for count in said)


FOLLOWED_BY_OTHERS = """
import asyncio, os, subprocess, sys
import moorage

VISITOR = '''
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("SELECT count(*) FROM entries").fetchone()
db.close()
'''

async def main(path):
    moor = moorage.connect(f"sqlite:///{path}")
    await moor.create("agent", session_id="s-1")
    await moor.get("s-1")  # a second connection of this process
    for number in range(30):
        if number % 10 == 0:
            subprocess.run([sys.executable, "-c", VISITOR, path], check=True)
        (entry,) = await moor.append("s-1", f"m{number}")
    print(entry.number, flush=True)
    os.kill(os.getpid(), 9)

asyncio.run(main(sys.argv[1]))
"""


def test_another_program_that_opens_and_closes_the_file_takes_nothing_away(path: Path, url: str) -> None:
    """A file closed within our process drops SQLite's locks, and the next process that closes it deletes the log."""
    with Worker(FOLLOWED_BY_OTHERS, path) as worker:
        assert worker.line() == "31"
    with sync.connect(url) as moor:
        assert moor.get("s-1").last_entry == 31
        assert moor.check() == []
