"""A stop by one connection, and what another does at the same moment: an end, a birth, a callback."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from moorage.core.errors import RunStopped
from moorage.core.query import LogQuery
from moorage.core.run import RunState
from moorage.core.session import Asker, Birth, Change, Needs, View
from moorage.ports import Claimed, Store
from moorage.stores.postgres.store import PostgresStore
from moorage.stores.sqlite.store import SqliteStore
from moorage.testing.builders import OWNER, a_session
from moorage.testing.work import a_child_run, asked_at_birth, asking, finish, launch, start, stop, take, taken

ROUNDS = 12

Open = Callable[[], Store]


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "sqlite":
        return lambda: SqliteStore.serve(tmp_path / "moorage.db")
    url = request.getfixturevalue("postgres_url")
    return lambda: PostgresStore(f"{url}&pool=4")


@pytest.fixture
async def two(opened: Open) -> AsyncIterator[tuple[Store, Store]]:
    stores = opened(), opened()
    yield stores
    for store in stores:
        await store.close()


async def at_work(store: Store, number: int) -> Claimed:
    await launch(store, f"p-{number}", f"run-p-{number}")
    claimed = await taken(store)
    await start(store, claimed)
    return claimed


async def with_child(store: Store, number: int) -> tuple[Claimed, Claimed]:
    """A parent at work, and its child too."""
    parent = await at_work(store, number)
    child = a_child_run(f"run-c-{number}", f"p-{number}", f"run-p-{number}")
    await launch(store, f"c-{number}", child, parent=f"p-{number}")
    claimed = await taken(store)
    await start(store, claimed)
    return parent, claimed


async def test_stop_and_the_end_of_the_turn(two: tuple[Store, Store]) -> None:
    for number in range(ROUNDS):
        parent, child = await with_child(two[0], number)
        await asyncio.gather(stop(two[0], f"p-{number}"), finish(two[1], parent))
        await finish(two[1], child)

        assert (await two[0].run(OWNER, f"run-p-{number}")).state is RunState.STOPPED
        assert await take(two[0]) is None


async def test_stop_and_a_callback(two: tuple[Store, Store]) -> None:
    for number in range(ROUNDS):
        parent, child = await with_child(two[0], number)
        await asyncio.gather(stop(two[0], f"p-{number}"), finish(two[1], child))
        await finish(two[1], parent)

        assert (await two[0].run(OWNER, f"run-p-{number}")).state is RunState.STOPPED
        assert len(await two[0].log(OWNER, f"p-{number}", LogQuery(kinds=("callback",)))) == 1
        assert await take(two[0]) is None


async def test_stop_and_a_birth(two: tuple[Store, Store]) -> None:
    async def bear(name: str, number: int) -> str | None:
        birth = asked_at_birth(name, a_child_run(f"run-{name}", f"p-{number}", f"run-p-{number}"))
        try:
            await two[1].create(OWNER, birth, parent=f"p-{number}", asker=Asker(run_id=f"run-p-{number}"))
        except RunStopped:
            return None
        return name

    async def stop_and_look(number: int) -> set[str]:
        await stop(two[0], f"p-{number}")
        return {session.session_id for session in await two[0].tree(OWNER, f"p-{number}", 100)}

    for number in range(ROUNDS):
        await at_work(two[0], number)
        births = [bear(f"c-{number}-{place}", number) for place in range(3)]
        seen, *born = await asyncio.gather(stop_and_look(number), *births)
        assert {name for name in born if isinstance(name, str)} <= set(seen or ())


@pytest.mark.parametrize("opened", ["postgres"], indirect=True)  # SQLite decides within the transaction that commits
@pytest.mark.parametrize("what", ["birth", "ask"])
async def test_stop_between_the_look_and_the_commit_is_seen(opened: Open, two: tuple[Store, Store], what: str) -> None:
    await at_work(two[0], 0)
    await two[0].create(OWNER, a_session("s-1"))
    run, seen = a_child_run("run-c", "p-0", "run-p-0"), list[str]()

    def stop_now() -> None:
        async def job() -> None:
            other = opened()
            await stop(other, "p-0")
            await other.close()

        if not seen:
            seen.append("stopped")
            thread = threading.Thread(target=lambda: asyncio.run(job()))
            thread.start()
            thread.join(60)

    def born(birth: Birth) -> Change:
        change = asked_at_birth("c-1", run)(birth)
        stop_now()
        return change

    async def asks() -> None:
        def decide(view: View) -> Change:
            change = asking(run)(view)
            stop_now()
            return change

        await two[0].apply(OWNER, "s-1", decide, needs=Needs(asker=Asker(run_id="run-p-0")))

    with pytest.raises(RunStopped):
        await (asks() if what == "ask" else two[0].create(OWNER, born, parent="p-0", asker=Asker(run_id="run-p-0")))
    assert seen
