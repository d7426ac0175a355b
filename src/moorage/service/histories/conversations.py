"""Conversations: the messages of one agent in a transcript, collected line by line.

The blocks of one reply are on several lines, with other lines between them, so entries get their numbers only at the
end of the transcript: `scribe` then makes a session of it.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct, field

from moorage.service.histories.blocks import Part

MAX_COUNT = 1 << 53


class EntryDraft(Struct, kw_only=True):
    """A future entry: a message, an error or a summary."""

    line: int | None
    at: datetime | None
    role: str | None = None
    parts: list[Part] = field(default_factory=list)
    stop: str | None = None  # why the model stopped here, if the line has it
    error: str | None = None
    summary: str | None = None
    keeps_from: int | None = None  # of a summary: the first earlier draft that it does not stand for


class SubAgentCall(Struct, frozen=True, kw_only=True):
    """A call that delegates work to a sub-agent."""

    call_id: str
    agent: str | None = None
    description: str | None = None
    prompt: str | None = None


class Conversation:
    """One agent's part of a transcript, while it is read."""

    def __init__(self, session_id: str | None = None) -> None:
        self.session_id = session_id
        self.drafts: list[EntryDraft] = []
        self.calls: list[SubAgentCall] = []
        self.project_dir: str | None = None
        self.version: str | None = None
        self._replies: dict[str, int] = {}  # index of each reply among the drafts, by its id
        self._places: dict[str, int] = {}  # index of the draft of each line, by its uuid
        self._usage: dict[str, dict[str, int]] = {}
        self._keeps_from: int | None = None

    def add(self, draft: EntryDraft, uuid: str | None) -> None:
        """Append a draft."""
        self._remember(uuid, len(self.drafts))
        self.drafts.append(draft)

    def reply(self, draft: EntryDraft, uuid: str | None, reply_id: str | None) -> None:
        """Add blocks of a reply to those that came before under the same id."""
        if reply_id is None:
            self.add(draft, uuid)
            return
        place = self._replies.setdefault(reply_id, len(self.drafts))
        if place == len(self.drafts):
            self.add(draft, uuid)
            return
        known = self.drafts[place]
        known.parts += draft.parts
        known.stop = draft.stop or known.stop
        self._remember(uuid, place)

    def count(self, reply_id: str, usage: dict[str, object]) -> None:
        """Note the usage of a reply. Each of its lines has it; the last one is right."""
        self._usage[reply_id] = {
            name: count for name, count in usage.items() if type(count) is int and 0 < count < MAX_COUNT
        }

    def keep_from(self, uuid: str | None) -> None:
        """Exclude everything from this line on from the next summary."""
        self._keeps_from = self._places.get(uuid) if uuid is not None else None

    def sum_up(self, draft: EntryDraft, uuid: str | None) -> None:
        """Add a summary of what came before."""
        draft.keeps_from, self._keeps_from = self._keeps_from, None
        self.add(draft, uuid)

    @property
    def asked(self) -> str | None:
        """Return the first question, if it is text."""
        first = self.drafts[0] if self.drafts else None
        return first.parts[0].get("text") if first is not None and first.parts else None

    @property
    def usage(self) -> dict[str, int]:
        """Return the usage of all replies."""
        total = {"input_tokens": 0, "output_tokens": 0}
        for usage in self._usage.values():
            for name, count in usage.items():
                total[name] = total.get(name, 0) + count
        return total

    def _remember(self, uuid: str | None, place: int) -> None:
        if uuid is not None:
            self._places[uuid] = place
