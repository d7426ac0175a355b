"""Requests that are done once: a key of the caller's choice makes repeating a request harmless.

The result of a request is stored beside it for a day, in the same commit. A repeated request with the same key gets
the stored result; a different request is refused. A key belongs to one owner and one operation.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from moorage.core.codec import canonical
from moorage.core.errors import Conflict, KeyReused
from moorage.core.ids import check_label
from moorage.core.session import Change

KEPT_FOR = timedelta(hours=24)
MAX_KEY = 255


class Once(Struct, frozen=True, gc=False):
    """A request that was made under a key, and what it became."""

    operation: str
    key: str
    digest: str  # of all that was asked
    ref: str  # a session's id, an approval's, or an entry's place (see `entry_ref`)
    at: datetime

    def lives(self, at: datetime) -> bool:
        """Whether the key still stands for that request."""
        return at - self.at < KEPT_FOR

    def check_repeats(self, other: Once) -> None:
        """Raise what a request under the same key is told: AlreadyDone, or KeyReused if it asks for something else."""
        if other.digest != self.digest:
            raise KeyReused(other.key)
        raise AlreadyDone(self.ref)


class AlreadyDone(Conflict):
    """The same request was made before, and nothing was written now. Only the service hears of it."""

    def __init__(self, ref: str) -> None:
        super().__init__(f"this was done before: it became {ref}", ref=ref)


class OnceKey(Struct, frozen=True, gc=False):
    """A request and the key it comes under, before it became anything."""

    operation: str
    key: str
    digest: str

    def on(self, change: Change, ref: str, at: datetime) -> Change:
        """A change with the note that this request became `ref`."""
        return replace(change, once=Once(self.operation, self.key, self.digest, ref, at))


def once_key(operation: str, key: object, request: object) -> OnceKey:
    """A request under a key; `request` is all that was asked, as values that JSON can carry."""
    return OnceKey(operation, check_label("idempotency_key", key, MAX_KEY), digest_of(request))


def digest_of(request: Any) -> str:
    """Return a digest that is equal for equal requests. A request outside JSON gets none: its operation refuses it."""
    from hashlib import sha256

    try:
        return sha256(canonical(request)).hexdigest()
    except (TypeError, ValueError, RecursionError):
        return ""


def entry_ref(session_id: str, number: int) -> str:
    """How an entry is noted. No session id has a slash."""
    return f"{session_id}/{number}"


def entry_named(ref: str) -> tuple[str, int]:
    """The session and the number of an entry that was noted so."""
    session_id, _, number = ref.partition("/")
    return session_id, int(number)
