"""Records: values by namespace and key, with versions, order, expiry and one commit with entries."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from moorage.core.entry import Message
from moorage.core.errors import KeyReused, SessionClosed, SessionGone, SessionNotFound, VersionConflict
from moorage.core.query import LogQuery
from moorage.core.record import (
    JSON,
    Append,
    Drop,
    Put,
    Record,
    RecordName,
    RecordQuery,
    RecordRequest,
    RecordWrite,
    Touch,
    decide_records,
    needs_of,
    write_with_messages,
)
from moorage.core.session import Needs
from moorage.ports import Store
from moorage.testing.builders import *

NAMES = ["b", "a", "a/1", "a/10", "a/2", "é", "z", "Z", "a\n"]
TICK = timedelta(microseconds=1)


def put(key: str, value: bytes = b"v", **options: Any) -> Put:
    """Return a request to put a value into namespace `n`."""
    return Put(namespace="n", key=key, value=value, **options)


async def write(
    store: Store,
    *requests: RecordRequest,
    ref: str | None = "s-1",
    at: datetime = NOON,
    messages: list[Message] | None = None,
    memory: list[RecordRequest] | None = None,
    owner: str = OWNER,
) -> tuple[RecordWrite, ...]:
    """Write records of a session, with `memory` also of the owner, or of the owner alone."""
    if ref is None:
        return await store.write_memory(owner, needs_of(requests), lambda view: decide_records(requests, view, at))
    said, shared = messages or [], memory or []
    change = await store.apply(
        owner,
        ref,
        lambda view: write_with_messages(view, said, requests, a_stamp(at), memory=shared),
        needs=Needs(
            records=needs_of(requests),
            memory=needs_of(shared) if shared else None,
            client_keys=tuple(message.client_key for message in said if message.client_key),
        ),
    )
    return change.records


async def read(
    store: Store, key: str, ref: str | None = "s-1", at: datetime = NOON, owner: str = OWNER
) -> Record | None:
    """Return one record of namespace `n`."""
    return (await store.records(owner, ref, [RecordName("n", key)], at))[0]


async def keys(store: Store, ref: str | None = "s-1", at: datetime = NOON, **query: Any) -> list[str]:
    """Return the keys of namespace `n`, in order."""
    found = await store.list_records(OWNER, ref, RecordQuery(**{"namespace": "n", **query}), at)
    return [record.key for record in found]


class RecordRules:
    """Rules of `records`, `list_records`, `write_memory`, and of records in `apply`."""

    @pytest.fixture(params=["s-1", None], ids=["session", "owner"])
    def ref(self, request: pytest.FixtureRequest) -> str | None:
        """Return a session, or None for the owner."""
        found: str | None = request.param
        return found

    async def test_record_comes_back_as_it_was_written(self, store: Store, ref: str | None) -> None:
        await store.create(OWNER, a_session("s-1"))
        value = bytes(range(256))
        await write(store, put("k", value, ttl=60), ref=ref)

        assert await read(store, "k", ref) == Record(
            namespace="n",
            key="k",
            value=value,
            form="bytes",
            size=256,
            version=1,
            updated_at=NOON,
            expires_at=after(60),
        )

    async def test_json_comes_back_byte_for_byte(self, store: Store, ref: str | None) -> None:
        await store.create(OWNER, a_session("s-1"))
        value = '{"b": 1, "a":\t["\\u0000", "é", "~sealed1:"]}'.encode()
        await write(store, put("k", value, form=JSON), put("l", b'"~"', form=JSON), ref=ref)

        found = await read(store, "k", ref)
        assert found is not None
        assert (found.value, found.form) == (value, JSON)

    async def test_missing_record_is_none(self, store: Store, ref: str | None) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write(store, put("k"), ref=ref)

        found = await store.records(
            OWNER, ref, [RecordName("n", "x"), RecordName("n", "k"), RecordName("m", "k")], NOON
        )

        assert [one and one.key for one in found] == [None, "k", None]

    async def test_versions_count_the_writes_of_a_key(self, store: Store, ref: str | None) -> None:
        await store.create(OWNER, a_session("s-1"))
        for number in range(1, 4):
            await write(store, put("k", str(number).encode()), put(f"other-{number}"), ref=ref)

        found = await read(store, "k", ref)
        assert found is not None
        assert (found.version, found.value) == (3, b"3")

    @pytest.mark.parametrize("gone", [Drop(namespace="n", key="k"), Drop(namespace="n", key="", prefix=True), None])
    async def test_record_written_again_after_it_was_deleted_has_a_higher_version(
        self, store: Store, ref: str | None, gone: Drop | None
    ) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write(store, put("k", b"1", ttl=60.0), ref=ref)
        await write(store, put("k", b"2", ttl=60.0), ref=ref)
        if gone is not None:
            await write(store, gone, ref=ref)
        else:
            assert await store.purge(after(60), 10) == 1

        await write(store, put("k", b"3", version=0), ref=ref, at=after(60))
        await write(store, put("other", b"4"), ref=ref, at=after(60))

        found = [await read(store, key, ref, after(60)) for key in ("k", "other")]
        assert [record and record.version for record in found] == [3, 3]
        with pytest.raises(VersionConflict):
            await write(store, put("k", b"5", version=2), ref=ref, at=after(60))

    async def test_highest_deleted_version_goes_with_a_fork_and_only_rises(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        for _ in range(3):
            await write(store, put("high"))
        await write(store, put("low"))
        await write(store, Drop(namespace="n", key="high"))
        await write(store, Drop(namespace="n", key="low"))
        await store.fork(OWNER, "s-1", None, a_fork("f-1"))

        await write(store, put("low"), ref="f-1")

        found = await read(store, "low", "f-1")
        assert found is not None
        assert found.version == 4

    async def test_write_at_another_version_is_refused_whole(self, store: Store, ref: str | None) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write(store, put("k", b"1"), ref=ref)

        for wish in (put("k", b"2", version=0), put("k", b"2", version=2), put("new", version=1)):
            with pytest.raises(VersionConflict):
                await write(store, put("first"), wish, ref=ref)
        with pytest.raises(VersionConflict):
            await write(store, Drop(namespace="n", key="k", version=7), ref=ref)

        assert await keys(store, ref) == ["k"]
        await write(store, put("k", b"2", version=1), put("new", version=0), ref=ref)
        assert await keys(store, ref) == ["k", "new"]

    async def test_record_that_is_kept_is_left_as_it_is(self, store: Store, ref: str | None) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write(store, put("k", b"1"), ref=ref)
        written = await write(store, put("k", b"2", keep=True), put("l", b"2", keep=True), ref=ref)

        assert len(written) == 1
        found = await read(store, "k", ref)
        assert found is not None
        assert (found.value, found.version) == (b"1", 1)

    async def test_keys_are_in_the_order_of_their_bytes(self, store: Store, ref: str | None) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write(store, *(put(name) for name in NAMES), Put(namespace="m", key="other", value=b""), ref=ref)

        ordered = sorted(NAMES, key=str.encode)
        assert await keys(store, ref) == ordered
        assert await keys(store, ref, descending=True) == ordered[::-1]
        assert await keys(store, ref, prefix="a/") == ["a/1", "a/10", "a/2"]
        assert await keys(store, ref, prefix="a/", descending=True, limit=2) == ["a/2", "a/10"]
        assert await keys(store, ref, after=RecordName("n", "a/10"), limit=2) == ["a/2", "b"]
        assert await keys(store, ref, after=RecordName("n", "b"), descending=True, limit=2) == ["a/2", "a/10"]
        assert await keys(store, ref, namespace=None, limit=2) == ["other", ordered[0]]

    async def test_list_without_values_says_how_large_they_are(self, store: Store, ref: str | None) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write(store, put("k", b"12345"), ref=ref)

        [found] = await store.list_records(OWNER, ref, RecordQuery(namespace="n", values=False), NOON)

        assert (found.value, found.size, found.version) == (b"", 5, 1)

    async def test_expired_record_is_absent_to_the_microsecond(self, store: Store, ref: str | None) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write(store, put("k", ttl=60), put("l"), ref=ref)

        assert await keys(store, ref, after(60) - TICK) == ["k", "l"]
        assert await keys(store, ref, after(60)) == ["l"]
        assert await read(store, "k", ref, after(60)) is None

    async def test_expired_record_counts_as_new_for_a_writer(self, store: Store, ref: str | None) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write(store, put("k", b"1", ttl=60), ref=ref)
        await write(store, put("k", b"2", version=0), ref=ref, at=after(60))

        found = await read(store, "k", ref, after(60))
        assert found is not None
        assert (found.value, found.version, found.expires_at) == (b"2", 2, None)

    async def test_purge_deletes_expired_records(self, store: Store, ref: str | None) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write(store, put("k", ttl=60), put("l", ttl=120), put("m"), ref=ref)

        assert await store.purge(after(60), 100) == 1
        assert await store.purge(after(60), 100) == 0
        assert await keys(store, ref, NOON) == ["l", "m"]

    async def test_touch_moves_the_end_and_nothing_else(self, store: Store, ref: str | None) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write(store, put("a/1", b"1", ttl=60), put("a/2", ttl=60), put("b", ttl=60), ref=ref)
        await write(store, Touch(namespace="n", key="a/", prefix=True, ttl=None), ref=ref, at=after(1))
        await write(store, Touch(namespace="n", key="b", ttl=100), ref=ref, at=after(1))

        assert await keys(store, ref, after(100)) == ["a/1", "a/2", "b"]
        assert await keys(store, ref, after(101)) == ["a/1", "a/2"]
        found = await read(store, "a/1", ref)
        assert found is not None
        assert (found.value, found.version, found.updated_at) == (b"1", 1, NOON)

    async def test_records_are_deleted_by_key_and_by_prefix(self, store: Store, ref: str | None) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write(store, *(put(key) for key in ("a", "a/1", "a/2", "ab", "b")), ref=ref)
        await write(store, Drop(namespace="n", key="a"), Drop(namespace="n", key="nothing"), ref=ref)
        assert await keys(store, ref) == ["a/1", "a/2", "ab", "b"]

        await write(store, Drop(namespace="n", key="a/", prefix=True), put("a/1", b"new"), ref=ref)
        assert await keys(store, ref) == ["a/1", "ab", "b"]
        await write(store, Drop(namespace="n", key="", prefix=True), ref=ref)
        assert await keys(store, ref) == []

    async def test_appended_keys_are_numbered_one_after_another(self, store: Store, ref: str | None) -> None:
        await store.create(OWNER, a_session("s-1"))
        wishes = [Append(namespace="n", prefix="items/", value=str(n).encode()) for n in range(3)]
        await write(store, *wishes[:2], ref=ref)
        await write(store, wishes[2], Append(namespace="n", prefix="other/", value=b""), ref=ref)

        expected = ["items/000000000001", "items/000000000002", "items/000000000003", "other/000000000001"]
        assert await keys(store, ref) == expected

    async def test_concurrent_appends_all_land(self, store: Store, ref: str | None) -> None:
        await store.create(OWNER, a_session("s-1"))
        wish = Append(namespace="n", prefix="", value=b"v")
        await asyncio.gather(*(write(store, wish, ref=ref) for _ in range(12)))

        assert [int(key) for key in await keys(store, ref)] == list(range(1, 13))

    async def test_one_of_several_writers_at_a_version_wins(self, store: Store, ref: str | None) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write(store, put("k", b"0"), ref=ref)
        tries = (write(store, put("k", str(n).encode(), version=1), ref=ref) for n in range(6))
        done = await asyncio.gather(*tries, return_exceptions=True)

        assert sum(isinstance(each, VersionConflict) for each in done) == 5
        found = await read(store, "k", ref)
        assert found is not None
        assert found.version == 2

    async def test_parts_live_as_long_as_the_record_that_names_them(self, store: Store, ref: str | None) -> None:
        await store.create(OWNER, a_session("s-1"))
        parts = [Put(namespace=".parts", key=f"up/{n:05d}", value=b"x", ttl=3600) for n in range(2)]
        await write(store, *parts, ref=ref)
        await write(store, put("k", b"up", parts=2, size=2), ref=ref)
        whole = RecordQuery(namespace=".parts", prefix="up/")

        assert len(await store.list_records(OWNER, ref, whole, after(99999))) == 2
        [found] = await store.list_records(OWNER, ref, RecordQuery(namespace="n", values=False), NOON)
        assert (found.value, found.parts, found.size) == (b"up", 2, 2)

        await write(store, put("k", b"small"), ref=ref)
        assert await store.list_records(OWNER, ref, whole, NOON) == []

    async def test_parts_go_with_a_prefix_that_is_deleted(self, store: Store, ref: str | None) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write(
            store, Put(namespace=".parts", key="up/00000", value=b"x"), put("a/k", b"up", parts=1, size=1), ref=ref
        )
        await write(store, Drop(namespace="n", key="a/", prefix=True), ref=ref)

        for namespace in ("n", ".parts"):
            assert await store.list_records(OWNER, ref, RecordQuery(namespace=namespace), NOON) == []

    async def test_large_value_is_kept(self, store: Store, ref: str | None) -> None:
        await store.create(OWNER, a_session("s-1"))
        value = bytes(range(256)) * 4096
        await write(store, put("k", value), ref=ref)

        found = await read(store, "k", ref)
        assert found is not None
        assert found.value == value

    async def test_memory_and_records_of_sessions_are_apart(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.create(OWNER, a_session("s-2"))
        for ref_, value in (("s-1", b"1"), ("s-2", b"2"), (None, b"0")):
            await write(store, put("k", value), ref=ref_)
        await write(store, put("k", b"other"), ref=None, owner="other")

        found = [await read(store, "k", ref_) for ref_ in ("s-1", "s-2", None)]
        assert [one and one.value for one in found] == [b"1", b"2", b"0"]

    async def test_records_of_a_session_are_found_by_its_name(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1", "planner"))
        await write(store, put("k"), ref="planner")

        assert await keys(store, "planner") == await keys(store, "s-1") == ["k"]

    async def test_unknown_session_has_no_records(self, store: Store) -> None:
        with pytest.raises(SessionNotFound):
            await keys(store, "nobody")
        with pytest.raises(SessionNotFound):
            await read(store, "k", "nobody")

    async def test_final_session_takes_no_records(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.apply(OWNER, "s-1", finalized())
        with pytest.raises(SessionClosed):
            await write(store, put("k"))
        assert await keys(store) == []

    async def test_records_and_messages_are_one_change(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write(store, put("k"), messages=[Message("user", "hello", "m-1")])
        with pytest.raises(VersionConflict):
            await write(store, put("k", version=0), messages=[Message("user", "lost", "m-2")])

        log = await store.log(OWNER, "s-1", LogQuery(kinds=("message",)))
        assert [(entry.content, entry.client_key) for entry in log] == [("hello", "m-1")]
        assert (await store.get(OWNER, "s-1")).last_entry == log[-1].number

    async def test_records_of_a_session_and_of_its_owner_are_one_change(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write(store, put("k"), memory=[put("m", b"1"), put("gone", ttl=60)])
        await write(store, put("l"), memory=[put("m", b"2", version=1), Drop(namespace="n", key="gone")])
        for lost, shared in ((put("k", version=9), put("m")), (put("lost"), put("m", version=1))):
            with pytest.raises(VersionConflict):
                await write(store, lost, memory=[shared], messages=[Message("user", "lost")])

        found = await read(store, "m", None)
        assert found is not None
        assert (found.value, found.version) == (b"2", 2)
        assert (await keys(store), await keys(store, None)) == (["k", "l"], ["m"])
        assert await store.log(OWNER, "s-1", LogQuery(kinds=("message",))) == []

    async def test_sessions_that_write_to_one_memory_all_land(self, store: Store) -> None:
        names = [f"s-{number}" for number in range(4)]
        for name in names:
            await store.create(OWNER, a_session(name))
        steps: list[RecordRequest] = [put("k"), Append(namespace="n", prefix="p/", value=b"x")]
        some = [write(store, put("own"), ref=name, memory=steps) for name in names * 3]
        await asyncio.gather(*some, *(write(store, *steps, ref=None) for _ in range(3)))

        found = await read(store, "k", None)
        assert found is not None
        assert (found.version, len(await keys(store, None, prefix="p/"))) == (15, 15)
        versions = [await read(store, "own", name) for name in names]
        assert [one and one.version for one in versions] == [3] * 4

    async def test_message_with_a_known_client_key_is_not_repeated(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        first, second = Message("user", "hello", "m-1"), Message("assistant", "hi", "m-2")
        await store.append(OWNER, "s-1", [first], a_stamp())
        await write(store, put("k"), messages=[first, second])
        await write(store, put("l"), messages=[first, second])
        with pytest.raises(KeyReused):
            await write(store, put("m"), messages=[Message("user", "something else", "m-1")])

        log = await store.log(OWNER, "s-1", LogQuery(kinds=("message",)))
        assert [entry.content for entry in log] == ["hello", "hi"]
        assert await keys(store) == ["k", "l"]

    async def test_records_alone_move_neither_version_nor_log(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        before = await store.get(OWNER, "s-1")
        await write(store, put("k"), at=after(5))

        assert await store.get(OWNER, "s-1") == before

    async def test_fork_has_a_copy_of_the_records(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write(store, put("k", b"1"), put("l", ttl=60))
        await store.fork(OWNER, "s-1", None, a_fork("f-1"))
        await write(store, put("k", b"source"))
        await write(store, put("m"), ref="f-1")

        assert await keys(store, "f-1") == ["k", "l", "m"]
        assert await keys(store, "s-1") == ["k", "l"]
        found = await read(store, "k", "f-1")
        assert found is not None
        assert (found.value, found.version) == (b"1", 1)

    async def test_records_go_with_their_session(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write(store, put("k"))
        await write(store, put("k"), ref=None)
        await store.delete_tree(OWNER, "s-1", may_delete("s-1"), a_stamp())

        with pytest.raises(SessionGone):
            await keys(store)
        await store.create(OWNER, a_session("s-2"))
        assert await keys(store, "s-2") == []
        assert await keys(store, None) == ["k"]

    async def test_bundle_brings_records_along(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        await write(store, put("k", b"\x00\xff", ttl=60), Put(namespace="m", key="j", value=b"{}", form=JSON))
        bundle = await bundle_of(store, "s-1")
        assert len(bundle.records) == 2

        await store.restore("other", bundle)

        copied = await store.list_records("other", "s-1", RecordQuery(), NOON)
        assert copied == await store.list_records(OWNER, "s-1", RecordQuery(), NOON) == bundle.records
