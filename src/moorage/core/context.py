"""Context: the session's keyed memory beside the log, with expiry and versions.

Each key has its own version and its own time to live. Writing refreshes the time
to live, reading does not; an expired key is absent on the very next read.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from moorage.core.codec import check_json, encode
from moorage.core.errors import InvalidField, TooLarge, VersionConflict
from moorage.core.ids import check_label
from moorage.core.session import Session

MAX_VALUE_BYTES = 1024 * 1024
MAX_KEYS = 10_000
MIN_TTL = timedelta(microseconds=1)
MAX_TTL = timedelta(days=3650)


class ContextItem(Struct, frozen=True, kw_only=True):
    """One remembered value."""

    value: Any
    version: int
    updated_at: datetime
    expires_at: datetime | None = None

    def lives(self, at: datetime) -> bool:
        """Whether it has not run out."""
        return self.expires_at is None or at < self.expires_at


class ContextChange(Struct, frozen=True, kw_only=True):
    """What one write does: the head, the keys put, the keys dropped."""

    session: Session
    put: dict[str, ContextItem] = field(default_factory=dict)
    drop: tuple[str, ...] = ()


def put_key(
    session: Session,
    key: str,
    value: Any,
    old: ContextItem | None,
    *,
    at: datetime,
    ttl: timedelta | None,
    expected: int | None,
) -> ContextChange:
    """Remember a value under a key."""
    session.check_open()
    _check_version(session, expected, old.version if old else 0, f"key {key} of ")
    return _written(session, {key: value}, (), at, ttl)


def merge_keys(
    session: Session, values: dict[str, Any], *, at: datetime, ttl: timedelta | None, expected: int | None
) -> ContextChange:
    """Remember several values; other keys stay."""
    session.check_open()
    _check_version(session, expected, session.context_version)
    return _written(session, values, (), at, ttl)


def replace_all(
    session: Session,
    values: dict[str, Any],
    present: dict[str, ContextItem],
    *,
    at: datetime,
    ttl: timedelta | None,
    expected: int | None,
) -> ContextChange:
    """Make these values the whole context."""
    session.check_open()
    _check_version(session, expected, session.context_version)
    return _written(session, values, tuple(present.keys() - values.keys()), at, ttl)


def drop_keys(
    session: Session,
    keys: tuple[str, ...],
    present: dict[str, ContextItem],
    *,
    at: datetime,
    expected: int | None,
    whole: bool,
) -> ContextChange:
    """Forget keys. Forgetting what is not there changes nothing."""
    session.check_open()
    actual = session.context_version if whole else next((present[key].version for key in keys if key in present), 0)
    _check_version(session, expected, actual, "the context of " if whole else f"key {keys[0]} of ")
    there = tuple(key for key in keys if key in present)
    if not there:
        return ContextChange(session=session)
    return ContextChange(session=_touched(session, at), drop=there)


def _written(
    session: Session, values: dict[str, Any], drop: tuple[str, ...], at: datetime, ttl: timedelta | None
) -> ContextChange:
    head = _touched(session, at)
    expires_at = None if ttl is None else at + ttl
    put = {
        key: ContextItem(value=value, version=head.context_version, updated_at=at, expires_at=expires_at)
        for key, value in values.items()
    }
    return ContextChange(session=head, put=put, drop=drop)


def _touched(session: Session, at: datetime) -> Session:
    return replace(session, context_version=session.context_version + 1, updated_at=at)


def _check_version(session: Session, expected: int | None, actual: int, what: str = "the context of ") -> None:
    if expected is not None and expected != actual:
        raise VersionConflict(session.session_id, expected, actual, what)


def check_values(values: object) -> dict[str, Any]:
    """A JSON object whose values each fit."""
    if not isinstance(values, dict):
        raise InvalidField("context", "must be a JSON object")
    if len(values) > MAX_KEYS:
        raise InvalidField("context", f"has {len(values)} keys, at most {MAX_KEYS} are allowed")
    for key, value in values.items():
        check_key(key)
        check_value(key, value)
    return values


def check_key(key: object) -> str:
    """A key: a short text."""
    return check_label("key", key)


def check_value(key: str, value: Any) -> None:
    """A JSON value within the limit."""
    check_json(value, key)
    size = len(encode(value))
    if size > MAX_VALUE_BYTES:
        raise TooLarge("context value", size, MAX_VALUE_BYTES)


_SHORTEST, _LONGEST = MIN_TTL.total_seconds(), MAX_TTL.total_seconds()


def check_ttl(ttl: object, name: str = "ttl") -> timedelta | None:
    """A time to live in seconds or as timedelta: a microsecond or more, at most ten years."""
    if ttl is None:
        return None
    lifetime = ttl
    if isinstance(ttl, (int, float)) and not isinstance(ttl, bool) and _SHORTEST <= ttl <= _LONGEST:
        lifetime = timedelta(seconds=ttl)
    if isinstance(lifetime, timedelta) and MIN_TTL <= lifetime <= MAX_TTL:
        return lifetime
    raise InvalidField(name, f"is {ttl!r}; give seconds above 0 and up to {int(_LONGEST)}, or nothing")
