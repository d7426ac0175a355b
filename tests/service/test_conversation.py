"""Conversations: what was said once is said once, windows stay whole, searches find it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from moorage import sync
from moorage.core.errors import EntryNotFound, InvalidField, KeyReused, Unsupported
from moorage.core.window import rough_tokens
from moorage.testing.texts import DEEP, TEXTS
from tests.service.doors import Place, Timed


def contents(entries: Any) -> list[object]:
    return [entry.content for entry in entries]


def a_call(call_id: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "tool_call", "id": call_id, "name": "weather", "input": {}}]}


def a_result(call_id: str, output: object = "sunny") -> dict[str, Any]:
    return {"role": "tool", "content": [{"type": "tool_result", "call_id": call_id, "output": output}]}


def numbers(entries: Any) -> list[int]:
    return [entry.number for entry in entries]


# Appending --------------------------------------------------------------------------------------


def test_messages_have_number_role_and_interface(timed: Timed) -> None:
    session = timed.moor.create("agent")
    entries = timed.moor.append(session.id, ["hi", {"role": "assistant", "content": "ho"}])
    assert [(entry.number, entry.role, entry.content, entry.interface) for entry in entries] == [
        (2, "user", "hi", timed.interface),
        (3, "assistant", "ho", timed.interface),
    ]
    assert timed.moor.messages(session.id).items == entries
    assert timed.moor.send(session.id, "and on").message.number == 4


@pytest.mark.parametrize("text", TEXTS)
def test_difficult_texts_come_back_the_same(place: Place, text: str) -> None:
    moor = place.connect()
    session = moor.create("agent", purpose=text, metadata={text: text})
    moor.append(session.id, [text, {"role": "user", "content": [{"type": "text", "text": text}]}])
    moor.context.put(session.id, "k", {text: text})
    moor.update(session.id, error=text)
    moor.suspend(session.id, checkpoint={text: [text]}, reason=text)
    now = moor.get(session.id)
    assert (now.purpose, now.metadata, now.last_error) == (text, {text: text}, text)
    assert contents(moor.messages(session.id)) == [text, [{"type": "text", "text": text}]]
    assert moor.context.get(session.id, "k") == {text: text}
    assert moor.checkpoint(session.id).checkpoint == {text: [text]}


def test_deep_values_come_back_the_same(place: Place) -> None:
    moor = place.connect()
    session = moor.create("agent", metadata={"deep": DEEP})
    moor.append(session.id, {"role": "tool", "content": [{"type": "tool_result", "call_id": "c", "output": DEEP}]})
    assert moor.get(session.id).metadata == {"deep": DEEP}
    assert moor.messages(session.id).items[0].content[0]["output"] == DEEP  # type: ignore[index]


def test_a_repeated_send_with_its_key_is_harmless(place: Place) -> None:
    moor = place.connect()
    session = moor.create("agent")
    first = moor.append(session.id, {"content": "once", "client_key": "k-1"})
    assert moor.append(session.id, {"content": "once", "client_key": "k-1"}) == first
    mixed = moor.append(session.id, ["a", {"content": "once", "client_key": "k-1"}, "b"])
    assert numbers(mixed) == [3, 2, 4]
    assert contents(moor.messages(session.id)) == ["once", "a", "b"]
    assert moor.send(session.id, "sent", client_key="k-2") == moor.send(session.id, "sent", client_key="k-2")


def test_a_key_used_for_something_else_is_refused_and_nothing_added(place: Place) -> None:
    moor = place.connect()
    session = moor.create("agent")
    moor.append(session.id, {"content": "once", "client_key": "k-1"})
    for other in ({"content": "twice"}, {"content": "once", "role": "assistant"}):
        with pytest.raises(KeyReused):
            moor.append(session.id, ["new", {**other, "client_key": "k-1"}])
    assert contents(moor.messages(session.id)) == ["once"]


def test_keys_belong_to_their_session(place: Place) -> None:
    moor = place.connect()
    for _ in range(2):
        assert moor.append(moor.create("agent").id, {"content": "x", "client_key": "k-1"})[0].number == 2


def test_appends_by_several_threads_all_land_without_gaps(place: Place) -> None:
    doors = [place.connect(by=f"t-{number}") for number in range(4)]
    session = doors[0].create("agent")

    def say(number: int) -> None:
        for count in range(25):
            doors[number].append(session.id, f"{number}-{count}")

    threads = [threading.Thread(target=say, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    entries = doors[0].log(session.id, limit=1000).items
    assert numbers(entries) == list(range(1, 102))
    for number in range(4):
        said = [entry.content for entry in entries if entry.by == f"t-{number}" and entry.is_message]
        assert said == [f"{number}-{count}" for count in range(25)]


# Reading ----------------------------------------------------------------------------------------


def test_pages_of_messages_go_backwards_and_forwards(place: Place) -> None:
    moor = place.connect()
    session = moor.create("agent")
    moor.append(session.id, [f"m{number}" for number in range(2, 12)])
    newest = moor.messages(session.id, limit=4)
    assert (contents(newest), newest.next) == (["m8", "m9", "m10", "m11"], "8")
    older = moor.messages(session.id, limit=4, before=newest.next)
    assert contents(older) == ["m4", "m5", "m6", "m7"]
    assert moor.messages(session.id, limit=4, before=older.next).next is None
    forwards = moor.messages(session.id, limit=4, after=5)
    assert (contents(forwards), forwards.next) == (["m6", "m7", "m8", "m9"], "9")
    assert contents(moor.messages(session.id, after=forwards.next)) == ["m10", "m11"]


def test_pages_of_the_log_go_both_ways_and_by_kind(place: Place) -> None:
    moor = place.connect()
    session = moor.create("agent")
    for number in range(5):
        moor.append(session.id, f"m{number}")
        moor.update(session.id, error=f"e{number}")
    assert numbers(moor.log(session.id, kinds=["error"])) == [3, 5, 7, 9, 11]
    assert numbers(moor.log(session.id, kinds=["error", "created"], newest_first=True, limit=3)) == [11, 9, 7]
    assert numbers(moor.log(session.id, kinds=["message", "error"], after=3, before=8)) == [4, 5, 6, 7]
    found: list[int] = []
    cursor: str | int = 0
    while True:
        page = moor.log(session.id, after=cursor, limit=3)
        found += numbers(page)
        if page.next is None:
            break
        cursor = page.next
    assert found == list(range(1, 12))


def test_a_window_is_the_last_messages_with_whole_pairs(place: Place) -> None:
    moor = place.connect()
    session = moor.create("agent")
    moor.append(session.id, ["m2", a_call("c"), a_result("c"), "m5", "m6"])
    assert numbers(moor.messages(session.id, last=2)) == [5, 6]
    assert numbers(moor.messages(session.id, last=3)) == [3, 4, 5, 6]
    assert numbers(moor.messages(session.id, last=50)) == [2, 3, 4, 5, 6]
    page = moor.messages(session.id, last=2)
    assert numbers(moor.messages(session.id, before=page.next)) == [2, 3, 4]


def test_a_window_counts_turns_tokens_and_bytes(place: Place) -> None:
    moor = place.connect()
    session = moor.create("agent")
    for number in range(6):
        moor.append(session.id, [f"q{number}", {"role": "assistant", "content": "x" * 40}])
    assert contents(moor.messages(session.id, turns=2))[0] == "q4"
    tokens = moor.messages(session.id, tokens=40)
    assert sum(map(rough_tokens, tokens)) <= 40
    assert len(tokens) == 4
    assert len(moor.messages(session.id, max_bytes=85)) == 4
    if place.is_remote:
        with pytest.raises(Unsupported):
            moor.messages(session.id, tokens=1000, count_tokens=lambda entry: 400)
    else:
        assert len(moor.messages(session.id, tokens=1000, count_tokens=lambda entry: 400)) == 2


@pytest.mark.parametrize("size", [{"tokens": 10}, {"max_bytes": 5}])
def test_every_message_is_found_by_paging_with_a_small_budget(place: Place, size: dict[str, Any]) -> None:
    moor = place.connect()
    session = moor.create("agent")
    moor.append(session.id, [{"role": "system", "content": "Be brief."}, "m3", a_call("c"), a_result("c"), "x" * 4096])
    page = moor.messages(session.id, **size)
    assert numbers(page) == [2, 6]
    found = numbers(page)[1:]
    while page.next is not None:
        page = moor.messages(session.id, before=page.next, **size)
        found = numbers(page) + found
    assert found == [2, 3, 4, 5, 6]


def test_system_messages_are_kept_however_old_and_paid_for(place: Place) -> None:
    moor = place.connect()
    session = moor.create("agent")
    moor.append(session.id, {"role": "system", "content": "Be brief."})
    for number in range(300):
        moor.append(session.id, f"m{number}")
    window = moor.messages(session.id, last=2)
    assert contents(window) == ["Be brief.", "m298", "m299"]
    assert contents(moor.messages(session.id, max_bytes=9)) == ["Be brief.", "m299"], "the newest is always there"
    assert contents(moor.messages(session.id, max_bytes=13)) == ["Be brief.", "m299"]


def test_a_long_window_is_read_over_many_pages(place: Place) -> None:
    moor = place.connect()
    session = moor.create("agent")
    for start in range(0, 1000, 100):
        moor.append(session.id, [f"m{number}" for number in range(start, start + 100)])
    assert contents(moor.messages(session.id, last=900)) == [f"m{number}" for number in range(100, 1000)]
    assert len(moor.messages(session.id, tokens=10**6)) == 1000


def test_a_result_whose_call_is_nowhere_hides_no_history(place: Place) -> None:
    moor = place.connect()
    session = moor.create("agent")
    moor.append(session.id, ["m2", "m3", a_result("nobody called"), "m5"])
    assert numbers(moor.messages(session.id, last=50)) == [2, 3, 5]
    assert numbers(moor.resume(session.id).messages) == [2, 3, 5]


# Summaries --------------------------------------------------------------------------------------


def test_summary_replaces_earlier_messages_in_windows_only(place: Place) -> None:
    moor = place.connect()
    session = moor.create("agent")
    moor.append(session.id, [{"role": "system", "content": "Be brief."}, "m3", "m4", "m5"])
    summary = moor.compact(session.id, "Three things were said", upto=4)
    assert (summary.number, summary.data) == (6, {"summary": "Three things were said", "upto": 4})
    moor.append(session.id, "m7")
    assert contents(moor.messages(session.id, last=50)) == ["Be brief.", "Three things were said", "m5", "m7"]
    assert [entry.role for entry in moor.messages(session.id, last=50)] == ["system", "system", "user", "user"]
    assert contents(moor.messages(session.id)) == ["Be brief.", "m3", "m4", "m5", "m7"], "plain pages show all"
    assert numbers(moor.log(session.id)) == [1, 2, 3, 4, 5, 6, 7]
    moor.compact(session.id, "All of it")
    assert contents(moor.messages(session.id, last=50)) == ["Be brief.", "All of it"]


def test_a_summary_never_ends_within_a_pair(place: Place) -> None:
    moor = place.connect()
    session = moor.create("agent")
    moor.append(session.id, ["m2", a_call("a"), a_call("b"), a_result("a"), a_result("b"), "m7"])
    for upto, cut in ((2, 2), (3, 2), (4, 2), (5, 2), (6, 6), (7, 7)):
        assert (moor.compact(session.id, "so far", upto=upto).data or {})["upto"] == cut


def test_a_call_that_still_waits_is_not_summed_up(place: Place) -> None:
    moor = place.connect()
    session = moor.create("agent")
    moor.append(session.id, ["m2", a_call("a"), "m4"])
    moor.compact(session.id, "so far")
    moor.append(session.id, a_result("a"))
    assert numbers(moor.messages(session.id, last=50)) == [5, 3, 6, 4], "the result follows its call"


def test_a_summary_ends_at_an_entry_that_is_there(place: Place) -> None:
    moor = place.connect()
    session = moor.create("agent")
    for upto in (0, 2, 10**9):
        with pytest.raises(EntryNotFound):
            moor.compact(session.id, "so far", upto=upto)


@pytest.mark.parametrize("summary", ["", " \n"])
def test_empty_summary_is_refused_and_hides_no_messages(place: Place, summary: str) -> None:
    moor = place.connect()
    session = moor.create("agent")
    moor.append(session.id, "keep this in the window")
    with pytest.raises(InvalidField, match="summary is empty"):
        moor.compact(session.id, summary)
    assert [entry.text for entry in moor.messages(session.id, last=10)] == ["keep this in the window"]


# Search -----------------------------------------------------------------------------------------


def found(moor: sync.Moorage, text: str) -> set[tuple[str, int]]:
    return {(hit.session_id, hit.number) for hit in moor.search(text)}


def test_a_search_finds_all_words_whole_whatever_their_case(place: Place) -> None:
    moor = place.connect()
    moor.create(session_id="s-1")
    moor.append("s-1", ["The quick brown Fox", "the lazy dog", "foxes are quick"])
    assert found(moor, "quick") == {("s-1", 2), ("s-1", 4)}
    assert found(moor, "QUICK fox") == {("s-1", 2)}
    assert found(moor, "fox*") == {("s-1", 2), ("s-1", 4)}
    assert found(moor, "fo") == set()
    assert found(moor, "cat") == set()
    (hit,) = moor.search("lazy")
    assert (hit.kind, hit.role) == ("message", "user")
    assert "lazy" in hit.snippet


def test_a_search_finds_tool_inputs_results_and_summaries(place: Place) -> None:
    moor = place.connect()
    moor.create(session_id="s-1")
    moor.append("s-1", [a_call("c"), a_result("c", {"city": "Lissabon"})])
    moor.compact("s-1", "The weather was asked for")
    assert found(moor, "weather") == {("s-1", 2), ("s-1", 4)}
    assert found(moor, "lissabon") == {("s-1", 3)}


@pytest.mark.parametrize("text", ['"', "*", "AND", "a OR", "NEAR(", "x:y", "-", "'; --", "{}", "^", "text:fox", "(("])
def test_a_search_is_never_syntax(place: Place, text: str) -> None:
    moor = place.connect()
    moor.create(session_id="s-1")
    moor.append("s-1", "The quick brown fox")
    assert isinstance(moor.search(text), list)


def test_search_finds_new_messages_and_no_deleted_ones(place: Place) -> None:
    moor = place.connect()
    for number in range(5):
        moor.create(session_id=f"s-{number}")
        moor.append(f"s-{number}", f"needle {number}")
        assert len(moor.search("needle")) == number + 1
    moor.delete("s-2")
    assert found(moor, "needle") == {(f"s-{number}", 2) for number in (0, 1, 3, 4)}
    assert found(moor, "2") == set()
    moor.cleanup(0)
    assert moor.search("needle") == []


def test_a_search_is_of_ones_own_sessions(place: Place) -> None:
    ann, bob = place.connect(owner="ann"), place.connect(owner="bob")
    for moor, session_id in ((ann, "hers"), (bob, "his")):
        moor.create(session_id=session_id)
        moor.append(session_id, "needle")
    assert (found(ann, "needle"), found(bob, "needle")) == ({("hers", 2)}, {("his", 2)})


def test_search_finds_messages_of_another_connection(place: Place) -> None:
    one, other = place.connect(), place.connect()
    one.create(session_id="s-1")
    assert other.search("needle") == []
    one.append("s-1", "needle")
    assert found(other, "needle") == {("s-1", 2)}


def test_many_entries_are_indexed_in_one_search(place: Place) -> None:
    moor = place.connect()
    moor.create(session_id="s-1")
    for _ in range(5):
        moor.append("s-1", [f"needle {number}" for number in range(300)])
    assert len(moor.search("needle", limit=1000)) == 1000
    assert len(moor.search("needle 299", limit=1000)) == 5


def test_a_session_comes_with_its_last_messages_if_they_are_wanted(timed: Timed) -> None:
    session = timed.moor.create("agent", name="trip")
    timed.moor.append(session.id, [{"role": "system", "content": "be brief"}, "one", "two", "three"])

    got = timed.moor.get("trip", messages=2)

    assert got.messages == timed.moor.messages("trip", last=2).items
    assert contents(got.messages) == ["be brief", "two", "three"]
    assert got.last_entry == 5
    assert timed.moor.get("trip").messages is None
    assert timed.moor.get(timed.moor.create().id, messages=2).messages == []


def test_a_session_with_its_messages_shows_no_token_of_its_hold(timed: Timed) -> None:
    session = timed.moor.create("agent")
    timed.moor.update(session.id, phase="approval")
    timed.moor.resume(session.id)

    assert timed.moor.get(session.id, messages=2).hold == timed.moor.get(session.id).hold


@pytest.mark.parametrize("number", [0, -1, True, "2"])
def test_a_number_of_messages_is_above_zero(timed: Timed, number: Any) -> None:
    session = timed.moor.create("agent")
    with pytest.raises(InvalidField) as refused:
        timed.moor.get(session.id, messages=number)
    assert refused.value.code == "invalid_messages"
