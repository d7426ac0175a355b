"""The window: the part of a long history that a model gets.

The last n messages or turns, or those that fit a budget of tokens or bytes. A window
never separates a tool call from its result, keeps system messages, and begins with
the newest summary in place of the messages it summarises. It has at least the newest
message, so that a caller can page back whatever the budget.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from moorage.core.codec import encode
from moorage.core.entry import Entry, Kind, Message, tool_calls, tool_results
from moorage.core.errors import InvalidField

TokenCounter = Callable[[Entry], int]


class WindowSize(Struct, frozen=True, kw_only=True):
    """The limits of a window; all given limits apply."""

    last: int | None = None
    turns: int | None = None
    tokens: int | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("last", "turns", "tokens", "max_bytes"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise InvalidField(name, f"is {value!r}; give a whole number above 0")


def bytes_of(entry: Entry) -> int:
    """Return the size of a message's content."""
    return len(entry.content.encode()) if isinstance(entry.content, str) else len(encode(entry.content))


def rough_tokens(entry: Entry) -> int:
    """Estimate the tokens of a message without a tokenizer: four bytes each, plus four for the frame."""
    return bytes_of(entry) // 4 + 4


class WindowBuilder:
    """Collects messages from the newest backwards until the window is full.

    Pass it pages with `take`, newest entry first, until `is_full`. A call and its result are
    kept or left out together, the result right after its call, whatever the log has between
    them. So the window may exceed a limit on the number of messages by such a pair; it exceeds
    a budget only if the newest message alone does.
    """

    def __init__(self, size: WindowSize, count_tokens: TokenCounter = rough_tokens) -> None:
        self._size, self._count_tokens = size, count_tokens
        self._kept: list[Entry] = []
        self._results: list[Entry] = []  # held back until their call comes
        self._group: list[Entry] = []  # consecutive calls with their results
        self._missing: set[str] = set()  # calls of results in the group that did not come yet
        self._paid_for: set[int] = set()  # numbers of the entries that `reserve` took out of the budget
        self._turns = self._tokens = self._bytes = 0
        self._only_counts = size.last is not None and size.turns is size.tokens is size.max_bytes is None
        self.is_full = False

    def reserve(self, pinned: list[Entry]) -> None:
        """Reserve budget for entries that the window keeps in any case."""
        if self._size.tokens is self._size.max_bytes is None:
            return
        self._tokens, self._bytes = self._cost([_readable(entry) for entry in pinned])
        self._paid_for = {entry.number for entry in pinned}

    def take(self, newest_first: list[Entry]) -> None:
        """Add older messages until the window is full."""
        is_between = self._group or self._results
        if self._only_counts and not is_between and {type(entry.content) for entry in newest_first} <= {str}:
            self._take_texts(newest_first)
            return
        for entry in newest_first:
            if self.is_full:
                return
            self._add(entry)

    def _take_texts(self, newest_first: list[Entry]) -> None:
        """Add text messages, quickly: the only limit is a number of messages, and there are no tool calls."""
        room = max(0, (self._size.last or 0) - len(self._kept))  # a pair may have exceeded the limit
        self._kept += newest_first[:room]
        self.is_full = len(newest_first) > room

    def end(self) -> None:
        """End the input: leave out results without a call, so that they keep out no other message."""
        if self._missing:
            group, self._group, self._missing = self._group, [], set()
            self.take(_without_orphans(group))
        self._close()

    def messages(self) -> list[Entry]:
        """Return the messages that fit, oldest first."""
        return self._kept[::-1]

    def _add(self, entry: Entry) -> None:
        calls = tool_calls(entry)
        results = set(tool_results(entry)).difference(calls)
        answers = self._answers(calls)
        stays = self._missing or (answers and not results)  # parallel calls stay together, in their order
        if not stays:
            self._close()
            if self.is_full:
                return
            if results and not calls:
                self._results.append(entry)
                return
        self._group += [entry, *answers]
        self._missing |= results.union(*map(tool_results, answers)) if answers else results
        self._missing.difference_update(calls)
        if answers:
            self._results = [each for each in self._results if each not in answers]
        if not self._missing and not calls:
            self._close()

    def _answers(self, calls: list[str]) -> list[Entry]:
        """Return the results of these calls; a result may be of several calls."""
        if not calls:
            return []
        return [entry for entry in self._results if not set(tool_results(entry)).isdisjoint(calls)]

    def _close(self) -> None:
        """Keep the group, unless the window is full before it. The newest message is always kept."""
        group, self._group = _without_needless_repairs(self._group), []
        if not group or self.is_full:
            return
        if self._kept and self._is_full_before(group):
            self.is_full = True
            return
        self._keep(sorted(group, key=lambda entry: -entry.number))

    def _is_full_before(self, group: list[Entry]) -> bool:
        size = self._size
        tokens, in_bytes = self._cost(group)
        return (
            (size.last is not None and len(self._kept) >= size.last)
            or (size.turns is not None and self._turns >= size.turns)
            or (size.tokens is not None and self._tokens + tokens > size.tokens)
            or (size.max_bytes is not None and self._bytes + in_bytes > size.max_bytes)
        )

    def _keep(self, group: list[Entry]) -> None:
        self._kept.extend(group)
        self._turns += sum(1 for entry in group if entry.role == "user")
        tokens, in_bytes = self._cost(group)
        self._tokens += tokens
        self._bytes += in_bytes

    def _cost(self, group: list[Entry]) -> tuple[int, int]:
        """Return tokens and bytes, where there is a budget of them."""
        new = [entry for entry in group if entry.number not in self._paid_for]
        return (
            0 if self._size.tokens is None else sum(map(self._count_tokens, new)),
            0 if self._size.max_bytes is None else sum(map(bytes_of, new)),
        )


def _without_needless_repairs(group: list[Entry]) -> list[Entry]:
    """Return calls and results without the repairs of calls whose own result came later after all."""
    if len(group) < 3:  # a call and one result
        return group
    answered = {call for entry in group if not _is_repair(entry) for call in tool_results(entry)}
    return [entry for entry in group if not (_is_repair(entry) and answered.issuperset(tool_results(entry)))]


def _is_repair(entry: Entry) -> bool:
    return isinstance(entry.content, list) and all(part.get("repaired") for part in entry.content)


def _without_orphans(newest_first: list[Entry]) -> list[Entry]:
    """Return these messages except results without an earlier call."""
    calls: set[str] = set()
    whole: list[Entry] = []
    for entry in reversed(newest_first):
        if calls.issuperset(tool_results(entry)):
            calls.update(tool_calls(entry))
            whole.append(entry)
    return whole[::-1]


def with_pinned(messages: list[Entry], pinned: list[Entry]) -> list[Entry]:
    """Return the window with system messages and the summary before what they precede, each once."""
    if not pinned:
        return messages
    numbers = {entry.number for entry in messages}
    kept = [_readable(entry) for entry in pinned if entry.number not in numbers]
    return [*sorted(kept, key=_place), *messages]  # system messages after the first one are among the messages


def _readable(entry: Entry) -> Entry:
    """Return an entry for a model: a summary becomes a system message."""
    if entry.kind != Kind.SUMMARY or entry.data is None:
        return entry
    return replace(entry, role="system", content=entry.data["summary"])


def _place(entry: Entry) -> tuple[int, int]:
    if entry.kind == Kind.SUMMARY and entry.data is not None:
        return (entry.data["upto"], 1)  # a summary is placed at the end of the messages it summarises
    return (entry.number, 0)


def unanswered_calls(messages: list[Entry]) -> list[tuple[int, str, str]]:
    """Return the tool calls (number, id, name) without a later result in these messages; ids may repeat."""
    unanswered: dict[str, tuple[int, str, str]] = {}
    for entry in messages:
        for part in entry.content if isinstance(entry.content, list) else ():
            if part.get("type") == "tool_call":
                unanswered[part["id"]] = (entry.number, part["id"], part["name"])
            elif part.get("type") == "tool_result":
                unanswered.pop(part["call_id"], None)
    return list(unanswered.values())


def answers_to(calls: set[str], later: list[Entry]) -> list[Entry]:
    """Return the results of these calls among later messages, up to a new call with the same id."""
    answers: list[Entry] = []
    for entry in later:
        calls = calls.difference(tool_calls(entry))
        if tool_results(entry) and calls.issuperset(tool_results(entry)):
            answers.append(entry)
    return answers


def repair_of(number: int, call_id: str, name: str) -> Message:
    """Return a visible result for a call, in entry `number`, that a crash left without one."""
    part: dict[str, Any] = {
        "type": "tool_result",
        "call_id": call_id,
        "output": f"{name} was interrupted before it gave a result; it may or may not have had an effect.",
        "is_error": True,
        "repaired": True,
    }
    return Message(role="tool", content=[part], client_key=f"repair:{number}:{call_id}"[:256])


def whole_upto(messages: list[Entry], upto: int) -> int:
    """Return the last number not after `upto` that separates no call from its result.

    `messages` are those around `upto`, in order, from a point that separates no pair.
    """
    started: dict[str, int] = {}
    spans: list[tuple[int, int]] = []  # from a call to its result
    for entry in messages:
        if entry.number > upto:
            break
        started.update((call, entry.number) for call in tool_calls(entry))
        spans += [(started.pop(call), entry.number) for call in tool_results(entry) if call in started]
    spans += [(number, upto + 1) for number in started.values()]
    cut = upto
    for first, last in sorted(spans, reverse=True):  # stepping back before one pair may land inside an earlier pair
        if first <= cut < last:
            cut = first - 1
    return cut
