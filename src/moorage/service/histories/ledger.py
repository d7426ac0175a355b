"""A log under construction: entries are numbered one after another."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from moorage.core.entry import Entry, Kind

Content = str | list[dict[str, Any]]


class Ledger:
    """The entries of a future session."""

    def __init__(self, interface: str) -> None:
        self._interface = interface
        self.entries: list[Entry] = []

    @property
    def last(self) -> int:
        """Return the number of the newest entry."""
        return len(self.entries)

    def note(self, kind: Kind, at: datetime, data: dict[str, Any] | None = None, **said: Any) -> None:
        """Add an event with its data, or a message with its role and content."""
        entry = Entry(number=self.last + 1, kind=kind.value, at=at, data=data, interface=self._interface, **said)
        self.entries.append(entry)


def as_utc(at: datetime) -> datetime:
    """Return the instant in UTC; a time without a zone counts as UTC."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
