"""Errors of a Redis store whose server fails, and its recovery afterwards.

Each fault has a stable code, leaves nothing half changed, and is over for a store that was open all the time as soon
as the server is well again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis

from moorage.config import open_deps
from moorage.core.errors import (
    InvalidCursor,
    InvalidField,
    KeyReused,
    OutcomeUnknown,
    SessionNotFound,
    StoreBusy,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from moorage.service.deps import Caller
from moorage.service.streams import Hub
from moorage.stores.redis.db import CommitGuard, Plan
from moorage.stores.redis.store import RedisStore
from moorage.testing.builders import (
    OWNER,
    a_session,
    a_stamp,
    may_delete,
    remembering,
    said,
    updated,
    whole_log,
    write_context,
)
from moorage.testing.proxy import Proxy
from moorage.testing.redis import NoRedis, RedisServer, oldest_program
from moorage.testing.work import launch

SOON = "patience=0.5"
EVERY_RIGHT = "on >pass ~moorage:* &moorage:* +@read +@write +@scripting +@connection +info +time +publish +subscribe"
COUNTED = (b":numbers", b":owners", b":ready")  # numbers may be reserved for what is then refused

Change = Callable[[RedisStore], Coroutine[Any, Any, Any]]
CHANGES: dict[str, Change] = {
    "append": lambda store: store.append(OWNER, "s-1", said("hello"), a_stamp()),
    "append under a key": lambda store: store.append(OWNER, "s-1", said("hello", key="k-1"), a_stamp()),
    "apply": lambda store: store.apply(OWNER, "s-1", updated(error="oops")),
    "create": lambda store: store.create(OWNER, a_session("s-2", "named")),
    "create a child": lambda store: store.create(OWNER, a_session("s-2"), parent="s-1"),
    "remember": lambda store: write_context(store, OWNER, "s-1", remembering("key", "value")),
    "run": lambda store: launch(store, "s-2", "run-2"),
    "delete": lambda store: store.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp()),
}


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer(durable=True) as server:
        yield server


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[RedisStore]:
    store = RedisStore(url)
    try:
        yield store
    finally:
        await store.close()


def stored(server: RedisServer) -> dict[bytes, Any]:
    """Everything that is stored, byte by byte."""
    with redis.Redis(port=server.port) as raw:
        keys = [key for key in raw.scan_iter() if not key.endswith(COUNTED)]
        return {key: raw.dump(key) for key in sorted(keys)}


async def is_well(store: RedisStore) -> bool:
    """Whether a store that had trouble goes on."""
    before = (await store.get(OWNER, "s-1")).last_entry
    [entry] = await store.append(OWNER, "s-1", said("hello again"), a_stamp())
    return entry.number == before + 1


# Who we are -------------------------------------------------------------------------------------


@pytest.mark.parametrize("login", [":wrong@", ""])
async def test_wrong_password_is_told_at_once_and_a_right_one_helps(server: RedisServer, login: str) -> None:
    server.ask("CONFIG", "SET", "requirepass", "right")
    async with opened(f"redis://{login}127.0.0.1:{server.port}") as store:
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="password"):
            await store.create(OWNER, a_session("s-1"))
        assert time.monotonic() - began < 5

        with redis.Redis(port=server.port, password="right") as raw:
            raw.config_set("requirepass", "wrong" if login else "")
        await store.create(OWNER, a_session("s-1"))
        assert await is_well(store)


async def test_password_is_not_shown(server: RedisServer) -> None:
    server.kill()
    async with opened(f"redis://:hidden@127.0.0.1:{server.port}?{SOON}") as store:
        with pytest.raises(StoreUnavailable) as caught:
            await store.get(OWNER, "s-1")
    assert "hidden" not in caught.value.message


@pytest.mark.parametrize("missing", ["xadd", "zadd", "hset", "evalsha", "info"])
async def test_user_who_may_not_do_everything_changes_nothing(server: RedisServer, missing: str) -> None:
    """A script is refused a command only when it comes to it: by then it must not have written anything."""
    async with opened(server.url()) as store:
        await store.create(OWNER, a_session("s-1"))
    server.ask("ACL", "SETUSER", "tenant", *EVERY_RIGHT.split(), f"-{missing}")
    before = stored(server)
    async with opened(f"redis://tenant:pass@127.0.0.1:{server.port}") as store:
        for change in ("apply", "append", "delete"):
            with pytest.raises(StoreUnavailable, match=r"NOPERM.*docs/redis.md"):
                await CHANGES[change](store)
            assert stored(server) == before

        server.ask("ACL", "SETUSER", "tenant", f"+{missing}")
        assert await is_well(store)


async def test_user_of_other_keys_sees_and_changes_nothing(server: RedisServer) -> None:
    server.ask("ACL", "SETUSER", "other", *EVERY_RIGHT.replace("~moorage", "~other").split())
    async with opened(f"redis://other:pass@127.0.0.1:{server.port}") as store:
        with pytest.raises(StoreUnavailable, match="NOPERM"):
            await store.create(OWNER, a_session("s-1"))
    assert server.ask("DBSIZE") == b":0\r\n"


# Stored data ------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", CHANGES)
async def test_foreign_value_under_any_key_is_found_before_the_first_write(valkey: RedisServer, change: str) -> None:
    async with opened(valkey.url()) as store:
        with redis.Redis(port=valkey.port) as raw:
            await _filled(store, raw)
            for key in list(raw.scan_iter()):
                await _filled(store, raw)
                raw.rename(key, "aside")
                raw.set(key, "foreign")
                before = stored(valkey)
                try:
                    await CHANGES[change](store)
                except (StoreCorrupt, StoreUnavailable):  # the shared counter is a number or is not
                    assert stored(valkey) == before, key
                    raw.rename("aside", key)
                    assert await is_well(store)


async def _filled(store: RedisStore, raw: redis.Redis) -> None:
    raw.flushall()
    await store.create(OWNER, a_session("s-1"))
    await store.append(OWNER, "s-1", said("hello", key="k-0"), a_stamp())
    await write_context(store, OWNER, "s-1", remembering("other", "value"))


async def test_lost_counter_of_the_feed_stops_a_change_before_its_first_write(server: RedisServer) -> None:
    """An eviction could take it: then the feed would refuse what the log has taken already."""
    async with opened(server.url()) as store:
        await store.create(OWNER, a_session("s-1"))
        server.ask("DEL", store.db.keys(OWNER)("meta"))
        before = stored(server)
        for name in ("append", "apply", "create", "delete"):
            with pytest.raises(StoreCorrupt, match="goes on"):
                await CHANGES[name](store)
        assert stored(server) == before


async def test_full_memory_refuses_a_change_and_keeps_the_rest(server: RedisServer) -> None:
    async with opened(server.url()) as store:
        await store.create(OWNER, a_session("s-1"))
        before = stored(server)
        server.ask("CONFIG", "SET", "maxmemory", "1")
        for change in CHANGES.values():
            with pytest.raises(StoreFull, match="delete sessions, or raise `maxmemory`"):
                await change(store)
        server.ask("CONFIG", "SET", "maxmemory", "0")
        assert stored(server) == before
        assert await is_well(store)


async def test_server_that_cannot_save_refuses_changes() -> None:
    with RedisServer(settings={"save": "3600 100000", "stop-writes-on-bgsave-error": "yes"}) as server:
        async with opened(server.url()) as store:
            await store.create(OWNER, a_session("s-1"))
            before = stored(server)
            (server.folder / "dump.rdb").mkdir()  # where its snapshot should go
            server.ask("BGSAVE")
            await _until(lambda: b"rdb_last_bgsave_status:err" in server.ask("INFO", "persistence"))
            for change in CHANGES.values():
                with pytest.raises(StoreUnavailable, match="MISCONF"):
                    await change(store)
            assert stored(server) == before
            (server.folder / "dump.rdb").rmdir()
            server.ask("BGSAVE")
            await _until(lambda: b"rdb_last_bgsave_status:ok" in server.ask("INFO", "persistence"))
            assert await is_well(store)


async def test_emptied_server_is_an_empty_store(server: RedisServer) -> None:
    async with opened(server.url()) as store:
        await store.create(OWNER, a_session("s-1"))
        await store.append(OWNER, "s-1", said("hello"), a_stamp())
        server.ask("FLUSHALL")

        assert await store.owners() == []
        with pytest.raises(SessionNotFound):
            await store.append(OWNER, "s-1", said("hello"), a_stamp())
        await store.create(OWNER, a_session("s-1"))
        assert await is_well(store)
        assert [event.id for event in await store.feed(OWNER, 0, 10)] == [1, 2]


async def test_streams_end_when_the_store_has_lost_their_events(server: RedisServer) -> None:
    """Else they would wait for cursors that are given a second time, and then miss something."""
    deps = open_deps(server.url(), threaded=True)
    caller, hub = Caller(owner=OWNER), Hub(deps, OWNER)
    try:
        await deps.store.create(OWNER, a_session("s-1"))
        await deps.store.append(OWNER, "s-1", said("hello"), a_stamp())
        stream = await hub.everything(caller, None)
        server.ask("FLUSHALL")
        assert await stream.next(30) == []
        assert stream.ended
        hub.leave(stream)
        with pytest.raises(InvalidCursor):
            await hub.everything(caller, stream.after)

        fresh = await hub.everything(caller, 0)
        await deps.store.create(OWNER, a_session("s-1"))
        assert [told.event.type for told in await fresh.next(30)] == ["created"]
    finally:
        hub.close()
        await deps.store.close()


# Abilities of the server ------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["EVALSHA", "EVAL"])
async def test_server_without_scripts_is_told_so(missing: str) -> None:
    with RedisServer(settings={"rename-command": f'{missing}" "'}) as server:
        async with opened(server.url()) as store:
            with pytest.raises(StoreUnavailable, match="no scripts"):
                await store.create(OWNER, a_session("s-1"))
        assert stored(server) == {}


async def test_server_that_is_too_old_is_told_so() -> None:
    try:
        program = oldest_program()
    except NoRedis as missing:
        pytest.skip(str(missing))
    with RedisServer(program) as server:
        async with opened(server.url()) as store:
            with pytest.raises(StoreUnavailable, match=r"is Redis 6\.2.*needs 7\.0"):
                await store.create(OWNER, a_session("s-1"))
        assert server.ask("DBSIZE") == b":0\r\n"


async def test_waiting_for_the_file_needs_a_server_that_can(redis_7: RedisServer) -> None:
    async with opened(redis_7.url("durability=fsync")) as store:
        with pytest.raises(StoreUnavailable, match=r"needs 7\.2 or newer for durability=fsync"):
            await store.owners()


async def test_scripts_that_are_gone_are_sent_again(server: RedisServer) -> None:
    async with opened(server.url()) as store:
        await store.create(OWNER, a_session("s-1"))
        server.ask("SCRIPT", "FLUSH")
        assert await is_well(store)


async def test_server_that_runs_anothers_script_is_waited_for(server: RedisServer) -> None:
    server.ask("CONFIG", "SET", "busy-reply-threshold", "10")
    async with opened(server.url(SOON)) as store:
        await store.create(OWNER, a_session("s-1"))
        endless = threading.Thread(target=server.ask, args=("EVAL", "while true do end", "0"))
        endless.start()
        await _until(lambda: server.ask("PING").startswith(b"-BUSY"))
        with pytest.raises(StoreBusy):
            await store.get(OWNER, "s-1")
        with pytest.raises(StoreBusy):
            await store.append(OWNER, "s-1", said("hello"), a_stamp())
        server.ask("SCRIPT", "KILL")
        endless.join()
        assert await is_well(store)


async def test_killed_script_has_changed_nothing_and_is_sent_again(server: RedisServer) -> None:
    server.ask("CONFIG", "SET", "busy-reply-threshold", "1")
    async with opened(server.url()) as store:
        await store.create(OWNER, a_session("s-1"))
        before = stored(server)
        plan = Plan()
        key = store.db.keys(OWNER)("feed")
        plan.guards += [CommitGuard("XLEN", key, None, "1", lambda _: AssertionError())] * 1_000_000  # it takes a while
        plan.writes.append(("HSET", store.db.keys(OWNER)("once"), "f", "v"))
        committing = asyncio.create_task(store.db.commit(plan))
        await _until(lambda: server.ask("SCRIPT", "KILL").startswith(b"+OK"))
        assert list(stored(server)) == list(before)
        await committing  # by itself, a second time
        assert len(stored(server)) == len(before) + 1
        assert await is_well(store)


# Away and back ----------------------------------------------------------------------------------


async def test_replica_is_read_only_until_it_is_promoted(server: RedisServer) -> None:
    async with opened(server.url(SOON)) as store:
        await store.create(OWNER, a_session("s-1"))
        before = stored(server)
        server.ask("REPLICAOF", "127.0.0.1", "1")
        for change in CHANGES.values():
            with pytest.raises(StoreReadOnly, match="replica"):
                await change(store)
        server.ask("REPLICAOF", "NO", "ONE")
        assert stored(server) == before
        assert await is_well(store)


async def test_server_that_reads_its_file_is_waited_for() -> None:
    with RedisServer() as server:
        async with opened(server.url(SOON)) as store:
            for number in range(1, 40):
                await store.create(OWNER, a_session(f"s-{number}"))
            server.ask("SAVE")
            server.kill()
            server.set(key_load_delay="20000", loading_process_events_interval_bytes="1024")
            server.start(waits=False)
            await _until(lambda: _says(server, b"-LOADING"))
            with pytest.raises(StoreUnavailable, match="nothing was changed"):
                await store.append(OWNER, "s-1", said("hello"), a_stamp())
            await asyncio.to_thread(server.wait)
            assert (await store.get(OWNER, "s-1")).last_entry == 1
            assert await is_well(store)


async def test_server_that_is_restarted_is_waited_for(server: RedisServer) -> None:
    async with opened(server.url("durability=fsync")) as store:
        await store.create(OWNER, a_session("s-1"))
        server.kill()
        reading = asyncio.create_task(store.get(OWNER, "s-1"))
        await asyncio.sleep(0)
        await asyncio.to_thread(server.start)
        assert (await reading).session_id == "s-1"
        assert await is_well(store)


@pytest.mark.parametrize(("lost", "landed"), [("up", False), ("down", True)])
async def test_connection_cut_before_the_answer_leaves_the_outcome_unknown(
    server: RedisServer, lost: Any, landed: bool
) -> None:
    with Proxy(("127.0.0.1", server.port)) as wire:
        async with opened(f"redis://127.0.0.1:{wire.port}?timeout=0.5") as store:
            await store.create(OWNER, a_session("s-1"))
            await store.append(OWNER, "s-1", said("before"), a_stamp())
            wire.swallow(lost)
            with pytest.raises(OutcomeUnknown):
                await store.append(OWNER, "s-1", said("once", key="k-1"), a_stamp())
            wire.mend()
            messages = [entry.content for entry in await whole_log(store, "s-1") if entry.is_message]
            assert messages == (["before", "once"] if landed else ["before"])

            [again] = await store.append(OWNER, "s-1", said("once", key="k-1"), a_stamp())
            assert (again.number, again.content) == (3, "once")
            with pytest.raises(KeyReused):
                await store.append(OWNER, "s-1", said("twice", key="k-1"), a_stamp())
            assert await is_well(store)


async def test_cancelled_caller_leaves_no_answer_for_the_next(server: RedisServer) -> None:
    with Proxy(("127.0.0.1", server.port)) as wire:
        async with opened(f"redis://127.0.0.1:{wire.port}?pool=1") as store:
            await store.create(OWNER, a_session("s-1"))
            await store.create(OWNER, a_session("s-2"))
            wire.delay(0.1, "down")
            reading = asyncio.create_task(store.get(OWNER, "s-2"))
            await asyncio.sleep(0.02)
            reading.cancel()
            assert (await store.get(OWNER, "s-1")).session_id == "s-1"


async def test_cancelled_callers_do_not_disturb_those_they_share_a_connection_with(server: RedisServer) -> None:
    with Proxy(("127.0.0.1", server.port)) as wire:
        async with opened(f"redis://127.0.0.1:{wire.port}?pool=1") as store:
            for number in range(40):
                await store.create(OWNER, a_session(f"s-{number}"))
            wire.delay(0.02, "down")
            reading = [asyncio.create_task(store.get(OWNER, f"s-{number}")) for number in range(40)]
            saying = [
                asyncio.create_task(store.append(OWNER, f"s-{number}", said(str(number)), a_stamp()))
                for number in range(40)
            ]
            for moment in range(4):
                await asyncio.sleep(0.01)
                for place in range(moment, 40, 8):
                    reading[place].cancel()
            read = await asyncio.gather(*reading, return_exceptions=True)
            told = [one.session_id if not isinstance(one, BaseException) else type(one).__name__ for one in read]
            assert all(name in (f"s-{number}", "CancelledError") for number, name in enumerate(told))
            assert [entries[0].content for entries in await asyncio.gather(*saying)] == [str(n) for n in range(40)]


# Wrong addresses --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    ["redis://127.0.0.1:1", "redis://no-such-host.invalid", "unix:///no/such.socket", "redis+cluster://127.0.0.1:1"],
)
async def test_address_that_was_never_reached_is_given_up_at_once(url: str) -> None:
    async with opened(url) as store, asyncio.timeout(10):  # callers wait 30 seconds for a server that was there
        with pytest.raises(StoreUnavailable, match="nothing was changed"):
            await store.get(OWNER, "s-1")


async def test_server_that_is_known_to_be_there_is_waited_for(server: RedisServer) -> None:
    server.kill()
    store = RedisStore(server.url(), is_known=True)
    reading = asyncio.create_task(store.owners())
    await asyncio.sleep(0)
    await asyncio.to_thread(server.start)
    assert await reading == []
    await store.close()


async def test_database_that_is_not_there_is_told_at_once(server: RedisServer) -> None:
    async with opened(f"redis://127.0.0.1:{server.port}/99") as store, asyncio.timeout(10):
        with pytest.raises(StoreUnavailable, match="out of range; name another database"):
            await store.get(OWNER, "s-1")


async def test_url_that_takes_one_server_for_a_cluster_is_told_so(server: RedisServer) -> None:
    async with opened(server.url("cluster=true", tcp=True)) as store, asyncio.timeout(10):
        with pytest.raises(StoreUnavailable, match="leave `cluster` out of the URL"):
            await store.get(OWNER, "s-1")


# Durability -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("durability", "why"), [("replica", "no replica"), ("fsync", "append-only file")])
async def test_server_without_the_wanted_durability_is_refused(durability: str, why: str) -> None:
    with RedisServer() as server:
        async with opened(server.url(f"durability={durability}")) as store:
            with pytest.raises(StoreUnavailable, match=why):
                await store.create(OWNER, a_session("s-1"))
        assert server.ask("DBSIZE") == b":0\r\n"


async def test_missing_replica_leaves_the_outcome_unknown() -> None:
    """A repeated request finds its change, and still may not say that a replica has it."""
    with RedisServer() as server, RedisServer() as replica:
        replica.ask("REPLICAOF", "127.0.0.1", str(server.port))
        await _until(lambda: b"state=online" in server.ask("INFO", "replication"))
        async with opened(server.url("durability=replica&timeout=2")) as store:
            await store.create(OWNER, a_session("s-1"))
            replica.ask("REPLICAOF", "NO", "ONE")
            for _ in range(2):
                with pytest.raises(OutcomeUnknown, match="replica"):
                    await store.append(OWNER, "s-1", said("once", key="k-1"), a_stamp())
            replica.ask("REPLICAOF", "127.0.0.1", str(server.port))
            await _until(lambda: b"state=online" in server.ask("INFO", "replication"))
            [entry] = await store.append(OWNER, "s-1", said("once", key="k-1"), a_stamp())
            assert entry.number == 2
            assert await is_well(store)


def test_unknown_option_is_named() -> None:
    with pytest.raises(InvalidField, match="has the option 'colour', which Redis URLs do not have"):
        RedisStore("redis://127.0.0.1?colour=red")


@pytest.mark.parametrize(
    "options",
    ["durability=perhaps", "pool=0", "patience=never", "cluster=yes", "prefix=a{b}", "timeout=0"],
)
def test_options_that_make_no_sense_are_refused(options: str) -> None:
    with pytest.raises(InvalidField):
        RedisStore(f"redis://127.0.0.1?{options}")


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(holds):  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)


def _says(server: RedisServer, word: bytes) -> bool:
    try:
        return server.ask("PING").startswith(word)
    except OSError:
        return False
