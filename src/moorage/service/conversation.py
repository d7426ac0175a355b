"""Conversations: messages, the window that a model gets, summaries, repairs, streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from moorage.core.codec import check_list
from moorage.core.entry import SESSION_DELETED, Entry, Event, Hit, Kind, Message, check_messages, event_of
from moorage.core.errors import EntryNotFound, InvalidField, SessionGone
from moorage.core.query import LogQuery, Page, check_limit, check_number, check_numbers, number_of
from moorage.core.session import Change, Session, View, check_said, check_text
from moorage.core.window import (
    TokenCounter,
    WindowBuilder,
    WindowSize,
    answers_to,
    repair_of,
    unanswered_calls,
    whole_upto,
    with_pinned,
)
from moorage.ports import Decision, Tail
from moorage.service.deps import Caller, Deps, done_once, once_key, stamp_of
from moorage.service.retention import expire_due
from moorage.service.status import told_one

if TYPE_CHECKING:
    from moorage.core.once import OnceKey

PAGE = 200
PAIR_DISTANCE = 1000  # how many messages a call and its result may be apart so that compaction keeps them together
LOOK_AGAIN = 1.0  # seconds: a wake-up is a hint and may get lost
_MESSAGES = (Kind.MESSAGE.value,)


async def append_messages(
    deps: Deps, caller: Caller, ref: str, messages: object, *, token: str | None = None
) -> list[Entry]:
    """Append messages and return their entries. Starts nothing."""
    checked = check_messages(messages)
    return await deps.store.append(caller.owner, ref, checked, stamp_of(deps, caller), token=token)


async def messages(
    deps: Deps,
    caller: Caller,
    ref: str,
    *,
    before: int | str | None = None,
    after: int | str | None = None,
    limit: int = 100,
    count_tokens: TokenCounter | None = None,
    **size: int | None,
) -> Page[Entry]:
    """Return the window of this size, or a plain page: the newest messages before a number, or the oldest after one."""
    first, end = check_number(after), check_number(before)
    if any(each is not None for each in size.values()):
        return await window(deps, caller, ref, WindowSize(**size), count_tokens, before=end, after=first)
    newest = first is None
    query = LogQuery(after=first or 0, before=end, limit=check_limit(limit), kinds=_MESSAGES, newest_first=newest)
    page = await _log_page(deps, caller, ref, query)
    return Page(page.items[::-1], page.next) if newest else page


async def _log_page(deps: Deps, caller: Caller, ref: str, query: LogQuery) -> Page[Entry]:
    """Return a page of the log; one entry more is read to know whether there is a next page."""
    entries = await deps.store.log(caller.owner, ref, replace(query, limit=query.limit + 1))
    page = entries[: query.limit]
    return Page(page, str(page[-1].number) if len(entries) > query.limit else None)


async def window(
    deps: Deps,
    caller: Caller,
    ref: str,
    size: WindowSize,
    count_tokens: TokenCounter | None = None,
    *,
    before: int | None = None,
    after: int | None = None,
    tail: Tail | None = None,
) -> Page[Entry]:
    """Return the messages that a model gets; of `tail` without reading it again, if it was read before.

    `next` is the number before which older messages are.
    """
    check_numbers(before, after)
    chunk = _chunk(size)
    if tail is None and before is None and after is None:
        tail = await deps.store.tail(caller.owner, ref, chunk)
    pinned = tail.pinned if tail is not None else []
    summed_up = (entry.data["upto"] for entry in pinned if entry.kind == Kind.SUMMARY and entry.data)
    begin = max(after or 0, *summed_up, 0)

    async def older_than(number: int | None) -> list[Entry]:
        query = LogQuery(after=begin, before=number, limit=chunk, kinds=_MESSAGES, newest_first=True)
        return await deps.store.log(caller.owner, ref, query)

    async def build(answers: list[Entry]) -> WindowBuilder:
        builder = WindowBuilder(size, count_tokens or deps.settings.count_tokens)
        builder.reserve(pinned)
        builder.take(answers[::-1])
        page = tail.messages if tail is not None else await older_than(before)
        builder.take(page)
        while not builder.is_full and len(page) == chunk:
            page = await older_than(page[-1].number)
            builder.take(page)
        if not builder.is_full:
            builder.end()
        return builder

    builder = await build([])
    if before is not None and (calls := {call for _, call, _ in unanswered_calls(builder.messages())}):
        later = LogQuery(after=before - 1, limit=PAIR_DISTANCE, kinds=_MESSAGES)
        if answers := answers_to(calls, await deps.store.log(caller.owner, ref, later)):
            builder = await build(answers)
    messages = builder.messages()
    cursor = str(messages[0].number) if builder.is_full else None
    return Page(with_pinned(messages, pinned), cursor)


async def windows_of(
    deps: Deps, caller: Caller, session_ids: list[str], size: WindowSize, *, before: int | None = None
) -> list[Page[Entry]]:
    """Return the window of each session, read together; an empty one for a missing session."""
    check_numbers(before)
    tails = await deps.store.tails(caller.owner, session_ids, _chunk(size), before=before)
    found = zip(session_ids, tails, strict=True)
    return [await window(deps, caller, session_id, size, before=before, tail=tail) for session_id, tail in found]


async def session_with_window(deps: Deps, caller: Caller, ref: str, size: WindowSize) -> Session:
    """Return the session, with its window as `messages`."""
    session, page = await session_and_window(deps, caller, ref, size)
    return replace(session, messages=page.items)


async def session_and_window(deps: Deps, caller: Caller, ref: str, size: WindowSize) -> tuple[Session, Page[Entry]]:
    """Return the session and its window, in one read."""
    tail = await deps.store.tail(caller.owner, ref, _chunk(size), with_session=True)
    page = await window(deps, caller, ref, size, tail=tail)
    assert tail.session is not None
    return await told_one(deps, tail.session), page


def _chunk(size: WindowSize) -> int:
    """Return how many messages to read at once: one more than wanted shows whether there are older ones."""
    return min(PAGE, (size.last or PAGE) + 1)


async def read_log(
    deps: Deps,
    caller: Caller,
    ref: str,
    *,
    after: int | str = 0,
    before: int | str | None = None,
    limit: int = 100,
    kinds: Iterable[str] | None = None,
    newest_first: bool = False,
) -> Page[Entry]:
    """Return a page of the log, in order; `next` continues after the page."""
    check_limit(limit)
    first, end = check_number(after) or 0, check_number(before)
    wanted = None if kinds is None else tuple(check_list(kinds, "kinds"))
    if wanted is not None and (unknown := [str(kind) for kind in wanted if kind not in tuple(Kind)]):
        raise InvalidField("kinds", f"has {', '.join(sorted(set(unknown)))}; use some of {', '.join(Kind)}")
    query = LogQuery(after=first, before=end, limit=limit, kinds=wanted, newest_first=newest_first)
    return await _log_page(deps, caller, ref, query)


async def search_entries(deps: Deps, caller: Caller, text: object, *, limit: int = 20) -> list[Hit]:
    """Return the entries of the owner's sessions that contain all these words."""
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
    idempotency_key: str | None = None,
) -> Entry:
    """Add a summary that replaces the messages up to `upto` in every later window; the log stays."""
    text = check_said("summary", summary, "say what happened so far")
    once = once_key("compact", idempotency_key, [ref, summary, upto])
    session = await deps.store.get(caller.owner, ref)
    wanted = session.last_entry if upto is None else upto
    if type(wanted) is not int or not 1 <= wanted <= session.last_entry:
        raise EntryNotFound(session.session_id, wanted, session.last_entry)
    around = LogQuery(before=wanted + 1, limit=PAIR_DISTANCE, kinds=_MESSAGES, newest_first=True)
    entries = await deps.store.log(caller.owner, session.session_id, around)
    cut, stamp = whole_upto(entries[::-1], wanted), stamp_of(deps, caller)
    return await add_entry(
        deps, caller, ref, lambda view: view.session.compact(text, cut, stamp, token=token), once, stamp.at
    )


async def add_entry(
    deps: Deps, caller: Caller, ref: str, decide: Decision, once: OnceKey | None, at: datetime
) -> Entry:
    """Commit a change that adds an entry; return the entry, or with `once` that of an earlier equal request."""

    def noted(view: View) -> Change:
        change = decide(view)
        if once is None:
            return change
        from moorage.core.once import entry_ref  # few requests have a key

        return once.on(change, entry_ref(change.session.session_id, change.entries[0].number), at)

    async def act() -> Entry:
        return (await deps.store.apply(caller.owner, ref, noted)).entries[0]

    async def recall(kept: str) -> Entry:
        from moorage.core.once import entry_named

        session_id, number = entry_named(kept)
        return (await deps.store.log(caller.owner, session_id, LogQuery(after=number - 1, limit=1)))[0]

    return await done_once(deps, caller, once, act, recall)


async def repair(deps: Deps, caller: Caller, session_id: str) -> None:
    """Add to tool calls that were cut off a result that says so; the log shows it."""
    repaired = False
    while not repaired:
        last_entry = (await deps.store.get(caller.owner, session_id)).last_entry
        page = await window(deps, caller, session_id, deps.settings.window)
        missing = [repair_of(*call) for call in unanswered_calls(page.items)]
        repaired = not missing or await _append_after(deps, caller, session_id, last_entry, missing)


async def _append_after(deps: Deps, caller: Caller, session_id: str, last_entry: int, messages: list[Message]) -> bool:
    """Append only if nothing else was appended meanwhile: a late result must be read first."""
    stamp = stamp_of(deps, caller)

    def decide(view: View) -> Change:
        if view.session.last_entry != last_entry:
            return Change(session=view.session)
        return view.session.append(messages, stamp)

    return bool((await deps.store.apply(caller.owner, session_id, decide)).entries)


# Streams ----------------------------------------------------------------------------------------


async def newest_event(deps: Deps, caller: Caller, ref: str | None) -> int:
    """Return the cursor of the newest event, of one session or of all."""
    if ref is None:
        return await deps.store.feed_end(caller.owner)
    return (await deps.store.get(caller.owner, ref)).last_entry


async def events(
    deps: Deps, caller: Caller, ref: str | None = None, *, after: int | str = 0, follow: bool = True
) -> AsyncIterator[Event]:
    """Yield stored events after the cursor, then with `follow` new ones: of a session until it is deleted, or of all.

    Deadlines are applied meanwhile.
    """
    cursor = await newest_event(deps, caller, ref) if after == "end" else number_of(after) or 0
    if ref is None:
        check_feed_cursor(cursor)
        read = partial(deps.store.feed, caller.owner, limit=PAGE)
    else:
        check_numbers(cursor)
        read = partial(session_page, deps, caller, (await deps.store.get(caller.owner, ref)).session_id)
    while True:
        seen = deps.store.pulse()
        found = await read(cursor)
        for event in found:
            yield event
            cursor = event.id
            if ref is not None and event.type == SESSION_DELETED:
                return
        if not found:
            if not follow:
                return
            await deps.store.wait(seen, LOOK_AGAIN)
            await expire_due(deps, caller)


async def session_page(deps: Deps, caller: Caller, session_id: str, after: int, limit: int = PAGE) -> list[Event]:
    """Return the next events of a session's stream; for a deleted session, its last event: the deletion."""
    try:
        entries = await deps.store.log(caller.owner, session_id, LogQuery(after=after, limit=limit))
    except SessionGone as gone:
        return [deletion_of(gone, after + 1)]
    return [event_of(entry, session_id) for entry in entries]


def deletion_of(gone: SessionGone, cursor: int) -> Event:
    """Return the last event of a session's own stream."""
    return Event(
        id=cursor,
        type=SESSION_DELETED,
        session_id=gone.session_id,
        timestamp=datetime.fromisoformat(gone.deleted_at),
        data={"deleted_by": gone.deleted_by, "reason": gone.reason},
    )


def check_feed_cursor(after: object) -> None:
    """Raise InvalidField unless this is a cursor over all sessions."""
    if type(after) is not int or not 0 <= after < 1 << 40:
        raise InvalidField("after", f"is {after!r}; give a cursor of the feed")
