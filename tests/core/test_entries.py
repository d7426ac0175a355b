"""Messages: what may be said, in which form, and what of it is text."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.core.entry import (
    MAX_MESSAGE_BYTES,
    MAX_MESSAGES_PER_APPEND,
    ROLES,
    Entry,
    Kind,
    Message,
    check_message,
    check_messages,
    event_of,
    search_words,
    searchable_text,
    snippet_of,
    text_of,
    tool_calls,
    tool_results,
)
from moorage.core.errors import InvalidField, InvalidJson, MoorageError, TooLarge
from moorage.core.family import Tombstone
from moorage.testing.builders import NOON

PARTS: list[dict[str, Any]] = [
    {"type": "text", "text": "Looking it up"},
    {"type": "tool_call", "id": "c-1", "name": "weather", "input": {"city": "Lisbon"}},
    {"type": "tool_result", "call_id": "c-0", "output": ["sunny"]},
    {"type": "image", "url": "cat.png"},
]


def test_a_text_alone_is_said_by_the_user() -> None:
    assert check_messages("hi") == [Message(role="user", content="hi")]
    assert check_messages(["hi", {"role": "assistant", "content": "ho"}])[1].role == "assistant"
    assert check_messages({"content": "hi"}) == [Message(role="user", content="hi")]


@pytest.mark.parametrize("role", ROLES)
def test_there_are_four_roles(role: str) -> None:
    assert check_message({"role": role, "content": "x"}).role == role
    assert set(ROLES) == {"user", "assistant", "system", "tool"}


def test_parts_of_unknown_types_are_kept_verbatim() -> None:
    assert check_message({"role": "assistant", "content": PARTS}).content == PARTS


@pytest.mark.parametrize(
    "message",
    [
        None,
        7,
        {},
        {"role": "user"},
        {"role": "robot", "content": "x"},
        {"role": "user", "content": None},
        {"role": "user", "content": []},
        {"role": "user", "content": [{}]},
        {"role": "user", "content": ["text"]},
        {"role": "user", "content": [{"type": 1}]},
        {"role": "user", "content": [{"type": "text"}]},
        {"role": "user", "content": [{"type": "tool_call", "id": "c-1"}]},
        {"role": "user", "content": [{"type": "tool_result"}]},
        {"role": "user", "content": "x", "extra": 1},
        {"role": "user", "content": "x", "client_key": ""},
        {"role": "user", "content": "x", "client_key": 7},
        {"role": ["user"], "content": "x"},
    ],
)
def test_invalid_message_is_refused_with_its_path(message: Any) -> None:
    with pytest.raises(InvalidField, match=r"messages\[1\]"):
        check_messages(["fine", message])


@pytest.mark.parametrize("messages", [None, [], (), 7, iter(["x"])])
def test_nothing_to_say_is_refused(messages: object) -> None:
    with pytest.raises(InvalidField) as refused:
        check_messages(messages)
    assert refused.value.code == "invalid_messages"


def test_one_client_key_twice_in_one_append_is_refused() -> None:
    with pytest.raises(InvalidField, match="client_key twice"):
        check_messages([{"content": "a", "client_key": "k"}, {"content": "b", "client_key": "k"}])


def test_sizes_are_limited_in_bytes() -> None:
    assert check_message("x" * MAX_MESSAGE_BYTES).size == MAX_MESSAGE_BYTES
    for content in ("x" * (MAX_MESSAGE_BYTES + 1), "é" * (MAX_MESSAGE_BYTES // 2 + 1), "x" * 2 * 1024 * 1024):
        with pytest.raises(TooLarge) as refused:
            check_message(content)
        assert refused.value.code == "message_too_large"
    with pytest.raises(TooLarge):
        check_message({"content": [{"type": "text", "text": "x" * MAX_MESSAGE_BYTES}]})


def test_the_number_of_messages_at_once_is_limited() -> None:
    assert len(check_messages(["x"] * MAX_MESSAGES_PER_APPEND)) == MAX_MESSAGES_PER_APPEND
    with pytest.raises(InvalidField):
        check_messages(["x"] * (MAX_MESSAGES_PER_APPEND + 1))


@pytest.mark.parametrize(
    "content", ["\ud800", [{"type": "text", "text": "\ud800"}], [{"type": "x", "n": float("nan")}]]
)
def test_content_is_json(content: Any) -> None:
    with pytest.raises(InvalidJson):
        check_message({"role": "user", "content": content})


# Reading ----------------------------------------------------------------------------------------

SAID = Entry(number=1, kind=Kind.MESSAGE, at=NOON, role="assistant", content=PARTS)


def test_the_words_of_a_message_are_its_texts() -> None:
    assert SAID.text == "Looking it up"
    assert text_of("plain") == "plain"
    assert text_of(None) == ""


def test_a_search_finds_texts_names_inputs_and_results_but_no_ids() -> None:
    words = searchable_text(SAID)
    assert all(word in words for word in ("Looking", "weather", "Lisbon", "sunny", "cat.png"))
    assert not any(word in words for word in ("c-1", "c-0", "tool_call"))
    summary = Entry(number=1, kind=Kind.SUMMARY, at=NOON, data={"summary": "All done", "upto": 3})
    assert searchable_text(summary) == "All done"


def test_calls_and_results_are_told_apart() -> None:
    assert (tool_calls(SAID), tool_results(SAID)) == (["c-1"], ["c-0"])
    assert tool_calls(Entry(number=1, kind=Kind.PHASE, at=NOON)) == []


def test_an_events_id_is_the_entrys_number_or_the_feeds_cursor() -> None:
    assert event_of(SAID, "s-1").id == 1
    event = event_of(SAID, "s-1", 77)
    assert (event.id, event.type, event.data["number"], event.data["role"]) == (77, "message", 1, "assistant")


def test_a_deletion_is_an_event_that_names_its_root() -> None:
    tombstone = Tombstone(session_id="s-2", state="active", root_of_deletion="s-1", deleted_at=NOON, deleted_by="ann")
    event = tombstone.event(9)
    assert (event.id, event.type, event.session_id) == (9, "session_deleted", "s-2")
    assert event.data == {
        "session_name": None,
        "root_of_deletion": "s-1",
        "deleted_by": "ann",
        "reason": "deleted",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("plan prod", ["plan", "prod"]),
        ('"quoted" AND (x OR y) NEAR/2', ["quoted", "AND", "x", "OR", "y", "NEAR", "2"]),
        ("pla*", ["pla*"]),
        ("snake_case", ["snake", "case"]),
        ("*** -- ;", []),
        ("Größe ÄÖ", ["Größe", "ÄÖ"]),
    ],
)
def test_a_query_is_words_and_never_syntax(text: str, words: list[str]) -> None:
    assert search_words(text) == words


def test_a_snippet_is_the_part_around_the_word() -> None:
    text = "x " * 200 + "needle" + " y" * 200
    snippet = snippet_of(text, ["needle"])
    assert "needle" in snippet
    assert snippet.startswith("…")
    assert snippet.endswith("…")
    assert snippet_of("short  text\n", ["absent"]) == "short text"


def test_refusals_are_ours() -> None:
    with pytest.raises(MoorageError):
        check_messages([object()])
