"""Channels: one adapter, used from any thread and any event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import moorage
from moorage import sync
from moorage.adapters.channel import Channel, ConnectTarget, channel_to, settled
from moorage.api import Moorage
from moorage.core.errors import InvalidField, StoreUnavailable, Unsupported
from moorage.core.session import Session


class User:
    """Whatever uses a channel."""


@pytest.fixture
def user() -> User:
    return User()


def opened(target: ConnectTarget, user: User) -> Channel:
    channel = channel_to(target, owner="local", interface="openai-agents")
    channel.join(user)
    return channel


@pytest.fixture
def channel(url: str, user: User) -> Iterator[Channel]:
    channel = opened(url, user)
    yield channel
    channel.leave(user)


async def create(moor: Moorage) -> Session:
    return await moor.create(agent="tester")


async def count(moor: Moorage) -> int:
    return len(await moor.list())


def test_one_event_loop_after_another_uses_it(channel: Channel) -> None:
    for _ in range(3):
        asyncio.run(channel.run(create))

    assert asyncio.run(channel.run(count)) == 3


def test_threads_with_and_without_loops_use_it_together(channel: Channel) -> None:
    def work(number: int) -> None:
        for _ in range(5):
            if number % 2:
                channel.drive(create)
            else:
                asyncio.run(channel.run(create))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert channel.drive(count) == 20


async def test_sessions_name_the_framework_as_their_interface(channel: Channel) -> None:
    assert (await channel.run(create)).interface == "openai-agents"


def test_same_url_shares_one_channel_until_its_last_user_leaves(tmp_path: Path) -> None:
    url, first, second = f"sqlite:///{tmp_path / 'a.db'}", User(), User()
    before = threads_of_stores()
    channel = opened(url, first)

    assert opened(url, second) is channel
    asyncio.run(channel.run(create))
    channel.leave(first)
    assert threads_of_stores() > before
    channel.leave(second)
    assert threads_of_stores() <= before


def test_channel_that_was_closed_opens_again(channel: Channel, user: User, url: str) -> None:
    asyncio.run(channel.run(create))
    channel.leave(user)
    again = opened(url, user)
    found = asyncio.run(again.run(count))
    again.leave(user)

    assert found == 1


def test_unused_channel_closes_its_store(tmp_path: Path) -> None:
    user, before = User(), threads_of_stores()
    channel = opened(f"sqlite:///{tmp_path / 'a.db'}", user)

    async def nothing(_: Moorage) -> None: ...

    asyncio.run(channel.run(nothing))
    channel.drive(nothing)
    channel.leave(user)
    assert threads_of_stores() <= before


def threads_of_stores() -> set[threading.Thread]:
    """Threads of stores, also of those that other tests in this process have left open."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("moorage")}


def test_unnamed_store_in_memory_belongs_to_one_adapter() -> None:
    one, other = opened("memory://", User()), opened("memory://", User())
    one.drive(create)

    assert asyncio.run(one.run(count)) == 1
    assert other.drive(count) == 0


def test_child_process_opens_connections_of_its_own(channel: Channel, url: str) -> None:
    if url.startswith("memory:"):
        pytest.skip("a store in memory is not shared between processes")
    asyncio.run(channel.run(create))
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(channel.run(create))
            channel.drive(create)
        except BaseException:
            os._exit(1)
        os._exit(0)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert channel.drive(count) == 3


# Connections that are given ---------------------------------------------------------------------


async def test_open_connection_is_used_and_left_open(url: str, user: User) -> None:
    async with moorage.connect(url) as moor:
        channel = opened(moor, user)
        await channel.run(create)
        channel.leave(user)

        assert len(await moor.list()) == 1
        with pytest.raises(Unsupported, match=r"moorage\.sync\.connect"):
            channel.drive(create)


def test_open_connection_without_a_loop_serves_both(url: str, user: User) -> None:
    with sync.connect(url) as moor:
        channel = opened(moor, user)
        channel.drive(create)
        asyncio.run(channel.run(create))
        channel.leave(user)

        assert len(moor.list()) == 2


def test_anything_else_is_refused() -> None:
    with pytest.raises(InvalidField, match="give a URL"):
        channel_to(7, owner="local", interface="openai-agents")  # type: ignore[arg-type]  # as an untyped caller might


# Cancelled writes -------------------------------------------------------------------------------


async def test_cancelled_write_is_over_before_the_cancellation_is_raised() -> None:
    done, may_end = asyncio.Event(), asyncio.Event()

    async def write() -> None:
        await may_end.wait()
        done.set()

    task = asyncio.create_task(settled(write()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert done.is_set()


async def test_other_tasks_run_after_a_write_that_waits_for_nothing() -> None:
    async def write() -> int:
        return 1

    other = asyncio.create_task(asyncio.sleep(0))
    assert await settled(write()) == 1
    assert await settled(write()) == 1

    assert other.done()


async def test_cancelled_call_hides_its_failure() -> None:
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))

    async def write() -> None:
        await asyncio.sleep(0)
        raise StoreUnavailable("gone")

    task = asyncio.create_task(settled(write()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert told == []
