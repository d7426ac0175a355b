"""The context of a hook event: the store, the caller, the spool; and the reply."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, TypeVar

from msgspec import Struct, field, json, to_builtins

from moorage import config
from moorage.clocks import SystemClock
from moorage.core.errors import MoorageError, StoreError
from moorage.core.policy import Delegation
from moorage.doors.hooks.spool import Spool
from moorage.service.deps import Caller, Deps
from moorage.service.inline import drive

P = ParamSpec("P")
T = TypeVar("T")
Json = dict[str, Any]

INTERFACE = "hook"


class HookReply(Struct, frozen=True):
    """The JSON for standard output, optionally a line for standard error, and the exit code."""

    body: Json = {}
    complaint: str = ""
    code: int = 0

    def encoded(self) -> bytes:
        """Return the body as one line of JSON."""
        return json.encode(self.body) + b"\n"


class ClockAt(SystemClock):
    """A clock that shows the time of an event."""

    def __init__(self, at: datetime) -> None:
        self._at = at

    def now(self) -> datetime:
        """Return that time."""
        return self._at


class HookContext(Struct):
    """A store and its caller."""

    deps: Deps
    spool: Spool
    caller: Caller = field(default_factory=lambda: caller_as(INTERFACE))
    parent: str | None = None  # the session that the host works for, from the host's environment
    is_late: bool = False  # whether the event comes from the spool

    def at(self, at: datetime, parent: str | None, *, is_late: bool = False) -> HookContext:
        """Return the context of an event: however late it is stored, it keeps the time at which it happened."""
        deps = Deps(self.deps.store, ClockAt(at), self.deps.entropy, self.deps.settings, beside=self.deps)
        return HookContext(deps, self.spool, self.caller, parent, is_late)

    def run(
        self,
        function: Callable[Concatenate[Deps, Caller, P], Coroutine[Any, Any, T]],
        *args: P.args,
        **options: P.kwargs,
    ) -> T:
        """Run a service function to its end."""
        return drive(function(self.deps, self.caller, *args, **options))

    def record(self, delegation: Delegation) -> str:
        """Record a delegation, now or later; return a complaint, if there is one.

        The verdict is known, so the host gets it even if the store cannot record it now.
        """
        try:
            drive(self.deps.store.record_delegation(self.caller.owner, delegation))
        except StoreError as error:
            return f"{error.message}; {self._record_later(delegation)}"
        return ""

    def _record_later(self, delegation: Delegation) -> str:
        try:
            self.spool.keep(delegation_item(delegation), delegation.at)
        except (OSError, MoorageError) as error:
            return f"the delegation cannot be put off either ({error}), and is not counted"
        return "the delegation is counted later"


def caller_as(interface: str, holder: str | None = None) -> Caller:
    """Return the user who runs the host as the caller; without a holder's name, with a unique holder."""
    return Caller(by=config.user(), interface=interface, holder=holder or config.unique_holder())


def parent_of_host() -> str | None:
    """Return the session that the host works for, if it runs inside an agent."""
    from warnings import catch_warnings, simplefilter

    with catch_warnings():
        simplefilter("ignore")  # an unfilled placeholder counts as absent; standard error is the host's
        return config.parent_from_environment()


def delegation_item(delegation: Delegation) -> bytes:
    """Return a delegation as a spool item."""
    return json.encode({"delegation": to_builtins(delegation)})
