"""The dependencies of service functions: store, clock, entropy, settings; and the caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import cached_property, partial
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

from moorage.core.errors import AgentNotFound, InvalidDefinition, KeyReused
from moorage.core.family import FamilyLimits
from moorage.core.ids import check_is_text, check_label, uuid7
from moorage.core.policy import ResumePolicy, RetentionPolicy
from moorage.core.redact import SECRET_WORDS, Redactor
from moorage.core.session import Change, Session, Stamp, View
from moorage.core.window import TokenCounter, WindowSize, rough_tokens
from moorage.ports import Clock, Entropy, Store

if TYPE_CHECKING:
    from moorage.core.agent import AgentDefinition
    from moorage.core.key import Key, SigningSecret
    from moorage.core.once import OnceKey
    from moorage.service.agents import Registered

T = TypeVar("T")

STEP = timedelta(seconds=5)  # the clock and the monotonic one may drift apart by less between two comparisons
SETTLING = 30.0  # seconds after a step in which no lease is judged
LOOK_AGAIN = timedelta(seconds=1)  # another process may have set a TTL meanwhile
WHOLE_REQUEST = timedelta(hours=1)  # longer than any request takes
CHANGES = frozenset({"apply", "append", "fork", "delete_tree"})  # methods of a store that take `expected`


class HookSettings(Struct, frozen=True, kw_only=True):
    """Settings of hooks."""

    deny_if_resumable: bool = False  # refuse to delegate work that could be resumed instead


class ServerSettings(Struct, frozen=True, kw_only=True):
    """Limits of a server."""

    rate: int = 500  # requests a second of one key or token
    burst: int = 1000
    streams: int = 10_000
    streams_per_visitor: int = 2_000
    graphql_depth: int = 20
    graphql_cost: int = 20_000
    allowed_origins: frozenset[str] = frozenset()  # other origins whose pages may send requests: https://host:port


class MemorySettings(Struct, frozen=True, kw_only=True):
    """Settings for the data of calls with a session id."""

    context_ttl: timedelta | None = None  # how long the context that agents store is kept; None: as long as the session


class Settings(Struct, frozen=True, kw_only=True):
    """The settings of an installation."""

    resume: ResumePolicy = field(default_factory=ResumePolicy)
    family: FamilyLimits = field(default_factory=FamilyLimits)
    secret_words: tuple[str, ...] = SECRET_WORDS
    window: WindowSize = field(default_factory=lambda: WindowSize(last=50))  # the window of an agent that resumes
    count_tokens: TokenCounter = rough_tokens
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)
    hooks: HookSettings = field(default_factory=HookSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)


class ClockWatch:
    """Detects steps of the clock. All parts of a process that judge leases share one watch."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.zero_at: datetime | None = None  # clock time at which the monotonic clock was zero; None: not compared yet
        self.steps = self.extended = 0  # how often the clock has stepped, and after how many steps leases were extended
        self._stepped_at = -inf  # on the monotonic clock

    def look(self) -> datetime:
        """Compare the clock with the monotonic one, and return its time."""
        now, passed = self.clock.now(), self.clock.monotonic()
        zero_at = now - timedelta(seconds=passed)
        if self.zero_at is not None and abs(zero_at - self.zero_at) > STEP:
            self.steps += 1
            self._stepped_at = passed
        if self.zero_at is not None:
            self.zero_at = zero_at
        return now

    @property
    def is_settled(self) -> bool:
        """Return whether leases may be judged: since a step, they were extended and launchers had time to renew."""
        is_extended = self.zero_at is not None and self.extended >= self.steps
        return is_extended and self.clock.monotonic() >= self._stepped_at + SETTLING


class Deps:
    """The dependencies of service functions."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        entropy: Entropy,
        settings: Settings | None = None,
        find_agent: Callable[[str], AgentDefinition | None] | None = None,
        registered: Registered | None = None,
        defined_agents: Callable[[], dict[str, AgentDefinition]] = dict,
        *,
        beside: Deps | None = None,
    ) -> None:
        """`find_agent` finds a defined agent, `defined_agents` returns all; registered agents are found in addition.

        Further instances of one process on one store are made `beside` the first: they judge leases alike.
        """
        self.store, self.clock, self.entropy = store, clock, entropy
        self.find_agent, self.defined_agents = find_agent, defined_agents
        self.settings = settings or Settings()
        self.redactor = Redactor(self.settings.secret_words)
        self.known_keys: dict[str, tuple[datetime, tuple[Key, str]]] = {}  # a short cache; see keys.authenticate
        self.signing_secret: SigningSecret | None = None  # set on first use; see tokens
        if registered is not None:
            self.registered = registered
        self.look_again_at = clock.now()  # time of the next check for deadlines; see retention.expire_due
        self.watch: ClockWatch = ClockWatch(clock) if beside is None else beside.watch
        self.launchers: set[str] = set() if beside is None else beside.launchers  # those at work in this process
        self._beside = beside
        self.takes_turns = False  # whether this process has a launcher for its own family, and for no other

    def like(self, store: Store | None = None) -> Deps:
        """Return another instance of this process, with its own schedule of deadline checks."""
        agents = self.find_agent, self.registered, self.defined_agents
        return Deps(store or self.store, self.clock, self.entropy, self.settings, *agents, beside=self)

    def at_version(self, ref: str, session: Session) -> Deps:
        """Return dependencies for one request, whose first change of the session must be of this version of it.

        The caller applies deadlines before (`retention.expire_due`): that change must not count as the first.
        """
        own = self.like(cast(Store, _AtVersion(self.store, frozenset({ref, session.session_id}), session.version)))
        own.look_again_at = self.clock.now() + WHOLE_REQUEST
        return own

    @cached_property
    def registered(self) -> Registered:
        """Return the registrations in the store; hooks do not load them."""
        from moorage.service.agents import Registered

        return Registered(self.store, self.clock)

    @cached_property
    def own_launcher(self) -> str:
        """Return the launcher id under which this process claims the turns of calls that it answers itself."""
        return self.new_id() if self._beside is None else self._beside.own_launcher

    def agent(self, name: str) -> AgentDefinition:
        """Return an agent that can be started. Raises AgentNotFound, InvalidDefinition, InvalidField."""
        check_is_text(name, "agent")
        found = None if self.find_agent is None else self.find_agent(name) or self.registered.agents().get(name)
        if found is None or not found.enabled:
            raise self.no_agent(name)
        return found

    async def find_startable(self, name: str) -> AgentDefinition:
        """Return an agent that can be started, even if it has just registered at another server."""
        try:
            return self.agent(name)
        except AgentNotFound:
            await self.look_for(name)
        return self.agent(name)

    def startable(self) -> dict[str, AgentDefinition]:
        """Return every agent that is known here and can be started, by name."""
        if self.find_agent is None:
            return {}
        every = {**self.registered.agents(), **self.defined_agents()}
        return {name: agent for name, agent in every.items() if agent.enabled}

    def no_agent(self, name: str) -> AgentNotFound:
        """Return an error that suggests the agents with the most similar names."""
        return AgentNotFound.among(name, {*self.defined_agents(), *self.registered.agents()})

    async def look_for(self, name: str | None, *, unless_younger: timedelta = timedelta(0)) -> None:
        """Read registrations from the store, of whatever server, if no agent of that name is known.

        With `unless_younger`, skip the read if the last one is recent: for callers that do not ask that agent.
        """
        if name is not None and self.find_agent is not None and not self.can_start(name):
            await self.registered.look(unless_younger=unless_younger)

    def can_start(self, name: str | None) -> bool:
        """Return whether an agent is known and switched on. One with an invalid file is known: asking it says so."""
        try:
            self.agent(name or "")
        except AgentNotFound:
            return False
        except InvalidDefinition:
            pass
        return True

    def may_be_due(self) -> bool:
        """Return whether it is time to check for deadlines; at once if the clock was set back."""
        now = self.clock.now()
        return not now < self.look_again_at <= now + LOOK_AGAIN

    def expect_end(self, at: datetime | None) -> None:
        """Check again at this time, if not before."""
        if at is not None and at < self.look_again_at:
            self.look_again_at = at

    def new_id(self) -> str:
        """Return a new UUIDv7."""
        return uuid7(int(self.clock.now().timestamp() * 1000), self.entropy(10))

    def new_token(self) -> str:
        """Return a random secret."""
        return self.entropy(16).hex()


class _AtVersion:
    """A store that checks the version at the first change of one session; later changes build on the first."""

    def __init__(self, store: Store, refs: frozenset[str], version: int) -> None:
        self._store, self._refs, self._version = store, refs, version
        self._is_compared = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return partial(self._compared, found) if name in CHANGES else found

    async def _compared(self, change: Callable[..., Any], owner: str, ref: str, *args: Any, **options: Any) -> Any:
        """Make a change at the version; a refused change does not count as the first."""
        if ref not in self._refs or self._is_compared:
            return await change(owner, ref, *args, **options)
        changed = await change(owner, ref, *args, **{**options, "expected": self._version})
        self._is_compared = True
        return changed


STRANGER = "local"  # the scope of all callers of a server without keys


class Caller(Struct, frozen=True, kw_only=True):
    """The origin of a request: who makes it, for which owner, and by which door."""

    owner: str = "local"
    by: str | None = None
    interface: str = "python"
    holder: str = "local"  # the holder of their holds
    scope: str = ""  # prefix for holder names that callers choose; empty: of this process
    session_id: str | None = None  # the session of their session token: an agent, not a person
    parent: str | UnsetType | None = None  # the session of the asking agent; UNSET: from the environment
    run_id: str | None = None  # of an asking agent: the run it works on

    def held_as(self, name: str | None) -> str:
        """Return the holder for a name chosen by the caller; it cannot be the name of another caller's holder."""
        if name is None:
            return self.holder
        checked = check_label("holder", name)
        return f"{self.scope}:{checked}" if self.scope else checked

    def named(self, name: str | None) -> str | None:
        """Return who acts. One key may speak for several people, so a name that it states stands behind its own."""
        if name is None:
            return self.by
        checked = check_label("by", name)
        return checked if self.scope in ("", STRANGER) else f"{self.by}:{checked}"

    def check_hold(self, session: Session, token: str | None, at: datetime) -> None:
        """Raise HeldByAnother if an agent's own token would end the hold of another holder."""
        if self.session_id is None or token is not None or session.hold is None or session.live_turn is not None:
            return
        if not f"{session.hold.holder}:".startswith(f"{self.scope}:"):
            session.check_holder(self.holder, at)


def once_key(operation: str, key: str | None, request: Sequence[object]) -> OnceKey | None:
    """Return the idempotency key of a request; None without one."""
    if key is None:
        return None
    from moorage.core.once import once_key  # few requests have a key

    return once_key(operation, key, request)


async def done_once(
    deps: Deps,
    caller: Caller,
    once: OnceKey | None,
    act: Callable[[], Awaitable[T]],
    recall: Callable[[str], Awaitable[T]],
) -> T:
    """Act, unless the same request was made before under its key: then recall its result.

    The earlier request is looked up first, because acting again may be impossible now: the session is closed, the id
    is taken by the first request, the family is full. Of two concurrent requests the store accepts one. Raises
    KeyReused if the key was used for another request.
    """
    if once is None:
        return await act()
    from moorage.core.once import AlreadyDone  # few requests have a key

    kept = await deps.store.once(caller.owner, once.operation, once.key, deps.clock.now())
    if kept is not None:
        if kept.digest != once.digest:
            raise KeyReused(once.key)
        return await recall(kept.ref)
    try:
        return await act()
    except AlreadyDone as done:
        return await recall(done.ref)


async def id_of(deps: Deps, caller: Caller, ref: str | None) -> str | None:
    """Return the id of a session by its id or name; None for None. Raises SessionNotFound, SessionGone."""
    return None if ref is None else (await deps.store.get(caller.owner, ref)).session_id


def stamp_of(deps: Deps, caller: Caller) -> Stamp:
    """Return a stamp: now, by this caller, by this door."""
    return Stamp(deps.clock.now(), caller.by, caller.interface, deps.takes_turns)


def with_what_follows(view: View, change: Change, stamp: Stamp) -> Change:
    """Return a change with its consequences for runs, turns and waiting items, if the session has any."""
    if not change.session.launched and not view.work.items:
        return change
    from moorage.core import work  # needed only to start agents

    return work.after(view, change, stamp)


def shown(session: Session) -> Session:
    """Return a session as its readers see it: the hold without its token."""
    if session.hold is None:
        return session
    return replace(session, hold=replace(session.hold, token=UNSET))
