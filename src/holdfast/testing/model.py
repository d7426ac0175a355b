"""A random life for two stores at once: whatever happens, they must answer the same.

`compared_with_memory` makes a hypothesis state machine that does the same random things
to the in-memory store and to another, compares every answer and every refusal, and at
the end of each run everything that can be seen. Both get the same ids, tokens and times.

Only what the port leaves open is compared loosely: search hits and due approvals as
sets, cursors by what they lead to.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import Bundle as Pool
from hypothesis.stateful import RuleBasedStateMachine, initialize, multiple, rule
from msgspec.structs import replace

from holdfast.core.bundle import Bundle
from holdfast.core.context import ContextChange, ContextItem, replace_all
from holdfast.core.entry import ROLES, Kind, Message
from holdfast.core.errors import HoldfastError
from holdfast.core.family import Tombstone
from holdfast.core.policy import Retention, why_removable
from holdfast.core.session import OUTCOMES, WORKING_PHASES, Session, Stamp, State, Update
from holdfast.ports import Capability, Decision, Store
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing.builders import (
    OTHER,
    OWNER,
    FakeClock,
    a_fork,
    a_session,
    a_stamp,
    all_sessions,
    all_tombstones,
    an_approval,
    answered,
    asked,
    bundle_of,
    drive,
    dump,
    finalized,
    forgetting,
    may_delete,
    merging,
    remembering,
    run_out,
    whole_feed,
)

Runner = Callable[[Coroutine[Any, Any, Any]], Any]
Call = Callable[[Store], Coroutine[Any, Any, Any]]
Answer = tuple[bool, Any]  # whether it was done, and the answer or the error

session_ids: Pool[str] = Pool("session_ids")
approval_ids: Pool[str] = Pool("approval_ids")
bundles: Pool[Bundle] = Pool("bundles")

owners = st.sampled_from([OWNER, OWNER, OWNER, OTHER])
names = st.sampled_from(["planner", "builder", "s-2", "s-3"])
refs = st.one_of(session_ids, session_ids, session_ids, names, st.just("nobody"))
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
messages = st.lists(message, min_size=1, max_size=3).map(lambda said: _each_key_once(said))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.floats(-9, 9), st.text("aé👩'\"\\", max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)),
    max_leaves=4,
)
keys = st.sampled_from(["colour", "a.b", "clé"])
objects = st.dictionaries(keys, values, max_size=2)
lifetimes = st.sampled_from([None, None, timedelta(microseconds=1), timedelta(seconds=60), timedelta(days=1)])
numbers = st.integers(1, 12)
limits = st.sampled_from([1, 2, 3, 100])
kinds = st.one_of(
    st.none(), st.lists(st.sampled_from([str(kind) for kind in Kind]), unique=True, max_size=3).map(tuple)
)
steps = st.sampled_from([timedelta(microseconds=1), timedelta(seconds=59), timedelta(minutes=11), timedelta(days=1)])
filters = st.fixed_dictionaries(
    {"sort": st.sampled_from(["created", "-created"]), "limit": st.integers(1, 4)},
    optional={
        "agent": agents,
        "state": st.sampled_from([str(state) for state in State]),
        "status": st.sampled_from(["created", "waiting", "idle", "suspended", "completed"]),
        "phase": st.sampled_from([str(phase) for phase in WORKING_PHASES]),
        "parent": session_ids,
        "root": session_ids,
        "task": st.sampled_from(["task-1", "task-2"]),
        "name_prefix": st.sampled_from(["plan", "s-", ""]),
        "metadata_key": keys,
        "metadata_value": st.sampled_from(["", "a", 7, ["a"], {"a": 7}]),
        "active_only": st.booleans(),
    },
)


class StoreComparison(RuleBasedStateMachine):
    """Does the same to two stores and compares what they say."""

    def make_store(self) -> Store:
        """A new, empty store to compare with the model."""
        raise NotImplementedError

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Drive a coroutine of either store to its end."""
        return drive(coroutine)

    def __init__(self) -> None:
        super().__init__()
        self.model, self.other = MemoryStore(), self.make_store()
        self.clock = FakeClock()
        self.made = 0

    def teardown(self) -> None:
        """Everything that can be seen must be the same in both."""
        try:
            for owner in (OWNER, OTHER):
                self.both(lambda store, owner=owner: dump(store, owner, self.clock.now()))
            assert self.run(self.other.check()) == []
        finally:
            self.run(self.other.close())

    # How it works -------------------------------------------------------------------------------

    def both(self, call: Call) -> Answer:
        """What both say, which must be the same."""
        expected, actual = self._answer(call, self.model), self._answer(call, self.other)
        assert actual == expected
        return expected

    def _answer(self, call: Call, store: Store) -> Answer:
        try:
            return True, msgspec.to_builtins(self.run(call(store)))
        except HoldfastError as error:
            return False, error.to_dict()

    def change(self, owner: str, ref: str, decide: Decision, **options: Any) -> Answer:
        """Apply a decision to a session in both."""
        return self.both(lambda store: store.apply(owner, ref, decide, **options))

    def stamp(self) -> Stamp:
        """Now, by somebody."""
        return a_stamp(self.clock.now())

    def fresh(self, what: str) -> str:
        """An id that was not given before."""
        self.made += 1
        return f"{what}-{self.made}"

    # Sessions -----------------------------------------------------------------------------------

    @initialize(target=session_ids)
    def begin(self) -> str:
        return self._create(OWNER, self.fresh("s"), None, None)

    @rule(
        target=session_ids,
        owner=owners,
        name=st.one_of(st.none(), names),
        parent=st.one_of(st.none(), refs),
        fields=st.fixed_dictionaries(
            {"agent_name": agents, "metadata": objects},
            optional={"task_id": st.sampled_from(["task-1", "task-2"]), "purpose": texts},
        ),
        ttl=lifetimes,
    )
    def create(self, owner: str, name: str | None, parent: str | None, fields: dict[str, Any], ttl: Any) -> str:
        expires_at = None if ttl is None else self.clock.now() + ttl
        return self._create(owner, self.fresh("s"), name, parent, expires_at=expires_at, **fields)

    @rule(owner=owners, session_id=refs, name=st.one_of(st.none(), names, refs))
    def create_again(self, owner: str, session_id: str, name: str | None) -> None:
        self._create(owner, session_id, name, None)

    def _create(self, owner: str, session_id: str, name: str | None, parent: str | None, **fields: Any) -> str:
        decide = a_session(session_id, name, self.clock.now(), owner=owner, **fields)
        self.both(lambda store: store.create(owner, decide, parent=parent))
        return session_id

    @rule(
        target=session_ids, owner=owners, ref=refs, at=st.one_of(st.none(), numbers), name=st.one_of(st.none(), names)
    )
    def fork(self, owner: str, ref: str, at: int | None, name: str | None) -> str:
        session_id = self.fresh("f")
        decide = a_fork(session_id, name, self.clock.now(), owner=owner)
        self.both(lambda store: store.fork(owner, ref, at, decide))
        return session_id

    @rule(
        owner=owners,
        ref=refs,
        fields=st.fixed_dictionaries(
            {},
            optional={
                "phase": st.sampled_from(WORKING_PHASES),
                "metadata": objects,
                "error": texts,
                "resume_ready": st.booleans(),
            },
        ),
        expected=versions,
        token=tokens,
    )
    def update(self, owner: str, ref: str, fields: dict[str, Any], expected: int | None, token: str | None) -> None:
        stamp = self.stamp()
        self.change(
            owner, ref, lambda view: view.session.update(Update(**fields), stamp, token=token), expected=expected
        )

    @rule(owner=owners, ref=refs, checkpoint=st.one_of(st.none(), objects), reason=st.one_of(st.none(), texts))
    def suspend(self, owner: str, ref: str, checkpoint: dict[str, Any] | None, reason: str | None) -> None:
        stamp = self.stamp()
        self.change(owner, ref, lambda view: view.session.suspend(stamp, checkpoint=checkpoint, reason=reason))

    @rule(owner=owners, ref=refs, holder=holders)
    def resume(self, owner: str, ref: str, holder: str) -> None:
        stamp = self.stamp()
        self.change(owner, ref, lambda view: view.session.resume(holder, f"token-of-{holder}", stamp))

    @rule(owner=owners, ref=refs, token=tokens)
    def release(self, owner: str, ref: str, token: str | None) -> None:
        stamp = self.stamp()
        self.change(owner, ref, lambda view: view.session.release(stamp, token=token))

    @rule(owner=owners, ref=refs, outcome=st.sampled_from(OUTCOMES), summary=st.one_of(st.none(), texts))
    def finalize(self, owner: str, ref: str, outcome: str, summary: str | None) -> None:
        self.change(owner, ref, finalized(outcome, self.clock.now(), summary=summary))

    @rule(owner=owners, ref=refs, checkpoint=objects, token=tokens)
    def save_checkpoint(self, owner: str, ref: str, checkpoint: dict[str, Any], token: str | None) -> None:
        stamp = self.stamp()
        self.change(owner, ref, lambda view: view.session.save_checkpoint(checkpoint, stamp, token=token))

    @rule(owner=owners, ref=refs, summary=texts, upto=numbers)
    def compact(self, owner: str, ref: str, summary: str, upto: int) -> None:
        stamp = self.stamp()
        self.change(owner, ref, lambda view: view.session.compact(summary, upto, stamp))

    @rule(by=steps)
    def let_time_pass(self, by: timedelta) -> None:
        self.clock.forward(by)

    # The log ------------------------------------------------------------------------------------

    @rule(owner=owners, ref=refs, said=messages, token=tokens)
    def append(self, owner: str, ref: str, said: list[Message], token: str | None) -> None:
        stamp = self.stamp()
        self.both(lambda store: store.append(owner, ref, said, stamp, token=token))

    @rule(
        owner=owners,
        ref=refs,
        after=st.integers(0, 12),
        before=st.one_of(st.none(), numbers),
        limit=limits,
        kinds=kinds,
        newest_first=st.booleans(),
    )
    def log(self, owner: str, ref: str, **options: Any) -> None:
        self.both(lambda store: store.log(owner, ref, **options))

    @rule(owner=owners, ref=refs, limit=limits)
    def pinned(self, owner: str, ref: str, limit: int) -> None:
        self.both(lambda store: store.pinned(owner, ref, limit))

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

    @rule(owner=owners, ref=refs)
    def get(self, owner: str, ref: str) -> None:
        self.both(lambda store: store.get(owner, ref))

    @rule(owner=owners, prefix=st.sampled_from(["s-", "s-1", "f", ""]), limit=limits)
    def match(self, owner: str, prefix: str, limit: int) -> None:
        self.both(lambda store: store.match(owner, prefix, limit))

    @rule(owner=owners, filters=filters, since=st.one_of(st.none(), steps))
    def find(self, owner: str, filters: dict[str, Any], since: timedelta | None) -> None:
        if since is not None:
            filters = {**filters, "updated_after": self.clock.now() - since}
        self.both(lambda store: all_sessions(store, owner, **filters))

    @rule(owner=owners, ref=refs, limit=limits)
    def family(self, owner: str, ref: str, limit: int) -> None:
        self.both(lambda store: store.ancestors(owner, ref))
        self.both(lambda store: store.tree(owner, ref, limit))
        self.both(lambda store: store.count_children(owner, ref))

    # Context ------------------------------------------------------------------------------------

    @rule(owner=owners, ref=refs, key=st.one_of(st.none(), keys))
    def context(self, owner: str, ref: str, key: str | None) -> None:
        self.both(lambda store: store.context(owner, ref, self.clock.now(), key))

    @rule(owner=owners, ref=refs, key=keys, value=values, ttl=lifetimes, expected=versions)
    def remember(self, owner: str, ref: str, key: str, value: Any, ttl: timedelta | None, expected: int | None) -> None:
        at = self.clock.now()
        self.both(lambda store: store.write_context(owner, ref, remembering(key, value, at, ttl, expected), at, key))

    @rule(owner=owners, ref=refs, values=objects, ttl=lifetimes, expected=versions)
    def remember_several(self, owner: str, ref: str, values: Any, ttl: timedelta | None, expected: int | None) -> None:
        at = self.clock.now()
        self.both(lambda store: store.write_context(owner, ref, merging(values, at, ttl, expected), at))

    @rule(owner=owners, ref=refs, values=objects, ttl=lifetimes)
    def replace_context(self, owner: str, ref: str, values: dict[str, Any], ttl: timedelta | None) -> None:
        at = self.clock.now()

        def decide(session: Session, present: dict[str, ContextItem]) -> ContextChange:
            change = replace_all(session, values, present, at=at, ttl=ttl, expected=None)
            return replace(change, drop=tuple(sorted(change.drop)))  # a set of texts has no order of its own

        self.both(lambda store: store.write_context(owner, ref, decide, at))

    @rule(owner=owners, ref=refs, forgotten=st.lists(keys, max_size=2, unique=True))
    def forget(self, owner: str, ref: str, forgotten: list[str]) -> None:
        at = self.clock.now()
        self.both(lambda store: store.write_context(owner, ref, forgetting(*forgotten, at=at), at))

    # Approvals ----------------------------------------------------------------------------------

    @rule(target=approval_ids, owner=owners, ref=session_ids, ttl=lifetimes)
    def ask(self, owner: str, ref: str, ttl: timedelta | None) -> str:
        at, name = self.clock.now(), self.fresh("a")
        expires_at = None if ttl is None else at + ttl
        self.change(owner, ref, asked(an_approval(ref, name, at, options=("later",), expires_at=expires_at)))
        return name

    @rule(owner=owners, name=approval_ids, decision=st.sampled_from(["approve", "reject", "later", "perhaps"]))
    def answer(self, owner: str, name: str, decision: str) -> None:
        done, approval = self.both(lambda store: store.approval(owner, name))
        if done:
            self.change(owner, approval["session_id"], answered(decision, self.clock.now()), approval=name)

    @rule(owner=owners, name=approval_ids, ref=session_ids)
    def answer_elsewhere(self, owner: str, name: str, ref: str) -> None:
        self.change(owner, ref, answered("approve", self.clock.now()), approval=name)

    @rule(owner=owners)
    def expire_approvals(self, owner: str) -> None:
        async def due(store: Store) -> list[tuple[str, str]]:
            found = await store.due_approvals(owner, self.clock.now())
            return sorted((approval.approval_id, approval.session_id) for approval in found)

        for name, session_id in self.both(due)[1]:
            self.change(owner, session_id, run_out(self.clock.now()), approval=name)

    @rule(owner=owners, ref=st.one_of(st.none(), refs), pending_only=st.booleans(), limit=limits)
    def approvals(self, owner: str, **options: Any) -> None:
        self.both(lambda store: store.approvals(owner, **options))

    # Deleting -----------------------------------------------------------------------------------

    @rule(owner=owners, ref=session_ids, cascade=st.booleans(), dry_run=st.booleans())
    def delete(self, owner: str, ref: str, cascade: bool, dry_run: bool) -> None:
        decide, stamp = may_delete(ref, cascade=cascade), self.stamp()
        self.both(lambda store: store.delete_tree(owner, ref, decide, stamp, reason="random", dry_run=dry_run))

    @rule(
        owner=owners,
        age=steps,
        states=st.one_of(st.none(), st.sets(st.sampled_from([str(state) for state in State]), min_size=3)),
        limit=st.integers(1, 4),
        dry_run=st.booleans(),
    )
    def sweep(self, owner: str, age: timedelta, states: set[str] | None, limit: int, dry_run: bool) -> None:
        stamp, before = self.stamp(), self.clock.now() - age
        retention = Retention(before=before, states=None if states is None else frozenset(states))

        def decide(members: list[Session]) -> str | None:
            reasons = [why_removable(member, retention, stamp.at) for member in members]
            return reasons[0] if None not in reasons else None

        async def sweep(store: Store) -> list[list[Tombstone]]:
            gone, position = [], 0
            while True:
                step = await store.sweep(
                    owner, decide, stamp, before=before, position=position, limit=limit, dry_run=dry_run
                )
                gone.append(step.gone)
                if step.next is None:
                    return gone
                position = step.next

        self.both(sweep)

    @rule(owner=owners, page=limits)
    def tombstones(self, owner: str, page: int) -> None:
        self.both(lambda store: all_tombstones(store, owner, page))

    # Transfer -----------------------------------------------------------------------------------

    @rule(target=bundles, owner=owners, ref=session_ids)
    def export(self, owner: str, ref: str) -> Any:
        done, plain = self.both(lambda store: bundle_of(store, ref, self.clock.now(), owner))
        return msgspec.convert(plain, Bundle) if done else multiple()

    @rule(owner=owners, bundle=bundles)
    def restore(self, owner: str, bundle: Bundle) -> None:
        self.both(lambda store: store.restore(owner, bundle))

    @rule(target=session_ids, owner=owners, bundle=bundles)
    def restore_a_copy(self, owner: str, bundle: Bundle) -> str:
        session_id = self.fresh("r")
        copy = _copied(bundle, session_id)
        self.both(lambda store: store.restore(owner, copy))
        return session_id


def _copied(bundle: Bundle, session_id: str) -> Bundle:
    """The same session under another id, a root, with approvals of its own."""
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


def _each_key_once(said: list[Message]) -> list[Message]:
    """Without messages that repeat a client key; one call never does."""
    keyed = {one.client_key: one for one in said}
    return [one for one in said if one.client_key is None or one is keyed[one.client_key]]


def compared_with_memory(make: Callable[[], Store], run: Runner = drive) -> type[StoreComparison]:
    """A machine that compares what `make` makes with the in-memory store; its `TestCase` is the test."""

    class Comparison(StoreComparison):
        def make_store(self) -> Store:
            return make()

        def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
            return run(coroutine)

    return Comparison
