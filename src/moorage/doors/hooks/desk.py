"""What every handler of an event works with: the store, the caller, the answer."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import datetime
from typing import Any, TypeVar

from msgspec import Struct, json, to_builtins

from moorage import config
from moorage.clocks import SystemClock
from moorage.core.delegation import Delegation
from moorage.core.errors import MoorageError, StoreError
from moorage.doors.hooks.spool import Spool
from moorage.service.deps import Caller, Deps
from moorage.service.inline import drive

T = TypeVar("T")
Json = dict[str, Any]

INTERFACE = "hook"


class Answer(Struct, frozen=True):
    """What goes to standard output, perhaps a line for standard error, and the exit code."""

    body: Json
    complaint: str = ""
    code: int = 0

    def encoded(self) -> bytes:
        """The body as one line of JSON."""
        return json.encode(self.body) + b"\n"


class ClockAt(SystemClock):
    """A clock that shows when something happened."""

    def __init__(self, at: datetime) -> None:
        self._at = at

    def now(self) -> datetime:
        """That time."""
        return self._at


class Desk:
    """A store in the hands of a hook."""

    def __init__(self, deps: Deps, spool: Spool, parent: str | None = None, *, is_late: bool = False) -> None:
        self.deps, self.spool = deps, spool
        self.parent = parent  # the session that the host works for, as its environment says
        self.is_late = is_late  # whether this was put off before

    def at(self, at: datetime, parent: str | None, *, is_late: bool = False) -> Desk:
        """The same, then and there: whenever an event is stored, it happened when it happened."""
        deps = Deps(self.deps.store, ClockAt(at), self.deps.entropy, self.deps.settings)
        return Desk(deps, self.spool, parent, is_late=is_late)

    def caller(self, interface: str = INTERFACE, holder: str | None = None) -> Caller:
        """Whoever runs the host; without a holder's name, one that nobody else has."""
        return Caller(by=config.user(), interface=interface, holder=holder or config.unique_holder())

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a service function to its end."""
        return drive(work)

    def let_time_pass(self) -> None:
        """End what has run out of time, as every door does before anything else."""
        from moorage.service.retention import expire_due

        drive(expire_due(self.deps, self.caller()))

    def record(self, delegation: Delegation) -> str:
        """Remember a delegation, now or later; what there is to say about it, if anything.

        The verdict is known: whoever asked gets it, though the store may not take a note of it now.
        """
        try:
            drive(self.deps.store.record_delegation(self.caller().owner, delegation))
        except StoreError as error:
            return f"{error.message}; {self._record_later(delegation)}"
        return ""

    def _record_later(self, delegation: Delegation) -> str:
        try:
            self.spool.keep(delegation_item(delegation), delegation.at)
        except (OSError, MoorageError) as error:
            return f"the delegation cannot be put off either ({error}), and is not counted"
        return "the delegation is counted later"


def parent_of_host() -> str | None:
    """The session that the host works for, if it runs inside an agent."""
    from warnings import catch_warnings, simplefilter

    with catch_warnings():
        simplefilter("ignore")  # a value that nobody filled in counts as absent, and standard error is the host's
        return config.parent_from_environment()


def delegation_item(delegation: Delegation) -> bytes:
    """A delegation as the spool keeps it."""
    return json.encode({"delegation": to_builtins(delegation)})
