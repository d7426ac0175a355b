"""Queries: the filters of lists, and the cursors for their pages.

A cursor marks the end of the last page. It belongs to one query: it carries the
query's fingerprint, and any other query refuses it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import datetime
from types import NoneType
from typing import Any, Generic, TypeVar
from zlib import crc32

from msgspec import Struct

from moorage.core.brief import brief
from moorage.core.codec import canonical, check_json, is_text
from moorage.core.errors import InvalidCursor, InvalidField, UnknownPhase
from moorage.core.session import Phase, Session, State
from moorage.core.status import Status

T = TypeVar("T")

MAX_LIMIT = 1000
PAGE = MAX_LIMIT  # items that `pages` requests at once
MAX_POSITION = 1 << 62  # no store counts higher
SORTS = ("-created", "created", "-updated", "updated")  # by creation, and by the newest entry
STATUSES = tuple(Status)


# The filters that a field of the session has to equal.
_EQUAL = {
    "agent": "agent_name", "state": "state", "status": "status", "phase": "phase", "interface": "interface",
    "parent": "parent_session_id", "root": "root_session_id", "task": "task_id", "project_dir": "project_dir",
}  # fmt: skip
_TEXTS = (*_EQUAL, "name_prefix", "metadata_key", "label", "sort")
_INSTANTS = ("created_after", "created_before", "updated_after", "updated_before")


@brief("items", "next")
class Page(Struct, Generic[T], frozen=True):
    """A part of a list, and the cursor of the next page; None at the end."""

    items: list[T]
    next: str | None = None

    def __iter__(self) -> Any:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


class LogQuery(Struct, frozen=True, kw_only=True):
    """A query for entries of a session: those with after < number < before, of these kinds, from one end."""

    after: int = 0
    before: int | None = None
    limit: int = 100
    kinds: tuple[str, ...] | None = None
    newest_first: bool = False


OLDEST = LogQuery()


class SessionQuery(Struct, frozen=True, kw_only=True):
    """A query for sessions, with their order."""

    agent: str | None = None
    state: str | None = None
    status: str | None = None
    phase: str | None = None
    interface: str | None = None  # the door that created it
    parent: str | None = None  # a session id
    root: str | None = None  # a session id
    task: str | None = None
    name_prefix: str | None = None
    project_dir: str | None = None
    label: str | None = None
    metadata_key: str | None = None
    metadata_value: Any = None
    active_only: bool = False
    resume_ready: bool | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    updated_after: datetime | None = None
    updated_before: datetime | None = None
    sort: str = "-created"
    limit: int = 50
    cursor: str | None = None

    def __post_init__(self) -> None:
        for name in _TEXTS:
            check_any_text("task_id" if name == "task" else name, getattr(self, name))
        for name in _INSTANTS:
            check_instant(name, getattr(self, name))
        for name in ("active_only", "resume_ready"):
            if type(getattr(self, name)) not in (bool, NoneType):
                raise InvalidField(name, "must be true or false")
        check_json(self.metadata_value, "metadata_value")
        if self.metadata_value is not None and self.metadata_key is None:
            raise InvalidField("metadata_value", "needs a metadata_key, under which it is looked for")
        check_choice("state", self.state, tuple(State))
        check_choice("status", self.status, STATUSES)
        if self.phase is not None and self.phase not in tuple(Phase):
            raise UnknownPhase(self.phase, Phase)
        if self.sort is None:
            raise InvalidField("sort", f"is missing; use one of {', '.join(SORTS)}")
        check_choice("sort", self.sort, SORTS)
        check_limit(self.limit)

    @property
    def newest_first(self) -> bool:
        """Return whether the session created or updated last comes first."""
        return self.sort.startswith("-")

    @property
    def by_update(self) -> bool:
        """Return whether sessions are sorted by their newest entries; cursors are then positions in the feed."""
        return self.sort.endswith("updated")

    def position(self) -> int | None:
        """Return the position of the cursor, or None at the beginning."""
        return None if self.cursor is None else read_cursor(self.cursor, self._fingerprint())

    def cursor_at(self, position: int) -> str:
        """Return a cursor of this query for a page that ended at this position."""
        return make_cursor(position, self._fingerprint())

    def admits(self, session: Session) -> bool:
        """Return whether a session matches all filters (the stores' SQL does the same)."""
        equal = ((getattr(self, name), own) for name, own in _EQUAL.items())
        return (
            all(wanted is None or wanted == getattr(session, own) for wanted, own in equal)
            and (self.name_prefix is None or (session.session_name or "").startswith(self.name_prefix))
            and (self.label is None or self.label in session.labels)
            and (not self.active_only or not session.is_final)
            and (self.resume_ready is None or session.resume_ready == self.resume_ready)
            and self._admits_metadata(session.metadata)
            and _within(session.created_at, self.created_after, self.created_before)
            and _within(session.updated_at, self.updated_after, self.updated_before)
        )

    def _admits_metadata(self, metadata: dict[str, Any]) -> bool:
        if self.metadata_key is None:
            return True
        if self.metadata_key not in metadata:
            return False
        return self.metadata_value is None or canonical(metadata[self.metadata_key]) == canonical(self.metadata_value)

    def _fingerprint(self) -> int:
        filters = {name: getattr(self, name) for name in self.__struct_fields__ if name not in ("limit", "cursor")}
        return crc32(canonical(filters))


def make_cursor(position: int, fingerprint: int) -> str:
    """Return an opaque cursor."""
    return f"{fingerprint:08x}-{position:x}"


def read_cursor(cursor: object, fingerprint: int) -> int:
    """Return the position of a cursor. Raises InvalidCursor if it does not belong to that query."""
    mark, _, place = cursor.partition("-") if isinstance(cursor, str) else ("", "", "")
    try:
        position = int(place, 16)
    except ValueError:
        raise InvalidCursor from None
    if mark != f"{fingerprint:08x}" or place != f"{position:x}" or not 0 <= position < MAX_POSITION:
        raise InvalidCursor
    return position


def pages(
    ask: Callable[..., Page[T]], cursor: object = None, *, limit: int | None = None, by: str = "cursor"
) -> Iterator[Page[T]]:
    """Request page after page, up to a limit or the end; `by` is the parameter that takes the cursor."""
    left = limit
    while left is None or left > 0:
        place = {} if cursor is None else {by: cursor}
        page = ask(limit=min(left or PAGE, PAGE), **place)
        yield page
        cursor, left = page.next, None if left is None else left - len(page.items)
        if cursor is None:
            return


def every(ask: Callable[..., Page[T]], cursor: object = None, **options: Any) -> Iterator[T]:
    """Yield the items of all pages; the options are those of `pages`."""
    for page in pages(ask, cursor, **options):
        yield from page.items


async def each_page(
    ask: Callable[..., Awaitable[Page[T]]], cursor: object = None, *, by: str = "cursor"
) -> AsyncIterator[Page[T]]:
    """Yield the pages of an asynchronous list; `by` is the parameter that takes the cursor."""
    while True:
        page = await ask(**{by: cursor})
        yield page
        if (cursor := page.next) is None:
            return


async def each_item(
    ask: Callable[..., Awaitable[Page[T]]], cursor: object = None, *, by: str = "cursor"
) -> AsyncIterator[T]:
    """Yield the items of all pages of an asynchronous list."""
    async for page in each_page(ask, cursor, by=by):
        for item in page.items:
            yield item


def check_limit(limit: object) -> int:
    """Return a page size. Raises InvalidField."""
    if type(limit) is not int or not 1 <= limit <= MAX_LIMIT:
        raise InvalidField("limit", f"is {limit!r}; give a number from 1 to {MAX_LIMIT}")
    return limit


def number_of(value: int | str | None) -> int | None:
    """Return the number in a cursor. Raises InvalidCursor."""
    if isinstance(value, str):
        if not value.isdecimal() or len(value) > 18:  # no log is that long
            raise InvalidCursor
        return int(value)
    return value


def check_number(value: int | str | None) -> int | None:
    """Return the number of an entry, given as a number or as a cursor."""
    number = number_of(value)
    check_numbers(number)
    return number


def check_numbers(*numbers: object) -> None:
    """Check numbers of entries; None is allowed."""
    for number in numbers:
        if number is not None and (type(number) is not int or not 0 <= number < 1 << 32):
            raise InvalidField("number", f"is {number!r}; give the number of an entry")


def check_any_text(name: str, value: object) -> None:
    """Check a text that a query compares; None is allowed. It need not be a valid label: then nothing matches."""
    if value is not None and not (isinstance(value, str) and is_text(value)):
        raise InvalidField(name, "must be text")


def check_instant(name: str, at: object) -> None:
    """Check a time; None is allowed."""
    if at is not None and not (isinstance(at, datetime) and at.tzinfo is not None):
        raise InvalidField(name, "must be a time with a time zone, such as 2026-01-31T12:00:00Z")


def check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Check one of a few words; None is allowed."""
    if value is not None and value not in allowed:
        raise InvalidField(name, f"is {value!r}; use one of {', '.join(allowed)}")


def _within(at: datetime, after: datetime | None, before: datetime | None) -> bool:
    return (after is None or at > after) and (before is None or at < before)
