"""A database in memory keeps the contract, with and without an event loop, from any thread."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest

from moorage import sync
from moorage.core.errors import StoreUnavailable
from moorage.ports import Store
from moorage.stores.sqlite.store import SqliteStore
from moorage.testing.builders import OWNER, a_session, a_stamp, drive, said, updated, whole_feed
from moorage.testing.contract.feed import FeedRules
from moorage.testing.contract.records import RecordRules
from tests.contract.choice import unless_all


class RulesOfMemory(FeedRules, RecordRules):
    """The rules of commits and of waiting for them: the rest is the code of a file."""


class TestMemoryStore(unless_all(RulesOfMemory)):  # type: ignore[misc]
    @pytest.fixture
    def store(self) -> Store:
        return SqliteStore.in_memory()


def test_coroutines_are_driven_to_their_end_without_an_event_loop() -> None:
    store = SqliteStore.in_memory()
    drive(store.create(OWNER, a_session("s-1")))

    assert drive(store.get(OWNER, "s-1")).session_id == "s-1"
    drive(store.close())


def test_wait_without_an_event_loop_ends_when_time_is_up() -> None:
    store = SqliteStore.in_memory()

    assert drive(store.wait(store.pulse(), 0.01)) == store.pulse()


def test_wait_without_an_event_loop_ends_when_another_thread_commits() -> None:
    store = SqliteStore.in_memory()
    seen = store.pulse()
    writer = threading.Timer(0.05, lambda: drive(store.create(OWNER, a_session("s-1"))))
    writer.start()
    began = time.monotonic()

    assert drive(store.wait(seen, 60)) != seen
    assert time.monotonic() - began < 30
    writer.join()


async def test_wait_in_an_event_loop_ends_when_another_thread_commits() -> None:
    store = SqliteStore.in_memory()
    seen = store.pulse()
    writer = threading.Timer(0.05, lambda: drive(store.create(OWNER, a_session("s-1"))))
    writer.start()

    assert await store.wait(seen, 30) != seen
    writer.join()


def test_writes_from_many_threads_all_land() -> None:
    store = SqliteStore.in_memory()
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
        "from moorage.stores.sqlite.store import SqliteStore\n"
        "store = SqliteStore.in_memory()\n"
        "try:\n"
        "    store.wait(store.pulse(), 0).send(None)\n"
        "except StopIteration:\n"
        "    sys.exit('asyncio' in sys.modules)\n"
        "sys.exit('it suspended')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only Unix has forks")
def test_forked_child_has_to_connect_again_and_begins_anew() -> None:
    moor = sync.connect("memory://before-the-fork")
    moor.create(session_id="s-1")
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            with pytest.raises(StoreUnavailable, match="forked"):
                moor.get("s-1")
            with sync.connect("memory://before-the-fork") as again:
                os._exit(len(again.list().items))
        os._exit(9)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert moor.get("s-1").id == "s-1"
