"""Words: the partial output of an agent, before it becomes a message.

Partial output passes through the memory of one server, from the launcher to the clients that watch the session
there. It is dropped when the message is in the log, which is authoritative. Nothing waits for it, and nothing is lost
with it: a client of another server, or a late one, gets the stored message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from msgspec import Struct

MOST = 256 * 1024  # characters of one message that are shown before it is stored

Place = tuple[str, str]  # owner and session


class Spoken(Struct, frozen=True, kw_only=True):
    """A piece of partial output. One that `begins` replaces all before it; if it is empty, the message was stored."""

    session_id: str
    text: str
    begins: bool = False


class Words:
    """The partial output of each session, and its subscribers."""

    def __init__(self) -> None:
        self._said: dict[Place, str] = {}
        self._subscriptions: dict[Place, set[WordSubscription]] = {}
        self._is_closed = False

    def add(self, owner: str, session_id: str, text: str) -> None:
        """Add a piece to the partial output of a session."""
        place = (owner, session_id)
        said = self._said.get(place, "")
        text = text[: MOST - len(said)]
        if text:
            self._said[place] = said + text
            for subscription in self._subscriptions.get(place, ()):
                subscription.hear(text)

    def over(self, owner: str, session_id: str) -> None:
        """Drop the partial output: it was stored or abandoned."""
        place = (owner, session_id)
        if self._said.pop(place, None) is not None:
            for subscription in self._subscriptions.get(place, ()):
                subscription.begin("")

    def said(self, owner: str, session_id: str) -> Spoken:
        """Return the partial output that is not stored yet."""
        return Spoken(session_id=session_id, text=self._said.get((owner, session_id), ""), begins=True)

    @contextmanager
    def heard(self, owner: str, session_id: str) -> Iterator[WordSubscription]:
        """Subscribe to the partial output of a session, beginning with the output so far."""
        place, subscription = (owner, session_id), WordSubscription(session_id)
        subscription.begin(self._said.get(place, ""))
        self._subscriptions.setdefault(place, set()).add(subscription)
        if self._is_closed:
            subscription.stop()
        try:
            yield subscription
        finally:
            self._subscriptions[place].discard(subscription)
            if not self._subscriptions[place]:
                del self._subscriptions[place]

    async def close(self) -> None:
        """End all subscriptions."""
        self._is_closed = True
        for subscriptions in self._subscriptions.values():
            for subscription in subscriptions:
                subscription.stop()


class WordSubscription:
    """A subscriber to the partial output of one session."""

    def __init__(self, session_id: str) -> None:
        self._session_id, self._pieces, self._begins = session_id, list[str](), False
        self._news = asyncio.Event()
        self.has_ended = False

    def hear(self, text: str) -> None:
        """Add a piece of output."""
        self._pieces.append(text)
        self._news.set()

    def begin(self, text: str) -> None:
        """Start a new message with this text."""
        self._pieces, self._begins = [text], True
        self._news.set()

    def stop(self) -> None:
        """End the subscription."""
        self.has_ended = True
        self._news.set()

    async def next(self, within: float) -> Spoken | None:
        """Return the output since the last call, joined; None if there was none in this many seconds, or at the end."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), within)
        if self.has_ended or not self._news.is_set():
            return None
        spoken = Spoken(session_id=self._session_id, text="".join(self._pieces), begins=self._begins)
        self._pieces, self._begins = [], False
        self._news.clear()
        return spoken


class Transcript:
    """Merges live words with the messages they become, so that a listener gets each word once.

    Words and messages arrive separately: a message may overtake its last words, and words that a listener misses are in
    the message. Each method returns the new text; a new message begins on a new line.
    """

    def __init__(self) -> None:
        self._current = ""  # shown of the current message
        self._ended: list[str] = []  # shown of finished messages that have not arrived yet
        self._late = ""  # held back: words of a message that was shown already
        self._last = ""  # the newest message shown
        self._tail = ""  # the last character shown

    def piece(self, text: str, *, begins: bool = False) -> str:
        """Return the new part of a piece of live words; a piece that `begins` replaces those before it."""
        if begins:
            if self._current and not text.startswith(self._current):
                self._ended.append(self._current)
                self._current = ""
            text, self._late = text[len(self._current) :], ""
        if self._current:
            self._current += text
            return self._told(text)
        late = self._late + text
        if not late.strip() or late.strip() in self._last:
            self._late = late
            return ""
        self._current, self._late = late, ""
        return self._new_line() + self._told(late)

    def message(self, content: str) -> str:
        """Return the part of a message that was not shown as words."""
        whole, said = content.strip(), [*self._ended, self._current]
        self._last, self._late = whole, ""
        for place, each in enumerate(said):
            told = each.strip()
            if told and (whole.startswith(told) or told.startswith(whole)):
                said[place] = told[len(whole) :]  # words of the next message, which no event has separated
                *self._ended, self._current = said[place:]
                return self._told(_rest(content, each))
        self._ended = []
        return self._new_line() + self._told(content)

    def end_line(self) -> None:
        """Begin the next output on a new line."""
        self._tail = ""

    def _told(self, text: str) -> str:
        self._tail = text[-1:] or self._tail
        return text

    def _new_line(self) -> str:
        return "" if self._tail in ("", "\n") else "\n"


def _rest(content: str, told: str) -> str:
    """Return the rest of a message after the words already shown."""
    return content[len(told) :] if content.startswith(told) else content.strip()[len(told.strip()) :]
