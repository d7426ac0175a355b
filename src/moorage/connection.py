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
Parent = str | UnsetType | None  # of a new session: a ref; none; or, if unset, the calling session


def implements(specification: type) -> Callable[[C], C]:
    """Give the methods of a class the docstrings and the signatures of the methods they implement."""

    def told(kind: C) -> C:
        for name, method in vars(specification).items():
            own = vars(kind).get(name)
            if callable(own) and not name.startswith("_"):
                own.__doc__, own.__wrapped__ = method.__doc__, method
        return kind

    return told


class LaunchOptions(Struct, frozen=True, kw_only=True):
    """The options of launchers for a connection."""

    launches: bool = True  # whether runs get a launcher of this connection
    one_family: bool = False  # whether that launcher ignores other families' turns
    drains: bool = True  # whether it waits a while for running agents when the connection is closed


NOT_OURS = LaunchOptions(launches=False)


@implements(Moorage)
class Connection(Moorage):
    """The API on one store or server, for one caller."""

    caller: Caller
    is_away = False  # whether the followed server does not answer just now
    on_return: Callable[[], None] | None = None  # called when it answers again

    @property
    def launching(self) -> LaunchOptions:
        """Return which launchers run the agents of this connection."""
        return NOT_OURS

    @launching.setter
    def launching(self, launching: LaunchOptions) -> None:
        """Ignore the options: a server has launchers of its own."""

    def record_backend(self) -> RecordBackend:
        """Return the backend of records."""
        raise NotImplementedError

    @property
    def records(self) -> Records:
        from moorage.records import Records

        return Records(self.record_backend())

    @property
    def memory(self) -> Memory:
        from moorage.records import Memory

        return Memory(self.record_backend())

    def asks_from(self) -> str | None:
        """Return the calling session if none is named: the caller's, else the environment's."""
        parent = self.caller.parent
        return config.parent_from_environment() if parent is UNSET else parent

    def parent_of(self, parent: Parent) -> str | None:
        """Return the parent of a new session: the named one, else the calling session."""
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
        """Append messages in one commit; the last one may ask for a run, as `send` says."""
        raise NotImplementedError

    async def start(
        self, agent: str, prompt: object, *, parent: Parent = UNSET, idempotency_key: str | None = None, **new: Any
    ) -> RunAnswer:
        """Open a session and ask its agent the first prompt, both or neither; the key is that of `create`."""
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
        """Add a given summary, not one written by an agent."""
        raise NotImplementedError

    async def compact(self, ref: str, summary: str | None = None, *, agent: str | None = None, **options: Any) -> Entry:
        if (summary is None) == (agent is None):
            raise InvalidField("summary", "and agent: give one of the two")
        if summary is not None:
            return await self.keep_summary(ref, summary, **options)
        from moorage.summaries import summed_up

        options.pop("idempotency_key", None)  # every part is a run of its own
        return await summed_up(self, ref, str(agent), **options)

    def words_heard(self, session_id: str, listener: WordListener) -> AbstractContextManager[None]:
        """Within the block, pass on the partial output of a session's agent."""
        raise NotImplementedError

    # Launchers of this connection -----------------------------------------------------------------

    async def launch(self, root: str) -> None:
        """Make sure that turns of a family are taken, if this connection is responsible for that."""

    @property
    def at_work(self) -> set[str]:
        """Return the sessions whose agents run in launchers of this connection."""
        return set()

    async def suspend_own(self, session_id: str, *, checkpoint: dict[str, Any] | None, reason: str | None) -> Session:
        """Suspend a session; if this connection's launcher has its turn, release it as cut off.

        Raises SessionRunning if another launcher has it, such as a server's.
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
    """Return the caller for a connection of this process."""
    return Caller(
        owner=owner,
        by=by or config.user(),
        interface=interface,
        holder=holder or config.unique_holder(),
        parent=UNSET,
        run_id=config.run_from_environment(),
    )
