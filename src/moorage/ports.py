"""The ports of Moorage: stores, clocks, randomness.

A store is the sum of eleven roles: Sessions, Families, Log, Approvals, Records, Work, Documents, Wakeups, Search,
Counting and Transfer. Its methods are domain operations, each atomic, each with the owner as a parameter: another
owner's session behaves as unknown. Decisions come in as pure functions which the store calls inside its own
transaction, so writers of one session queue instead of fighting. A decision may be called more than once and has no
effects.

Wherever a `ref` is accepted it is a session id or, failing that, a name: of the open
session that has it, else of the newest that had it. A ref that is neither raises
SessionNotFound, a deleted id SessionGone.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from moorage.core.approval import PENDING, Approval, ApprovalQuery
from moorage.core.entry import Entry, Event, Hit, Message
from moorage.core.family import EVERY_TOMBSTONE, Deletion, Member, Tombstone, TombstoneQuery
from moorage.core.policy import Delegation, Span
from moorage.core.query import OLDEST, LogQuery, Page, SessionQuery
from moorage.core.session import NO_NEEDS, Asker, Birth, Change, Needs, Session, Stamp, View

if TYPE_CHECKING:  # hooks do without them
    from moorage.core.bundle import Bundle
    from moorage.core.document import Document
    from moorage.core.dump import DumpKind, DumpRecord
    from moorage.core.fact import Fate, SessionFact, Totals
    from moorage.core.inbox import Item
    from moorage.core.once import Once
    from moorage.core.record import Record, RecordName, RecordNeeds, RecordQuery, RecordsView, RecordWrite
    from moorage.core.run import Run, RunQuery
    from moorage.core.turn import Turn
    from moorage.core.work import Claim

Decision = Callable[[View], Change]
BirthDecision = Callable[[Birth], Change]
ForkDecision = Callable[[Session, int, int | None], Change]  # source, at, newest checkpoint up to there
DeletionDecision = Callable[[list[Member]], str]  # why the tree goes; raises to refuse
CommitWatcher = Callable[[int, float], None]  # how many changes, and how many seconds they took
DocumentDecision = Callable[["Document | None"], "Document | None"]
RecordDecision = Callable[["RecordsView"], "tuple[RecordWrite, ...]"]
SweepDecision = Callable[[list[Session]], str | None]  # why this tree may go, or None


class Capability(StrEnum):
    """An optional ability of a store; callers check it and never guess."""

    SEARCH = "search"  # full-text search
    PUSH = "push"  # hears of other processes' writes without being asked
    SHARED_CONTEXT = "shared_context"  # other programs write contexts, too: no version of a head tells of it


class SweepPart(Struct, frozen=True, kw_only=True):
    """The sessions that one step of a sweep looks at: past their TTL, or idle since an instant."""

    before: datetime | None = None
    position: int = 0  # where the last step ended
    limit: int = 50


class Sweep(Struct, frozen=True):
    """The deletions of one step of a sweep, and the position of the next one; None at the end."""

    gone: list[Tombstone]
    next: int | None = None


class Claimed(Struct, frozen=True):
    """A turn that a launcher has got, and all it is about."""

    owner: str
    session: Session
    turn: Turn
    items: tuple[Item, ...]  # what it was given, oldest first
    runs: tuple[Run, ...]  # that the items belong to


class LauncherTurn(Struct, frozen=True):
    """A live turn of a launcher."""

    owner: str
    turn: Turn
    is_waiting: bool  # whether its session waits for a sync child: then it needs no slot


class Tail(Struct, frozen=True):
    """The end of a conversation."""

    pinned: list[Entry]  # the newest system messages and the newest summary, in order
    messages: list[Entry]  # newest first, of those that the newest summary does not stand for
    session: Session | None = None  # if it was asked for


class Clock(Protocol):
    """Tells the time."""

    @property
    def boot(self) -> str:
        """Which boot of which machine `monotonic` counts from."""

    def now(self) -> datetime:
        """The time in UTC. It may step in either direction."""

    def monotonic(self) -> float:
        """Seconds that never step. They may stand still while the machine sleeps."""


class Entropy(Protocol):
    """Gives chance."""

    def __call__(self, size: int, /) -> bytes:
        """Random bytes fit for ids and tokens."""


class Sessions(Protocol):
    """Keeps sessions: creates, reads and changes them."""

    async def create(
        self, owner: str, decide: BirthDecision, *, parent: str | None = None, asker: Asker | None = None
    ) -> Session:
        """Create what `decide` makes of the parent (a ref).

        `asker` is loaded as in `apply`; one that names neither a run that is there nor a session stands for the parent.
        Raises ParentNotFound; IdTaken if the id is in use or is an open name; SessionGone if it was in use;
        NameTaken if an open session has the name or any session has it as its id.
        """

    async def fork(
        self, owner: str, ref: str, at: int | None, decide: ForkDecision, *, expected: int | None = None
    ) -> Session:
        """Create what `decide` makes of a session up to entry `at` (its last, if None).

        The entries up to there are shared, not copied; the records (so the context) are copied as they are now.
        Raises EntryNotFound, IdTaken, SessionGone, NameTaken, VersionConflict if the session is not at `expected`.
        """

    async def apply(
        self, owner: str, ref: str, decide: Decision, *, needs: Needs = NO_NEEDS, expected: int | None = None
    ) -> Change:
        """Load the head, let `decide` choose, and commit its whole change or nothing.

        The view holds the session's pending approvals, its work (of a session that was ever
        launched, or that something waits for), and what `needs` names: an approval, a turn, an item or a run of this
        session, whatever became of it (raises ApprovalNotFound, TurnNotFound, ItemNotFound, RunNotFound). Raises
        VersionConflict if the session is not at `expected`, KeyReused if another run was asked for
        with the idempotency key of a new one. A change that changes nothing is not written.

        `needs.asker` is who asks for something new, in whatever session: `View.asker` has its run and the live turn of
        that run's session, or of the named session if there is no such run. Both are as they are at the commit: a stop
        that commits before is seen.

        `needs.records` are records of the session, `needs.memory` records of the owner, `needs.client_keys` its own
        entries (not those that a fork shares) with these client keys, the newest of each. Records of the change are
        written in order. Where another writer was faster, so that a record is not the one that the decision saw, it
        decides anew.

        Callbacks of the change are delivered in the same commit: for each, `deliver` of
        `core.work` decides on the parent's view as it then is, with the run that the callback is
        for if that is over (`View.run`). Of a settled run, `callback` says
        what became of it: delivered, parent_closed or parent_deleted.

        A change with `once` (here as in `create` and `fork`) is looked up by the owner, the operation
        and the key before anything else is checked or written: if that request was made in the last 24 hours,
        AlreadyDone is raised, or KeyReused if it was another one. Else it is noted in the same commit.
        """

    async def once(self, owner: str, operation: str, key: str, at: datetime) -> Once | None:
        """Return the request that was made under a key in the 24 hours before."""

    async def get(self, owner: str, ref: str) -> Session:
        """Return a session. Raises SessionCorrupt if it does not read back whole."""

    async def get_many(self, owner: str, session_ids: list[str]) -> list[Session | None]:
        """Return the sessions with these ids (no names), in this order; None for one that is unknown or corrupt."""

    async def match(self, owner: str, prefix: str, limit: int) -> list[str]:
        """Return ids that begin with `prefix`, in order, at most `limit`."""

    async def find(self, owner: str, *queries: SessionQuery) -> list[Page[Session]]:
        """Return a page of sessions for each query, in order of creation or of their newest entries.

        A page may have fewer than `limit` though others follow: `next` alone says whether.
        """

    async def owners(self) -> list[str]:
        """Return owners that have sessions, in any order."""


class Families(Protocol):
    """Keeps parents and children of sessions, and deletes sessions."""

    async def ancestors(self, owner: str, ref: str) -> list[Session]:
        """Return parent, grandparent … up to the root."""

    async def tree(self, owner: str, ref: str, limit: int) -> list[Session]:
        """Return the session and its descendants, parents before children, at most `limit`."""

    async def count_children(self, owner: str, ref: str) -> int:
        """Return how many children the session has."""

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
        """Delete a session with its descendants, leaves first, if `decide` says why; it raises to refuse.

        Leaves a tombstone and a `session_deleted` event for each. Entries that a fork
        still needs stay readable through that fork. Raises VersionConflict if the session is not at `expected`.
        """

    async def sweep(
        self, owner: str, decide: SweepDecision, stamp: Stamp, part: SweepPart, *, dry_run: bool = False
    ) -> Sweep:
        """Look at the next sessions past their TTL or idle, and delete the trees that may go."""

    async def next_expiry(self, owner: str) -> datetime | None:
        """Return when the next TTL of a session, time of a pending approval, or wait of a run for a launcher ends.

        It may have ended. None if none will.
        """

    async def tombstones(
        self, owner: str, limit: int, cursor: str | None = None, query: TombstoneQuery = EVERY_TOMBSTONE
    ) -> Page[Tombstone]:
        """Return what was deleted, newest first."""


class Log(Protocol):
    """Keeps the entries of sessions, and the feed over all of an owner's sessions."""

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
        """Add messages, numbered in the order of commits. The hot path; see Session.append.

        A message whose client key the session has seen is not added again: the entry it
        became comes back. Raises KeyReused if that entry says something else, VersionConflict if the
        session is not at `expected`; the version stays as it is.
        """

    async def log(self, owner: str, ref: str, query: LogQuery = OLDEST) -> list[Entry]:
        """Return entries, by default the first hundred."""

    async def tail(self, owner: str, ref: str, limit: int, pins: int = 100, *, with_session: bool = False) -> Tail:
        """Return what a window is made of: what is pinned, and the newest messages, all of one instant.

        The session, if it is wanted too, may be a moment older, never newer.
        """

    async def tails(
        self, owner: str, session_ids: list[str], limit: int, pins: int = 100, *, before: int | None = None
    ) -> list[Tail]:
        """Return what `tail` returns for each id; an empty tail for an unknown one.

        With `before`, return the newest messages before that number, and no pinned ones.
        """

    async def feed(self, owner: str, after: int, limit: int) -> list[Event]:
        """Return events of all the owner's sessions after a cursor, in order of commits, deletions too.

        Fewer than `limit` means that there are no more.
        """

    async def feed_end(self, owner: str) -> int:
        """Return the cursor of the newest event; 0 if there is none."""


class Approvals(Protocol):
    """Keeps the approvals of sessions."""

    async def approval(self, owner: str, approval_id: str) -> Approval:
        """Return one approval. Raises ApprovalNotFound."""

    async def approvals(self, owner: str, query: ApprovalQuery = PENDING) -> list[Approval]:
        """Return approvals by filters, oldest first; overdue ones in any order."""

    async def approvals_of(
        self, owner: str, session_ids: list[str], *, pending_only: bool = True, limit: int = 100
    ) -> list[list[Approval]]:
        """Return what `approvals` returns for each id; nothing for a damaged session."""


class RecordStore(Protocol):
    """Keeps opaque values by namespace and key, of a session (a ref) or, with None for it, of the owner.

    Those of a session are written by `apply`, copied by `fork` and gone with the session; `apply` may write some of the
    owner in the same commit. The context of a session is one namespace of them. Keys are in order of their bytes. An
    expired record is absent; `purge` deletes it.
    """

    async def records(self, owner: str, ref: str | None, names: list[RecordName], at: datetime) -> list[Record | None]:
        """Return the records with these names, in this order; None for one that is not there."""

    async def records_of(
        self, owner: str, session_ids: list[str], name: RecordName, at: datetime
    ) -> list[Record | None]:
        """Return the record with this name of each of these sessions (ids, no names), in this order.

        None for one that is not there, and for a session that is unknown or corrupt.
        """

    async def list_records(self, owner: str, ref: str | None, query: RecordQuery, at: datetime) -> list[Record]:
        """Return records by namespace and prefix, in order, at most `query.limit`."""

    async def write_memory(self, owner: str, needs: RecordNeeds, decide: RecordDecision) -> tuple[RecordWrite, ...]:
        """Read what is needed of the owner's own records, let `decide` choose the writes, and commit them."""


class Work(Protocol):
    """Keeps runs, turns and inboxes, and gives turns to launchers."""

    async def run(self, owner: str, run_id: str) -> Run:
        """Return one run. Raises RunNotFound."""

    async def run_by_key(self, owner: str, key: str) -> Run | None:
        """Return the run that was requested with an idempotency key, or None."""

    async def runs(self, owner: str, query: RunQuery) -> Page[Run]:
        """Return runs by filters, newest first; due ones in any order."""

    async def inbox(
        self, owner: str, *, ref: str | None = None, states: tuple[str, ...], limit: int, cursor: str | None = None
    ) -> Page[Item]:
        """Return items in these states, of one session or of all, oldest first."""

    async def item(self, owner: str, item_id: str) -> Item:
        """Return one item that is not consumed, of any session. Raises ItemNotFound."""

    async def find_turn(self, owner: str, turn_id: str) -> Turn:
        """Return one turn. Raises TurnNotFound."""

    async def claim(
        self, owners: tuple[str, ...], agents: tuple[str, ...], wish: Claim, stamp: Stamp, *, root: str | None = None
    ) -> Claimed | None:
        """Give the oldest queued turn that is due, of one of these agents, to a launcher.

        With `root`, only of the family of that root session. Exactly one of several launchers
        gets a turn. None if there is nothing to do, or the launcher is to drain.
        """

    async def overdue(self, at: datetime, limit: int) -> list[tuple[str, str]]:
        """Return (owner, session id) of sessions with a turn whose lease has ended, or a run not taken in time."""

    async def turns_of(self, launcher_id: str) -> list[LauncherTurn]:
        """Return the live turns of a launcher, of all owners, oldest first."""


class Documents(Protocol):
    """Keeps small JSON values that belong to no session: keys, secrets, launchers, heartbeats, registrations.

    Their rules are functions in `service`. `claim` alone looks at one kind: a launcher with a document of kind
    `drained_launcher` gets no turn.
    """

    async def document(self, kind: str, key: str) -> Document | None:
        """Return one document, or None."""

    async def documents(self, kind: str, *, after: str = "", limit: int = 1000) -> list[Document]:
        """Return documents of a kind whose keys come after `after`, in the order of their keys."""

    async def put_document(self, kind: str, key: str, decide: DocumentDecision) -> Document | None:
        """Read a document, let `decide` choose what it becomes, and write that, all in one commit; None deletes it.

        Returns what is kept. A document that `decide` leaves as it is, is not written.
        """

    async def purge(self, at: datetime, limit: int) -> int:
        """Delete requests made under a key more than 24 hours ago, and documents and records that have expired.

        Of all owners, the oldest first, at most `limit` of each. Return how many; the rest is left for another call.
        """


class Wakeups(Protocol):
    """Tells when something was committed."""

    def pulse(self) -> int:
        """Return a number that changes with every commit, of any process."""

    async def wait(self, seen: int, timeout: float) -> int:
        """Return the pulse as soon as it differs from `seen`, or when time is up. It is only a hint: read after it."""

    def on_commit(self, watcher: CommitWatcher) -> None:
        """Call `watcher` after every commit of this process, from any thread. A store that runs inline never does."""


class Search(Protocol):
    """Finds entries by their words, if the store has Capability.SEARCH."""

    async def search(self, owner: str, text: str, limit: int) -> list[Hit]:
        """Return entries with all these words, best first. Raises Unsupported without Capability.SEARCH."""


class Counting(Protocol):
    """Keeps delegations, and counts what is there."""

    async def record_delegation(self, owner: str, delegation: Delegation) -> bool:
        """Store a delegation; return False if it is known already."""

    async def delegations(self, owner: str, span: Span, limit: int, cursor: str | None = None) -> Page[Delegation]:
        """Return delegations of a span, oldest first."""

    async def facts(self, owner: str, span: Span, limit: int, cursor: str | None = None) -> Page[SessionFact]:
        """Return what is counted of the sessions created in a span, in any stable order."""

    async def fates(self, owner: str, session_ids: list[str]) -> list[Fate]:
        """Return what became of these sessions, deleted ones too, in any order; nothing for unknown ones."""

    async def totals(self) -> Totals:
        """Return what waits in the store, of all owners, and how much room it takes."""


class Transfer(Protocol):
    """Copies sessions and whole stores, as they are."""

    async def restore(self, owner: str, bundle: Bundle) -> bool:
        """Write a whole session with its numbers and times; return False if that id is there already.

        Its parent must be there or None. Raises SessionGone for a spent id, NameTaken.
        """

    async def dump(self, kind: DumpKind, limit: int, cursor: str | None = None) -> Page[DumpRecord]:
        """Return a page of the records of a kind, of all owners, for another store to load."""

    async def load(self, records: list[DumpRecord], mark: str | None) -> None:
        """Write records as they are and document LOAD_MARK, in one commit; a mark of None ends it.

        They are new here, and come in the order in which another store dumped them. Counters of the
        store (serial numbers, cursors of the feed) continue after the highest loaded value.
        """


class Store(
    Sessions, Families, Log, Approvals, RecordStore, Work, Documents, Wakeups, Search, Counting, Transfer, Protocol
):
    """Everything that Moorage keeps. Every method is atomic; every error leaves everything as it was."""

    capabilities: frozenset[Capability]

    async def check(self) -> list[str]:
        """Return what is wrong with the stored data, in words; an empty list if nothing is."""

    def hurry(self) -> None:
        """From now on, wait only a moment for a database that is away: this process is about to end."""

    async def close(self) -> None:
        """Release everything. Nothing acknowledged depends on it."""
