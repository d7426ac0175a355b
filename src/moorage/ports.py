"""What Moorage asks of the outside: the architecture on one page.

A store keeps sessions, their logs, contexts and approvals. Its methods are domain
operations, each atomic, each with the owner as a parameter: another owner's session
behaves as unknown. Decisions come in as pure functions which the store calls inside
its own transaction, so writers of one session queue instead of fighting; they may
be called more than once and have no effects.

Wherever a `ref` is accepted it is a session id or, failing that, a name: of the open
session that has it, else of the newest that had it. A ref that is neither raises
SessionNotFound, a deleted id SessionGone.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from moorage.core.approval import Approval
from moorage.core.bundle import Bundle
from moorage.core.context import ContextChange, ContextItem
from moorage.core.delegation import Delegation, Span
from moorage.core.entry import Entry, Message
from moorage.core.event import Event, Hit
from moorage.core.family import EVERY_TOMBSTONE, Deletion, Member, Tombstone, TombstoneQuery
from moorage.core.query import Page, SessionQuery
from moorage.core.session import Asker, Birth, Change, Session, Stamp, View

TYPE_CHECKING = False
if TYPE_CHECKING:  # only whoever starts agents needs them
    from moorage.core.document import Document
    from moorage.core.inbox import Item
    from moorage.core.once import Once
    from moorage.core.record import Record
    from moorage.core.run import Run, RunQuery
    from moorage.core.turn import Turn
    from moorage.core.work import Claim

TYPE_CHECKING = False
if TYPE_CHECKING:
    from moorage.core.fact import Backlog, Fate, SessionFact, Size

Decision = Callable[[View], Change]
BirthDecision = Callable[[Birth], Change]
ForkDecision = Callable[[Session, int, int | None], Change]  # source, at, newest checkpoint up to there
ContextDecision = Callable[[Session, dict[str, ContextItem]], ContextChange]
DeletionDecision = Callable[[list[Member]], None]  # raises to refuse
CommitWatcher = Callable[[int, float], None]  # how many changes, and how many seconds they took
DocumentDecision = Callable[["Document | None"], "Document | None"]
SweepDecision = Callable[[list[Session]], str | None]  # why this tree may go, or None


class Capability(StrEnum):
    """What a store can do beyond the contract; callers ask, they never guess."""

    SEARCH = "search"  # full-text search
    PUSH = "push"  # hears of other processes' writes without being asked


class Sweep(Struct, frozen=True):
    """What one step of a sweep took, and where the next one begins; None at the end."""

    gone: list[Tombstone]
    next: int | None = None


class Claimed(Struct, frozen=True):
    """A turn that a launcher has got, and all it is about."""

    owner: str
    session: Session
    turn: Turn
    items: tuple[Item, ...]  # what it was given, oldest first
    runs: tuple[Run, ...]  # whom that belongs to


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


class Store(Documents, Protocol):
    """Keeps sessions. Every method is atomic; every error leaves everything as it was."""

    capabilities: frozenset[Capability]

    # Sessions -----------------------------------------------------------------------------------

    async def create(
        self, owner: str, decide: BirthDecision, *, parent: str | None = None, asker: Asker | None = None
    ) -> Session:
        """Create what `decide` makes of the parent (a ref).

        `asker` is loaded as in `apply`; one that names neither a run that is there nor a session stands for the parent.
        Raises ParentNotFound; IdTaken if the id is or was in use or is an open name;
        NameTaken if an open session has the name or any session has it as its id.
        """

    async def fork(
        self, owner: str, ref: str, at: int | None, decide: ForkDecision, *, expected: int | None = None
    ) -> Session:
        """Create what `decide` makes of a session up to entry `at` (its last, if None).

        The entries up to there are shared, not copied; the context is copied as it is now.
        Raises EntryNotFound, IdTaken, NameTaken, VersionConflict if the session is not at `expected`.
        """

    async def get(self, owner: str, ref: str) -> Session:
        """The session as it is. Raises SessionCorrupt if it does not read back whole."""

    async def match(self, owner: str, prefix: str, limit: int) -> list[str]:
        """Ids that begin with `prefix`, in order, at most `limit`."""

    async def find(self, owner: str, query: SessionQuery) -> Page[Session]:
        """Sessions by filters, in order of creation or of their newest entries, a page at a time.

        A page may have fewer than there is room for, though others follow: `next` alone says whether.
        """

    async def apply(
        self,
        owner: str,
        ref: str,
        decide: Decision,
        *,
        expected: int | None = None,
        approval: str | None = None,
        turn: str | None = None,
        item: str | None = None,
        run: str | None = None,
        asker: Asker | None = None,
    ) -> Change:
        """Load the head, let `decide` choose, and commit its whole change or nothing.

        The view holds the session's pending approvals, its work (of a session that was ever
        launched, or that something waits for), and, if named, `approval`, `turn`, `item` and `run` (with its
        dead letters) of this session, whatever became of them (raises ApprovalNotFound, TurnNotFound, ItemNotFound,
        RunNotFound). Raises
        VersionConflict if the session is not at `expected`, KeyReused if another run was asked for
        with the idempotency key of a new one. A change that changes nothing is not written.

        `asker` is who asks for something new, in whatever session: `View.asker` has its run and the live turn of that
        run's session, or of the named session if there is no such run. Both are as they are at the commit: a stop
        that commits before is seen.

        Callbacks of the change are delivered in the same commit: for each, `deliver` of
        `core.work` decides on the parent's view as it then is, with the run that the callback is
        for if that is over (`View.run`). Of a settled run, `callback` says
        what became of it: delivered, parent_closed or parent_deleted.

        A change with `once` (here as in `create` and `fork`) is looked up by the owner, the operation
        and the key before anything else is checked or written: if that request was made in the last 24 hours,
        AlreadyDone is raised, or KeyReused if it was another one. Else it is noted in the same commit.
        """

    async def once(self, owner: str, operation: str, key: str, at: datetime) -> Once | None:
        """The request that was made under a key in the 24 hours before."""

    async def purge(self, at: datetime, limit: int) -> int:
        """Delete requests made under a key more than 24 hours ago, and documents that have expired; return how many.

        Of all owners, the oldest first, at most `limit` of each. The rest is left for another call.
        """

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
        """Add messages, numbered in the order of commits. The hot path; see Session.append.

        A message whose client key the session has seen is not added again: the entry it
        became comes back. Raises KeyReused if that entry says something else, VersionConflict if the
        session is not at `expected`; the version stays as it is.
        """

    async def log(
        self,
        owner: str,
        ref: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int = 100,
        kinds: tuple[str, ...] | None = None,
        newest_first: bool = False,
    ) -> list[Entry]:
        """Entries with after < number < before, of these kinds, from one end."""

    async def tail(self, owner: str, ref: str, limit: int, pins: int = 100, *, with_session: bool = False) -> Tail:
        """What a window is made of: what it keeps in any case, and the newest messages, all of one instant.

        The session, if it is wanted too, may be a moment older, never newer.
        """

    async def feed(self, owner: str, after: int, limit: int) -> list[Event]:
        """Events of all the owner's sessions after a cursor, in order of commits, deletions too.

        There are fewer than `limit` only where there are no more.
        """

    async def feed_end(self, owner: str) -> int:
        """The cursor of the newest event; 0 if there is none."""

    # Of many sessions at once: what a door shows of a list, without asking for each ---------------

    async def get_many(self, owner: str, session_ids: list[str]) -> list[Session | None]:
        """The sessions with these ids (names will not do), in this order; None where there is none, or none whole."""

    async def find_many(self, owner: str, queries: list[SessionQuery]) -> list[Page[Session]]:
        """What `find` gives for each query."""

    async def tails(
        self, owner: str, session_ids: list[str], limit: int, pins: int = 100, *, before: int | None = None
    ) -> list[Tail]:
        """What `tail` gives for each id; nothing for one that is not there.

        With `before`, the newest messages before that number, of which nothing is pinned.
        """

    async def approvals_of(
        self, owner: str, session_ids: list[str], *, pending_only: bool = True, limit: int = 100
    ) -> list[list[Approval]]:
        """What `approvals` gives for each id; nothing for one that is not there."""

    # Families -----------------------------------------------------------------------------------

    async def ancestors(self, owner: str, ref: str) -> list[Session]:
        """Parent, grandparent … up to the root."""

    async def tree(self, owner: str, ref: str, limit: int) -> list[Session]:
        """The session and its descendants, parents before children, at most `limit`."""

    async def count_children(self, owner: str, ref: str) -> int:
        """How many children the session has."""

    async def delete_tree(
        self,
        owner: str,
        ref: str,
        decide: DeletionDecision,
        stamp: Stamp,
        *,
        reason: str,
        dry_run: bool = False,
        expected: int | None = None,
    ) -> Deletion:
        """Delete a session with its descendants unless `decide` refuses; leaves first.

        Leaves a tombstone and a `session_deleted` event for each. Entries that a fork
        still needs stay readable through that fork. Raises VersionConflict if the session is not at `expected`.
        """

    async def sweep(
        self,
        owner: str,
        decide: SweepDecision,
        stamp: Stamp,
        *,
        before: datetime | None,
        position: int = 0,
        limit: int = 50,
        dry_run: bool = False,
    ) -> Sweep:
        """Look at the next `limit` sessions past their TTL or idle since `before`, and delete the trees that may go."""

    async def next_expiry(self, owner: str) -> datetime | None:
        """When the next session's TTL or pending approval's time ends, or ended; None if none will."""

    async def tombstones(
        self, owner: str, limit: int, cursor: str | None = None, query: TombstoneQuery = EVERY_TOMBSTONE
    ) -> Page[Tombstone]:
        """What was deleted, newest first."""

    # Context and approvals ----------------------------------------------------------------------

    async def context(self, owner: str, ref: str, at: datetime, key: str | None = None) -> dict[str, ContextItem]:
        """The context, or one key of it, without what has expired at that time."""

    async def write_context(
        self,
        owner: str,
        ref: str,
        decide: ContextDecision,
        at: datetime,
        key: str | None = None,
        *,
        expected: int | None = None,
    ) -> ContextChange:
        """Load the head and the context (or one key), let `decide` choose, and commit. What has expired is dropped.

        Raises VersionConflict if the session is not at `expected`; the version of a key is the decision's to compare.
        """

    async def approval(self, owner: str, approval_id: str) -> Approval:
        """One approval. Raises ApprovalNotFound."""

    async def approvals(
        self, owner: str, *, ref: str | None = None, pending_only: bool = True, limit: int = 100
    ) -> list[Approval]:
        """Approvals, oldest first."""

    async def due_approvals(self, owner: str, at: datetime, limit: int = 100) -> list[Approval]:
        """Pending approvals whose time has run out."""

    # Runs, turns, inboxes -----------------------------------------------------------------------

    async def run(self, owner: str, run_id: str) -> Run:
        """One run. Raises RunNotFound."""

    async def run_by_key(self, owner: str, key: str) -> Run | None:
        """The run that was asked for with an idempotency key."""

    async def runs(self, owner: str, query: RunQuery) -> Page[Run]:
        """Runs by filters, newest first."""

    async def inbox(
        self, owner: str, *, ref: str | None = None, states: tuple[str, ...], limit: int, cursor: str | None = None
    ) -> Page[Item]:
        """Items in these states, of one session or of all, oldest first."""

    async def item(self, owner: str, item_id: str) -> Item:
        """One item that is not consumed, of whatever session. Raises ItemNotFound."""

    async def find_turn(self, owner: str, turn_id: str) -> Turn:
        """One turn. Raises TurnNotFound."""

    async def claim(
        self,
        owners: tuple[str, ...],
        agents: tuple[str, ...],
        wish: Claim,
        stamp: Stamp,
        *,
        full: tuple[str, ...] = (),
        root: str | None = None,
    ) -> Claimed | None:
        """Give the oldest queued turn that is due, of one of these agents and none that is `full`, to a launcher.

        With `root`, only of the family of that root session. Exactly one of several launchers
        gets a turn. None if there is nothing to do, or the launcher is to drain.
        """

    async def overdue(self, at: datetime, limit: int) -> list[tuple[str, str]]:
        """(owner, session id) of sessions with a turn whose lease has run out, or a run that nobody took in time."""

    async def waiting_turns(self, launcher_id: str) -> list[str]:
        """Ids of the launcher's live turns whose session waits for a sync child: they need no slot."""

    async def unstarted_turns(self, launcher_id: str) -> list[tuple[str, Turn]]:
        """(owner, turn) of what the launcher has claimed and not started yet, oldest first."""

    # Servers ------------------------------------------------------------------------------------

    async def owners(self) -> list[str]:
        """Owners that have sessions, in any order."""

    async def extend_leases(self, at: datetime, by: timedelta) -> int:
        """Let no running turn be silent or lost, and no hold of one end, before so long has passed; how many it helped.

        For turns of all owners: while there was no server, nobody could renew. A lease that ends later than one renewed
        at `at` was written before the clock was set back: it counts from `at`. Nothing else changes, no version either.
        """

    # What is counted ----------------------------------------------------------------------------

    async def record_delegation(self, owner: str, delegation: Delegation) -> bool:
        """Remember that work was delegated; False if that delegation is known already."""

    async def delegations(self, owner: str, span: Span, limit: int, cursor: str | None = None) -> Page[Delegation]:
        """Delegations of a span, oldest first."""

    async def facts(self, owner: str, span: Span, limit: int, cursor: str | None = None) -> Page[SessionFact]:
        """What is counted of the sessions created in a span, in an order of the store's own."""

    async def fates(self, owner: str, session_ids: list[str]) -> list[Fate]:
        """What became of these sessions, deleted ones too, in any order; nothing of those that never were."""

    async def size(self) -> Size | None:
        """What everything in the store takes; None if nobody can tell."""

    async def backlog(self) -> Backlog:
        """What waits in the store, of all owners."""

    def on_commit(self, watcher: CommitWatcher) -> None:
        """Tell of every commit of this process from now on, from whatever thread; memory has none to tell of."""

    def hurry(self) -> None:
        """Wait for a database that is away no longer than a moment from now on: this process is about to end."""

    # Search, transfer, care ---------------------------------------------------------------------

    async def search(self, owner: str, text: str, limit: int) -> list[Hit]:
        """Entries with all these words, best first. Raises Unsupported without Capability.SEARCH."""

    async def restore(self, owner: str, bundle: Bundle) -> bool:
        """Bring a whole session in, numbers and times as they were; False if that id is there already.

        Its parent must be there or None. Raises SessionGone for a spent id, NameTaken.
        """

    async def dump(self, kind: str, limit: int, cursor: str | None = None) -> Page[Record]:
        """Records of a kind (see `core.record`), of all owners, a page at a time: what another store can take in."""

    async def load(self, records: list[Record], mark: str | None) -> None:
        """Take records in as they are, and remember how far this has come, in one commit; None: it is done.

        They are new here, and come in the order in which another store gave them. What the store counts up
        by itself (serial numbers, cursors of the feed) goes on behind the highest that came in.
        """

    async def load_mark(self) -> str | None:
        """How far taking in has come, if it has begun and is not done."""

    async def check(self) -> list[str]:
        """What is wrong with the stored data, in words; empty if nothing is."""

    def pulse(self) -> int:
        """A number that changes whenever something was committed, by whatever process."""

    async def wait(self, seen: int, timeout: float) -> int:
        """The pulse, as soon as it differs from `seen` or when time is up. A hint, not a fact: read after it."""

    async def close(self) -> None:
        """Let go of everything. Nothing acknowledged depends on it."""
