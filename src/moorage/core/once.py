"""Requests with an idempotency key, which makes repeating a request harmless.

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
from moorage.core.ids import MAX_KEY, check_label
from moorage.core.session import Change

KEPT_FOR = timedelta(hours=24)


class Once(Struct, frozen=True, gc=False):
    """A request under a key, with its result."""

    operation: str
    key: str
    digest: str  # of the whole request
    ref: str  # a session's id, an approval's, or an entry's place (see `entry_ref`)
    at: datetime

    def lives(self, at: datetime) -> bool:
        """Return whether the key still stands for that request."""
        return at - self.at < KEPT_FOR

    def check_repeats(self, other: Once) -> None:
        """Raise AlreadyDone for an equal request under the same key, KeyReused for another one."""
        if other.digest != self.digest:
            raise KeyReused(other.key)
        raise AlreadyDone(self.ref)


class AlreadyDone(Conflict):
    """An equal request was made before, and nothing was written now. Only the service sees this error."""

    def __init__(self, ref: str) -> None:
        super().__init__(f"this was done before: it became {ref}", ref=ref)


class OnceKey(Struct, frozen=True, gc=False):
    """A request with its key, before it has a result."""

    operation: str
    key: str
    digest: str

    def on(self, change: Change, ref: str, at: datetime) -> Change:
        """Return a change that also stores `ref` as the result of this request."""
        return replace(change, once=Once(self.operation, self.key, self.digest, ref, at))


def once_key(operation: str, key: object, request: object) -> OnceKey:
    """Return a request with its key; `request` has all of it, as values that JSON can represent."""
    return OnceKey(operation, check_label("idempotency_key", key, MAX_KEY), digest_of(request))


def digest_of(request: Any) -> str:
    """Return a digest that is equal for equal requests; empty outside JSON, which the operation itself refuses."""
    from hashlib import sha256

    try:
        return sha256(canonical(request)).hexdigest()
    except (TypeError, ValueError, RecursionError):
        return ""


def entry_ref(session_id: str, number: int) -> str:
    """Return the text that stands for an entry. No session id has a slash."""
    return f"{session_id}/{number}"


def entry_named(ref: str) -> tuple[str, int]:
    """Return the session and the number of an entry from such a text."""
    session_id, _, number = ref.partition("/")
    return session_id, int(number)
