"""The asynchronous door: same methods, opened once, closed cleanly, never blocking."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import moorage
from moorage.api import Context, Moorage
from moorage.core.errors import MoorageError, StoreUnavailable
from tests.service.doors import Place


@pytest.fixture
def own_threads(place: Place) -> Callable[[], list[str]]:
    """Return a function that names the live threads of this test's connections.

    Ignore threads of a server in this process, and of connections that earlier tests of this process left open.
    """
    earlier = set(threading.enumerate())
    prefix = "moorage-remote" if place.is_remote else "moorage"
    return lambda: sorted(
        thread.name for thread in threading.enumerate() if thread not in earlier and thread.name.startswith(prefix)
    )


async def test_many_first_calls_at_once_open_one_store(place: Place, own_threads: Callable[[], list[str]]) -> None:
    moor = moorage.connect(place.url if place.is_shared else "memory://")
    async with asyncio.timeout(30):
        sessions = await asyncio.gather(*(moor.create("agent", parent=None) for _ in range(20)))
        found = await moor.list(limit=100)
        assert {session.id for session in found} == {session.id for session in sessions}
        assert own_threads().count("moorage-write") == (1 if place.is_file else 0)
        await moor.close()
    assert own_threads() == []


async def test_failed_opening_fails_all_waiting_calls_and_can_be_repeated(tmp_path: Path) -> None:
    moor = moorage.connect(f"sqlite:///{tmp_path}/later/moorage.db")
    async with asyncio.timeout(30):
        answers = await asyncio.gather(*(moor.list() for _ in range(3)), return_exceptions=True)
        assert all(isinstance(answer, StoreUnavailable) for answer in answers)
        (tmp_path / "later").mkdir()
        assert (await moor.list()).items == []
        await moor.close()


async def test_a_caller_who_gives_up_while_it_opens_leaves_nothing_behind(
    place: Place, own_threads: Callable[[], list[str]]
) -> None:
    moor = moorage.connect(place.url)
    first = asyncio.ensure_future(moor.create("agent", parent=None))
    await asyncio.sleep(0)
    first.cancel()
    async with asyncio.timeout(30):
        assert (await moor.create("agent", parent=None)).state == "created"
        await moor.close()
    assert own_threads() == []


async def test_closing_ends_every_thread(place: Place, own_threads: Callable[[], list[str]]) -> None:
    async with moorage.connect(place.url) as moor:
        session = await moor.create("agent", parent=None)
        await moor.append(session.id, "hello")
        async for _ in moor.events(session.id, follow=False):
            pass
    assert own_threads() == []


async def test_a_cancelled_call_does_not_hurt_the_others(place: Place) -> None:
    async with moorage.connect(place.url) as moor, asyncio.timeout(60):
        session = await moor.create("agent", parent=None)
        tasks = [asyncio.ensure_future(moor.append(session.id, f"m{number}")) for number in range(40)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        kept = [f"m{number}" for number in range(1, 40, 2)]
        assert [answer for answer in answers[1::2] if isinstance(answer, BaseException)] == []
        said = [entry.content for entry in await moor.messages(session.id, limit=100)]
        came = [word for word in said if word in kept]
        assert (sorted(came) if place.is_remote else came) == (sorted(kept) if place.is_remote else kept)
        assert [entry.number for entry in await moor.log(session.id)] == list(range(1, len(said) + 2))


async def test_errors_come_through_as_they_are(place: Place) -> None:
    async with moorage.connect(place.url) as moor:
        with pytest.raises(MoorageError) as refused:
            await moor.get("nobody")
        assert refused.value.code == "session_not_found"


def test_both_doors_have_the_same_methods() -> None:
    from moorage import sync

    for asynchronous in (Moorage, Context):
        names = [name for name, _ in inspect.getmembers(asynchronous, inspect.isfunction) if not name.startswith("_")]
        moor = sync.connect("memory://")
        target = moor if asynchronous is Moorage else moor.context
        assert all(callable(getattr(target, name)) for name in names)
