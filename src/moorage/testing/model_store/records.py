"""Records of one session, or of one owner."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from moorage.core.record import (
    FLOOR,
    DropRecords,
    PutRecord,
    Record,
    RecordName,
    RecordNeeds,
    RecordQuery,
    RecordsView,
    RecordWrite,
    TouchRecords,
    has_floor,
    raised_floor,
    sort_key,
)


class RecordBook:
    """Records by their names."""

    def __init__(self) -> None:
        self.kept: dict[RecordName, Record] = {}

    def find(self, names: list[RecordName], at: datetime) -> list[Record | None]:
        """Return records by their names; None for a missing one."""
        found = [self.kept.get(name) for name in names]
        return [one if one is not None and one.lives(at) else None for one in found]

    def page(self, query: RecordQuery, at: datetime) -> list[Record]:
        """Return records in order."""
        names = sorted(filter(query.admits, self.kept), key=sort_key, reverse=query.descending)
        living = [self.kept[name] for name in names if self.kept[name].lives(at)][: query.limit]
        return living if query.values else [record.without_value() for record in living]

    def view(self, needs: RecordNeeds) -> RecordsView:
        """Return the input of a decision."""
        last = {start: self._below(start) for start in needs.last}
        named = [name for name in needs.names if name in self.kept]
        named += [name for start in needs.below for name in self._below(start)]
        return RecordsView(
            {name: self.kept[name].without_value() for name in named},
            {start: self.kept[below[-1]].without_value() for start, below in last.items() if below},
        )

    def write(self, writes: tuple[RecordWrite, ...]) -> None:
        """Write in order."""
        for each in writes:
            match each:
                case PutRecord(record):
                    self.kept[record.name] = record
                case DropRecords(name, is_prefix):
                    for found in self._named(name, is_prefix=is_prefix):
                        del self.kept[found]
                case TouchRecords(name, expires_at, is_prefix):
                    for found in self._named(name, is_prefix=is_prefix):
                        self.kept[found] = replace(self.kept[found], expires_at=expires_at)

    def purge(self, name: RecordName, at: datetime) -> None:
        """Delete an expired record."""
        gone = self.kept.pop(name)
        if has_floor(name):
            self.write(tuple(raised_floor(self.kept.get(RecordName(FLOOR, FLOOR)), gone.version, at)))

    def expired(self, at: datetime) -> list[tuple[datetime, RecordName]]:
        """Return the expiry times and the names of expired records."""
        return [
            (one.expires_at, name)
            for name, one in self.kept.items()
            if one.expires_at is not None and not one.lives(at)
        ]

    def _named(self, name: RecordName, *, is_prefix: bool) -> list[RecordName]:
        return self._below(name) if is_prefix else [name] if name in self.kept else []

    def _below(self, start: RecordName) -> list[RecordName]:
        found = [name for name in self.kept if name.namespace == start.namespace and name.key.startswith(start.key)]
        return sorted(found, key=sort_key)
