"""Projection: messages of the log made of what frameworks store, and exact payloads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from moorage.adapters.payload import packed, unpacked
from moorage.adapters.projection import message, natives, with_distinct_keys
from moorage.core.entry import Entry, Message, check_messages, searchable_text
from moorage.core.errors import InvalidJson

HELLO = {"type": "text", "text": "hello"}


def checked(messages: list[Message]) -> list[Message]:
    """Check messages as those of a caller."""
    return check_messages([asdict(message) for message in messages])


def test_words_alone_are_a_plain_message() -> None:
    assert message("strands", "user", [HELLO]) == Message("user", "hello")


def test_native_value_goes_along_verbatim() -> None:
    said = message("strands", "user", [HELLO], {"blocks": [1, 2]})

    assert natives("strands", said.content) == [{"blocks": [1, 2]}]
    assert natives("langgraph", said.content) == []


def test_message_too_large_for_the_log_is_cut_there() -> None:
    long = "x" * (3 << 20)
    said = message("strands", "user", [{"type": "text", "text": long}], {"text": long})

    checked([said])
    assert "characters left out" in str(said.content)
    assert natives("strands", said.content) == []


@pytest.mark.parametrize("odd", ["\ud800", 1 << 70, float("inf"), {"\ud800": 1}])
def test_values_that_the_log_cannot_hold_are_said_in_another_way(odd: Any) -> None:
    part = {"type": "tool_call", "id": "c1", "name": "f", "input": {"odd": odd}}

    checked([message("strands", "assistant", [part], {"odd": odd}, key="\ud800")])


def test_same_id_with_other_words_is_another_message() -> None:
    one = message("strands", "assistant", [HELLO], key="m1")
    other = message("strands", "assistant", [{"type": "text", "text": "bye"}], key="m1")

    assert one.client_key != other.client_key
    assert one.client_key == message("strands", "assistant", [HELLO], key="m1").client_key


def test_equal_messages_of_one_write_have_different_keys() -> None:
    messages = with_distinct_keys([message("strands", "assistant", [HELLO], key="m1") for _ in range(3)])

    assert len(checked(messages)) == 3


def test_search_finds_words_once_and_not_the_native_value() -> None:
    said = message("strands", "user", [HELLO], {"signature": "c2VjcmV0"})
    entry = Entry(number=1, kind="message", at=None, content=said.content)  # type: ignore[arg-type]  # no time needed

    assert searchable_text(entry).split() == ["hello"]


# Payloads ---------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
)


@given(JSON | st.text(st.characters()))
def test_payloads_come_back_exactly(value: Any) -> None:
    assert unpacked(packed(value, "item")) == value


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", float("nan"), float("inf"), {("a", 1): 2}])
def test_value_that_is_no_json_is_refused_with_its_place(value: Any) -> None:
    with pytest.raises(InvalidJson, match="item 3"):
        packed({"x": value}, "item 3")
