"""The shared part of connections to a store and to a server: the API, and calls for other parts of the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import UNSET, Struct, UnsetType

from moorage import config
from moorage.api import Moorage, WordListener
from moorage.core.errors import InvalidField, SessionRunning
from moorage.service.deps import Caller

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from moorage.core.answer import Answer, RunAnswer
    from moorage.core.approval import Approval
    from moorage.core.entry import Entry
    from moorage.core.session import Session
    from moorage.records import Memory, Records
    from moorage.records import RecordOperations as RecordBackend

C = TypeVar("C", bound=type)


def implements(specification: type) -> Callable[[C], C]:
    """Give the methods of a class the docstrings and the signatures of those they implement."""

    def told(kind: C) -> C:
        for name, method in vars(specification).items():
            own = vars(kind).get(name)
            if callable(own) and not name.startswith("_"):
                own.__doc__, own.__wrapped__ = method.__doc__, method
        return kind

    return told


class LaunchOptions(Struct, frozen=True, kw_only=True):
    """Who does the work that is asked of agents by a connection."""

    launches: bool = True  # whether runs get a launcher of this connection
    one_family: bool = False  # whether that launcher leaves other families' turns alone
    drains: bool = True  # whether it waits for agents at work, a while, when the connection is closed


NOT_OURS = LaunchOptions(launches=False)


@implements(Moorage)
class Connection(Moorage):
    """The API on one store or server, for one caller."""

    caller: Caller
    is_away = False  # whether the server that is followed does not answer just now
    on_return: Callable[[], None] | None = None  # called when it answers again

    @property
    def launching(self) -> LaunchOptions:
        """Tell who does the work that is asked of agents."""
        return NOT_OURS

    @launching.setter
    def launching(self, launching: LaunchOptions) -> None:
        """A server has launchers of its own, whatever is wanted here."""

    def record_backend(self) -> RecordBackend:
        """Return what stores records."""
        raise NotImplementedError

    @property
    def records(self) -> Records:
        """Values beside the log of a session, by namespace and key."""
        from moorage.records import Records

        return Records(self.record_backend())

    @property
    def memory(self) -> Memory:
        """Values that all sessions of an owner share, by namespace and key."""
        from moorage.records import Memory

        return Memory(self.record_backend())

    def asks_from(self) -> str | None:
        """Return the session that asks, if none is named: as the caller says, else as the environment does."""
        parent = self.caller.parent
        return config.parent_from_environment() if parent is UNSET else parent

    def parent_of(self, parent: str | UnsetType | None) -> str | None:
        """Return the parent of a new session: the one that is named, else the session that asks."""
        return self.asks_from() if parent is UNSET else parent

    # Messages that ask ----------------------------------------------------------------------------

    async def post(
        self,
        ref: str,
        messages: object,
        *,
        agent: str | None = None,
        parameters: dict[str, Any] | None = None,
        token: str | None = None,
        run: bool | None = None,
        queue: bool = False,
        wake: bool = True,
    ) -> Answer:
        """Append messages, all at once; the last one may ask for a run, as `send` says."""
        raise NotImplementedError

    async def start(
        self,
        agent: str,
        prompt: object,
        *,
        parent: str | UnsetType | None = UNSET,
        idempotency_key: str | None = None,
        **new: Any,
    ) -> RunAnswer:
        """Open a session and ask its agent the first thing, both or neither; the key is one of `create`."""
        raise NotImplementedError

    async def send(self, ref: str, content: object, *, client_key: str | None = None, **how: Any) -> Answer:
        return await self.post(ref, [{"role": "user", "content": content, "client_key": client_key}], **how)

    async def keep_summary(
        self,
        ref: str,
        summary: str,
        *,
        upto: int | None = None,
        token: str | None = None,
        idempotency_key: str | None = None,
    ) -> Entry:
        """Add a summary that is given, not written by an agent."""
        raise NotImplementedError

    async def compact(self, ref: str, summary: str | None = None, *, agent: str | None = None, **options: Any) -> Entry:
        if (summary is None) == (agent is None):
            raise InvalidField("summary", "and agent: give one of the two")
        if summary is not None:
            return await self.keep_summary(ref, summary, **options)
        from moorage.summaries import summed_up

        options.pop("idempotency_key", None)  # every bite is a run of its own
        return await summed_up(self, ref, str(agent), **options)

    def words_heard(self, session_id: str, listener: WordListener) -> AbstractContextManager[None]:
        """Within the block, pass on what the agent of a session says while it says it."""
        raise NotImplementedError

    # Launchers of this connection -----------------------------------------------------------------

    async def launch(self, root: str) -> None:
        """Make sure that turns of a family are taken, if that is for this connection to do."""

    @property
    def at_work(self) -> set[str]:
        """The sessions whose agents launchers of this connection have at work."""
        return set()

    async def suspend_own(self, session_id: str, *, checkpoint: dict[str, Any] | None, reason: str | None) -> Session:
        """Suspend a session, and give back as cut off the turn that this connection's launcher has of it.

        Raises SessionRunning if another launcher has it, as a server's has.
        """
        raise SessionRunning([session_id])

    # Approvals ------------------------------------------------------------------------------------

    async def approve(self, approval_id: str, *, note: str | None = None, by: str | None = None) -> Approval:
        return await self.decide(approval_id, "approve", note=note, by=by)

    async def reject(self, approval_id: str, *, note: str | None = None, by: str | None = None) -> Approval:
        return await self.decide(approval_id, "reject", note=note, by=by)


def caller_for(
    *, owner: str = "local", by: str | None = None, interface: str = "python", holder: str | None = None
) -> Caller:
    """Return who uses a connection of this process."""
    return Caller(
        owner=owner,
        by=by or config.user(),
        interface=interface,
        holder=holder or config.unique_holder(),
        parent=UNSET,
        run_id=config.run_from_environment(),
    )
