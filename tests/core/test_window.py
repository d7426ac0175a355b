"""The window: newest messages, whole pairs, pinned words, within the budget."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from moorage.core.entry import Entry, Kind, tool_calls, tool_results
from moorage.core.errors import InvalidField
from moorage.core.window import (
    WindowBuilder,
    WindowSize,
    bytes_of,
    repair_of,
    rough_tokens,
    unanswered_calls,
    whole_upto,
    with_pinned,
)
from moorage.testing.builders import NOON

Content = str | list[dict[str, Any]]


def message(number: int, content: Content = "hello", role: str = "user") -> Entry:
    return Entry(number=number, kind=Kind.MESSAGE, at=NOON, role=role, content=content)


def call(number: int, *ids: str) -> Entry:
    parts: list[dict[str, Any]] = [{"type": "tool_call", "id": id_, "name": f"tool-{id_}", "input": {}} for id_ in ids]
    return message(number, parts, "assistant")


def result(number: int, *ids: str) -> Entry:
    parts: list[dict[str, Any]] = [{"type": "tool_result", "call_id": id_, "output": "done"} for id_ in ids]
    return message(number, parts, "tool")


def summary(number: int, upto: int, text: str = "so far") -> Entry:
    return Entry(number=number, kind=Kind.SUMMARY, at=NOON, data={"summary": text, "upto": upto})


def window_of(history: list[Entry], page: int = 1000, **size: int) -> list[Entry]:
    """The window over a whole history, fed page by page as the service does."""
    builder = WindowBuilder(WindowSize(**size))
    newest_first = history[::-1]
    while newest_first and not builder.is_full:
        builder.take(newest_first[:page])
        newest_first = newest_first[page:]
    if not builder.is_full:
        builder.end()
    return builder.messages()


def numbers(entries: list[Entry]) -> list[int]:
    return [entry.number for entry in entries]


# Histories as agents leave them: texts, calls and results, interleaved, unanswered, their ids used again.
steps = st.lists(
    st.tuples(
        st.sampled_from(["user", "assistant", "system", "call", "result"]),
        st.lists(st.sampled_from("abc"), min_size=1, max_size=2, unique=True),
        st.integers(0, 40),
    ),
    max_size=25,
)


def history_of(plan: list[tuple[str, list[str], int]], *, orphans: bool = False) -> list[Entry]:
    entries: list[Entry] = []
    waiting: set[str] = set()
    for kind, ids, length in plan:
        number = len(entries) + 1
        answered = [id_ for id_ in ids if orphans or id_ in waiting]
        if kind == "call":
            entries.append(call(number, *ids))
            waiting.update(ids)
        elif kind == "result" and answered:
            entries.append(result(number, *answered))
            waiting.difference_update(answered)
        elif kind in ("user", "assistant", "system"):
            entries.append(message(number, "x" * length, kind))
    return entries


def pairs_of(history: list[Entry]) -> list[tuple[int, int]]:
    """(call's number, result's number) of every pair, the newest call of an id being the one that is answered."""
    started: dict[str, int] = {}
    pairs = []
    for entry in history:
        pairs += [(started.pop(id_), entry.number) for id_ in tool_results(entry) if id_ in started]
        started.update((id_, entry.number) for id_ in tool_calls(entry))
    return pairs


def all_of(history: list[Entry]) -> list[Entry]:
    """The whole history in the order of a window."""
    return window_of(history, last=1000)


@given(steps, st.integers(1, 12), st.integers(1, 30))
def test_a_number_of_messages_is_the_newest_ones_with_whole_pairs(
    plan: list[tuple[str, list[str], int]], last: int, page: int
) -> None:
    history = history_of(plan)
    window, whole = window_of(history, page, last=last), all_of(history)
    assert sorted(numbers(whole)) == numbers(history)
    assert window == whole[len(whole) - len(window) :], "the newest, without a gap"
    assert len(window) >= min(last, len(history))
    kept = set(numbers(window))
    assert [pair for pair in pairs_of(history) if (pair[0] in kept) != (pair[1] in kept)] == []
    if len(window) > last:  # it ran over because of a pair that would have been separated
        assert not is_whole(whole, len(whole) - last)


@given(steps, st.integers(1, 120), st.integers(1, 30))
def test_a_budget_is_kept_and_used_up_with_whole_pairs(
    plan: list[tuple[str, list[str], int]], budget: int, page: int
) -> None:
    history = history_of(plan)
    whole = all_of(history)
    for size, cost in (({"max_bytes": budget}, bytes_of), ({"tokens": budget}, rough_tokens)):
        window = window_of(history, page, **size)
        assert window == whole[len(whole) - len(window) :]
        begins = [start for start in range(len(whole)) if is_whole(whole, start)]
        fitting = [start for start in begins if sum(map(cost, whole[start:])) <= budget]
        assert len(whole) - len(window) == min(fitting, default=max(begins, default=0)), "all that fits, or the newest"


@given(steps)
def test_nothing_is_between_a_call_and_its_result(plan: list[tuple[str, list[str], int]]) -> None:
    history = history_of([(kind, ids[:1], length) for kind, ids, length in plan])
    window = numbers(all_of(history))
    spoken = {entry.number for entry in history if not isinstance(entry.content, list)}
    for first, end in pairs_of(history):
        assert spoken.isdisjoint(window[window.index(first) : window.index(end)])
    assert [number for number in window if number in spoken] == sorted(spoken)


def test_result_follows_its_call_in_a_full_window() -> None:
    history = [call(1, "a"), message(2), call(3, "b"), message(4), result(5, "b"), message(6), result(7, "a")]
    assert numbers(window_of(history, last=50)) == [1, 7, 2, 3, 5, 4, 6]
    assert numbers(window_of(history, last=2)) == [4, 6], "a late result makes no window longer"
    assert numbers(window_of(history, last=3)) == [3, 5, 4, 6]


def test_parallel_calls_stay_in_their_order() -> None:
    history = [call(1, "a"), call(2, "b"), result(3, "a"), result(4, "b"), call(5, "c"), message(6), result(7, "c")]
    assert numbers(window_of(history, last=50)) == [1, 2, 3, 4, 5, 7, 6]


def test_late_result_replaces_the_repair_of_its_call() -> None:
    repair = repair_of(1, "a", "deploy")
    history = [call(1, "a"), message(2, repair.content, repair.role), message(3), result(4, "a")]
    assert numbers(window_of(history, last=50)) == [1, 4, 3]


def test_newest_message_is_kept_even_if_it_exceeds_the_budget() -> None:
    history = [message(1), message(2), call(3, "a"), result(4, "a")]
    assert numbers(window_of(history, max_bytes=1)) == [3, 4]
    assert numbers(window_of(history[:2], tokens=1)) == [2]


def is_whole(window: list[Entry], first: int) -> bool:
    """Whether the part of a window that begins at this index separates nothing."""
    place = {entry.number: index for index, entry in enumerate(window)}
    pairs = pairs_of(sorted(window, key=lambda entry: entry.number))
    return not any(place[start] < first <= place[end] for start, end in pairs)


@given(steps, st.integers(1, 5))
def test_turns_are_counted_by_user_messages(plan: list[tuple[str, list[str], int]], turns: int) -> None:
    history = history_of(plan)
    window = window_of(history, turns=turns)
    said_in_all = sum(entry.role == "user" for entry in history)
    assert sum(entry.role == "user" for entry in window) >= min(turns, said_in_all)
    assert window == all_of(history)[len(history) - len(window) :]
    if said_in_all > turns and not pairs_of(history):
        assert sum(entry.role == "user" for entry in window) == turns


@given(steps, st.integers(1, 30), st.integers(1, 30))
def test_results_without_a_call_are_dropped_alone(plan: list[tuple[str, list[str], int]], last: int, page: int) -> None:
    history = history_of(plan, orphans=True)
    window = window_of(history, page, last=last)
    calls: set[str] = set()
    for entry in window:
        assert calls.issuperset(tool_results(entry)), "a model refuses a result whose call it does not see"
        calls.update(tool_calls(entry))
    texts = [entry for entry in history if isinstance(entry.content, str)]
    kept_texts = [entry for entry in window if isinstance(entry.content, str)]
    assert kept_texts == texts[len(texts) - len(kept_texts) :]
    assert len(window) >= min(last, len(texts))


@given(steps, st.integers(1, 10), st.integers(1, 12))
def test_every_limit_given_holds(plan: list[tuple[str, list[str], int]], last: int, turns: int) -> None:
    history = history_of(plan)
    both = window_of(history, last=last, turns=turns, max_bytes=100)
    for size in ({"last": last}, {"turns": turns}, {"max_bytes": 100}):
        assert len(both) <= len(window_of(history, **size))


def test_pages_that_end_between_a_call_and_its_result_make_no_difference() -> None:
    history = [message(1), message(2), call(3, "a"), result(4, "a"), message(5), message(6), message(7)]
    assert all(numbers(window_of(history, page, last=4)) == [3, 4, 5, 6, 7] for page in range(1, 8))


def test_a_window_that_ran_over_takes_nothing_more_from_the_next_page() -> None:
    history = [message(number) for number in range(1, 30)] + [call(30, "a"), result(31, "a"), message(32), message(33)]
    assert numbers(window_of(history, 4, last=3)) == [30, 31, 32, 33]


@pytest.mark.parametrize("name", ["last", "turns", "tokens", "max_bytes"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5, "3"])
def test_a_size_is_a_whole_number_above_nothing(name: str, value: Any) -> None:
    with pytest.raises(InvalidField) as refused:
        WindowSize(**{name: value})
    assert refused.value.code == f"invalid_{name}"


# Pinned messages --------------------------------------------------------------------------------


@given(steps, st.integers(1, 5), st.integers(0, 25))
def test_system_messages_and_the_newest_summary_are_always_there_once(
    plan: list[tuple[str, list[str], int]], last: int, upto: int
) -> None:
    history = history_of(plan)
    upto = min(upto, len(history))
    pinned = [entry for entry in history if entry.role == "system"] + [summary(len(history) + 1, upto)]
    newer = [entry for entry in history if entry.number > upto]
    shown = with_pinned(window_of(newer, last=last), pinned)
    assert len(numbers(shown)) == len(set(numbers(shown)))
    assert set(numbers(shown)) >= set(numbers(pinned))
    place = numbers(shown).index(len(history) + 1)
    assert all(entry.number <= upto for entry in shown[:place]), "a summary stands where what it sums up ended"
    assert all(entry.number > upto for entry in shown[place + 1 :])
    assert (shown[place].role, shown[place].content) == ("system", "so far")


@given(steps, st.integers(1, 200))
def test_pinned_messages_use_the_budget_first(plan: list[tuple[str, list[str], int]], budget: int) -> None:
    history = history_of(plan)
    pinned = [entry for entry in history if entry.role == "system"]
    for size, cost in ((WindowSize(tokens=budget), rough_tokens), (WindowSize(max_bytes=budget), bytes_of)):
        builder = WindowBuilder(size)
        builder.reserve(pinned)
        builder.take(history[::-1])
        builder.end()
        messages = builder.messages()
        shown = with_pinned(messages, pinned)
        newest = messages[max((start for start in range(len(messages)) if is_whole(messages, start)), default=0) :]
        least = [*pinned, *(entry for entry in newest if entry not in pinned)]
        assert sum(map(cost, shown)) <= max(budget, sum(map(cost, least)))
        if sum(map(cost, history)) <= budget:
            assert shown == all_of(history), "nothing is paid for twice"


# Calls that a crash left open -------------------------------------------------------------------


def test_a_call_that_no_later_message_answers_is_found() -> None:
    history = [call(1, "a", "b"), result(2, "a"), message(3)]
    assert unanswered_calls(history) == [(1, "b", "tool-b")]


def test_a_call_is_not_answered_by_the_result_of_an_earlier_one_with_its_id() -> None:
    history = [call(1, "a"), result(2, "a"), call(3, "a")]
    assert unanswered_calls(history) == [(3, "a", "tool-a")]


@given(steps)
def test_repaired_calls_are_answered(plan: list[tuple[str, list[str], int]]) -> None:
    history = history_of(plan)
    for missing in unanswered_calls(history):
        repair = repair_of(*missing)
        history.append(message(len(history) + 1, repair.content, repair.role))
    assert unanswered_calls(history) == []


def test_a_repair_says_that_it_is_one_and_is_added_once_for_each_call() -> None:
    repair = repair_of(3, "a", "deploy")
    assert isinstance(repair.content, list)
    part = repair.content[0]
    assert (part["call_id"], part["is_error"], part["repaired"]) == ("a", True, True)
    assert "deploy" in part["output"]
    assert repair.client_key == repair_of(3, "a", "deploy").client_key
    assert repair.client_key != repair_of(9, "a", "deploy").client_key


# Where a summary may end ------------------------------------------------------------------------


@given(steps, st.data())
def test_a_summary_never_ends_between_a_call_and_its_result(
    plan: list[tuple[str, list[str], int]], data: st.DataObject
) -> None:
    history = history_of(plan)
    upto = data.draw(st.integers(0, len(history)))
    cut = whole_upto([entry for entry in history if entry.number <= upto], upto)
    assert 0 <= cut <= upto
    assert not any(first <= cut < end for first, end in pairs_of(history))
    waiting = [number for number, _, _ in unanswered_calls(history[:upto])]
    assert all(cut < number for number in waiting), "what still waits for its result is not summed up"
    assert not any(
        is_whole(history, later) and all(later < number for number in waiting) for later in range(cut + 1, upto + 1)
    ), "it could have gone further"


def test_going_back_for_one_pair_does_not_cut_another() -> None:
    history = [message(1), call(2, "a"), call(3, "b"), result(4, "a")]
    assert whole_upto(history, 4) == 1


def test_tokens_are_estimated_from_bytes() -> None:
    assert rough_tokens(message(1, "x" * 40)) == 14
    assert bytes_of(message(1, "é")) == 2
    assert bytes_of(message(1, [{"type": "text", "text": "é"}])) == len('[{"type":"text","text":"é"}]'.encode())


def test_a_summary_without_words_of_its_own_is_left_as_it_is() -> None:
    entry = replace(summary(2, 1), data=None)
    assert with_pinned([message(1)], [entry]) == [entry, message(1)]
