"""Words: what an agent is just saying, before it is a message.

They pass through the memory of one server, from the launcher that hears them to whoever watches the session
there, and go when the message is in the log, which is the truth. Nothing waits for them and nothing is lost with
them: a watcher at another server, or one that comes too late, sees the message when it is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from msgspec import Struct

MOST = 256 * 1024  # characters of one message that are shown before it is kept

Place = tuple[str, str]  # owner and session


class Spoken(Struct, frozen=True, kw_only=True):
    """A piece of what is being said. One that `begins` takes the place of all before it; empty: it was kept."""

    session_id: str
    text: str
    begins: bool = False


class Words:
    """What is being said in each session, and who hears it."""

    def __init__(self) -> None:
        self._said: dict[Place, str] = {}
        self._hearers: dict[Place, set[Hearer]] = {}
        self._is_closed = False

    def add(self, owner: str, session_id: str, text: str) -> None:
        """The agent of a session goes on speaking."""
        place = (owner, session_id)
        said = self._said.get(place, "")
        text = text[: MOST - len(said)]
        if text:
            self._said[place] = said + text
            for hearer in self._hearers.get(place, ()):
                hearer.hear(text)

    def over(self, owner: str, session_id: str) -> None:
        """What it said is kept, or nobody will ever say how it ends."""
        place = (owner, session_id)
        if self._said.pop(place, None) is not None:
            for hearer in self._hearers.get(place, ()):
                hearer.begin("")

    def said(self, owner: str, session_id: str) -> Spoken:
        """What has been said so far of what is not kept yet."""
        return Spoken(session_id=session_id, text=self._said.get((owner, session_id), ""), begins=True)

    @contextmanager
    def heard(self, owner: str, session_id: str) -> Iterator[Hearer]:
        """Somebody who hears what is said in a session: first what was said so far."""
        place, hearer = (owner, session_id), Hearer(session_id)
        hearer.begin(self._said.get(place, ""))
        self._hearers.setdefault(place, set()).add(hearer)
        if self._is_closed:
            hearer.stop()
        try:
            yield hearer
        finally:
            self._hearers[place].discard(hearer)
            if not self._hearers[place]:
                del self._hearers[place]

    async def close(self) -> None:
        """Nobody hears any more."""
        self._is_closed = True
        for hearers in self._hearers.values():
            for hearer in hearers:
                hearer.stop()


class Hearer:
    """Somebody who listens to one session."""

    def __init__(self, session_id: str) -> None:
        self._session_id, self._pieces, self._begins = session_id, list[str](), False
        self._news = asyncio.Event()
        self.has_ended = False

    def hear(self, text: str) -> None:
        """There is more."""
        self._pieces.append(text)
        self._news.set()

    def begin(self, text: str) -> None:
        """What was heard before is over."""
        self._pieces, self._begins = [text], True
        self._news.set()

    def stop(self) -> None:
        """There is nobody who listens any more."""
        self.has_ended = True
        self._news.set()

    async def next(self, within: float) -> Spoken | None:
        """All that was said since, together; None if there was nothing for so many seconds, or the end."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), within)
        if self.has_ended or not self._news.is_set():
            return None
        spoken = Spoken(session_id=self._session_id, text="".join(self._pieces), begins=self._begins)
        self._pieces, self._begins = [], False
        self._news.clear()
        return spoken
