"""Sessions in plain dictionaries: the model that every store is compared with.

Everything is kept as JSON and decoded for every answer, so no caller can change the store through a value passed in or
returned. One lock guards all data. A method first decides and checks, then writes, so an error changes nothing. No
coroutine suspends, except `wait` inside a running event loop.

Entries are in segments, one for each session, named by the session's serial number. A fork reads (segment, up to) of
its sources, then its own; an entry is deleted when no session reads it any more.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import chain, dropwhile, islice

from msgspec.json import Decoder
from msgspec.structs import replace

from moorage.core.approval import PENDING, Approval, ApprovalQuery, ApprovalState
from moorage.core.bundle import Bundle, as_restored
from moorage.core.codec import encode
from moorage.core.document import LOAD_MARK, NOT_COPIED, Document, DocumentKind
from moorage.core.dump import DumpedDocument, DumpedSession, DumpKind, DumpRecord
from moorage.core.entry import Entry, Event, Hit, Kind, Message, event_of, search_words, searchable_text, snippet_of
from moorage.core.errors import (
    ApprovalNotFound,
    EntryNotFound,
    IdTaken,
    ItemNotFound,
    KeyReused,
    NameTaken,
    ParentNotFound,
    SessionGone,
    SessionNotFound,
)
from moorage.core.fact import Backlog, CallbackCounts, Fate, SessionFact, Totals, callback_counts, tokens_of
from moorage.core.family import EVERY_TOMBSTONE, Deletion, Member, Tombstone, TombstoneQuery
from moorage.core.ids import looks_like_ref
from moorage.core.inbox import OPEN_ITEMS, Item, ItemKind, ItemState, inbox_fingerprint
from moorage.core.once import Once
from moorage.core.policy import Delegation, Span
from moorage.core.query import MAX_POSITION, OLDEST, LogQuery, Page, SessionQuery, make_cursor, read_cursor
from moorage.core.record import PutRecord, Record, RecordName, RecordNeeds, RecordQuery, RecordWrite
from moorage.core.run import Run, RunQuery, RunState
from moorage.core.session import NO_NEEDS, Asker, Birth, Callback, Change, Needs, Session, Stamp, State, View
from moorage.core.turn import Turn, TurnState
from moorage.core.work import DELIVERED, Claim, callbacks_of_deleted, claim, deliver, fate_with
from moorage.ports import (
    BirthDecision,
    Capability,
    Claimed,
    CommitWatcher,
    Decision,
    DeletionDecision,
    DocumentDecision,
    ForkDecision,
    LauncherTurn,
    RecordDecision,
    Sweep,
    SweepDecision,
    SweepPart,
    Tail,
)
from moorage.stores.pulse import Pulse
from moorage.stores.rows import tombstone_for
from moorage.testing.model_store.dump import put, records_of
from moorage.testing.model_store.one_by_one import OneByOne
from moorage.testing.model_store.records import RecordBook
from moorage.testing.model_store.work import Numbers, WorkTable

SegmentRange = tuple[int, int]  # a segment, and the last number read from it

_ALL = sys.maxsize  # no entry has a higher number

_read_session = Decoder(Session).decode
_read_entry = Decoder(Entry).decode
_read_approval = Decoder(Approval).decode
_read_delegation = Decoder(Delegation).decode
_words = re.compile(r"[^\W_]+").findall


class ModelStore(Pulse, OneByOne):
    """Keeps sessions in this process, for any number of its threads and event loops."""

    capabilities = frozenset({Capability.SEARCH, Capability.PUSH})

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()
        self._partitions: dict[str, Partition] = {}
        self._documents: dict[tuple[str, str], Document] = {}  # by kind and key
        self._numbers = Numbers()  # of runs, turns and items
        self._serials = Numbers()  # of sessions

    @contextmanager
    def _opened(self, owner: str) -> Iterator[Partition]:
        """Yield the owner's partition, locked; wake waiting readers if something was written."""
        with self._lock:
            if owner not in self._partitions:
                self._partitions[owner] = Partition(owner, WorkTable(self._numbers), self._serials)
            partition = self._partitions[owner]
            before = partition.writes
            yield partition
            if partition.writes != before:
                self.beat()

    # Sessions -----------------------------------------------------------------------------------

    async def create(
        self, owner: str, decide: BirthDecision, *, parent: str | None = None, asker: Asker | None = None
    ) -> Session:
        """Create the session that `decide` returns for the parent."""
        with self._opened(owner) as partition:
            change = decide(partition.birth_under(parent, asker))
            partition.check_once(change)
            partition.check_free(change.session)
            partition.work.check(change)
            record = partition.add(change.session, change.entries)
            partition.write_work(record, change)
            partition.note_once(change)
            return record.head

    async def fork(
        self, owner: str, ref: str, at: int | None, decide: ForkDecision, *, expected: int | None = None
    ) -> Session:
        """Create the session that `decide` returns for a session up to an entry, sharing the earlier entries."""
        with self._opened(owner) as partition:
            partition.find(ref).head.check_version(expected)
            return partition.fork(partition.find(ref), at, decide).head

    async def get(self, owner: str, ref: str) -> Session:
        """Return the current session."""
        with self._opened(owner) as partition:
            return partition.find(ref).head

    async def match(self, owner: str, prefix: str, limit: int) -> list[str]:
        """Return ids that begin with `prefix`, in order."""
        with self._opened(owner) as partition:
            return sorted(session_id for session_id in partition.by_id if session_id.startswith(prefix))[:limit]

    async def find(self, owner: str, *queries: SessionQuery) -> list[Page[Session]]:
        """Return a page for each query, in the order that it names."""
        with self._opened(owner) as partition:
            return [partition.page(query) for query in queries]

    async def apply(
        self, owner: str, ref: str, decide: Decision, *, needs: Needs = NO_NEEDS, expected: int | None = None
    ) -> Change:
        """Load the head, let `decide` choose, and commit its whole change or nothing."""
        with self._opened(owner) as partition:
            record = partition.find(ref)
            record.head.check_version(expected)
            name, work = record.session_id, partition.work
            view = replace(
                partition.view_of(record, with_work=True),
                approval=None if needs.approval is None else record.approval(needs.approval),
                turn=None if needs.turn is None else work.turn(needs.turn, name),
                item=None if needs.item is None else work.item(needs.item, name),
                run=None if needs.run is None else work.run_of(name, needs.run),
                dead_letters=() if needs.run is None else work.dead_letters(name, needs.run),
                asker=work.asker(needs.asker),
                records=None if needs.records is None else record.beside.view(needs.records),
                memory=None if needs.memory is None else partition.memory.view(needs.memory),
                seen=partition.seen(record, needs.client_keys),
            )
            return partition.commit(record, decide(view))

    async def once(self, owner: str, operation: str, key: str, at: datetime) -> Once | None:
        """Return the request with a key from the last 24 hours."""
        with self._opened(owner) as partition:
            kept = partition.requests.get((operation, key))
            return kept if kept is not None and kept.lives(at) else None

    async def purge(self, at: datetime, limit: int) -> int:
        """Delete some old requests and expired documents, the oldest first."""
        with self._lock:
            old = [
                (kept.at, partition, kept)
                for partition in self._partitions.values()
                for kept in partition.old_requests(at)
            ]
            for _, partition, kept in sorted(old, key=lambda one: one[0])[:limit]:
                del partition.requests[kept.operation, kept.key]
            gone = [one for one in self._documents.values() if one.expires_at is not None and one.expires_at <= at]
            for one in sorted(gone, key=lambda one: one.expires_at or at)[:limit]:
                del self._documents[one.kind, one.key]
            return len(old[:limit]) + len(gone[:limit]) + self._purge_records(at, limit)

    def _purge_records(self, at: datetime, limit: int) -> int:
        books = [book for partition in self._partitions.values() for book in partition.books()]
        expired = sorted((end, place, name) for place, book in enumerate(books) for end, name in book.expired(at))
        for _, place, name in expired[:limit]:
            books[place].purge(name, at)
        return len(expired[:limit])

    # The log ------------------------------------------------------------------------------------

    async def append(
        self,
        owner: str,
        ref: str,
        messages: list[Message],
        stamp: Stamp,
        *,
        token: str | None = None,
        expected: int | None = None,
    ) -> list[Entry]:
        """Append messages; for a known client key, return the existing entry."""
        with self._opened(owner) as partition:
            partition.find(ref).head.check_version(expected)
            return partition.append(partition.find(ref), messages, stamp, token)

    async def log(self, owner: str, ref: str, query: LogQuery = OLDEST) -> list[Entry]:
        """Return entries with after < number < before, of these kinds, from one end."""
        with self._opened(owner) as partition:
            found = partition.find(ref)
            entries = partition.entries(found, query.after, query.before, newest_first=query.newest_first)
            kinds = query.kinds
            return list(islice((entry for entry in entries if kinds is None or entry.kind in kinds), query.limit))

    async def tail(self, owner: str, ref: str, limit: int, pins: int = 100, *, with_session: bool = False) -> Tail:
        """Return the newest messages since the newest summary, and the entries that every window keeps."""
        with self._opened(owner) as partition:
            record = partition.find(ref)
            session = record.head if with_session else None
            newest = list(partition.entries(record, newest_first=True))
        summary = [entry for entry in newest if entry.kind == Kind.SUMMARY][:1]
        messages = [entry for entry in newest if entry.is_message]
        systems = [entry for entry in messages if entry.role == "system"][:pins]
        upto = max((entry.data["upto"] for entry in summary if entry.data), default=0)
        pinned = sorted(summary + systems, key=lambda entry: entry.number)
        return Tail(pinned, [entry for entry in messages if entry.number > upto][:limit], session)

    async def feed(self, owner: str, after: int, limit: int) -> list[Event]:
        """Return events of all the owner's sessions after a cursor, in order of commits."""
        with self._opened(owner) as partition:
            return list(islice(partition.events(after), limit))

    async def feed_end(self, owner: str) -> int:
        """Return the cursor of the newest event; 0 if there is none."""
        with self._opened(owner) as partition:
            return partition.feed_end

    # Families -----------------------------------------------------------------------------------

    async def ancestors(self, owner: str, ref: str) -> list[Session]:
        """Return parent, grandparent … up to the root."""
        with self._opened(owner) as partition:
            return [record.head for record in partition.find(ref).ancestors()]

    async def tree(self, owner: str, ref: str, limit: int) -> list[Session]:
        """Return the session and its descendants, generation by generation, each in order of creation."""
        with self._opened(owner) as partition:
            return [record.head for record in partition.find(ref).tree()[:limit]]

    async def count_children(self, owner: str, ref: str) -> int:
        """Return the number of the session's children."""
        with self._opened(owner) as partition:
            return len(partition.find(ref).children)

    async def delete_tree(
        self,
        owner: str,
        ref: str,
        decide: DeletionDecision,
        stamp: Stamp,
        *,
        dry_run: bool = False,
        expected: int | None = None,
    ) -> Deletion:
        """Delete a session with its descendants unless `decide` refuses; deepest first, then newest first."""
        with self._opened(owner) as partition:
            partition.find(ref).head.check_version(expected)
            tree = partition.find(ref).tree()
            reason = decide([record.as_member() for record in reversed(tree)])
            deletion = partition.deletion_of(tree, dry_run)
            if not dry_run:
                partition.call_back_for(tree[::-1], stamp)
                partition.remove_tree(tree, _tombstones(tree, stamp, reason))
            return deletion

    async def sweep(
        self, owner: str, decide: SweepDecision, stamp: Stamp, part: SweepPart, *, dry_run: bool = False
    ) -> Sweep:
        """Check the next sessions idle or past their TTL, and delete the trees that may be deleted."""
        with self._opened(owner) as partition:
            due = list(islice(partition.due(part.before, stamp.at, part.position), part.limit))
            removed = [(tree, _tombstones(tree, stamp, reason)) for tree, reason in _condemned(due, decide)]
            if not dry_run:
                partition.call_back_for(list(chain.from_iterable(tree[::-1] for tree, _ in removed)), stamp)
                for tree, tombstones in removed:
                    partition.remove_tree(tree, tombstones)
            gone = [tombstone for _, tombstones in removed for tombstone in tombstones]
            return Sweep(gone, due[-1].serial if len(due) == part.limit else None)

    async def next_expiry(self, owner: str) -> datetime | None:
        """Return when the next TTL, pending approval or wait of a run for a launcher ends, or ended."""
        with self._opened(owner) as partition:
            ends = [record.head.expires_at for record in partition.records.values()]
            ends += [run.expires_at for run in partition.work.waiting_runs()]
            ends += [approval.expires_at for record in partition.records.values() for approval in record.pending()]
            return min((end for end in ends if end is not None), default=None)

    async def tombstones(
        self, owner: str, limit: int, cursor: str | None = None, query: TombstoneQuery = EVERY_TOMBSTONE
    ) -> Page[Tombstone]:
        """Return a page of tombstones, newest first. The cursor holds the number of older ones."""
        with self._opened(owner) as partition:
            tombstones = [tombstone for tombstone in partition.tombstones.values() if query.admits(tombstone)]
        left = tombstones if cursor is None else tombstones[: read_cursor(cursor, query.fingerprint())]
        rest = max(0, len(left) - limit)
        return Page(left[rest:][::-1], make_cursor(rest, query.fingerprint()) if rest else None)

    # Approvals ----------------------------------------------------------------------------------

    async def approval(self, owner: str, approval_id: str) -> Approval:
        """Return one approval. Raise ApprovalNotFound."""
        with self._opened(owner) as partition:
            if approval_id not in partition.asked:
                raise ApprovalNotFound(approval_id)
            return partition.asked[approval_id].approval(approval_id)

    async def approvals(self, owner: str, query: ApprovalQuery = PENDING) -> list[Approval]:
        """Return approvals in the order they were asked."""
        with self._opened(owner) as partition:
            asked = [record.approval(name) for name, record in partition.asked.items()]
        return list(filter(query.admits, asked))[: query.limit]

    # Records ------------------------------------------------------------------------------------

    async def records(self, owner: str, ref: str | None, names: list[RecordName], at: datetime) -> list[Record | None]:
        """Return records by their names; None for a missing one."""
        with self._opened(owner) as partition:
            return partition.book(ref).find(names, at)

    async def list_records(self, owner: str, ref: str | None, query: RecordQuery, at: datetime) -> list[Record]:
        """Return records by namespace and prefix, in order."""
        with self._opened(owner) as partition:
            return partition.book(ref).page(query, at)

    async def write_memory(self, owner: str, needs: RecordNeeds, decide: RecordDecision) -> tuple[RecordWrite, ...]:
        """Write the owner's own records that `decide` chooses."""
        with self._opened(owner) as partition:
            writes = decide(partition.memory.view(needs))
            partition.memory.write(writes)
            partition.writes += bool(writes)
            return writes

    # Runs, turns, inboxes -----------------------------------------------------------------------

    async def run(self, owner: str, run_id: str) -> Run:
        """Return one run. Raise RunNotFound."""
        with self._opened(owner) as partition:
            return partition.work.run(run_id)

    async def run_by_key(self, owner: str, key: str) -> Run | None:
        """Return the run that was requested with an idempotency key."""
        with self._opened(owner) as partition:
            return partition.work.run_by_key(key)

    async def runs(self, owner: str, query: RunQuery) -> Page[Run]:
        """Return runs by filters, newest first."""
        below = MAX_POSITION if query.cursor is None else read_cursor(query.cursor, query.fingerprint())
        with self._opened(owner) as partition:
            found = [(number, run) for number, run in partition.work.runs() if number < below and query.admits(run)]
        page = found[: query.limit]
        more = len(found) > query.limit
        return Page([run for _, run in page], make_cursor(page[-1][0], query.fingerprint()) if more else None)

    async def inbox(
        self, owner: str, *, ref: str | None = None, states: tuple[str, ...], limit: int, cursor: str | None = None
    ) -> Page[Item]:
        """Return items in these states, oldest first."""
        with self._opened(owner) as partition:
            session_id = None if ref is None else partition.find(ref).session_id
            items = partition.work.items(session_id)
        mark = inbox_fingerprint(session_id, states)
        above = 0 if cursor is None else read_cursor(cursor, mark)
        found = [(number, item) for number, item in items if number > above and item.state in states]
        page = found[:limit]
        return Page([item for _, item in page], make_cursor(page[-1][0], mark) if len(found) > limit else None)

    async def item(self, owner: str, item_id: str) -> Item:
        """Return one item that is not consumed, of any session. Raise ItemNotFound."""
        with self._opened(owner) as partition:
            for _, item in partition.work.items(None):
                if item.item_id == item_id and item.state is not ItemState.CONSUMED:
                    return item
        raise ItemNotFound(item_id)

    async def find_turn(self, owner: str, turn_id: str) -> Turn:
        """Return one turn. Raise TurnNotFound."""
        with self._opened(owner) as partition:
            return partition.work.turn(turn_id)

    async def claim(
        self, owners: tuple[str, ...], agents: tuple[str, ...], wish: Claim, stamp: Stamp, *, root: str | None = None
    ) -> Claimed | None:
        """Give the oldest queued turn that is due and can be taken now to a launcher."""
        with self._lock:
            if (DocumentKind.DRAINED_LAUNCHER, wish.launcher_id) in self._documents:
                return None
            partitions = {owner: self._partitions[owner] for owner in owners if owner in self._partitions}
            due = [
                (number, owner, session_id)
                for owner, partition in partitions.items()
                for number, session_id in partition.work.due(agents, stamp.at)
                if root in (None, partition.by_id[session_id].head.root_session_id)
            ]
            for _, owner, session_id in sorted(due):
                with self._opened(owner) as partition:
                    if (claimed := partition.claim(partition.by_id[session_id], wish, stamp)) is not None:
                        return claimed
            return None

    async def overdue(self, at: datetime, limit: int) -> list[tuple[str, str]]:
        """Return sessions with a turn whose lease has ended, or a run that was not taken in time."""
        with self._lock:
            partitions = self._partitions.items()
            silent = sorted(
                (due, owner, name) for owner, partition in partitions for due, name in partition.work.silent(at)
            )
            untaken = sorted(
                (due, owner, name) for owner, partition in partitions for due, name in partition.work.untaken(at)
            )
        return list(dict.fromkeys((owner, name) for _, owner, name in silent + untaken))[:limit]

    async def turns_of(self, launcher_id: str) -> list[LauncherTurn]:
        """Return the live turns of a launcher, oldest first."""
        with self._lock:
            found = [
                (number, LauncherTurn(owner, turn, is_waiting))
                for owner, partition in self._partitions.items()
                for number, turn, is_waiting in partition.work.turns_of(launcher_id)
            ]
        return [turn for _, turn in sorted(found, key=lambda one: one[0])]

    # Servers ------------------------------------------------------------------------------------

    async def owners(self) -> list[str]:
        """Return owners that have sessions."""
        with self._lock:
            return [owner for owner, partition in self._partitions.items() if partition.records]

    # Documents ----------------------------------------------------------------------------------

    async def document(self, kind: str, key: str) -> Document | None:
        """Return one document, or None."""
        return self._documents.get((kind, key))

    async def documents(self, kind: str, *, after: str = "", limit: int = 1000) -> list[Document]:
        """Return documents of a kind behind a key, in the order of their keys."""
        with self._lock:
            found = [one for one in self._documents.values() if one.kind == kind and one.key > after]
        return sorted(found, key=lambda one: one.key)[:limit]

    async def put_document(self, kind: str, key: str, decide: DocumentDecision) -> Document | None:
        """Store or delete a document as `decide` chooses."""
        with self._lock:
            known = self._documents.get((kind, key))
            if (new := decide(known)) != known:
                if new is None:
                    del self._documents[kind, key]
                else:
                    self._documents[kind, key] = new
                self.beat()
            return new

    # Analytics ----------------------------------------------------------------------------------

    async def record_delegation(self, owner: str, delegation: Delegation) -> bool:
        """Record a delegation; return False if it is known already."""
        with self._opened(owner) as partition:
            if delegation.delegation_id in partition.delegated:
                return False
            partition.delegated[delegation.delegation_id] = encode(delegation)
            return True

    async def delegations(self, owner: str, span: Span, limit: int, cursor: str | None = None) -> Page[Delegation]:
        """Return delegations of a span, oldest first. The cursor names the last one by the time of its recording."""
        mark = span.fingerprint("delegations")
        seen = None if cursor is None else read_cursor(cursor, mark)
        with self._opened(owner) as partition:
            known = enumerate(map(_read_delegation, partition.delegated.values()))
            ordered = sorted(known, key=lambda one: (one[1].at, one[0]))
        if seen is not None:
            ordered = list(dropwhile(lambda one: one[0] != seen, ordered))[1:]
        rest = [(place, one) for place, one in ordered if span.has(one.at, one.agent_name, one.task_id)]
        page = rest[:limit]
        return Page([one for _, one in page], make_cursor(page[-1][0], mark) if len(rest) > limit else None)

    async def facts(self, owner: str, span: Span, limit: int, cursor: str | None = None) -> Page[SessionFact]:
        """Return the facts of sessions created in a span, in order of creation."""
        mark = span.fingerprint("facts")
        seen = 0 if cursor is None else read_cursor(cursor, mark)
        with self._opened(owner) as partition:
            found = list(islice(partition.counted(span, seen), limit + 1))
        items = found[:limit]
        return Page([fact for _, fact in items], make_cursor(items[-1][0], mark) if len(found) > limit else None)

    async def fates(self, owner: str, session_ids: list[str]) -> list[Fate]:
        """Return the outcome of these sessions, including deleted ones."""
        with self._opened(owner) as partition:
            return [fate for session_id in dict.fromkeys(session_ids) if (fate := partition.fate_of(session_id))]

    async def totals(self) -> Totals:
        """Count the waiting work of all owners. There is no size: the memory is shared with the rest of the process."""
        with self._lock:
            tables = [partition.work for partition in self._partitions.values()]
            queued = [turn for work in tables for _, turn in work.turns(TurnState.QUEUED)]
            items = [item for work in tables for _, item in work.items(None)]
            backlog = Backlog(
                queued=len(queued),
                running=sum(len(work.turns(TurnState.RUNNING)) for work in tables),
                oldest_queued_at=min((turn.queued_at for turn in queued), default=None),
                callbacks=sum(item.kind is ItemKind.CALLBACK and item.state in OPEN_ITEMS for item in items),
                dead_letters=sum(item.state is ItemState.DEAD_LETTER for item in items),
            )
            return Totals(backlog, None)

    def on_commit(self, watcher: CommitWatcher) -> None:
        """Do nothing: there are no commits to report."""

    def hurry(self) -> None:
        """Do nothing: no call ever waits."""

    # Search, transfer, care ---------------------------------------------------------------------

    async def search(self, owner: str, text: str, limit: int) -> list[Hit]:
        """Return messages and summaries with all these words, newest first.

        Words are runs of letters and digits, compared without case; everything else separates them. Each word of `text`
        must be there as a whole or, if a `*` follows it, as a prefix of a word. An empty search finds nothing. An entry
        is found once: in the session that wrote it or, if that is deleted, in the oldest one that still reads it.
        """
        words = search_words(text)
        if not words:
            return []
        with self._opened(owner) as partition:
            return partition.hits(words)[:limit]

    async def restore(self, owner: str, bundle: Bundle) -> bool:
        """Import a whole session; return False if its id exists already."""
        with self._opened(owner) as partition:
            if bundle.session.session_id in partition.by_id:
                return False
            partition.restore(bundle)
            return True

    async def dump(self, kind: DumpKind, limit: int, cursor: str | None = None) -> Page[DumpRecord]:
        """Return records of a kind, of all owners, a page at a time."""
        seen = int(cursor or 0)
        with self._lock:
            found = self._records(kind)
        page = found[seen : seen + limit]
        return Page(page, str(seen + limit) if len(found) > seen + limit else None)

    def _records(self, kind: DumpKind) -> list[DumpRecord]:
        if kind is DumpKind.DOCUMENT:
            return [DumpedDocument(one) for _, one in sorted(self._documents.items()) if one.kind not in NOT_COPIED]
        return records_of(list(self._partitions.values()), kind)

    async def load(self, records: list[DumpRecord], mark: str | None) -> None:
        """Store records unchanged, and the mark of the progress."""
        with self._lock:
            for record in records:
                if isinstance(record, DumpedSession):
                    with self._opened(record.session.owner) as partition:
                        partition.check_free(record.session)
            for record in records:
                self._load(record)
            place = DocumentKind.STORE, LOAD_MARK
            self._documents.pop(place, None)
            if mark is not None:
                self._documents[place] = Document(*place, mark)
            self.beat()

    def _load(self, record: DumpRecord) -> None:
        if isinstance(record, DumpedDocument):
            self._documents[record.document.kind, record.document.key] = record.document
        else:
            owner = record.session.owner if isinstance(record, DumpedSession) else record.owner
            with self._opened(owner) as partition:
                put(partition, record)

    async def check(self) -> list[str]:
        """Return nothing: no other program writes to these values."""
        return []

    async def close(self) -> None:
        """Do nothing: the data lives as long as this object."""


class _Record:
    """One stored session and its data."""

    def __init__(
        self, serial: int, head: Session, inherited: tuple[SegmentRange, ...], parent: _Record | None, work: WorkTable
    ) -> None:
        self.serial, self._work = serial, work
        self.approvals: dict[str, bytes] = {}
        self.session_id, self.name, self.depth = head.session_id, head.session_name, head.depth
        self.head = head
        self.parts = (*inherited, (serial, _ALL))
        self.parent = parent
        self.children: list[_Record] = []
        self.keys: dict[str, int] = {}  # client keys, and the number of the newest entry with each
        self.beside = RecordBook()
        self.cursors: list[int] = []  # the positions of its events in the feed

    @property
    def head(self) -> Session:
        """Return the head, decoded anew, with the objects it waits for."""
        head, pending = _read_session(self._head), self.pending()
        return replace(
            head,
            awaited_approval=pending[0].approval_id if pending else None,
            awaited_child=None if head.is_final else self._work.awaited_child(self.session_id),
        )

    @head.setter
    def head(self, head: Session) -> None:
        self._head = encode(head.as_kept())

    def parts_upto(self, at: int) -> tuple[SegmentRange, ...]:
        """Return the places of the entries up to a number."""
        parts: list[SegmentRange] = []
        for segment, upto in self.parts:
            parts.append((segment, min(upto, at)))
            if at <= upto:
                break
        return tuple(parts)

    def segment_of(self, number: int) -> int:
        """Return the segment of an entry."""
        return next(segment for segment, upto in self.parts if number <= upto)

    def reads(self, segment: int, number: int) -> bool:
        """Return whether an entry of that segment is part of this session's log."""
        return any(part == segment and number <= upto for part, upto in self.parts)

    def ancestors(self) -> Iterator[_Record]:
        """Yield parent, grandparent … up to the root."""
        above = self.parent
        while above is not None:
            yield above
            above = above.parent

    def tree(self) -> list[_Record]:
        """Return this session and all descendants, generation by generation, each in order of creation."""
        members = [self]
        for member in members:  # grows during the iteration
            members += member.children
        return sorted(members, key=lambda record: (record.depth, record.serial))

    def pending(self) -> tuple[Approval, ...]:
        """Return the pending approvals."""
        return tuple(approval for approval in map(_read_approval, self.approvals.values()) if _is_pending(approval))

    def as_member(self) -> Member:
        """Return the facts that a decision about its deletion needs."""
        return Member(self.session_id, self.depth, self.head.live_turn is not None)

    def approval(self, approval_id: str) -> Approval:
        """Return one approval of this session. Raise ApprovalNotFound."""
        if approval_id not in self.approvals:
            raise ApprovalNotFound(approval_id)
        return _read_approval(self.approvals[approval_id])


class Partition:
    """The data of one owner. Callers hold the store's lock."""

    def __init__(self, owner: str, work: WorkTable, serials: Numbers) -> None:
        self.owner, self.work, self.serials = owner, work, serials
        self.writes = 0  # grows with every change
        self.records: dict[int, _Record] = {}  # by serial number, in order of creation
        self.by_id: dict[str, _Record] = {}
        self.by_name: dict[str, list[_Record]] = {}  # in order of creation
        self.tombstones: dict[str, Tombstone] = {}  # in order of deletion
        self.segments: dict[int, dict[int, bytes]] = {}  # entries by segment and number
        self.asked: dict[str, _Record] = {}  # the sessions of approvals, in the order they were asked
        self.feed: dict[int, tuple[_Record, int] | Tombstone] = {}  # by cursor: an entry's number, or a deletion
        self.feed_end = 0
        self.delegated: dict[str, bytes] = {}  # delegations by id, in the order they were recorded
        self.memory = RecordBook()  # of the owner
        self.requests: dict[tuple[str, str], Once] = {}  # made under a key, by operation and key

    # Finding ------------------------------------------------------------------------------------

    def find(self, ref: str) -> _Record:
        """Return the session with that id, else the open one of that name, else the newest that had it."""
        if not looks_like_ref(ref):
            raise SessionNotFound(ref)
        named = self.by_name.get(ref)
        found = self.by_id.get(ref) or self.open_named(ref) or (named[-1] if named else None)
        if found is not None:
            return found
        if tombstone := self.tombstones.get(ref):
            raise tombstone.gone()
        raise SessionNotFound(ref)

    def books(self) -> list[RecordBook]:
        """Return all records, of the owner and of every session."""
        return [self.memory, *(record.beside for record in self.records.values())]

    def book(self, ref: str | None) -> RecordBook:
        """Return the records of a session, or the owner's own."""
        return self.memory if ref is None else self.find(ref).beside

    def seen(self, record: _Record, client_keys: tuple[str, ...]) -> dict[str, Entry]:
        """Return the newest entry of a session's own with each of these client keys."""
        own = self.segments[record.serial]
        return {key: _read_entry(own[record.keys[key]]) for key in client_keys if key in record.keys}

    def open_named(self, name: str) -> _Record | None:
        """Return the open session of this name."""
        return next((record for record in self.by_name.get(name, ()) if not record.head.is_final), None)

    def page(self, query: SessionQuery) -> Page[Session]:
        """Return a page of sessions."""
        found = list(islice(self.admitted(query), query.limit + 1))
        items = found[: query.limit]
        more = len(found) > query.limit
        return Page([head for _, head in items], query.cursor_at(items[-1][0]) if more else None)

    def admitted(self, query: SessionQuery) -> Iterator[tuple[int, Session]]:
        """Yield serial numbers and heads of the sessions of a query, from its cursor."""
        position = query.position()
        for place, record in self._ordered(query):
            seen = position is not None and (place >= position if query.newest_first else place <= position)
            if not seen and query.admits(head := record.head):
                yield place, head

    def _ordered(self, query: SessionQuery) -> Iterator[tuple[int, _Record]]:
        """Yield all sessions in the order of a query, each with its position."""
        if query.by_update:
            places = [(record.cursors[-1], record) for record in self.records.values()]
            yield from sorted(places, key=lambda each: each[0], reverse=query.newest_first)
            return
        for record in reversed(self.records.values()) if query.newest_first else self.records.values():
            yield record.serial, record

    def counted(self, span: Span, seen: int) -> Iterator[tuple[int, SessionFact]]:
        """Yield serial numbers and facts of the sessions of a span, after the last seen one."""
        for record in self.records.values():
            head = record.head
            if record.serial > seen and span.has(head.created_at, head.agent_name, head.task_id):
                yield record.serial, self._fact_of(record, head)

    def _fact_of(self, record: _Record, head: Session) -> SessionFact:
        own = map(_read_entry, self.segments[record.serial].values())
        return SessionFact(
            head.session_id,
            head.agent_name,
            head.task_id,
            head.created_at,
            head.state,
            head.duration_seconds,
            any(entry.kind == Kind.ERROR for entry in own),
            *tokens_of(head.metadata.get("usage")),
            self._callbacks_of(head.session_id),
        )

    def _callbacks_of(self, session_id: str) -> CallbackCounts | None:
        items = [item for _, item in self.work.items(session_id) if item.kind is ItemKind.CALLBACK]
        return callback_counts((item.state.value, 1) for item in items) if items else None

    def fate_of(self, session_id: str) -> Fate | None:
        """Return the outcome of a session; None if it never existed."""
        if record := self.by_id.get(session_id):
            return Fate(session_id, record.head.state)
        tombstone = self.tombstones.get(session_id)
        return None if tombstone is None else Fate(session_id, State(tombstone.state), is_deleted=True)

    def due(self, before: datetime | None, at: datetime, position: int) -> Iterator[_Record]:
        """Yield sessions idle since `before` or past their time to live, in order of creation."""
        for record in self.records.values():
            head = record.head
            is_past = head.expires_at is not None and head.expires_at <= at
            is_idle = before is not None and head.last_activity_at < before
            if record.serial > position and (is_past or is_idle):
                yield record

    # Creating -----------------------------------------------------------------------------------

    def birth_under(self, parent: str | None, asker: Asker | None = None) -> Birth:
        """Return the facts of the parent for a new session. Raises ParentNotFound."""
        if parent is None:
            return Birth(asker=self.work.asker(asker))
        try:
            record = self.find(parent)
        except (SessionNotFound, SessionGone):
            raise ParentNotFound(parent) from None
        root = [record, *record.ancestors()][-1]
        below = [member for member in root.tree() if member is not root]
        return Birth(
            parent=record.head,
            open_descendants=sum(not member.head.is_final for member in below),
            asker=self.work.asker(asker, record.session_id),
        )

    def check_free(self, head: Session) -> None:
        """Raise IdTaken, SessionGone or NameTaken if a new session may not have its id or name."""
        new_id, name = head.session_id, head.session_name
        if tombstone := self.tombstones.get(new_id):
            raise tombstone.gone()
        if new_id in self.by_id or self.open_named(new_id):
            raise IdTaken(new_id)
        if name is None or head.is_final:
            return
        if holder := self.open_named(name) or self.by_id.get(name):
            raise NameTaken(name, holder.session_id)

    def add(self, head: Session, entries: Iterable[Entry], inherited: tuple[SegmentRange, ...] = ()) -> _Record:
        """Insert a new session."""
        record = self.shelve(head, inherited, self.serials.next())
        self.save(record, head, entries)
        return record

    def shelve(self, head: Session, inherited: tuple[SegmentRange, ...], serial: int) -> _Record:
        """Insert a session without its entries."""
        self.serials.advance_to(serial)
        parent = None if head.parent_session_id is None else self.by_id[head.parent_session_id]
        record = _Record(serial, head, inherited, parent, self.work)
        self.records[record.serial] = self.by_id[record.session_id] = record
        self.segments[record.serial] = {}
        if record.name is not None:
            self.by_name.setdefault(record.name, []).append(record)
        if parent is not None:
            parent.children.append(record)
        return record

    def fork(self, source: _Record, at: int | None, decide: ForkDecision) -> _Record:
        """Insert the session that `decide` returns for another one up to an entry."""
        head = source.head
        upto = head.last_entry if at is None else at
        if not 1 <= upto <= head.last_entry:
            raise EntryNotFound(head.session_id, upto, head.last_entry)
        change = decide(head, upto, self._checkpoint_upto(source, upto))
        self.check_once(change)
        self.check_free(change.session)
        self.work.check(change)
        record = self.add(change.session, change.entries, source.parts_upto(upto))
        record.beside.kept = dict(source.beside.kept)
        self.write_work(record, change)
        self.note_once(change)
        return record

    def _checkpoint_upto(self, record: _Record, upto: int) -> int | None:
        newest = self.entries(record, before=upto + 1, newest_first=True)
        return next((entry.number for entry in newest if entry.kind == Kind.CHECKPOINT), None)

    def restore(self, bundle: Bundle) -> None:
        """Insert a complete session with a new id."""
        head = as_restored(bundle.session, self.owner)
        if tombstone := self.tombstones.get(head.session_id):
            raise tombstone.gone()
        if head.parent_session_id is not None and head.parent_session_id not in self.by_id:
            raise ParentNotFound(head.parent_session_id)
        self.check_free(head)
        record = self.add(head, bundle.entries)
        record.beside.write(tuple(PutRecord(one, 0) for one in bundle.records))
        self.save(record, head, approvals=bundle.approvals)

    # Changing -----------------------------------------------------------------------------------

    def view_of(self, record: _Record, *, with_work: bool) -> View:
        """Return a session with its pending approvals and its open work."""
        view = View(record.head, record.pending())
        return replace(view, work=self.work.work_of(record.session_id)) if with_work else view

    def commit(self, record: _Record, change: Change) -> Change:
        """Write a whole change; return it with the results of its callbacks."""
        self.check_once(change)
        self.work.check(change)
        self.rename(record, change.session)
        self.note_once(change)
        if change != Change(session=record.head):
            self.save(record, change.session, change.entries, change.approvals)
            record.beside.write(change.records)
            self.memory.write(change.memory)
        return self.write_work(record, change)

    def rename(self, record: _Record, head: Session) -> None:
        """Index a session by its new name instead of the old one. Raise NameTaken."""
        old, new = record.head.session_name, head.session_name
        if old == new:
            return
        if new is not None and (holder := self.open_named(new) or self.by_id.get(new)):
            raise NameTaken(new, holder.session_id)
        record.name = new
        if old is not None:
            self.by_name[old].remove(record)
        if new is not None:
            self.by_name.setdefault(new, []).append(record)
            self.by_name[new].sort(key=lambda each: each.serial)

    def check_once(self, change: Change) -> None:
        """Raise AlreadyDone or KeyReused if an earlier request has the same key."""
        once = change.once
        kept = None if once is None else self.requests.get((once.operation, once.key))
        if once is not None and kept is not None and kept.lives(once.at):
            kept.check_repeats(once)

    def note_once(self, change: Change) -> None:
        """Store the result of a request with an idempotency key."""
        if change.once is not None:
            self.requests[change.once.operation, change.once.key] = change.once

    def old_requests(self, at: datetime) -> list[Once]:
        """Return requests whose keys have expired."""
        return [kept for kept in self.requests.values() if not kept.lives(at)]

    def write_work(self, record: _Record, change: Change) -> Change:
        """Write the runs, turns and items of a change, then deliver its callbacks, which see the settled runs."""
        fates = {callback.child_run_id: self._fate(callback) for callback in change.callbacks}
        runs = tuple(replace(run, callback=fates.get(run.run_id, run.callback)) for run in change.runs)
        told = replace(change, runs=runs)
        self.work.write(record.session_id, told)
        for callback in change.callbacks:
            if fates[callback.child_run_id] == DELIVERED:
                self._deliver(callback)
        return told

    def _fate(self, callback: Callback) -> str:
        parent = self.by_id.get(callback.parent_session_id)
        return fate_with(None if parent is None else parent.head)

    def _deliver(self, callback: Callback) -> None:
        parent = self.by_id[callback.parent_session_id]
        view = replace(self.view_of(parent, with_work=True), run=self.work.over(callback.run_id))
        self.commit(parent, deliver(view, callback, callback.stamp))

    def claim(self, record: _Record, wish: Claim, stamp: Stamp) -> Claimed | None:
        """Give a session's queued turn to a launcher, if the rule allows it."""
        change = self.commit(record, claim(self.view_of(record, with_work=True), wish, stamp))
        if not (change.turns and change.turns[0].state is TurnState.RUNNING):
            return None
        given = [item for _, item in self.work.items(record.session_id) if item.state is ItemState.GIVEN]
        return Claimed(self.owner, record.head, change.turns[0], tuple(given), change.runs)

    # The log ------------------------------------------------------------------------------------

    def save(
        self, record: _Record, head: Session, entries: Iterable[Entry] = (), approvals: Iterable[Approval] = ()
    ) -> None:
        """Write a session's new head, with its entries and approvals."""
        self.writes += 1
        record.head = replace(head, owner=self.owner)
        for entry in entries:
            self._write_entry(record, entry)
        for approval in approvals:
            self.asked[approval.approval_id] = record
            record.approvals[approval.approval_id] = encode(approval)

    def _write_entry(self, record: _Record, entry: Entry) -> None:
        self.segments[record.serial][entry.number] = encode(entry)
        if entry.client_key is not None:
            record.keys[entry.client_key] = entry.number
        record.cursors.append(self._tell((record, entry.number)))

    def _tell(self, news: tuple[_Record, int] | Tombstone) -> int:
        self.feed_end += 1
        self.feed[self.feed_end] = news
        return self.feed_end

    def append(self, record: _Record, messages: list[Message], stamp: Stamp, token: str | None) -> list[Entry]:
        """Append the messages whose client keys are new; return the entries of all."""
        head = record.head
        head.check_open()
        head.driven(token, stamp.at)
        seen = [self._seen(record, message) for message in messages]
        fresh = [message for message, entry in zip(messages, seen, strict=True) if entry is None]
        change = head.append(fresh, stamp, token=token)
        if fresh:
            self.save(record, change.session, change.entries)
        added = iter(change.entries)
        return [entry or next(added) for entry in seen]

    def _seen(self, record: _Record, message: Message) -> Entry | None:
        """Return the existing entry of a message. Raise KeyReused if its content differs."""
        if message.client_key is None or message.client_key not in record.keys:
            return None
        number = record.keys[message.client_key]
        (entry,) = self.entries(record, after=number - 1, before=number + 1)
        if (entry.role, entry.content) != (message.role, message.content):
            raise KeyReused(message.client_key)
        return entry

    def entries(
        self, record: _Record, after: int = 0, before: int | None = None, *, newest_first: bool = False
    ) -> Iterator[Entry]:
        """Yield a session's entries with after < number < before, with its own ids even if shared."""
        head = record.head
        end = head.last_entry + 1 if before is None else min(before, head.last_entry + 1)
        numbers = range(max(after, 0) + 1, end)
        for number in reversed(numbers) if newest_first else numbers:
            kept = self.segments[record.segment_of(number)][number]
            yield replace(_read_entry(kept), session_id=head.session_id, task_id=head.task_id)

    def events(self, after: int) -> Iterator[Event]:
        """Yield the events of the feed after a cursor."""
        for cursor in range(max(after, 0) + 1, self.feed_end + 1):
            news = self.feed.get(cursor)
            if isinstance(news, Tombstone):
                yield news.event(cursor)
            elif news is not None:
                record, number = news
                yield event_of(_read_entry(self.segments[record.serial][number]), record.session_id, cursor)

    def hits(self, words: list[str]) -> list[Hit]:
        """Return messages and summaries with all these words, newest first."""
        found = [
            (entry.at, reader.serial, entry.number, _hit(reader, entry, words))
            for segment, entries in self.segments.items()
            for entry in map(_read_entry, entries.values())
            if entry.kind in (Kind.MESSAGE, Kind.SUMMARY) and _says(entry, words)
            for reader in [self._reader_of(segment, entry.number)]
        ]
        found.sort(key=lambda hit: hit[:3], reverse=True)
        return [hit for *_, hit in found]

    def _reader_of(self, segment: int, number: int) -> _Record:
        writer = self.records.get(segment)
        return writer or next(record for record in self.records.values() if record.reads(segment, number))

    # Deleting -----------------------------------------------------------------------------------

    def deletion_of(self, tree: list[_Record], dry_run: bool) -> Deletion:
        """Count what a deletion of these removes, without entries shared from elsewhere."""
        kinds = [_read_entry(kept).kind for record in tree for kept in self.segments[record.serial].values()]
        return Deletion(
            session_id=tree[0].session_id,
            deleted_sessions=len(tree),
            cascaded_children=len(tree) - 1,
            messages=kinds.count(Kind.MESSAGE),
            entries=len(kinds),
            runs=sum(len(self.work.case(record.session_id).runs.all()) for record in tree),
            checkpoints=kinds.count(Kind.CHECKPOINT),
            session_ids=[record.session_id for record in reversed(tree)],
            dry_run=dry_run,
        )

    def call_back_for(self, removed: list[_Record], stamp: Stamp) -> None:
        """Report the outcome of deleted sessions' open runs to the parents that stay."""
        names = {record.session_id: record for record in removed}
        runs = [run for name in names for run in self.work.work_of(name).runs]
        for callback in callbacks_of_deleted(runs, set(names), stamp):
            run = self.work.run(callback.child_run_id)
            over = replace(run, state=RunState.STOPPED)
            self.work.write(run.session_id, Change(session=names[run.session_id].head, runs=(over,)))
            if self._fate(callback) == DELIVERED:
                self._deliver(callback)

    def remove_tree(self, tree: list[_Record], tombstones: list[Tombstone]) -> None:
        """Remove a tree, leaves first; keep the segments that forks still read."""
        for record, tombstone in zip(reversed(tree), tombstones, strict=True):
            self._forget(record)
            self.tombstones[record.session_id] = tombstone
            self._tell(tombstone)
        self._drop_unread()
        self.writes += 1

    def _forget(self, record: _Record) -> None:
        del self.records[record.serial], self.by_id[record.session_id]
        if record.name is not None:
            self.by_name[record.name].remove(record)
        if record.parent is not None:
            record.parent.children.remove(record)
        for cursor in record.cursors:
            del self.feed[cursor]
        for approval_id in record.approvals:
            del self.asked[approval_id]
        self.work.forget(record.session_id)

    def _drop_unread(self) -> None:
        """Drop entries of deleted sessions that no other session reads."""
        for segment in self.segments.keys() - self.records.keys():
            parts = [part for record in self.records.values() for part in record.parts if part[0] == segment]
            last = max((upto for _, upto in parts), default=0)
            read = {number: kept for number, kept in self.segments[segment].items() if number <= last}
            if read:
                self.segments[segment] = read
            else:
                del self.segments[segment]


def _is_pending(approval: Approval) -> bool:
    return approval.state is ApprovalState.PENDING


def _condemned(due: list[_Record], decide: SweepDecision) -> Iterator[tuple[list[_Record], str]]:
    """Yield the trees that may be deleted, and why; each member once."""
    gone: set[int] = set()
    for record in due:
        tree = record.tree()
        if record.serial in gone or (reason := decide([member.head for member in tree])) is None:
            continue
        gone.update(member.serial for member in tree)
        yield tree, reason


def _tombstones(tree: list[_Record], stamp: Stamp, reason: str) -> list[Tombstone]:
    """Return the tombstones of a tree, leaves first."""
    return [tombstone_for(record.head, tree[0].session_id, stamp, reason) for record in reversed(tree)]


def _says(entry: Entry, wanted: list[str]) -> bool:
    said = set(_words(searchable_text(entry).lower()))
    return all(_is_said(word.lower(), said) for word in wanted)


def _is_said(word: str, said: set[str]) -> bool:
    if word.endswith("*"):
        return any(other.startswith(word[:-1]) for other in said)
    return word in said


def _hit(reader: _Record, entry: Entry, words: list[str]) -> Hit:
    return Hit(
        session_id=reader.session_id,
        number=entry.number,
        kind=entry.kind,
        role=entry.role,
        at=entry.at,
        snippet=snippet_of(searchable_text(entry), [word.rstrip("*") for word in words]),
    )
