"""The sweeper, on a real event loop and a real file: it goes on whatever happens, and says what went."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from moorage.core.errors import SessionCorrupt
from moorage.core.once import OnceKey
from moorage.core.policy import RetentionPolicy
from moorage.core.session import Stamp
from moorage.ports import Sweep
from moorage.service.deps import Caller, Deps, Settings
from moorage.service.retention import cleanup
from moorage.service.sweeper import Sweeper
from moorage.stores.sqlite.store import SqliteStore, prepared
from moorage.stores.sqlite.threads import Threaded
from moorage.testing.builders import NOON, OWNER, FakeClock, a_session, all_sessions, all_tombstones, finalized, said

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
LATER = NOON + 2 * DAY
SWEEPER = Caller(owner=OWNER, by="sweeper", interface="server")
LOG = "moorage.service.sweeper"


class Pauses:
    """In the place of time: tells how long the sweeper wants to wait, and ends the wait when the test says so."""

    def __init__(self) -> None:
        self._asked: asyncio.Queue[float] = asyncio.Queue()
        self._answers: asyncio.Queue[bool] = asyncio.Queue()

    async def __call__(self, seconds: float) -> bool:
        await self._asked.put(seconds)
        return await self._answers.get()

    async def asked(self) -> float:
        """Once the sweeper waits: for how many seconds."""
        async with asyncio.timeout(30):
            return await self._asked.get()

    def over(self, *, stop: bool = False) -> None:
        """End the wait."""
        self._answers.put_nowait(stop)


class Impatient(SqliteStore):
    """A store that does not wait for others' locks, and counts how many sweeps it is asked for at once."""

    now = most = 0

    @classmethod
    def at(cls, path: Path) -> Impatient:
        db = prepared(path)
        db.raw.set_busy_handler(None)
        return cls(Threaded(db))

    async def sweep(self, *args: Any, **options: Any) -> Sweep:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await super().sweep(*args, **options)
        finally:
            self.now -= 1


class Place:
    """A file with a server on it: a store, a clock, and a sweeper that a test can stop."""

    def __init__(self, path: Path, policy: RetentionPolicy, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self.store = Impatient.at(path)
        self.clock = FakeClock(LATER)
        self.deps = Deps(self.store, self.clock, entropy, Settings(retention=policy))
        self.stop, self.pauses = asyncio.Event(), Pauses()
        self.sweeper = Sweeper(self.deps, SWEEPER, self.stop, pause=self.pauses)

    async def fill(
        self, count: int, prefix: str = "s", *, owner: str = OWNER, outcome: str | None = "completed", **fields: Any
    ) -> None:
        """Sessions with that outcome; open ones without."""
        for number in range(count):
            await self.store.create(owner, a_session(f"{prefix}-{number}", owner=owner, **fields))
            if outcome is not None:
                await self.store.apply(owner, f"{prefix}-{number}", finalized(outcome, fields.get("at", NOON)))

    async def ids(self) -> set[str]:
        return {session.session_id for session in await all_sessions(self.store)}


Opening = Callable[..., Place]


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opening]:
    async with AsyncExitStack() as closing:

        def open_place(policy: RetentionPolicy | None = None, **options: Any) -> Place:
            place = Place(tmp_path / "moorage.db", policy or RetentionPolicy(), **options)
            closing.push_async_callback(place.store.close)
            return place

        yield open_place


@asynccontextmanager
async def running(place: Place) -> AsyncIterator[asyncio.Task[None]]:
    """The sweeper at work, waiting for the first time; stopped in the end."""
    task = asyncio.create_task(place.sweeper.run())
    try:
        yield task
        place.pauses.over(stop=True)
        async with asyncio.timeout(30):
            await task
    finally:
        task.cancel()


@pytest.fixture(autouse=True)
def every_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, LOG)


def told(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOG and record.levelno == level]


# When -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chance", "first", "then"),
    [(b"\0\0\0\0", 0.0, 3240.0), (b"\x80\0\0\0", 30.0, 3600.0), (b"\xff\xff\xff\xff", 60.0, 3960.0)],
)
async def test_the_first_sweep_comes_within_a_minute_the_others_about_every_hour(
    opened: Opening, chance: bytes, first: float, then: float
) -> None:
    place = opened(entropy=lambda _: chance)
    await place.fill(1)
    async with running(place):
        assert await place.pauses.asked() == pytest.approx(first, abs=0.001)
        assert await place.ids() == {"s-0"}  # it has waited first
        for _ in range(3):
            place.pauses.over()
            assert await place.pauses.asked() == pytest.approx(then, abs=0.001)
            assert await place.ids() == set()


async def test_next_sweep_deletes_sessions_that_became_old(opened: Opening) -> None:
    place = opened()
    await place.fill(1, at=LATER)
    async with running(place):
        await place.pauses.asked()
        place.pauses.over()
        await place.pauses.asked()
        assert await place.ids() == {"s-0"}
        place.clock.forward(DAY + HOUR)
        place.pauses.over()
        await place.pauses.asked()
        assert await place.ids() == set()


async def test_never_switches_it_off(opened: Opening, caplog: pytest.LogCaptureFixture) -> None:
    place = opened(RetentionPolicy(every=None))
    await place.fill(1)
    async with asyncio.timeout(30):
        await place.sweeper.run()
    assert await place.ids() == {"s-0"}
    assert told(caplog, logging.INFO) == ["no cleanup: retention.every is never"]


async def test_without_a_test_to_end_its_waits_it_waits_by_itself(opened: Opening) -> None:
    place = opened(RetentionPolicy(every=timedelta(milliseconds=5)))
    await place.fill(1)
    sweeper = Sweeper(place.deps, SWEEPER, place.stop)
    task = asyncio.create_task(sweeper.run())
    async with asyncio.timeout(30):
        await gone_by_itself(place.store)
        await place.fill(1, "again")
        await gone_by_itself(place.store)
        place.stop.set()
        await task


async def gone_by_itself(store: SqliteStore) -> None:
    """Wait until the store is empty, looking whenever something was committed."""
    while True:
        pulse = store.pulse()
        if not await all_sessions(store):
            return
        await store.wait(pulse, 30)


# Log lines --------------------------------------------------------------------------------------


async def test_sweep_logs_a_warning_with_count_and_reasons(opened: Opening, caplog: pytest.LogCaptureFixture) -> None:
    place = opened(RetentionPolicy(ages={"failed": HOUR}))
    await place.fill(3, "idle")
    await place.fill(2, "failed", outcome="failed")
    await place.fill(1, "brief", outcome=None, expires_at=NOON + HOUR)
    await place.fill(4, "young", at=LATER)

    gone = await place.sweeper.sweep()

    assert gone == {"retention (retention.age)": 3, "retention (retention.ages.failed)": 2, "expired (ttl)": 1}
    assert told(caplog, logging.WARNING) == [
        "cleanup deleted 6 sessions of ann: 3 retention (retention.age), 2 retention (retention.ages.failed), "
        "1 expired (ttl)"
    ]
    assert {tombstone.deleted_by for tombstone in await all_tombstones(place.store)} == {"sweeper"}
    assert len(await place.ids()) == 4


async def test_nothing_to_do_is_not_worth_a_warning(opened: Opening, caplog: pytest.LogCaptureFixture) -> None:
    place = opened()
    await place.fill(2, at=LATER)
    assert not await place.sweeper.sweep()
    assert told(caplog, logging.WARNING) == []


# Whose, and which -------------------------------------------------------------------------------


async def test_all_owners_are_served(opened: Opening, caplog: pytest.LogCaptureFixture) -> None:
    place = opened()
    await place.fill(2)
    await place.fill(3, owner="bob")
    await place.fill(1, "young", owner="bob", at=LATER)

    assert await place.sweeper.sweep() == {"retention (retention.age)": 5}

    assert told(caplog, logging.WARNING) == [
        "cleanup deleted 2 sessions of ann: 2 retention (retention.age)",
        "cleanup deleted 3 sessions of bob: 3 retention (retention.age)",
    ]
    assert [session.session_id for session in await all_sessions(place.store, "bob")] == ["young-0"]
    assert {tombstone.deleted_by for tombstone in await all_tombstones(place.store, "bob")} == {"sweeper"}


async def test_failure_of_one_owner_does_not_block_others(opened: Opening) -> None:
    place = opened()
    for owner in ("ann", "bob", "eve"):
        await place.fill(1, owner=owner)
    whole = place.store.sweep

    async def failing_for_bob(owner: str, *args: Any, **options: Any) -> Sweep:
        if owner == "bob":
            raise SessionCorrupt("s-0", "torn")
        return await whole(owner, *args, **options)

    place.store.sweep = failing_for_bob  # type: ignore[method-assign]
    with pytest.raises(SessionCorrupt):
        await place.sweeper.sweep()
    assert await place.store.owners() == ["bob"]


async def test_by_itself_it_leaves_open_sessions_alone(opened: Opening) -> None:
    place = opened()
    await place.fill(1, "created", outcome=None)
    await place.fill(2, "open", outcome=None)
    await place.store.apply(OWNER, "open-0", lambda view: view.session.suspend(Stamp(NOON)))
    await place.store.append(OWNER, "open-1", said("hello"), Stamp(NOON))
    for outcome in ("completed", "failed", "abandoned"):
        await place.fill(1, outcome, outcome=outcome)
    place.clock.forward(400 * DAY)

    assert (await place.sweeper.sweep()).total() == 3
    assert await place.ids() == {"created-0", "open-0", "open-1"}

    asked_for = await cleanup(place.deps, SWEEPER)
    assert set(asked_for.session_ids) == {"created-0", "open-0", "open-1"}


async def test_by_itself_it_takes_open_sessions_in_a_state_that_the_policy_names(opened: Opening) -> None:
    place = opened(RetentionPolicy(ages={"created": HOUR, "suspended": None}))
    await place.fill(1, "created", outcome=None)
    await place.fill(1, "open", outcome=None)
    await place.store.apply(OWNER, "open-0", lambda view: view.session.suspend(Stamp(NOON)))

    assert await place.sweeper.sweep() == {"retention (retention.ages.created)": 1}
    assert await place.ids() == {"open-0"}


async def test_an_open_child_keeps_its_closed_parent(opened: Opening) -> None:
    place = opened()
    await place.store.create(OWNER, a_session("parent"))
    await place.store.create(OWNER, a_session("child"), parent="parent")
    await place.store.apply(OWNER, "parent", finalized())

    assert not await place.sweeper.sweep()
    await place.store.apply(OWNER, "child", finalized())
    assert (await place.sweeper.sweep()).total() == 2


async def test_requests_that_no_longer_count_are_forgotten(opened: Opening) -> None:
    place = opened()
    for number in range(3):
        await place.store.create(
            OWNER,
            lambda birth, n=number: OnceKey("create", f"k-{n}", "d").on(  # type: ignore[misc]
                a_session(f"s-{n}", at=LATER)(birth), f"s-{n}", NOON if n else LATER
            ),
        )

    await place.sweeper.sweep()

    kept = [await place.store.once(OWNER, "create", f"k-{number}", NOON) for number in range(3)]
    assert [one is not None for one in kept] == [True, False, False]


# Failures ---------------------------------------------------------------------------------------


@asynccontextmanager
async def locked(path: Path) -> AsyncIterator[None]:
    """Lock the file from another connection."""
    db = apsw.Connection(str(path))
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        db.close()


async def test_a_failure_is_logged_and_tried_again_ever_later_and_then_all_is_well(
    opened: Opening, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = opened(RetentionPolicy(every=timedelta(seconds=60)), entropy=lambda _: b"\x80\0\0\0")
    await place.fill(1)
    waits = []
    async with running(place):
        await place.pauses.asked()
        async with locked(tmp_path / "moorage.db"):
            for _ in range(5):
                place.pauses.over()
                waits.append(await place.pauses.asked())
            assert place.sweeper.failures == 5
        place.pauses.over()
        assert await place.pauses.asked() == 60
        assert place.sweeper.failures == 0
    assert waits == [10, 20, 40, 60, 60]
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.exc_info for record in errors] == [None] * 5
    assert errors[1].getMessage().startswith("cleanup failed (2 in a row), again in 0:00:20: ")
    assert "moorage.db" in errors[1].getMessage()
    assert told(caplog, logging.WARNING) == [
        "cleanup deleted 1 session of ann: 1 retention (retention.age)",
        "cleanup works again, after 5 failures",
    ]
    assert await place.ids() == set()


class Stopped(FakeClock):
    """A clock that broke."""

    def now(self) -> datetime:
        raise ZeroDivisionError("the clock has no hands")


async def test_even_a_bug_does_not_end_it_and_is_shown_with_its_trace(
    opened: Opening, caplog: pytest.LogCaptureFixture
) -> None:
    place = opened()
    await place.fill(1)
    async with running(place):
        await place.pauses.asked()
        place.deps.clock = Stopped()
        place.pauses.over()
        await place.pauses.asked()
        (error,) = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert error.exc_info is not None
        assert error.exc_info[0] is ZeroDivisionError
        place.deps.clock = place.clock
        place.pauses.over()
        await place.pauses.asked()
        assert await place.ids() == set()


async def test_deletions_before_a_failure_are_logged(opened: Opening, caplog: pytest.LogCaptureFixture) -> None:
    place = opened()
    await place.fill(60)
    whole = place.store.sweep
    calls = 0

    async def failing_later(*args: Any, **options: Any) -> Sweep:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError("the disk is gone")
        return await whole(*args, **options)

    place.store.sweep = failing_later  # type: ignore[method-assign]
    with pytest.raises(OSError, match="disk"):
        await place.sweeper.sweep()
    assert told(caplog, logging.WARNING) == ["cleanup deleted 50 sessions of ann: 50 retention (retention.age)"]
    assert len(await place.ids()) == 10


async def test_it_never_dies_in_silence(opened: Opening, caplog: pytest.LogCaptureFixture) -> None:
    place = opened()

    async def broken(_: float) -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await Sweeper(place.deps, SWEEPER, place.stop, pause=broken).run()
    assert told(caplog, logging.CRITICAL) == ["the cleanup has ended, and will not come back"]


# Stopping ---------------------------------------------------------------------------------------


async def test_it_stops_while_it_waits(opened: Opening, caplog: pytest.LogCaptureFixture) -> None:
    place = opened(entropy=lambda _: b"\xff\xff\xff\xff")  # a whole minute
    await place.fill(1)
    task = asyncio.create_task(Sweeper(place.deps, SWEEPER, place.stop).run())
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        place.stop.set()
        await task
    assert await place.ids() == {"s-0"}
    assert told(caplog, logging.ERROR) == []


async def test_sweeper_stops_between_steps_and_logs_its_deletions(
    opened: Opening, caplog: pytest.LogCaptureFixture
) -> None:
    place = opened()
    await place.fill(120)
    place.stop.set()
    assert (await place.sweeper.sweep()).total() == 50
    assert len(await place.ids()) == 70
    assert told(caplog, logging.WARNING) == ["cleanup deleted 50 sessions of ann: 50 retention (retention.age)"]


async def test_it_can_be_cancelled(opened: Opening, caplog: pytest.LogCaptureFixture) -> None:
    place = opened()
    task = asyncio.create_task(place.sweeper.run())
    await place.pauses.asked()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told(caplog, logging.ERROR) + told(caplog, logging.CRITICAL) == []


# Several ----------------------------------------------------------------------------------------


async def test_one_sweep_at_a_time(opened: Opening) -> None:
    place = opened()
    await place.fill(120)
    done = await asyncio.gather(*(place.sweeper.sweep() for _ in range(3)))
    assert [gone.total() for gone in done] == [120, 0, 0]
    assert place.store.most == 1


async def test_several_servers_on_one_store_do_no_harm(
    opened: Opening, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stores = [SqliteStore.serve(tmp_path / "moorage.db") for _ in range(3)]
    for number in range(200):
        parent = None if number % 4 == 0 else f"s-{number - number % 4}"
        await stores[0].create(OWNER, a_session(f"s-{number}"), parent=parent)
    for number in range(200):
        await stores[0].apply(OWNER, f"s-{number}", finalized())
    await stores[0].create(OWNER, a_session("young", at=LATER))
    settings = Settings(retention=RetentionPolicy())
    sweepers = [
        Sweeper(Deps(store, FakeClock(LATER), os.urandom, settings), SWEEPER, asyncio.Event()) for store in stores
    ]

    done = await asyncio.gather(*(sweeper.sweep() for sweeper in sweepers))

    assert sum(gone.total() for gone in done) == 200
    assert len({tombstone.session_id for tombstone in await all_tombstones(stores[0])}) == 200
    assert [session.session_id for session in await all_sessions(stores[0])] == ["young"]
    assert await stores[0].check() == []
    for store in stores:
        await store.close()
