"""Conversations: what was said, the window a model sees, summaries, repairs, streams."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import Struct
from msgspec.structs import replace

from moorage.core.entry import Entry, Kind, Message, check_messages
from moorage.core.errors import EntryNotFound, InvalidField, SessionGone
from moorage.core.event import SESSION_DELETED, Event, Hit, event_of
from moorage.core.query import Page, check_limit, check_numbers
from moorage.core.session import Change, Session, View, check_text
from moorage.core.status import Because
from moorage.core.window import (
    TokenCounter,
    WindowBuilder,
    WindowSize,
    repair_of,
    unanswered_calls,
    whole_upto,
    with_pinned,
)
from moorage.ports import Decision, Tail
from moorage.service.deps import Caller, Deps, stamp_of
from moorage.service.retention import expire_due
from moorage.service.status import told_one

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime

    from moorage.core.once import OnceKey

PAGE = 200
PAIR_REACH = 1000  # how many messages a call and its result may be apart for compaction to see both
LOOK_AGAIN = 1.0  # seconds: a wake-up is a hint and may get lost
_MESSAGES = (Kind.MESSAGE.value,)


async def append_messages(
    deps: Deps, caller: Caller, ref: str, messages: object, *, token: str | None = None
) -> list[Entry]:
    """Say something; the entries with their numbers. Starts nothing."""
    checked = check_messages(messages)
    return await deps.store.append(caller.owner, ref, checked, stamp_of(deps, caller), token=token)


class Reply(Struct, frozen=True, kw_only=True):
    """What became of a sent message."""

    session_id: str
    message: Entry
    run_id: str | None = None  # of the work that was asked for; None if the message was only kept
    because: Because | None = None  # why that work has not started


# Reading ----------------------------------------------------------------------------------------


async def read_messages(
    deps: Deps,
    caller: Caller,
    ref: str,
    *,
    before: int | None = None,
    after: int | None = None,
    limit: int = 100,
) -> Page[Entry]:
    """A plain page of messages: before a number (the newest of those), or after one (the oldest of those)."""
    check_limit(limit)
    check_numbers(before, after)
    backwards = after is None
    entries = await deps.store.log(
        caller.owner,
        ref,
        after=after or 0,
        before=before,
        limit=limit + 1,
        kinds=_MESSAGES,
        newest_first=backwards,
    )
    more, entries = len(entries) > limit, entries[:limit]
    cursor = str(entries[-1].number) if more else None
    return Page(entries[::-1] if backwards else entries, cursor)


async def window(
    deps: Deps,
    caller: Caller,
    ref: str,
    size: WindowSize,
    count_tokens: TokenCounter | None = None,
    *,
    before: int | None = None,
    after: int | None = None,
) -> Page[Entry]:
    """What a model gets to see. `next` is the number before which older messages are."""
    check_numbers(before, after)
    builder, chunk = WindowBuilder(size, count_tokens or deps.settings.count_tokens), _chunk(size)
    if before is None and after is None:
        return await _window(deps, caller, ref, builder, chunk, await deps.store.tail(caller.owner, ref, chunk))
    return await _window(deps, caller, ref, builder, chunk, None, before, after or 0)


async def windows_of(
    deps: Deps, caller: Caller, session_ids: list[str], size: WindowSize, *, before: int | None = None
) -> list[Page[Entry]]:
    """The window of each session, read together; nothing of one that is not there."""
    check_numbers(before)
    tails = await deps.store.tails(caller.owner, session_ids, _chunk(size), before=before)
    return [
        await _window(deps, caller, session_id, WindowBuilder(size), _chunk(size), tail)
        for session_id, tail in zip(session_ids, tails, strict=True)
    ]


async def session_with_window(deps: Deps, caller: Caller, ref: str, size: WindowSize) -> Session:
    """The session as it is, with what a model gets to see of it as `messages`."""
    session, page = await session_and_window(deps, caller, ref, size)
    return replace(session, messages=page.items)


async def session_and_window(deps: Deps, caller: Caller, ref: str, size: WindowSize) -> tuple[Session, Page[Entry]]:
    """The session as it is, and its window, in one read."""
    tail = await deps.store.tail(caller.owner, ref, _chunk(size), with_session=True)
    page = await _window(deps, caller, ref, WindowBuilder(size, deps.settings.count_tokens), _chunk(size), tail)
    assert tail.session is not None
    return await told_one(deps, tail.session), page


def _chunk(size: WindowSize) -> int:
    """How many messages are read at once: one more than are wanted tells whether there are older ones."""
    return min(PAGE, (size.last or PAGE) + 1)


async def _window(
    deps: Deps,
    caller: Caller,
    ref: str,
    builder: WindowBuilder,
    chunk: int,
    tail: Tail | None,
    before: int | None = None,
    after: int = 0,
) -> Page[Entry]:
    """The window that ends with the tail, or lies between two numbers."""
    pinned = tail.pinned if tail is not None else []
    after = max(after, _summed_up(pinned))

    async def older_than(number: int | None) -> list[Entry]:
        return await deps.store.log(
            caller.owner, ref, after=after, before=number, limit=chunk, kinds=_MESSAGES, newest_first=True
        )

    builder.reserve(pinned)
    page = tail.messages if tail is not None else await older_than(before)
    builder.take(page)
    while not builder.is_full and len(page) == chunk:
        page = await older_than(page[-1].number)
        builder.take(page)
    if not builder.is_full:
        builder.end()
    messages = builder.messages()
    cursor = str(messages[0].number) if builder.is_full and messages else None
    return Page(with_pinned(messages, pinned), cursor)


def _summed_up(pinned: list[Entry]) -> int:
    """The number up to which the summary stands for the messages."""
    return max((entry.data["upto"] for entry in pinned if entry.kind == Kind.SUMMARY and entry.data), default=0)


async def read_log(
    deps: Deps,
    caller: Caller,
    ref: str,
    *,
    after: int = 0,
    before: int | None = None,
    limit: int = 100,
    kinds: tuple[str, ...] | None = None,
    newest_first: bool = False,
) -> Page[Entry]:
    """Entries of the log, in order. `next` goes on from where the page ends."""
    check_limit(limit)
    check_numbers(before, after)
    if kinds is not None and (unknown := set(kinds) - set(Kind)):
        raise InvalidField("kinds", f"has {', '.join(sorted(unknown))}; use some of {', '.join(Kind)}")
    entries = await deps.store.log(
        caller.owner, ref, after=after, before=before, limit=limit + 1, kinds=kinds, newest_first=newest_first
    )
    more, entries = len(entries) > limit, entries[:limit]
    return Page(entries, str(entries[-1].number) if more else None)


async def search_entries(deps: Deps, caller: Caller, text: object, *, limit: int = 20) -> list[Hit]:
    """Entries of the owner's sessions that have all these words."""
    words = check_text("text", text, 1000)
    if not words.strip():
        raise InvalidField("text", "is empty; say what to look for")
    return await deps.store.search(caller.owner, words, check_limit(limit))


# Summaries and repairs --------------------------------------------------------------------------


async def compact(
    deps: Deps,
    caller: Caller,
    ref: str,
    summary: str,
    *,
    upto: int | None = None,
    token: str | None = None,
    once: OnceKey | None = None,
) -> Entry:
    """Add a summary that stands for the messages up to `upto` in every later window; the log stays."""
    text = check_text("summary", summary)
    session = await deps.store.get(caller.owner, ref)
    wanted = session.last_entry if upto is None else upto
    if type(wanted) is not int or not 1 <= wanted <= session.last_entry:
        raise EntryNotFound(session.session_id, wanted, session.last_entry)
    cut, stamp = await _between_pairs(deps, caller, session.session_id, wanted), stamp_of(deps, caller)
    return await add_entry(
        deps, caller, ref, lambda view: view.session.compact(text, cut, stamp, token=token), once, stamp.at
    )


async def add_entry(
    deps: Deps, caller: Caller, ref: str, decide: Decision, once: OnceKey | None, at: datetime
) -> Entry:
    """Commit a change that adds an entry, and give that back; with `once`, unless that request was made before."""
    if once is None:
        return (await deps.store.apply(caller.owner, ref, decide)).entries[0]
    from moorage.core.once import entry_named, entry_ref
    from moorage.service.once import done_once  # few requests come under a key

    def noted(view: View) -> Change:
        change = decide(view)
        return once.on(change, entry_ref(change.session.session_id, change.entries[0].number), at)

    async def act() -> Entry:
        return (await deps.store.apply(caller.owner, ref, noted)).entries[0]

    async def recall(kept: str) -> Entry:
        session_id, number = entry_named(kept)
        return (await deps.store.log(caller.owner, session_id, after=number - 1, limit=1))[0]

    return await done_once(deps, caller, once, act, recall)


async def _between_pairs(deps: Deps, caller: Caller, session_id: str, upto: int) -> int:
    entries = await deps.store.log(
        caller.owner, session_id, before=upto + 1, limit=PAIR_REACH, kinds=_MESSAGES, newest_first=True
    )
    return whole_upto(entries[::-1], upto)


async def repair(deps: Deps, caller: Caller, session_id: str) -> None:
    """Give tool calls that were cut off a result that says so, visibly, in the log."""
    repaired = False
    while not repaired:
        last_entry = (await deps.store.get(caller.owner, session_id)).last_entry
        page = await window(deps, caller, session_id, deps.settings.window)
        missing = [repair_of(*call) for call in unanswered_calls(page.items)]
        repaired = not missing or await _append_after(deps, caller, session_id, last_entry, missing)


async def _append_after(deps: Deps, caller: Caller, session_id: str, last_entry: int, messages: list[Message]) -> bool:
    """Append only if nothing else came meanwhile: a late result is looked at first."""
    stamp = stamp_of(deps, caller)

    def decide(view: View) -> Change:
        if view.session.last_entry != last_entry:
            return Change(session=view.session)
        return view.session.append(messages, stamp)

    return bool((await deps.store.apply(caller.owner, session_id, decide)).entries)


# Streams ----------------------------------------------------------------------------------------


async def newest_event(deps: Deps, caller: Caller, ref: str | None) -> int:
    """The cursor after all that has happened: in one session, or in all."""
    if ref is None:
        return await deps.store.feed_end(caller.owner)
    return (await deps.store.get(caller.owner, ref)).last_entry


async def session_events(
    deps: Deps, caller: Caller, ref: str, *, after: int = 0, follow: bool = True
) -> AsyncIterator[Event]:
    """What is stored after the cursor, then what comes, until the session is deleted."""
    check_numbers(after)
    session_id = (await deps.store.get(caller.owner, ref)).session_id
    while True:
        seen = deps.store.pulse()
        events = await session_page(deps, caller, session_id, after)
        for event in events:
            yield event
            after = event.id
        if events and events[-1].type == SESSION_DELETED:
            return
        if not events:
            if not follow:
                return
            await _wait(deps, caller, seen)


async def session_page(deps: Deps, caller: Caller, session_id: str, after: int, limit: int = PAGE) -> list[Event]:
    """The next events of a session's stream; of one that was deleted, that it was: the last."""
    try:
        entries = await deps.store.log(caller.owner, session_id, after=after, limit=limit)
    except SessionGone as gone:
        return [deletion_of(gone, after + 1)]
    return [event_of(entry, session_id) for entry in entries]


async def _wait(deps: Deps, caller: Caller, seen: int) -> None:
    """Until something was committed, for a second at most; time passes meanwhile."""
    await deps.store.wait(seen, LOOK_AGAIN)
    await expire_due(deps, caller)


def deletion_of(gone: SessionGone, cursor: int) -> Event:
    """The last event of a session's own stream."""
    from datetime import datetime

    return Event(
        id=cursor,
        type=SESSION_DELETED,
        session_id=gone.session_id,
        timestamp=datetime.fromisoformat(gone.deleted_at),
        data={"deleted_by": gone.deleted_by, "reason": gone.reason},
    )


def check_feed_cursor(after: object) -> None:
    """A cursor over all sessions."""
    if type(after) is not int or not 0 <= after < 1 << 40:
        raise InvalidField("after", f"is {after!r}; give a cursor of the feed")


async def owner_events(deps: Deps, caller: Caller, *, after: int = 0, follow: bool = True) -> AsyncIterator[Event]:
    """Everything that happens to the owner's sessions after the cursor, deletions too."""
    check_feed_cursor(after)
    while True:
        seen = deps.store.pulse()
        events = await deps.store.feed(caller.owner, after, PAGE)
        for event in events:
            yield event
            after = event.id
        if not events:
            if not follow:
                return
            await _wait(deps, caller, seen)
