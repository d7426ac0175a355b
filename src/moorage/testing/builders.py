"""Sessions, messages and times for tests, and dumps to compare.

Builders return what the port takes: `a_session` and `a_fork` are decisions for
`create` and `fork`, `said` makes messages. Everything has a default, so a test names
only what it is about.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, TypeVar

import msgspec

from moorage.core import work
from moorage.core.approval import Approval, ApprovalQuery, hash_of_plan
from moorage.core.bundle import Bundle
from moorage.core.context import (
    EVERY_KEY,
    WHOLE,
    ContextItem,
    drop_all,
    drop_key,
    items_in,
    merge_keys,
    needs_keys,
    put_key,
    replace_all,
)
from moorage.core.dump import DumpKind
from moorage.core.entry import Entry, Event, Message, check_message
from moorage.core.fact import SessionFact
from moorage.core.family import FamilyLimits, Member, NewSession, Tombstone, born, check_deletion, forked
from moorage.core.inbox import ItemState
from moorage.core.policy import Span
from moorage.core.query import LogQuery, SessionQuery
from moorage.core.record import CONTEXT, Record, RecordName, RecordQuery
from moorage.core.run import RunQuery
from moorage.core.session import Birth, Change, Needs, Session, Stamp, Update, View
from moorage.ports import BirthDecision, Decision, DeletionDecision, ForkDecision, Store
from moorage.service.copying import all_records

__all__ = [
    "MANY",
    "NOON",
    "OTHER",
    "OWNER",
    "DecisionRefused",
    "FakeClock",
    "a_fork",
    "a_session",
    "a_stamp",
    "after",
    "all_facts",
    "all_sessions",
    "all_tombstones",
    "an_approval",
    "answered",
    "asked",
    "bundle_of",
    "context_of",
    "copied",
    "drive",
    "dump",
    "finalized",
    "forgetting",
    "may_delete",
    "merging",
    "new_session",
    "nothing_changes",
    "refusing",
    "remembering",
    "replacing",
    "run_out",
    "said",
    "updated",
    "whole_feed",
    "whole_log",
    "write_context",
]

T = TypeVar("T")

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
OWNER = "ann"
OTHER = "bob"
MANY = 1000  # more than any test creates of one kind

_serial = count(1)


class FakeClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, at: datetime = NOON, *, boot: str = "boot-1") -> None:
        self.at, self.boot = at, boot
        self._zero = at

    def monotonic(self) -> float:
        """Return the seconds that have passed, without steps."""
        return (self.at - self._zero).total_seconds()

    def step(self, by: timedelta) -> None:
        """Set the time as NTP or a person does: no time passes."""
        self.at += by
        self._zero += by

    def now(self) -> datetime:
        """Return the current time."""
        return self.at

    def forward(self, by: timedelta) -> datetime:
        """Move the clock forward and return the new time."""
        self.at += by
        return self.at


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end without an event loop; it must not suspend."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]  # what a coroutine of T stops with
    coroutine.close()
    raise AssertionError("this coroutine waits for something; without an event loop it never ends")


# Requests of callers -----------------------------------------------------------------------------


def after(seconds: float) -> datetime:
    """Return the time this number of seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def a_stamp(at: datetime = NOON, by: str | None = "tester", interface: str | None = "test") -> Stamp:
    """Return a stamp of noon, by a tester."""
    return Stamp(at, by, interface)


def new_session(session_id: str | None = None, name: str | None = None, **fields: Any) -> NewSession:
    """Return a request for a session, with a unique id."""
    fields = {"spare_task_id": "task-of-nobody", "owner": OWNER, "agent_name": "echo-agent", **fields}
    return NewSession(session_id=session_id or f"session-{next(_serial)}", session_name=name, **fields)


def a_session(
    session_id: str | None = None, name: str | None = None, at: datetime = NOON, **fields: Any
) -> BirthDecision:
    """Return a decision for `create`. Fields are those of NewSession."""
    new = new_session(session_id, name, **fields)

    def decide(birth: Birth) -> Change:
        return born(new, birth, a_stamp(at), FamilyLimits())

    return decide


def a_fork(session_id: str | None = None, name: str | None = None, at: datetime = NOON, **fields: Any) -> ForkDecision:
    """Return a decision for `fork`. Fields are those of NewSession."""
    new = new_session(session_id, name, **{"agent_name": None, **fields})

    def decide(source: Session, upto: int, checkpoint: int | None) -> Change:
        return forked(source, upto, checkpoint, new, a_stamp(at))

    return decide


def said(*contents: Any, role: str = "user", key: str | None = None) -> list[Message]:
    """Return messages of one role; a client key belongs to the only one."""
    return [check_message({"role": role, "content": content, "client_key": key}) for content in contents]


def updated(at: datetime = NOON, **fields: Any) -> Decision:
    """Return a decision for `apply`. Fields are those of Update."""
    return lambda view: view.session.update(Update(**fields), a_stamp(at))


def finalized(outcome: str = "completed", at: datetime = NOON, **options: Any) -> Decision:
    """Return a decision for `apply` that closes the session, settles its runs and withdraws open questions."""

    def decide(view: View) -> Change:
        change = view.session.finalize(outcome, a_stamp(at), pending=view.pending, **options)
        return work.after(view, change, a_stamp(at))

    return decide


def an_approval(session_id: str, approval_id: str = "approval-1", at: datetime = NOON, **fields: Any) -> Approval:
    """Return a question. Fields are those of Approval."""
    fields = {"question": "Apply the plan?", "plan": {"steps": [1, 2]}, **fields}
    hashed = hash_of_plan(fields["plan"])
    return Approval(approval_id=approval_id, session_id=session_id, plan_hash=hashed, asked_at=at, **fields)


def asked(approval: Approval) -> Decision:
    """Return a decision for `apply` that asks a question."""
    return lambda view: view.ask(approval, a_stamp(approval.asked_at))


def answered(decision: str, at: datetime = NOON) -> Decision:
    """Return a decision for `apply` that answers the given approval."""

    def decide(view: View) -> Change:
        assert view.approval is not None, "call `apply` with the approval's id"
        settled = view.approval.decided(decision, by="tester", at=at)
        if settled == view.approval:
            return Change(session=view.session)
        return work.decided(view, view.session.settle(settled, a_stamp(at)), settled, a_stamp(at))

    return decide


def run_out(at: datetime) -> Decision:
    """Return a decision for `apply` that expires the given approval, if it is due."""

    def decide(view: View) -> Change:
        assert view.approval is not None, "call `apply` with the approval's id"
        if not view.approval.is_due(at):
            return Change(session=view.session)
        settled = view.approval.expired(at)
        return work.decided(view, view.session.settle(settled, a_stamp(at)), settled, a_stamp(at))

    return decide


def remembering(
    key: str, value: Any, at: datetime = NOON, ttl: timedelta | None = None, expected: int | None = None
) -> Decision:
    """Return a decision for `write_context` that puts one key."""
    return lambda view: put_key(view, {key: value}, at=at, ttl=ttl, expected=expected)


def merging(
    values: dict[str, Any], at: datetime = NOON, ttl: timedelta | None = None, expected: int | None = None
) -> Decision:
    """Return a decision for `write_context` that puts several keys."""
    return lambda view: merge_keys(view, values, at=at, ttl=ttl, expected=expected)


def replacing(values: dict[str, Any], at: datetime = NOON, ttl: timedelta | None = None) -> Decision:
    """Return a decision for `write_context` that replaces the whole context."""
    return lambda view: replace_all(view, values, at=at, ttl=ttl)


def forgetting(key: str | None = None, at: datetime = NOON) -> Decision:
    """Return a decision for `write_context` that deletes a key, or all."""
    return lambda view: drop_all(view, at=at) if key is None else drop_key(view, key, at=at)


async def write_context(
    store: Store, owner: str, ref: str, decide: Decision, key: str | None = None, *, expected: int | None = None
) -> Change:
    """Let a decision change the context, as the service does; it gets one key, or all."""
    needs = Needs(records=EVERY_KEY if key is None else needs_keys([key]))
    return await store.apply(owner, ref, decide, needs=needs, expected=expected)


async def context_of(
    store: Store, owner: str, ref: str, at: datetime = NOON, key: str | None = None
) -> dict[str, ContextItem]:
    """Return the context, or one key of it, at a time."""
    if key is None:
        return items_in(await store.list_records(owner, ref, WHOLE, at))
    return items_in(filter(None, await store.records(owner, ref, [RecordName(CONTEXT, key)], at)))


def may_delete(root: str, *, cascade: bool = True, force: bool = False, reason: str = "deleted") -> DeletionDecision:
    """Return a decision for `delete_tree` that allows the deletion."""

    def decide(members: list[Member]) -> str:
        check_deletion(root, members, cascade=cascade, force=force)
        return reason

    return decide


class DecisionRefused(Exception):
    """The refusal of a decision, for tests that check that nothing changed."""


def refusing(*_: Any) -> Any:
    """Return a decision that always refuses."""
    raise DecisionRefused


# Reading all of it ------------------------------------------------------------------------------


async def all_sessions(store: Store, owner: str = OWNER, **filters: Any) -> list[Session]:
    """Return every matching session, page after page, oldest first by default."""
    query = SessionQuery(**{"sort": "created", "limit": 7, **filters})
    found: list[Session] = []
    while True:
        [page] = await store.find(owner, query)
        found += page.items
        if page.next is None:
            return found
        query = msgspec.structs.replace(query, cursor=page.next)


async def whole_log(store: Store, ref: str, owner: str = OWNER, page: int = 100) -> list[Entry]:
    """Return every entry, page after page."""
    entries: list[Entry] = []
    while more := await store.log(owner, ref, LogQuery(after=entries[-1].number if entries else 0, limit=page)):
        entries += more
    return entries


async def whole_feed(store: Store, owner: str = OWNER, page: int = 100) -> list[Event]:
    """Return every event, page after page."""
    events: list[Event] = []
    while more := await store.feed(owner, events[-1].id if events else 0, page):
        events += more
    return events


async def all_tombstones(store: Store, owner: str = OWNER, page: int = 100) -> list[Tombstone]:
    """Return every tombstone, page after page, newest first."""
    tombstones: list[Tombstone] = []
    cursor: str | None = None
    while True:
        some = await store.tombstones(owner, page, cursor)
        tombstones += some.items
        cursor = some.next
        if cursor is None:
            return tombstones


async def all_facts(store: Store, owner: str = OWNER, span: Span | None = None, page: int = 100) -> list[SessionFact]:
    """Return every fact of a span, page after page."""
    facts: list[SessionFact] = []
    cursor: str | None = None
    while True:
        some = await store.facts(owner, span or Span(), page, cursor)
        assert len(some) <= page
        facts += some.items
        cursor = some.next
        if cursor is None:
            return facts


async def bundle_of(store: Store, ref: str, at: datetime = NOON, owner: str = OWNER) -> Bundle:
    """Return a session as an export has it."""
    return Bundle(
        session=await store.get(owner, ref),
        entries=await whole_log(store, ref, owner),
        approvals=await store.approvals(owner, ApprovalQuery(session_id=ref, pending_only=False, limit=MANY)),
        records=await _records(store, owner, ref, at),
    )


async def _records(store: Store, owner: str, ref: str | None, at: datetime) -> list[Record]:
    return await store.list_records(owner, ref, RecordQuery(limit=MANY), at)


async def dump(store: Store, owner: str = OWNER, at: datetime = NOON) -> dict[str, Any]:
    """Return everything an owner can read through the port, as plain values: equal stores have equal dumps."""
    sessions = await all_sessions(store, owner)
    return {
        "sessions": {session.session_id: await _dump_session(store, owner, session, at) for session in sessions},
        "memory": _plain(await _records(store, owner, None, at)),
        "order": [session.session_id for session in sessions],
        "approvals": _plain(await store.approvals(owner, ApprovalQuery(pending_only=False, limit=MANY))),
        "feed": _plain(await whole_feed(store, owner)),
        "feed_end": await store.feed_end(owner),
        "tombstones": _plain(await all_tombstones(store, owner)),
        "delegations": _plain((await store.delegations(owner, Span(), MANY)).items),
        "runs": _plain((await store.runs(owner, RunQuery(limit=MANY))).items),
        "inbox": _plain((await store.inbox(owner, states=tuple(ItemState), limit=MANY)).items),
        "facts": sorted(_plain(await all_facts(store, owner)), key=lambda fact: str(fact["session_id"])),
    }


async def copied(source: Store, target: Store) -> Store:
    """Return the target after copying everything from the source."""
    for kind in DumpKind:
        await target.load([record async for record in all_records(source, kind)], None)
    return target


@asynccontextmanager
async def nothing_changes(store: Store, owner: str = OWNER, at: datetime = NOON) -> AsyncIterator[None]:
    """Assert that the block changes nothing that the owner can read."""
    before = await dump(store, owner, at)
    yield
    assert await dump(store, owner, at) == before


async def _dump_session(store: Store, owner: str, session: Session, at: datetime) -> dict[str, Any]:
    ref = session.session_id
    return {
        "head": _plain(session),
        "log": _plain(await whole_log(store, ref, owner)),
        "tail": _plain(await store.tail(owner, ref, MANY)),
        "records": _plain(await _records(store, owner, ref, at)),
        "ancestors": [above.session_id for above in await store.ancestors(owner, ref)],
        "tree": [member.session_id for member in await store.tree(owner, ref, MANY)],
        "children": await store.count_children(owner, ref),
        "turns": [_plain(await store.find_turn(owner, f"{ref}:t{n}")) for n in range(1, session.turns + 1)],
        "inbox": [item.item_id for item in (await store.inbox(owner, ref=ref, states=tuple(ItemState), limit=MANY))],
    }


_plain: Callable[[object], Any] = msgspec.to_builtins
