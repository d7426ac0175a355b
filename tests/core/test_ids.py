"""Identity: the pattern, the labels, and ids that sort by their time."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.core.errors import InvalidField, InvalidId
from moorage.core.ids import (
    ID_PATTERN,
    check_label,
    check_session_id,
    check_session_name,
    dated_id,
    looks_like_ref,
    uuid7,
)

GOOD = ("a", "0", "A-b_c.d:e", "x" * 128, "agent-20260301-120000-0a1b2c3d", "9:9", "a..b", "plan-prod")
BAD = (
    "", " ", "-a", "_a", ".a", ":a", "../../evil", "a/b", "a\\b", "a b", "a\n", "\na", "é", "a\0", "x" * 129, "~", "a*",
    "a;DROP TABLE sessions", "%2e%2e", "\ud800", "١", "${AGENT_SESSION_ID}",
)  # fmt: skip


@pytest.mark.parametrize("value", GOOD)
def test_ids_and_names_that_match_the_pattern_are_accepted(value: str) -> None:
    assert check_session_id(value) == check_session_name(value) == value
    assert looks_like_ref(value)


@pytest.mark.parametrize("value", [*BAD, None, 7, b"a", ["a"]])
def test_ids_and_names_outside_the_pattern_are_refused(value: object) -> None:
    with pytest.raises(InvalidId) as refused:
        check_session_id(value)
    assert (refused.value.code, refused.value.facts) == ("invalid_id", {"field": "session_id"})
    with pytest.raises(InvalidId) as refused:
        check_session_name(value)
    assert refused.value.code == "invalid_name"
    assert not looks_like_ref(value)


@given(st.from_regex(ID_PATTERN, fullmatch=True))
def test_an_id_never_reads_as_a_path(value: str) -> None:
    assert check_session_id(value) == value
    assert value not in (".", "..")
    assert not set(value) & set("/\\\0\n")


@given(st.text(max_size=200))
def test_checking_agrees_with_the_published_pattern(value: str) -> None:
    assert looks_like_ref(value) is bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", value))


def test_a_refusal_shows_a_long_value_shortened() -> None:
    with pytest.raises(InvalidId) as refused:
        check_session_id("x" * 100_000)
    assert len(refused.value.message) < 300


@pytest.mark.parametrize("value", ["", "   ", "a\nb", "a\tb", "a\x00", "\ud800", "\x7f", "x" * 257, None, 3, b"a"])
def test_a_label_is_some_text_on_one_line(value: object) -> None:
    with pytest.raises(InvalidField) as refused:
        check_label("task_id", value)
    assert refused.value.code == "invalid_task_id"


@pytest.mark.parametrize("value", ["a", "x" * 256, "Größe 7", "日本語", "a/b c?"])
def test_a_label_may_be_any_language(value: str) -> None:
    assert check_label("task_id", value) == value


# Made ids ---------------------------------------------------------------------------------------

milliseconds = st.integers(0, 2**48 - 1)
entropy = st.binary(min_size=10, max_size=10)


@given(milliseconds, entropy)
def test_a_made_id_is_a_uuid_of_version_seven_with_its_time(at: int, chance: bytes) -> None:
    made = uuid.UUID(uuid7(at, chance))
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == at
    assert looks_like_ref(str(made))


@given(milliseconds, milliseconds, entropy, entropy)
def test_made_ids_sort_by_their_time(one: int, other: int, chance: bytes, luck: bytes) -> None:
    if one < other:
        assert uuid7(one, chance) < uuid7(other, luck)


@given(milliseconds, entropy, entropy)
def test_chance_tells_ids_of_one_instant_apart(at: int, chance: bytes, luck: bytes) -> None:
    relevant = [bytes((value[0] & 0x0F, value[1], value[2] & 0x3F, *value[3:])) for value in (chance, luck)]
    assert (uuid7(at, chance) == uuid7(at, luck)) is (relevant[0] == relevant[1])


def test_the_readable_form_says_the_day() -> None:
    at = datetime(2026, 3, 1, 9, 5, 7, tzinfo=UTC)
    assert dated_id(at, b"\x0a\x1b\x2c\x3d\xff") == "agent-20260301-090507-0a1b2c3d"
    assert looks_like_ref(dated_id(at, b"\0\0\0\0"))
