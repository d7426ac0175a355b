"""A random test of two stores: the same calls must get the same answers.

`compared_with_model` returns a hypothesis state machine that makes the same random calls to the model and to another
store, compares every answer and every refusal, and at the end of each run everything readable. Both get the same ids,
tokens and times.

Only the parts that the port leaves open are compared loosely: search hits and due approvals as sets, cursors by the
pages they lead to.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import Bundle as Pool
from hypothesis.stateful import initialize, multiple, rule
from msgspec.structs import replace

from moorage.core.approval import ApprovalQuery
from moorage.core.bundle import Bundle
from moorage.core.entry import ROLES, Kind, Message
from moorage.core.family import Tombstone
from moorage.core.policy import Delegation, Limit, Retention, Span, why_removable
from moorage.core.query import SORTS, LogQuery
from moorage.core.session import OUTCOMES, WORKING_PHASES, Session, State, Update
from moorage.core.status import Status
from moorage.ports import Capability, Store, SweepPart
from moorage.testing.builders import (
    OTHER,
    OWNER,
    a_fork,
    a_session,
    all_facts,
    all_sessions,
    all_tombstones,
    an_approval,
    answered,
    asked,
    bundle_of,
    context_of,
    drive,
    finalized,
    forgetting,
    may_delete,
    merging,
    remembering,
    replacing,
    run_out,
    said,
    whole_feed,
    write_context,
)
from moorage.testing.comparison import Place, Runner, somewhere
from moorage.testing.recovery_model import places, questions
from moorage.testing.work_model import WorkRules

bundles: Pool[Bundle] = Pool("bundles")

owners = st.sampled_from([OWNER, OWNER, OWNER, OTHER])
names = st.sampled_from(["planner", "builder", "s-2", "s-3"])
wheres = st.builds(somewhere, places, st.integers(0, 14))
agents = st.sampled_from(["echo-agent", "hello-world"])
holders = st.sampled_from(["ann", "bob"])
tokens = st.sampled_from([None, None, None, "token-of-ann", "token-of-bob"])
versions = st.one_of(st.none(), st.none(), st.integers(0, 6))
words = st.sampled_from(["red", "green", "blue", "Redder", "grün", "x86"])
texts = st.lists(words, min_size=1, max_size=4).map(" ".join)
contents = st.one_of(texts, texts, texts.map(lambda text: [{"type": "text", "text": text}]))
message = st.builds(
    Message, role=st.sampled_from(ROLES), content=contents, client_key=st.sampled_from([None, None, "k"])
)
messages = st.lists(message, min_size=1, max_size=3).map(lambda drawn: _each_key_once(drawn))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.floats(-9, 9), st.text("aé👩'\"\\", max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)),
    max_leaves=4,
)
keys = st.sampled_from(["colour", "a.b", "clé"])
labels = st.sampled_from(["prod", "urgent"])
labelings = st.lists(labels, unique=True).map(sorted)
usages = st.fixed_dictionaries({"input_tokens": st.one_of(values, st.integers(0, 99)), "output_tokens": values})
objects = st.one_of(
    st.dictionaries(keys, values, max_size=2), st.fixed_dictionaries({"usage": st.one_of(values, usages)})
)
lifetimes = st.sampled_from([None, None, timedelta(microseconds=1), timedelta(seconds=60), timedelta(days=1)])
numbers = st.integers(1, 12)
limits = st.sampled_from([1, 2, 3, 100])
kinds = st.one_of(
    st.none(), st.lists(st.sampled_from([str(kind) for kind in Kind]), unique=True, max_size=3).map(tuple)
)
steps = st.sampled_from([timedelta(microseconds=1), timedelta(seconds=59), timedelta(minutes=11), timedelta(days=1)])
filters = st.fixed_dictionaries(
    {"sort": st.sampled_from(SORTS), "limit": st.integers(1, 4)},
    optional={
        "agent": agents,
        "state": st.sampled_from([str(state) for state in State]),
        "status": st.sampled_from([str(status) for status in Status]),
        "phase": st.sampled_from([str(phase) for phase in WORKING_PHASES]),
        "parent": places.map(lambda place: place[1]),
        "root": places.map(lambda place: place[1]),
        "task": st.sampled_from(["task-1", "task-2"]),
        "name_prefix": st.sampled_from(["plan", "s-", ""]),
        "label": labels,
        "metadata_key": keys,
        "metadata_value": st.sampled_from(["", "a", 7, ["a"], {"a": 7}]),
        "active_only": st.booleans(),
    },
)
spans = st.fixed_dictionaries(
    {},
    optional={
        "agent": agents,
        "task_id": st.sampled_from(["task-1", "task-2", "s-1"]),
        "created_after": steps,
        "created_before": steps,
    },
)


class StoreComparison(WorkRules):
    """All operations on sessions, at random."""

    # Sessions -----------------------------------------------------------------------------------

    @initialize(target=places)
    def begin(self) -> Any:
        """Create a small family, two closed sessions of one name, a fork, and an unrelated session."""
        family = (("s-1", None), ("s-2", "s-1"), ("s-3", "s-1"), ("s-4", "s-3"), ("s-5", "s-2"))
        made = [self._create(OWNER, session_id, None, parent) for session_id, parent in family]
        for session_id in ("s-6", "s-7"):
            made.append(self._create(OWNER, session_id, "builder", None))
            self.finalize((OWNER, session_id), "completed", None)
        self.append((OWNER, "s-2"), said("red", "green"), None)
        self.save_checkpoint((OWNER, "s-2"), {"step": 1}, None)
        self.made = 7
        made.append(self.fork((OWNER, "s-2"), 3, None))
        return multiple(*made, self._create(OTHER, self.fresh("s"), None, None))

    @rule(
        target=places,
        owner=owners,
        name=st.one_of(st.none(), names),
        parent=st.one_of(st.none(), wheres),
        fields=st.fixed_dictionaries(
            {"agent_name": agents, "metadata": objects},
            optional={"task_id": st.sampled_from(["task-1", "task-2"]), "purpose": texts, "labels": labelings},
        ),
        ttl=lifetimes,
    )
    def create(self, owner: str, name: str | None, parent: Place | None, fields: dict[str, Any], ttl: Any) -> Any:
        if parent is not None:
            owner = parent[0]
        expires_at = None if ttl is None else self.clock.now() + ttl
        return self._create(owner, self.fresh("s"), name, parent and parent[1], expires_at=expires_at, **fields)

    @rule(where=wheres, name=st.one_of(st.none(), names))
    def create_again(self, where: Place, name: str | None) -> None:
        self._create(*where, name, None)

    def _create(self, owner: str, session_id: str, name: str | None, parent: str | None, **fields: Any) -> Any:
        decide = a_session(session_id, name, self.clock.now(), owner=owner, **fields)
        done, _ = self.both(lambda store: store.create(owner, decide, parent=parent))
        return (owner, session_id) if done else multiple()

    @rule(target=places, where=wheres, at=st.one_of(st.none(), numbers), name=st.one_of(st.none(), names))
    def fork(self, where: Place, at: int | None, name: str | None) -> Any:
        session_id = self.fresh("f")
        decide = a_fork(session_id, name, self.clock.now())
        done, _ = self.both(lambda store: store.fork(*where, at, decide))
        return (where[0], session_id) if done else multiple()

    @rule(
        where=wheres,
        fields=st.fixed_dictionaries(
            {},
            optional={
                "phase": st.sampled_from(WORKING_PHASES),
                "metadata": objects,
                "labels": labelings,
                "error": texts,
                "resume_ready": st.booleans(),
            },
        ),
        expected=versions,
        token=tokens,
    )
    def update(self, where: Place, fields: dict[str, Any], expected: int | None, token: str | None) -> None:
        stamp = self.stamp()
        self.change(where, lambda view: view.session.update(Update(**fields), stamp, token=token), expected=expected)

    @rule(where=wheres, name=st.one_of(st.none(), names), token=tokens)
    def rename(self, where: Place, name: str | None, token: str | None) -> None:
        stamp = self.stamp()
        self.change(where, lambda view: view.session.rename(name, stamp, token=token))

    @rule(where=wheres, checkpoint=st.one_of(st.none(), objects), reason=st.one_of(st.none(), texts))
    def suspend(self, where: Place, checkpoint: dict[str, Any] | None, reason: str | None) -> None:
        stamp = self.stamp()
        self.follow(where, lambda view: view.session.suspend(stamp, checkpoint=checkpoint, reason=reason), stamp)

    @rule(where=wheres, holder=holders)
    def resume(self, where: Place, holder: str) -> None:
        stamp = self.stamp()
        self.follow(where, lambda view: view.session.resume(holder, f"token-of-{holder}", stamp), stamp)

    @rule(where=wheres, holder=holders)
    def wake(self, where: Place, holder: str) -> None:
        stamp = self.stamp()
        self.follow(where, lambda view: view.session.wake(holder, stamp), stamp)

    @rule(where=wheres, token=tokens)
    def release(self, where: Place, token: str | None) -> None:
        stamp = self.stamp()
        self.follow(where, lambda view: view.session.release(stamp, token=token), stamp)

    @rule(where=wheres, outcome=st.sampled_from(OUTCOMES), summary=st.one_of(st.none(), texts))
    def finalize(self, where: Place, outcome: str, summary: str | None) -> None:
        self.change(where, finalized(outcome, self.clock.now(), summary=summary))

    @rule(where=wheres, checkpoint=objects, token=tokens)
    def save_checkpoint(self, where: Place, checkpoint: dict[str, Any], token: str | None) -> None:
        stamp = self.stamp()
        self.change(where, lambda view: view.session.save_checkpoint(checkpoint, stamp, token=token))

    @rule(where=wheres, summary=texts, upto=numbers)
    def compact(self, where: Place, summary: str, upto: int) -> None:
        stamp = self.stamp()
        self.change(where, lambda view: view.session.compact(summary, upto, stamp))

    @rule(by=steps)
    def let_time_pass(self, by: timedelta) -> None:
        self.clock.forward(by)

    # The log ------------------------------------------------------------------------------------

    @rule(where=wheres, added=messages, token=tokens)
    def append(self, where: Place, added: list[Message], token: str | None) -> None:
        stamp = self.stamp()
        self.both(lambda store: store.append(*where, added, stamp, token=token))

    @rule(
        where=wheres,
        after=st.integers(0, 12),
        before=st.one_of(st.none(), numbers),
        limit=limits,
        kinds=kinds,
        newest_first=st.booleans(),
    )
    def log(self, where: Place, **options: Any) -> None:
        self.both(lambda store: store.log(*where, LogQuery(**options)))

    @rule(where=wheres, limit=limits, pins=limits)
    def tail(self, where: Place, limit: int, pins: int) -> None:
        self.both(lambda store: store.tail(*where, limit, pins))

    @rule(owner=owners, page=limits)
    def feed(self, owner: str, page: int) -> None:
        self.both(lambda store: whole_feed(store, owner, page))

    @rule(owner=owners, looked_for=st.lists(st.tuples(words, st.sampled_from(["", "*"])).map("".join), max_size=3))
    def search(self, owner: str, looked_for: list[str]) -> None:
        async def hits(store: Store) -> list[Any]:
            found = await store.search(owner, " ".join(looked_for), 1000)
            return sorted([hit.session_id, hit.number, hit.kind, hit.role, str(hit.at)] for hit in found)

        if Capability.SEARCH in self.other.capabilities:
            self.both(hits)

    # Reading ------------------------------------------------------------------------------------

    @rule(where=wheres)
    def get(self, where: Place) -> None:
        self.both(lambda store: store.get(*where))

    @rule(owner=owners, prefix=st.sampled_from(["s-", "s-1", "f", ""]), limit=limits)
    def match(self, owner: str, prefix: str, limit: int) -> None:
        self.both(lambda store: store.match(owner, prefix, limit))

    @rule(
        owner=owners,
        filters=filters,
        times=st.dictionaries(
            st.sampled_from(["created_after", "created_before", "updated_after", "updated_before"]), steps, max_size=2
        ),
    )
    def find(self, owner: str, filters: dict[str, Any], times: dict[str, timedelta]) -> None:
        filters = {**filters, **{name: self.clock.now() - ago for name, ago in times.items()}}
        if "metadata_key" not in filters:
            filters.pop("metadata_value", None)
        self.both(lambda store: all_sessions(store, owner, **filters))

    @rule(where=wheres, limit=limits)
    def family(self, where: Place, limit: int) -> None:
        self.both(lambda store: store.ancestors(*where))
        self.both(lambda store: store.tree(*where, limit))
        self.both(lambda store: store.count_children(*where))

    # Context ------------------------------------------------------------------------------------

    @rule(where=wheres, key=st.one_of(st.none(), keys))
    def context(self, where: Place, key: str | None) -> None:
        self.both(lambda store: context_of(store, *where, self.clock.now(), key))

    @rule(where=wheres, key=keys, value=values, ttl=lifetimes, expected=versions)
    def remember(self, where: Place, key: str, value: Any, ttl: timedelta | None, expected: int | None) -> None:
        at = self.clock.now()
        self.both(lambda store: write_context(store, *where, remembering(key, value, at, ttl, expected), key))

    @rule(where=wheres, values=objects, ttl=lifetimes, expected=versions)
    def remember_several(self, where: Place, values: Any, ttl: timedelta | None, expected: int | None) -> None:
        at = self.clock.now()
        self.both(lambda store: write_context(store, *where, merging(values, at, ttl, expected)))

    @rule(where=wheres, values=objects, ttl=lifetimes)
    def replace_context(self, where: Place, values: dict[str, Any], ttl: timedelta | None) -> None:
        at = self.clock.now()
        self.both(lambda store: write_context(store, *where, replacing(values, at, ttl)))

    @rule(where=wheres, key=st.one_of(st.none(), keys))
    def forget(self, where: Place, key: str | None) -> None:
        at = self.clock.now()
        self.both(lambda store: write_context(store, *where, forgetting(key, at), key))

    # Approvals ----------------------------------------------------------------------------------

    @rule(target=questions, where=places, ttl=lifetimes, waits=st.booleans())
    def ask(self, where: Place, ttl: timedelta | None, waits: bool) -> Any:
        at, name = self.clock.now(), self.fresh("a")
        expires_at = None if ttl is None else at + ttl
        approval = an_approval(where[1], name, at, options=("later",), expires_at=expires_at, waits=waits)
        done, _ = self.change(where, asked(approval))
        return (where, name) if done else multiple()

    @rule(question=questions, decision=st.sampled_from(["approve", "reject", "later", "perhaps"]))
    def answer(self, question: tuple[Place, str], decision: str) -> None:
        where, name = question
        self.change(where, answered(decision, self.clock.now()), approval=name)
        self.both(lambda store: store.approval(where[0], name))

    @rule(where=places, question=questions)
    def answer_elsewhere(self, where: Place, question: tuple[Place, str]) -> None:
        self.change(where, answered("approve", self.clock.now()), approval=question[1])

    @rule(owner=owners)
    def expire_approvals(self, owner: str) -> None:
        async def due(store: Store) -> list[tuple[str, str]]:
            found = await store.approvals(owner, ApprovalQuery(due_at=self.clock.now()))
            return sorted((approval.approval_id, approval.session_id) for approval in found)

        for name, session_id in self.both(due)[1]:
            self.change((owner, session_id), run_out(self.clock.now()), approval=name)

    @rule(where=wheres, of_all=st.booleans(), pending_only=st.booleans(), limit=limits)
    def approvals(self, where: Place, of_all: bool, **options: Any) -> None:
        owner, ref = where
        self.both(lambda store: store.approvals(owner, ApprovalQuery(session_id=None if of_all else ref, **options)))

    # Counting -----------------------------------------------------------------------------------

    @rule(
        where=wheres,
        number=numbers,
        ago=steps,
        resumed=st.booleans(),
        agent=st.one_of(st.none(), agents),
        task=st.sampled_from([None, "task-1"]),
    )
    def delegate(
        self, where: Place, number: int, ago: timedelta, resumed: bool, agent: str | None, task: str | None
    ) -> None:
        owner, ref = where
        delegation = Delegation(
            delegation_id=f"d-{number}",
            at=self.clock.now() - ago,
            resumed=resumed,
            reason="random",
            agent_name=agent,
            task_id=task,
            session_id=ref,
        )
        self.both(lambda store: store.record_delegation(owner, delegation))

    @rule(owner=owners, wanted=spans, page=limits)
    def count(self, owner: str, wanted: dict[str, Any], page: int) -> None:
        now = self.clock.now()
        fields: dict[str, Any] = {
            name: now - one if name.startswith("created_") else one for name, one in wanted.items()
        }
        span = Span(**fields)

        async def delegations(store: Store) -> list[Delegation]:
            found = await store.delegations(owner, span, page)
            if found.next is None:
                return found.items
            return found.items + (await store.delegations(owner, span, 100, found.next)).items

        async def facts(store: Store) -> list[Any]:
            return sorted(await all_facts(store, owner, span, page), key=lambda fact: fact.session_id)

        self.both(delegations)
        self.both(facts)

    @rule(owner=owners, wanted=st.lists(places.map(lambda place: place[1]), max_size=4))
    def fates(self, owner: str, wanted: list[str]) -> None:
        async def fates(store: Store) -> list[Any]:
            return sorted(await store.fates(owner, wanted), key=lambda fate: fate.session_id)

        self.both(fates)

    # Deleting -----------------------------------------------------------------------------------

    @rule(where=wheres, cascade=st.booleans(), force=st.booleans(), dry_run=st.booleans())
    def delete(self, where: Place, cascade: bool, force: bool, dry_run: bool) -> None:
        decide, stamp = may_delete(where[1], cascade=cascade, force=force, reason="random"), self.stamp()
        self.both(lambda store: store.delete_tree(*where, decide, stamp, dry_run=dry_run))

    @rule(
        owner=owners,
        age=steps,
        states=st.one_of(st.none(), st.sets(st.sampled_from([str(state) for state in State]), min_size=3)),
        limit=st.integers(1, 4),
        dry_run=st.booleans(),
    )
    def sweep(self, owner: str, age: timedelta, states: set[str] | None, limit: int, dry_run: bool) -> None:
        stamp, before = self.stamp(), self.clock.now() - age
        retention = Retention(limit=Limit(age), states=None if states is None else frozenset(states))

        def decide(members: list[Session]) -> str | None:
            reasons = [why_removable(member, retention, stamp.at) for member in members]
            return reasons[0] if None not in reasons else None

        async def sweep(store: Store) -> list[list[Tombstone]]:
            gone, position = [], 0
            while True:
                part = SweepPart(before=before, position=position, limit=limit)
                step = await store.sweep(owner, decide, stamp, part, dry_run=dry_run)
                gone.append(step.gone)
                if step.next is None:
                    return gone
                position = step.next

        self.both(sweep)

    @rule(owner=owners, limit=limits)
    def sweep_expired(self, owner: str, limit: int) -> None:
        stamp = self.stamp()

        async def sweep(store: Store) -> tuple[list[Tombstone], bool]:
            step = await store.sweep(owner, lambda _: "expired", stamp, SweepPart(before=None, limit=limit))
            return step.gone, step.next is None  # the position itself is up to the store

        self.both(lambda store: store.next_expiry(owner))
        self.both(sweep)

    @rule(owner=owners, page=limits)
    def tombstones(self, owner: str, page: int) -> None:
        self.both(lambda store: all_tombstones(store, owner, page))

    # Transfer -----------------------------------------------------------------------------------

    @rule(target=bundles, where=places)
    def export(self, where: Place) -> Any:
        owner, ref = where
        done, plain = self.both(lambda store: bundle_of(store, ref, self.clock.now(), owner))
        return msgspec.convert(plain, Bundle) if done else multiple()

    @rule(owner=owners, bundle=bundles)
    def restore(self, owner: str, bundle: Bundle) -> None:
        self.both(lambda store: store.restore(owner, bundle))

    @rule(target=places, owner=owners, bundle=bundles)
    def restore_a_copy(self, owner: str, bundle: Bundle) -> Any:
        session_id = self.fresh("r")
        copy = _copied(bundle, session_id)
        done, _ = self.both(lambda store: store.restore(owner, copy))
        return (owner, session_id) if done else multiple()


def _copied(bundle: Bundle, session_id: str) -> Bundle:
    """Return the same session with another id, as a root, with approvals of its own."""
    session = replace(
        bundle.session,
        session_id=session_id,
        root_session_id=session_id,
        parent_session_id=None,
        parent_session_name=None,
        depth=0,
    )
    approvals = [
        replace(approval, session_id=session_id, approval_id=f"{approval.approval_id}-of-{session_id}")
        for approval in bundle.approvals
    ]
    return replace(bundle, session=session, approvals=approvals)


def _each_key_once(drawn: list[Message]) -> list[Message]:
    """Return the messages without repeated client keys, which one call never has."""
    keyed = {one.client_key: one for one in drawn}
    return [one for one in drawn if one.client_key is None or one is keyed[one.client_key]]


def compared_with_model(make: Callable[[], Store], run: Runner = drive) -> type[StoreComparison]:
    """Return a machine that compares the store of `make` with the model; its `TestCase` is the test."""

    class ModelComparison(StoreComparison):
        def make_store(self) -> Store:
            return make()

        def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
            return run(coroutine)

    return ModelComparison
