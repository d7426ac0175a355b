"""Owners: data of another owner behaves as unknown, in every method."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from moorage.core.approval import ApprovalQuery
from moorage.core.errors import (
    ApprovalNotFound,
    ItemNotFound,
    NotFound,
    ParentNotFound,
    RunNotFound,
    SessionNotFound,
    TurnNotFound,
    Unsupported,
)
from moorage.core.policy import Delegation, Span
from moorage.core.query import SessionQuery
from moorage.core.record import RecordName, RecordQuery
from moorage.core.run import RunQuery
from moorage.core.session import Birth, Needs, Session
from moorage.ports import Store, SweepPart
from moorage.testing.builders import *
from moorage.testing.work import *

StoreCall = Callable[[Store], Awaitable[Any]]

# Methods that name a session or an approval: it does not exist for another owner.
UNKNOWN: dict[str, tuple[type[NotFound], StoreCall]] = {
    "create": (ParentNotFound, lambda store: store.create(OTHER, refusing, parent="theirs")),
    "fork": (SessionNotFound, lambda store: store.fork(OTHER, "theirs", None, refusing)),
    "get": (SessionNotFound, lambda store: store.get(OTHER, "theirs")),
    "apply": (SessionNotFound, lambda store: store.apply(OTHER, "theirs", refusing)),
    "append": (SessionNotFound, lambda store: store.append(OTHER, "theirs", said("hello"), a_stamp())),
    "log": (SessionNotFound, lambda store: store.log(OTHER, "theirs")),
    "tail": (SessionNotFound, lambda store: store.tail(OTHER, "theirs", 10)),
    "ancestors": (SessionNotFound, lambda store: store.ancestors(OTHER, "theirs")),
    "tree": (SessionNotFound, lambda store: store.tree(OTHER, "theirs", 10)),
    "count_children": (SessionNotFound, lambda store: store.count_children(OTHER, "theirs")),
    "delete_tree": (
        SessionNotFound,
        lambda store: store.delete_tree(OTHER, "theirs", refusing, a_stamp()),
    ),
    "records": (SessionNotFound, lambda store: store.records(OTHER, "theirs", [RecordName("n", "k")], NOON)),
    "list_records": (SessionNotFound, lambda store: store.list_records(OTHER, "theirs", RecordQuery(), NOON)),
    "approval": (ApprovalNotFound, lambda store: store.approval(OTHER, "approval-1")),
    "inbox": (SessionNotFound, lambda store: store.inbox(OTHER, ref="theirs", states=EVERY_STATE, limit=10)),
    "run": (RunNotFound, lambda store: store.run(OTHER, "run-1")),
    "item": (ItemNotFound, lambda store: store.item(OTHER, "message:run-1")),
    "find_turn": (TurnNotFound, lambda store: store.find_turn(OTHER, "at-work:t1")),
}


async def _swept(store: Store) -> list[Any]:
    step = await store.sweep(OTHER, refusing, a_stamp(after(10**9)), SweepPart(before=after(10**9)))
    return [*step.gone, *([] if step.next is None else [step.next])]


async def _searched(store: Store) -> list[Any]:
    try:
        return list(await store.search(OTHER, "hello", 10))
    except Unsupported:
        return []


async def _many(store: Store) -> list[Any]:
    return [session for session in await store.get_many(OTHER, ["theirs"]) if session is not None]


async def _pages(store: Store) -> list[Any]:
    return [session for page in await store.find(OTHER, SessionQuery(), SessionQuery()) for session in page]


async def _tails(store: Store) -> list[Any]:
    return [entry for tail in await store.tails(OTHER, ["theirs"], 10) for entry in (*tail.pinned, *tail.messages)]


async def _approvals(store: Store) -> list[Any]:
    found = await store.approvals_of(OTHER, ["theirs"], pending_only=False)
    return [approval for some in found for approval in some]


async def _listed_approvals(store: Store) -> list[Any]:
    every, due = ApprovalQuery(pending_only=False), ApprovalQuery(due_at=after(10**9))
    queries = every, due, ApprovalQuery(session_id="theirs")
    return [approval for query in queries for approval in await store.approvals(OTHER, query)]


async def _records(store: Store) -> list[Any]:
    found = await store.records_of(OTHER, ["theirs"], RecordName("n", "k"), NOON)
    return [record for record in found if record is not None]


# Methods that list: the list is empty for another owner.
NOTHING: dict[str, StoreCall] = {
    "match": lambda store: store.match(OTHER, "theirs", 10),
    "find": _pages,
    "get_many": _many,
    "tails": _tails,
    "approvals_of": _approvals,
    "records_of": _records,
    "feed": lambda store: store.feed(OTHER, 0, 10),
    "feed_end": lambda store: store.feed_end(OTHER),
    "sweep": _swept,
    "next_expiry": lambda store: store.next_expiry(OTHER),
    "tombstones": lambda store: _items(store.tombstones(OTHER, 10)),
    "approvals": _listed_approvals,
    "delegations": lambda store: _items(store.delegations(OTHER, Span(), 10)),
    "facts": lambda store: _items(store.facts(OTHER, Span(), 10)),
    "fates": lambda store: store.fates(OTHER, ["theirs", "deleted"]),
    "search": _searched,
    "run_by_key": lambda store: store.run_by_key(OTHER, "k-1"),
    "runs": lambda store: _items(store.runs(OTHER, RunQuery())),
    "inbox": lambda store: _items(store.inbox(OTHER, states=EVERY_STATE, limit=10)),
    "claim": lambda store: take(store, owners=(OTHER,)),
}


async def _items(page: Awaitable[Any]) -> list[Any]:
    return list((await page).items)


OWNERLESS = {"check", "totals", "pulse", "wait", "close", "overdue", "turns_of", "purge"}
OWNERLESS |= {"document", "documents", "put_document", "owners", "on_commit"}
OWNERLESS |= {"dump", "load", "hurry"}
TESTED_APART = {"restore", "record_delegation", "once", "write_memory"}


class OwnerRules:
    """Rules of every method that takes an owner."""

    def test_every_method_of_the_port_is_tested_here(self) -> None:
        methods = {name for name, _ in inspect.getmembers(Store, inspect.isfunction) if not name.startswith("_")}

        assert methods == UNKNOWN.keys() | NOTHING.keys() | OWNERLESS | TESTED_APART

    def test_every_method_that_concerns_sessions_takes_an_owner_first(self) -> None:
        for name, method in inspect.getmembers(Store, inspect.isfunction):
            if not name.startswith("_") and name not in OWNERLESS:
                assert list(inspect.signature(method).parameters)[1] == ("owners" if name == "claim" else "owner")

    @pytest.mark.parametrize("method", UNKNOWN)
    async def test_anothers_session_behaves_as_unknown(self, store: Store, method: str) -> None:
        await _theirs(store)
        error, call = UNKNOWN[method]

        async with nothing_changes(store, OWNER):
            with pytest.raises(error):
                await call(store)

    @pytest.mark.parametrize("method", sorted(UNKNOWN.keys() - {"approval", "run", "item", "find_turn"}))
    async def test_anothers_deleted_session_behaves_as_unknown(self, store: Store, method: str) -> None:
        await _theirs(store)
        await store.delete_tree(OWNER, "theirs", may_delete("theirs"), a_stamp())
        error, call = UNKNOWN[method]

        with pytest.raises(error):
            await call(store)

    async def test_anothers_name_behaves_as_unknown(self, store: Store) -> None:
        await _theirs(store)

        with pytest.raises(SessionNotFound):
            await store.get(OTHER, "their-name")

    @pytest.mark.parametrize("method", NOTHING)
    async def test_lists_hold_nothing_of_anothers(self, store: Store, method: str) -> None:
        await _theirs(store)
        await store.create(OWNER, a_session("deleted"))
        await store.delete_tree(OWNER, "deleted", may_delete("deleted"), a_stamp())

        async with nothing_changes(store, OWNER):
            assert await NOTHING[method](store) in ([], 0, None)

    async def test_owners_may_use_the_same_ids_names_keys_and_approvals(self, store: Store) -> None:
        await _theirs(store)
        before = await dump(store, OWNER)
        await _theirs(store, OTHER)
        await store.append(OTHER, "theirs", said("more"), a_stamp())
        await store.apply(OTHER, "their-name", answered("reject"), needs=Needs(approval="approval-1"))
        await store.apply(OTHER, "theirs", finalized())

        assert await dump(store, OWNER) == before
        assert (await store.get(OTHER, "theirs")).owner == OTHER

    async def test_id_spent_by_one_owner_is_free_for_another(self, store: Store) -> None:
        await _theirs(store)
        await store.delete_tree(OWNER, "theirs", may_delete("theirs"), a_stamp())

        assert (await store.create(OTHER, a_session("theirs", "their-name", owner=OTHER))).session_id == "theirs"

    async def test_deletion_takes_only_its_owners_session(self, store: Store) -> None:
        await _theirs(store)
        await _theirs(store, OTHER)

        async with nothing_changes(store, OWNER):
            await store.delete_tree(OTHER, "theirs", may_delete("theirs"), a_stamp())

    async def test_sweep_takes_only_its_owners_sessions(self, store: Store) -> None:
        await _theirs(store)
        await store.create(OTHER, a_session("mine", owner=OTHER))

        async with nothing_changes(store, OWNER):
            step = await store.sweep(OTHER, lambda _: "enough", a_stamp(after(99)), SweepPart(before=after(99)))
        assert [tombstone.session_id for tombstone in step.gone] == ["mine"]

    async def test_birth_counts_only_its_owners_descendants(self, store: Store) -> None:
        await _theirs(store)
        await _theirs(store, OTHER)
        counted: list[int] = []

        def look(birth: Birth) -> Any:
            counted.append(birth.open_descendants)
            return a_session("late", owner=OTHER)(birth)

        await store.create(OTHER, look, parent="theirs")

        assert counted[0] == 1

    async def test_anothers_turn_and_item_cannot_be_named(self, store: Store) -> None:
        await _theirs(store)
        await store.create(OTHER, a_session("mine", owner=OTHER))

        async with nothing_changes(store, OWNER):
            with pytest.raises(TurnNotFound):
                await store.apply(OTHER, "mine", refusing, needs=Needs(turn="at-work:t1"))
            with pytest.raises(ItemNotFound):
                await store.apply(OTHER, "mine", refusing, needs=Needs(item="message:run-1"))

    async def test_owners_may_use_the_same_runs_keys_and_turns(self, store: Store) -> None:
        await _theirs(store)
        before = await dump(store, OWNER)
        await _theirs(store, OTHER)
        claimed = await take(store, owners=(OTHER,))
        assert claimed is not None
        await finish(store, claimed)

        assert await dump(store, OWNER) == before
        assert (await store.run(OTHER, "run-2")).state != (await store.run(OWNER, "run-2")).state

    async def test_callback_goes_to_the_parent_of_the_same_owner(self, store: Store) -> None:
        await _theirs(store)
        await store.create(OTHER, asked_at_birth("late", a_child_run("run-9", "at-work", "run-1"), owner=OTHER))
        async with nothing_changes(store, OWNER):
            claimed = await take(store, owners=(OTHER,))
            assert claimed is not None
            await finish(store, claimed)

        assert (await store.run(OTHER, "run-9")).callback == "parent_deleted"

    async def test_work_of_one_owner_counts_nothing_of_anothers(self, store: Store) -> None:
        """Children of a run are found by its id, and ids are unique only within an owner."""
        await _theirs(store)
        await store.create(OTHER, asked_at_birth("at-work", a_run("run-1"), owner=OTHER))
        claimed = await take(store, owners=(OTHER,))
        assert claimed is not None
        await finish(store, claimed)

        assert (await store.run(OTHER, "run-1")).is_settled
        assert not (await store.run(OWNER, "run-1")).is_settled

    async def test_restored_session_belongs_to_the_given_owner(self, store: Store) -> None:
        await store.create(OWNER, a_session("s-1"))
        bundle = await bundle_of(store, "s-1")

        async with nothing_changes(store, OWNER):
            await store.restore(OTHER, bundle)
            session: Session = await store.get(OTHER, "s-1")
            assert session.owner == OTHER

    @pytest.mark.parametrize("owner", ["", "a'b", "a b", "%", "АННА", "👩", "x" * 300])
    async def test_owner_may_be_any_text(self, store: Store, owner: str) -> None:
        await store.create(OWNER, a_session("s-1"))
        await store.create(owner, a_session("s-1", owner=owner))
        await store.apply(owner, "s-1", updated(error="oops"))
        await store.fork(owner, "s-1", None, a_fork("f-1", owner=owner))

        assert (await store.get(owner, "s-1")).owner == owner
        assert await store.feed_end(owner) == 3
        assert (await store.get(OWNER, "s-1")).error_count == 0


async def _theirs(store: Store, owner: str = OWNER) -> None:
    """Create a session with a child, a message, a context and an approval soon due; another at work, with a child."""
    await store.create(owner, a_session("theirs", "their-name", owner=owner, expires_at=after(1)))
    await store.create(owner, a_session("theirs-too", owner=owner), parent="theirs")
    await store.append(owner, "theirs", said("hello", key="k-1"), a_stamp())
    await write_context(store, owner, "theirs", remembering("k", 1))
    await store.apply(owner, "theirs", asked(an_approval("theirs", expires_at=after(1))))
    await store.record_delegation(owner, Delegation(delegation_id="d-1", at=NOON, resumed=False, reason="none"))
    await store.create(owner, asked_at_birth("at-work", a_run("run-1", idempotency_key="k-1"), owner=owner))
    assert await take(store, owners=(owner,)) is not None
    child = a_child_run("run-2", "at-work", "run-1")
    await store.create(owner, asked_at_birth("asked", child, owner=owner), parent="at-work")
