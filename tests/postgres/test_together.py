"""Several servers on one database: what only one of them may do, one does; what all of them do, is all there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import asyncpg
import pytest

from moorage.core import work
from moorage.core.errors import (
    Conflict,
    EncryptionKeyMissing,
    EncryptionKeyWrong,
    FamilyLimit,
    HeldByAnother,
    SessionNotFound,
    StoreUnavailable,
    Unsupported,
)
from moorage.core.family import FamilyLimits, NewSession, born
from moorage.core.record import (
    Drop,
    Put,
    RecordName,
    RecordRequest,
    RecordsView,
    RecordWrite,
    decide_records,
    needs_of,
)
from moorage.core.run import Join
from moorage.core.session import Change, View
from moorage.ports import BirthDecision
from moorage.stores.postgres.connection import PostgresConnection
from moorage.stores.postgres.store import PostgresStore
from moorage.stores.sealing import Sealer
from moorage.stores.sql import family
from moorage.testing.builders import (
    NOON,
    OWNER,
    a_fork,
    a_session,
    a_stamp,
    context_of,
    dump,
    remembering,
    said,
    updated,
    whole_log,
    write_context,
)
from moorage.testing.work import a_child_run, finish, launch, start, take, taken

KEYS = {"k-1": b"1" * 32}


def put(value: str) -> RecordRequest:
    return Put(namespace="n", key="k", value=value.encode())


def drop() -> RecordRequest:
    return Drop(namespace="n", key="k")


@pytest.fixture
async def stores(postgres_url: str) -> AsyncIterator[list[PostgresStore]]:
    stores = [PostgresStore(f"{postgres_url}&pool=4") for _ in range(4)]
    yield stores
    for store in stores:
        await store.close()


async def test_changes_of_one_session_queue_up_and_all_land(stores: list[PostgresStore]) -> None:
    await stores[0].create(OWNER, a_session("s-1"))

    async def write(store: PostgresStore) -> None:
        for number in range(10):
            await store.apply(OWNER, "s-1", updated(error=str(number)))
            await store.append(OWNER, "s-1", said(str(number)), a_stamp())

    await asyncio.gather(*(write(store) for store in stores for _ in range(2)))
    session = await stores[0].get(OWNER, "s-1")
    assert (session.version, session.error_count, session.last_entry) == (81, 80, 161)
    assert [entry.number for entry in await whole_log(stores[1], "s-1")] == list(range(1, 162))


async def test_concurrent_context_writes_are_all_counted(stores: list[PostgresStore]) -> None:
    """No entry tells of it, so nothing but the revision keeps one from writing over the other."""
    await stores[0].create(OWNER, a_session("s-1"))

    async def remember(store: PostgresStore, place: int) -> None:
        for number in range(10):
            await write_context(store, OWNER, "s-1", remembering(f"{place}-{number}", number))

    await asyncio.gather(*(remember(store, place) for place, store in enumerate(stores)))
    assert len(await context_of(stores[0], OWNER, "s-1", NOON)) == 40
    assert (await stores[0].get(OWNER, "s-1")).context_version == 40


async def test_decision_on_an_older_revision_is_made_again(stores: list[PostgresStore], postgres_url: str) -> None:
    """Another connection commits between the first decision and its commit: nothing is left to chance."""
    await stores[0].create(OWNER, a_session("s-1"))
    seen: list[int] = []

    def decide(view: View) -> Change:
        seen.append(view.session.context_version)
        if len(seen) == 1:
            with ThreadPoolExecutor(1) as elsewhere:
                elsewhere.submit(asyncio.run, remember_elsewhere(postgres_url)).result()
        return remembering("ours", 1)(view)

    await write_context(stores[0], OWNER, "s-1", decide)
    assert seen == [0, 1]
    assert set(await context_of(stores[1], OWNER, "s-1", NOON)) == {"ours", "theirs"}
    assert (await stores[1].get(OWNER, "s-1")).context_version == 2


async def remember_elsewhere(url: str) -> None:
    store = PostgresStore(url)
    await write_context(store, OWNER, "s-1", remembering("theirs", 1))
    await store.close()


MEMORY = RecordName("n", "k")


@pytest.mark.parametrize(
    ("before", "meanwhile", "ours", "versions"),
    [
        ([], [put("theirs"), drop()], [put("ours")], [2]),
        ([put("old")], [put("theirs")], [drop(), put("ours")], [3]),
        ([put("old")], [put("theirs")], [drop()], []),
    ],
)
async def test_version_of_an_owners_record_never_comes_back(
    stores: list[PostgresStore],
    postgres_url: str,
    before: list[RecordRequest],
    meanwhile: list[RecordRequest],
    ours: list[RecordRequest],
    versions: list[int],
) -> None:
    """Another connection commits between the decision and its commit, and no revision tells of it."""
    await write_one_by_one(stores[0], before)
    decided = 0

    def decide(view: RecordsView) -> tuple[RecordWrite, ...]:
        nonlocal decided
        decided += 1
        if decided == 1:
            with ThreadPoolExecutor(1) as elsewhere:
                elsewhere.submit(asyncio.run, write_elsewhere(postgres_url, meanwhile)).result()
        return decide_records(ours, view, NOON)

    await stores[0].write_memory(OWNER, needs_of(ours), decide)
    found = await stores[1].records(OWNER, None, [MEMORY], NOON)
    assert decided == 2
    assert [record.version for record in found if record is not None] == versions
    await write_one_by_one(stores[1], [put("new")])
    [newest] = await stores[1].records(OWNER, None, [MEMORY], NOON)
    assert newest is not None
    assert newest.version == max([2, *versions]) + 1


async def write_elsewhere(url: str, requests: list[RecordRequest]) -> None:
    store = PostgresStore(url)
    await write_one_by_one(store, requests)
    await store.close()


async def write_one_by_one(store: PostgresStore, requests: list[RecordRequest]) -> None:
    for each in requests:
        await store.write_memory(OWNER, needs_of([each]), partial(decide_records, [each], at=NOON))


async def test_one_of_several_who_resume_wins(stores: list[PostgresStore]) -> None:
    await stores[0].create(OWNER, a_session("s-1"))
    tries = [
        store.apply(OWNER, "s-1", lambda view, n=n: view.session.resume(f"holder-{n}", f"token-{n}", a_stamp()))
        for n, store in enumerate(stores)
    ]
    answers = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(answer, HeldByAnother) for answer in answers) == len(stores) - 1


@pytest.mark.parametrize("connections_for_all", [True, False])
async def test_a_family_does_not_outgrow_its_limit_however_many_have_children_at_once(
    stores: list[PostgresStore], connections_for_all: bool
) -> None:
    """Of 32 there is room for 20: whether they come again one by one from the first on, or from some point on."""
    await stores[0].create(OWNER, a_session("s-1"))
    room = 20 if connections_for_all else await _max_connections(stores[0]) + 10
    await _fill(stores[0], room - 20)
    tries = [
        store.create(OWNER, a_child(f"c-{n}-{place}", room), parent="s-1")
        for place, store in enumerate(stores)
        for n in range(8)
    ]
    answers = await asyncio.gather(*tries, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, BaseException)]
    assert {type(each) for each in refused} == {FamilyLimit}
    assert (len(refused), await stores[0].count_children(OWNER, "s-1")) == (12, room)


async def _max_connections(store: PostgresStore) -> int:
    [(count,)] = await store._access.read(lambda db: db.all("SELECT current_setting('max_connections')::int"))
    return int(count)


async def _fill(store: PostgresStore, count: int) -> None:
    for n in range(count):
        await store.create(OWNER, a_child(f"early-{n}", 10_000), parent="s-1")


def a_child(session_id: str, room: int) -> BirthDecision:
    new = NewSession(session_id=session_id, spare_task_id="t-1", owner=OWNER)
    return partial(born, new, stamp=a_stamp(), limits=FamilyLimits(open_children=room))


@pytest.mark.parametrize(("first", "second"), [("source", "fork"), ("fork", "source")])
async def test_a_source_and_its_fork_that_are_deleted_at_once_leave_nothing_behind(
    stores: list[PostgresStore], first: str, second: str
) -> None:
    await stores[0].create(OWNER, a_session("source"))
    await stores[0].append(OWNER, "source", said("shared"), a_stamp())
    await stores[0].fork(OWNER, "source", None, a_fork("fork"))
    has_deleted, may_commit = asyncio.Event(), asyncio.Event()

    async def delete_slowly(db: PostgresConnection) -> None:
        await family.delete_tree(db, OWNER, first, lambda _: "test", a_stamp(), dry_run=False)
        has_deleted.set()
        await may_commit.wait()

    async with asyncio.timeout(20):
        slow = asyncio.create_task(stores[0]._access.transact(delete_slowly))
        await has_deleted.wait()
        other = asyncio.create_task(stores[1].delete_tree(OWNER, second, lambda _: "test", a_stamp()))
        while not other.done() and not await _lock_waits(stores[2]):  # noqa: ASYNC110 - the database has no event
            await asyncio.sleep(0.01)
        may_commit.set()
        await asyncio.gather(slow, other)
    assert await stores[0]._access.read(lambda db: db.all("SELECT segment, number FROM moor.entries")) == []


async def _lock_waits(store: PostgresStore) -> bool:
    sql = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return await store._access.read(lambda db: db.one(sql)) is not None


async def test_a_message_sent_twice_at_once_is_said_once(stores: list[PostgresStore]) -> None:
    await stores[0].create(OWNER, a_session("s-1"))
    sent = [store.append(OWNER, "s-1", said("hello", key="k"), a_stamp()) for store in stores]
    assert {entry.number for [entry] in await asyncio.gather(*sent)} == {2}


async def test_an_id_or_a_name_wanted_by_several_at_once_is_one_sessions(stores: list[PostgresStore]) -> None:
    for number in range(5):
        wanted = [
            stores[0].create(OWNER, a_session(f"word-{number}")),
            stores[1].create(OWNER, a_session(f"word-{number}")),
            stores[2].create(OWNER, a_session(f"a-{number}", name=f"word-{number}")),
            stores[3].create(OWNER, a_session(f"b-{number}", name=f"word-{number}")),
        ]
        answers = await asyncio.gather(*wanted, return_exceptions=True)
        assert sum(isinstance(answer, Conflict) for answer in answers) == 3, answers


async def test_every_turn_is_taken_once(stores: list[PostgresStore]) -> None:
    for number in range(24):
        await launch(stores[0], f"s-{number}", f"run-{number}")

    async def work(store: PostgresStore, launcher: str) -> list[str]:
        done = []
        while (claimed := await take(store, launcher)) is not None:
            done.append(claimed.session.session_id)
            await finish(store, claimed)
        return done

    taken_by = await asyncio.gather(*(work(store, f"l-{n}-{k}") for n, store in enumerate(stores) for k in range(2)))
    assert sorted(each for some in taken_by for each in some) == sorted(f"s-{n}" for n in range(24))
    assert await stores[0].check() == []


async def test_claim_does_not_wait_for_writers(stores: list[PostgresStore], postgres_url: str) -> None:
    for name in ("s-1", "s-2"):
        await launch(stores[0], name, f"run of {name}")
    stores[0]._hands.note(has_collided=True)  # from then on it locks what it takes
    raw = await asyncpg.connect(postgres_url)
    async with asyncio.timeout(5), raw.transaction():
        await raw.execute("SELECT 1 FROM moorage.sessions WHERE id = 's-1' FOR NO KEY UPDATE")
        assert (await taken(stores[0])).session.session_id == "s-2"
        assert await take(stores[0]) is None
    await raw.close()

    assert (await taken(stores[0])).session.session_id == "s-1"


async def test_siblings_that_end_at_the_same_moment_call_back_together(stores: list[PostgresStore]) -> None:
    await launch(stores[0], "parent", "run-0")
    parent = await taken(stores[0])
    await start(stores[0], parent)
    for number in range(8):
        run = a_child_run(f"run-c{number}", "parent", "run-0", join=Join.ALL)
        await launch(stores[0], f"child-{number}", run, parent="parent")
    children = [await taken(stores[0]) for _ in range(8)]
    await asyncio.gather(*(finish(stores[n % 4], child) for n, child in enumerate(children)))
    await finish(stores[0], parent)

    assert len((await taken(stores[1])).items) == 8, "none waits for a sibling that has ended"
    assert await stores[0].check() == []


async def test_session_that_asked_itself_gets_the_callback(stores: list[PostgresStore]) -> None:
    await launch(stores[0], "s-1", "run-0")
    run, message = a_child_run("run-1", "s-1", "run-0"), said("more")[0]
    await stores[0].apply(OWNER, "s-1", lambda view: work.ask(view, run, message, a_stamp()))
    await stores[0].apply(OWNER, "s-1", lambda view: work.stop(view, None, a_stamp()))

    assert (await stores[0].run(OWNER, "run-1")).callback == "delivered"
    assert await stores[0].check() == []


async def test_a_message_with_nul_in_it_is_kept_and_spoils_no_other(stores: list[PostgresStore]) -> None:
    for number in range(4):
        await stores[0].create(OWNER, a_session(f"s-{number}"))
    texts = ["plain", "binary \0 output", "\0", "plain again"]
    await asyncio.gather(*(stores[0].append(OWNER, f"s-{n}", said(text), a_stamp()) for n, text in enumerate(texts)))

    kept = [(await whole_log(stores[1], f"s-{number}"))[-1].content for number in range(4)]
    assert kept == texts
    assert [hit.session_id for hit in await stores[1].search(OWNER, "binary", 5)] == ["s-1"]
    assert await stores[0].check() == []


async def test_calls_before_close_are_finished(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    for number in range(20):
        await store.create(OWNER, a_session(f"s-{number}"))
    sent = [asyncio.ensure_future(store.append(OWNER, f"s-{n}", said("x"), a_stamp())) for n in range(20)]
    await asyncio.sleep(0)  # they are on their way
    await store.close()
    assert [entry.number for [entry] in await asyncio.gather(*sent)] == [2] * 20


async def test_closing_waits_for_appends_that_wait_behind_a_lock(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    for number in range(4):
        await store.create(OWNER, a_session(f"s-{number}"))
    other = await asyncpg.connect(postgres_url)
    async with asyncio.timeout(30):
        async with other.transaction():
            await other.execute("SELECT 1 FROM moorage.sessions FOR UPDATE")
            sent = [asyncio.ensure_future(store.append(OWNER, f"s-{n}", said("x"), a_stamp())) for n in range(4)]
            await asyncio.sleep(0)  # they are on their way
            closing = asyncio.ensure_future(store.close())
            await asyncio.wait([closing], timeout=0.3)
            assert not closing.done()
        await closing
        assert [entry.number for [entry] in await asyncio.gather(*sent)] == [2] * 4
    await other.close()


# Encryption at rest -----------------------------------------------------------------------------


async def test_a_sealed_database_keeps_plain_bodies_out_and_those_from_before_readable(postgres_url: str) -> None:
    plain = PostgresStore(postgres_url)
    await plain.create(OWNER, a_session("s-1", purpose="before"))
    await plain.append(OWNER, "s-1", said("before"), a_stamp())
    sealed = PostgresStore(postgres_url, Sealer(KEYS))
    await sealed.append(OWNER, "s-1", said("after"), a_stamp())

    assert [entry.content for entry in (await whole_log(sealed, "s-1"))[1:]] == ["before", "after"]
    with pytest.raises(EncryptionKeyMissing):
        await plain.append(OWNER, "s-1", said("plain"), a_stamp())
    with pytest.raises(EncryptionKeyMissing, match="k-1"):
        await whole_log(plain, "s-1")
    with pytest.raises(Unsupported, match="encrypted at rest"):
        await plain.search(OWNER, "before", 5)
    assert await sealed.check() == []
    with suppress(EncryptionKeyMissing):
        assert "k-1" in " ".join(await plain.check())
    await plain.close()
    await sealed.close()


async def test_everything_that_is_there_can_be_sealed_and_sealed_with_another_key(postgres_url: str) -> None:
    plain = PostgresStore(postgres_url)
    await launch(plain, "s-1", "run-1", purpose="to be hidden")
    await plain.append(OWNER, "s-1", said("hidden, too"), a_stamp())
    await write_context(plain, OWNER, "s-1", remembering("word", "hidden"))
    before = await dump(plain)
    await plain.search(OWNER, "hidden", 5)
    await plain.close()
    newer = {"k-2": b"2" * 32}
    for keys in (KEYS, {**newer, **KEYS}):
        sealed = PostgresStore(postgres_url, Sealer(keys))
        done = await sealed.seal()
        assert (done.key_id, done.sealed > 5, done.left) == (next(iter(keys)), True, [])
        assert done.looked_at >= done.sealed
        assert (await sealed.seal()).sealed == 0, "twice is harmless"
        await sealed.close()

    only_newer = PostgresStore(postgres_url, Sealer(newer))
    assert await dump(only_newer) == before
    assert await only_newer.check() == []

    async def everything(db: PostgresConnection) -> str:
        tables = ("sessions", "entries", "records", "runs", "turns", "inbox", "search")
        return "".join([str(await db.all(f"SELECT t::text FROM moor.{table} t")) for table in tables])

    assert "hidden" not in await only_newer._access.read(everything)
    await only_newer.close()


async def test_another_key_under_a_known_id_is_refused(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, Sealer(KEYS))
    await store.create(OWNER, a_session("s-1"))
    await store.close()
    wrong = PostgresStore(postgres_url, Sealer({"k-1": b"2" * 32}))
    with pytest.raises(EncryptionKeyWrong):
        await wrong.get(OWNER, "s-1")
    await wrong.close()


# Rules enforced by the database ----------------------------------------------------------------


async def test_a_turn_that_another_is_about_to_take_is_passed_by(stores: list[PostgresStore]) -> None:
    await launch(stores[0], "s-1", "run-1")
    await launch(stores[0], "s-2", "run-2")
    is_locked, may_go = asyncio.Event(), asyncio.Event()

    async def keep(db: PostgresConnection) -> None:
        await db.all("SELECT 1 FROM moor.turns ORDER BY n LIMIT 1 FOR UPDATE")
        is_locked.set()
        await may_go.wait()

    async with asyncio.timeout(20):
        keeping = asyncio.create_task(stores[0]._access.transact(keep))
        await is_locked.wait()
        stores[1]._hands.note(has_collided=True)  # from then on it locks what it takes
        async with asyncio.timeout(5):
            assert (await taken(stores[1])).session.session_id == "s-2"
        may_go.set()
        await keeping


@pytest.mark.parametrize("state", ["queued", "running"])
async def test_the_database_refuses_a_second_turn_that_is_live(stores: list[PostgresStore], state: str) -> None:
    await launch(stores[0], "s-1", "run-1")
    if state == "running":
        await take(stores[0])
    columns = "owner, session, root, agent, state, body"

    async def double(db: PostgresConnection) -> None:
        await db.run(f"INSERT INTO moor.turns (id, {columns}) SELECT 'another', {columns} FROM moor.turns")

    with pytest.raises(StoreUnavailable, match=f"turns_{state}"):
        await stores[0]._access.transact(double)


async def test_session_of_another_owner_is_unknown(stores: list[PostgresStore]) -> None:
    await stores[0].create(OWNER, a_session("s-1"))
    with pytest.raises(SessionNotFound):
        await stores[1].get("another", "s-1")
