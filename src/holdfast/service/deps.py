"""What every service function is given: the store, time, chance, settings, and who is calling."""

from __future__ import annotations

from datetime import datetime

from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from holdfast.core.family import FamilyLimits
from holdfast.core.ids import uuid7
from holdfast.core.policy import ResumePolicy, RetentionPolicy
from holdfast.core.redact import SECRET_WORDS, Redactor
from holdfast.core.session import Session, Stamp
from holdfast.core.window import WindowSize
from holdfast.ports import Clock, Entropy, Store


class HookSettings(Struct, frozen=True, kw_only=True):
    """What hooks may do to their host."""

    deny_if_resumable: bool = False  # refuse to delegate what could be picked up instead


class Settings(Struct, frozen=True, kw_only=True):
    """What an installation may set."""

    resume: ResumePolicy = field(default_factory=ResumePolicy)
    family: FamilyLimits = field(default_factory=FamilyLimits)
    secret_words: tuple[str, ...] = SECRET_WORDS
    window: WindowSize = field(default_factory=lambda: WindowSize(last=50))
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)
    hooks: HookSettings = field(default_factory=HookSettings)


class Deps:
    """The outside world, as service functions see it."""

    def __init__(self, store: Store, clock: Clock, entropy: Entropy, settings: Settings | None = None) -> None:
        self.store, self.clock, self.entropy = store, clock, entropy
        self.settings = settings or Settings()
        self.redactor = Redactor(self.settings.secret_words)
        self.look_again_at = clock.now()  # for what has run out of time; see retention.expire_due

    def expect_end(self, at: datetime | None) -> None:
        """Look again when this ends, if not before."""
        if at is not None and at < self.look_again_at:
            self.look_again_at = at

    def new_id(self) -> str:
        """A new UUIDv7."""
        return uuid7(int(self.clock.now().timestamp() * 1000), self.entropy(10))

    def new_token(self) -> str:
        """A secret nobody can guess."""
        return self.entropy(16).hex()


class Caller(Struct, frozen=True, kw_only=True):
    """Who is asking, for whom, and by which door."""

    owner: str = "local"
    by: str | None = None
    interface: str = "python"
    holder: str = "local"


def stamp_of(deps: Deps, caller: Caller) -> Stamp:
    """Now, by this caller, by this door."""
    return Stamp(deps.clock.now(), caller.by, caller.interface)


def shown(session: Session) -> Session:
    """A session as anybody may see it: the hold without its token."""
    if session.hold is None:
        return session
    return replace(session, hold=replace(session.hold, token=UNSET))
