"""Ids of frameworks: whatever they contain, they become ids of sessions, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.adapters.foreign_ids import as_text, parts_of, session_id_of
from moorage.core.errors import InvalidField
from moorage.core.ids import check_session_id

ANY_TEXT = st.text(st.characters(), max_size=20) | st.from_regex(r"[xhg2:.a-]{0,8}", fullmatch=True)
PARTS = st.lists(ANY_TEXT, min_size=1, max_size=4).map(tuple)


@given(PARTS, st.integers(1, 12))
def test_every_id_fits_the_pattern_and_can_be_read_back(parts: tuple[str, ...], generation: int) -> None:
    session_id = session_id_of(*parts, generation=generation)

    assert check_session_id(session_id) == session_id
    assert parts_of(as_text(*parts)) == parts
    if not session_id.startswith("h:"):
        assert parts_of(session_id) == parts


@given(PARTS, PARTS, st.integers(1, 3), st.integers(1, 3))
def test_different_ids_stay_different(
    parts: tuple[str, ...], others: tuple[str, ...], generation: int, other_generation: int
) -> None:
    one = session_id_of(*parts, generation=generation)
    other = session_id_of(*others, generation=other_generation)

    assert (one == other) == ((parts, generation) == (others, other_generation))


@pytest.mark.parametrize("session_id", ["user-123", "tenant:42", "0190c3f2-7d5a-7000-8000-000000000001", "a.b_c"])
def test_id_inside_the_pattern_stays_as_it_is(session_id: str) -> None:
    assert session_id_of(session_id) == session_id


def test_parts_are_joined_readably() -> None:
    assert session_id_of("shop", "user 7", "s1") == "shop::user:207::s1"


def test_long_id_becomes_a_digest_that_differs_by_generation() -> None:
    first, second = session_id_of("a" * 300), session_id_of("a" * 300, generation=2)

    assert first.startswith("h:")
    assert first != second
    with pytest.raises(InvalidField, match="metadata"):
        parts_of(first)


def test_id_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidField, match="must be text"):
        session_id_of(7)  # type: ignore[arg-type]  # as an untyped caller might
    with pytest.raises(InvalidField, match="must be text"):
        as_text("shop", None)  # type: ignore[arg-type]
