"""A log as it is put together: entries numbered one after another."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from moorage.core.entry import Entry, Kind

Content = str | list[dict[str, Any]]


class Ledger:
    """The entries of one session to be."""

    def __init__(self, interface: str) -> None:
        self._interface = interface
        self.entries: list[Entry] = []

    @property
    def last(self) -> int:
        """The number of the newest entry."""
        return len(self.entries)

    def note(self, kind: Kind, at: datetime, data: dict[str, Any]) -> None:
        """Something happened."""
        self._add(kind, at, data=data)

    def say(self, role: str, content: Content, at: datetime) -> None:
        """Something was said."""
        self._add(Kind.MESSAGE, at, role=role, content=content)

    def _add(self, kind: Kind, at: datetime, **fields: Any) -> None:
        entry = Entry(number=self.last + 1, kind=kind.value, at=at, interface=self._interface, **fields)
        self.entries.append(entry)


def as_utc(at: datetime) -> datetime:
    """The instant in UTC; what names no zone was meant so."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
