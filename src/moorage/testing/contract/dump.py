"""Dumps: everything a store keeps can be dumped, and any other store can load it and continue."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from moorage.core.document import LOAD_MARK, DocumentKind
from moorage.core.dump import DumpedSession, DumpKind, DumpRecord
from moorage.core.errors import MoorageError
from moorage.core.key import SigningSecret
from moorage.core.once import OnceKey
from moorage.core.policy import Delegation
from moorage.core.session import Needs
from moorage.core.turn import Launcher
from moorage.ports import Store
from moorage.service.copying import all_records
from moorage.service.keys import all_keys, find_key, first_secret, save_key
from moorage.service.launchers import all_launchers, save_launcher, set_drain
from moorage.service.leases import heartbeats, note_beat
from moorage.testing.builders import *
from moorage.testing.contract.keys import a_key
from moorage.testing.contract.records import put, write
from moorage.testing.model_store import ModelStore
from moorage.testing.work import *

_SECRET = SigningSecret(secret_id="s1", value="00ff", created_at=NOON)


async def a_full_store(store: Store) -> None:
    """Fill a store with two owners' data of every kind: forks of deleted sessions, queued turns and running ones."""
    number_tokens_anew()
    await _conversations(store)
    await _work(store)
    await store.create(OTHER, a_session("s-1", "theirs", owner=OTHER))
    await store.append(OTHER, "s-1", said("elsewhere"), a_stamp())
    delegation = Delegation(delegation_id="d-1", at=NOON, resumed=True, reason="fits", session_id="s-1")
    await store.record_delegation(OWNER, delegation)
    await save_key(store, a_key("k1", OTHER, last_used_at=after(3)), "d-1")
    await save_key(store, a_key("k0"), "d-0")
    await first_secret(store, _SECRET)
    for name in ("launcher-2", "launcher-1"):
        await save_launcher(store, Launcher(launcher_id=name, name=name, registered_at=NOON, seen_at=after(9)))
    await set_drain(store, "launcher-2", True)
    await note_beat(store, "server-1", NOON)


async def _conversations(store: Store) -> None:
    await store.create(OWNER, a_session("s-1", "planner", metadata={"a": [1, {"b": None}]}, purpose="to be moved"))
    await store.append(OWNER, "s-1", said("hello", key="k-1") + said("be brief", role="system"), a_stamp(after(1)))
    await store.apply(OWNER, "s-1", lambda view: view.session.save_checkpoint({"step": 1}, a_stamp(after(2))))
    await store.create(OWNER, a_session("doomed"))
    await store.append(OWNER, "doomed", said("kept for a fork", "not kept"), a_stamp(after(3)))
    await store.fork(OWNER, "doomed", 2, a_fork("f-1"))
    await store.fork(OWNER, "f-1", None, a_fork("f-2"))
    await store.delete_tree(OWNER, "doomed", may_delete("doomed"), a_stamp(after(4)))
    await store.create(OWNER, a_session("child"), parent="s-1")
    await write_context(store, OWNER, "s-1", remembering("colour", "red", NOON, timedelta(seconds=60), None))
    await write_context(store, OWNER, "child", remembering("clé", {"deep": [1.5, "é"]}, NOON, None, None))
    await write(store, put("k", b"\x00\xff"), put("l", b"{}", form="json", ttl=60), ref="child")
    await write(store, put("k", b"shared"), ref=None)
    await store.apply(OWNER, "s-1", asked(an_approval("s-1", "a-2", options=("later",), expires_at=after(900))))
    await store.apply(OWNER, "s-1", answered("later", after(6)), needs=Needs(approval="a-2"))
    await store.apply(OWNER, "child", asked(an_approval("child", "a-1")))
    await store.create(OWNER, a_session("closed", "planner-2"))
    await store.apply(OWNER, "closed", finalized("failed", after(7), summary="no good"))
    await store.apply(OWNER, "f-2", lambda view: view.session.resume("ann", "token-of-ann", a_stamp(after(8))))
    request = OnceKey("create", "key-1", "digest-1")
    await store.create(OWNER, lambda birth: request.on(a_session("once")(birth), "once", NOON))


async def _work(store: Store) -> None:
    await launch(store, "p-1", "run-p")
    parent = await taken(store)
    await start(store, parent)
    for name in ("c-1", "c-2"):
        await launch(store, name, a_child_run(f"run-{name}", "p-1", "run-p", idempotency_key=name), parent="p-1")
    await carry(store, says="done")  # the first child: its callback waits in the inbox of its running parent


async def everything(store: Store) -> dict[str, Any]:
    """Return everything that can be read through the port."""
    return {
        OWNER: await dump(store, OWNER),
        OTHER: await dump(store, OTHER),
        "keys": [await find_key(store, key.key_id) for key in await all_keys(store)],
        "launchers": await all_launchers(store),
        "secret": await first_secret(store, replace(_SECRET, secret_id="another")),
        "once": await store.once(OWNER, "create", "key-1", after(9)),
    }


async def mark_of(store: Store) -> str | None:
    """Return the progress of the load."""
    found = await store.document(DocumentKind.STORE, LOAD_MARK)
    return None if found is None else found.body


class DumpRules:
    """Rules of `dump` and `load`."""

    async def test_everything_comes_out(self, store: Store) -> None:
        await a_full_store(store)
        copy = ModelStore()
        await copied(store, copy)

        assert await everything(copy) == await everything(store)
        assert await heartbeats(copy) == [], "no server uses the copy"

    async def test_everything_comes_in(self, store: Store) -> None:
        source = ModelStore()
        await a_full_store(source)
        await copied(source, store)

        assert await everything(store) == await everything(source)
        assert await store.check() == []

    async def test_every_kind_is_in_a_full_store(self, store: Store) -> None:
        await a_full_store(store)

        for kind in DumpKind:
            assert (await store.dump(kind, 1)).items, kind

    @pytest.mark.parametrize("kind", DumpKind)
    async def test_pages_of_one_hold_the_same(self, store: Store, kind: DumpKind) -> None:
        await a_full_store(store)
        one_by_one: list[DumpRecord] = []
        cursor: str | None = None
        while True:
            page = await store.dump(kind, 1, cursor)
            one_by_one += page.items
            if (cursor := page.next) is None:
                break

        assert one_by_one == (await store.dump(kind, 1000)).items

    async def test_who_took_everything_in_goes_on(self, store: Store) -> None:
        source = ModelStore()
        await a_full_store(source)
        await copied(source, store)
        end = await store.feed_end(OWNER)

        new = await store.create(OWNER, a_session("new"))
        await store.append(OWNER, "s-1", said("on we go"), a_stamp(after(20)))
        await store.fork(OWNER, "f-1", 2, a_fork("f-3"))
        await store.delete_tree(OWNER, "f-1", may_delete("f-1"), a_stamp(after(21)))

        assert await store.get(OWNER, "new") == new
        told = [(event.id - end, event.type) for event in await store.feed(OWNER, end, 100)]
        assert told == [(1, "created"), (2, "message"), (3, "forked"), (4, "session_deleted")]
        assert [entry.content for entry in await whole_log(store, "f-3")][1] == "kept for a fork"
        assert [entry.content for entry in await whole_log(store, "f-2")][1] == "kept for a fork"
        assert len(await whole_log(store, "new")) == 1
        assert await store.check() == []

    async def test_work_goes_on_where_it_was(self, store: Store) -> None:
        source = ModelStore()
        await a_full_store(source)
        running = next(turn for turn in (await _turns(source)) if turn.turn_id == "p-1:t1")
        await copied(source, store)

        claimed = await taken(store, at=after(30))
        assert claimed.session.session_id == "c-2"
        await renew(store, replace(claimed, turn=running, session=await store.get(OWNER, "p-1")), after(31))

    async def test_how_far_it_has_come_is_part_of_the_commit(self, store: Store) -> None:
        source = ModelStore()
        await a_full_store(source)
        sessions = (await source.dump(DumpKind.SESSION, 1000)).items
        assert await mark_of(store) is None

        await store.load(sessions, "so far")
        assert await mark_of(store) == "so far"

        with pytest.raises(MoorageError):
            await store.load([*_others(sessions), *sessions], "further")
        assert await mark_of(store) == "so far"
        assert (await store.dump(DumpKind.SESSION, 1000)).items == sessions
        await store.load([], None)
        assert await mark_of(store) is None

    async def test_an_empty_store_has_no_records(self, store: Store) -> None:
        for kind in DumpKind:
            page = await store.dump(kind, 10)
            assert (page.items, page.next) == ([], None)

    async def test_the_feed_tells_the_same_at_every_cursor(self, store: Store) -> None:
        source = ModelStore()
        await a_full_store(source)
        await copied(source, store)

        assert await whole_feed(store, OWNER, page=1) == await whole_feed(source, OWNER)


async def _turns(store: Store) -> list[Any]:
    return [record.turn async for record in all_records(store, DumpKind.TURN)]  # type: ignore[union-attr]


def _others(sessions: list[DumpRecord]) -> list[DumpRecord]:
    """Return a session that does not exist yet."""
    (first, *_) = (record for record in sessions if isinstance(record, DumpedSession))
    head = replace(first.session, session_id="s-999", session_name=None, root_session_id="s-999")
    return [DumpedSession(999, head)]
