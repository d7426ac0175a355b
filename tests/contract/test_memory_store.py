"""The in-memory store keeps the contract, with and without an event loop, from any thread."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from moorage.ports import Store
from moorage.stores.memory.store import MemoryStore
from moorage.testing.builders import OWNER, a_session, a_stamp, drive, said, updated, whole_feed
from moorage.testing.contract import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


def test_no_rule_of_the_contract_hides_another() -> None:
    rules = [name for part in StoreContract.__mro__ for name in vars(part) if name.startswith("test_")]

    assert sorted(rules) == sorted(set(rules))
    assert len(rules) > 200


def test_coroutines_are_driven_to_their_end_without_an_event_loop() -> None:
    store = MemoryStore()
    drive(store.create(OWNER, a_session("s-1")))

    assert drive(store.get(OWNER, "s-1")).session_id == "s-1"
    drive(store.close())


def test_wait_without_an_event_loop_ends_when_time_is_up() -> None:
    store = MemoryStore()

    assert drive(store.wait(store.pulse(), 0.01)) == store.pulse()


def test_wait_without_an_event_loop_ends_when_another_thread_commits() -> None:
    store = MemoryStore()
    seen = store.pulse()
    writer = threading.Timer(0.05, lambda: drive(store.create(OWNER, a_session("s-1"))))
    writer.start()
    began = time.monotonic()

    assert drive(store.wait(seen, 60)) != seen
    assert time.monotonic() - began < 30
    writer.join()


async def test_wait_in_an_event_loop_ends_when_another_thread_commits() -> None:
    store = MemoryStore()
    seen = store.pulse()
    writer = threading.Timer(0.05, lambda: drive(store.create(OWNER, a_session("s-1"))))
    writer.start()

    assert await store.wait(seen, 30) != seen
    writer.join()


def test_writes_from_many_threads_all_land() -> None:
    store = MemoryStore()
    drive(store.create(OWNER, a_session("s-1")))

    def write() -> None:
        for n in range(50):
            drive(store.append(OWNER, "s-1", said(str(n)), a_stamp()))
            drive(store.apply(OWNER, "s-1", updated(error=str(n))))

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    session = drive(store.get(OWNER, "s-1"))
    assert (session.last_entry, session.error_count, session.version) == (801, 400, 401)
    assert [event.id for event in drive(whole_feed(store))] == list(range(1, 802))


def test_asyncio_is_not_imported_for_those_who_do_not_use_it() -> None:
    code = (
        "import sys\n"
        "from moorage.stores.memory.store import MemoryStore\n"
        "store = MemoryStore()\n"
        "try:\n"
        "    store.wait(store.pulse(), 0).send(None)\n"
        "except StopIteration:\n"
        "    sys.exit('asyncio' in sys.modules)\n"
        "sys.exit('it suspended')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
