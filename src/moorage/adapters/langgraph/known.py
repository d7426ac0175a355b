"""A cache of threads, so that the next checkpoint shares the values of the one before."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import NamedTuple

from langgraph.checkpoint.base import ChannelVersions, Checkpoint

from moorage.adapters.langgraph.layout import Header, InlineValue, ValuePlace
from moorage.adapters.langgraph.lists import KnownList

MOST_ITEMS = 200_000  # of cached lists, of all threads together
BYTES_OF_AN_ITEM = 1024  # other values count as so many items

Spot = tuple[str, str]  # a session id and a checkpoint namespace


class Known(NamedTuple):
    """A checkpoint that was read or written."""

    checkpoint_id: str | None
    epoch: int
    versions: ChannelVersions
    places: dict[str, ValuePlace]
    lists: dict[str, KnownList]
    short: dict[str, KnownList]  # lists with messages that are stored as one value

    @property
    def size(self) -> int:
        """Return the cache size of the checkpoint."""
        inline = sum(len(each.data) for each in self.places.values() if isinstance(each, InlineValue))
        return 1 + inline // BYTES_OF_AN_ITEM + sum(len(each.items) for each in self.lists.values())

    def is_whole(self, header: Header) -> bool:
        """Return whether loading this checkpoint again would add nothing to the cache."""
        is_same = self.checkpoint_id == header.checkpoint_id and self.places == header.values
        return is_same and all(each.is_loaded for each in self.lists.values())

    def place_of(self, channel: str, checkpoint: Checkpoint, new_versions: ChannelVersions) -> ValuePlace | None:
        """Return where a value is stored that a following checkpoint did not change."""
        version = checkpoint["channel_versions"].get(channel)
        is_old = channel not in new_versions and version is not None and self.versions.get(channel) == version
        return self.places.get(channel) if is_old else None


class Threads:
    """The newest checkpoints of threads that this process knows; the least used are dropped first."""

    def __init__(self) -> None:
        self._known = OrderedDict[Spot, Known]()
        self._guard = Lock()
        self._size = 0

    def find(self, spot: Spot) -> Known | None:
        """Return the cached checkpoint of a thread."""
        with self._guard:
            return self._known.get(spot)

    def remember(self, spot: Spot, known: Known) -> None:
        """Cache a checkpoint in place of the one before."""
        with self._guard:
            self._drop(spot)
            self._known[spot] = known
            self._size += known.size
            while self._size > MOST_ITEMS and len(self._known) > 1:
                self._drop(next(iter(self._known)))

    def forget(self, spot: Spot) -> None:
        """Forget a thread: others removed values."""
        with self._guard:
            self._drop(spot)

    def _drop(self, spot: Spot) -> None:
        if (known := self._known.pop(spot, None)) is not None:
            self._size -= known.size
