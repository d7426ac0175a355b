"""Places for streams: so many on a server and so many for one visitor, at whatever door they come in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from moorage.doors.http.refusals import TooManyStreams
from moorage.doors.http.visit import Visitor


class Places:
    """Who has how many streams open."""

    def __init__(self, in_all: int, per_visitor: int, watcher: Callable[[int], None] = lambda _: None) -> None:
        """`watcher` is told how many are open."""
        self._in_all, self._per_visitor, self.watcher = in_all, per_visitor, watcher
        self._open: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """How many are open."""
        return self._open.total()

    @contextmanager
    def place_for(self, visitor: Visitor) -> Iterator[None]:
        """A place for as long as the block lasts. Raises TooManyStreams."""
        who = visitor.key_id or visitor.session_id or visitor.caller.owner
        if self.taken >= self._in_all:
            raise TooManyStreams(self._in_all, "on this server")
        if self._open[who] >= self._per_visitor:
            raise TooManyStreams(self._per_visitor, "for you")
        self._open[who] += 1
        self.watcher(self.taken)
        try:
            yield
        finally:
            self._open[who] -= 1
            if not self._open[who]:
                del self._open[who]
            self.watcher(self.taken)
