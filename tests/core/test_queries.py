"""Queries and their cursors: a cursor goes on with its own query and with no other."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from moorage.core.errors import InvalidCursor, InvalidField, InvalidRequest
from moorage.core.query import MAX_LIMIT, Page, SessionQuery, check_limit, make_cursor, read_cursor
from moorage.core.session import Phase, State
from moorage.testing.builders import NOON, after
from tests.core.heads import a_head

positions = st.integers(0, 2**60 - 1)
fingerprints = st.integers(0, 2**32 - 1)
FILTERS: dict[str, Any] = {
    "agent": "echo-agent",
    "state": "active",
    "status": "idle",
    "phase": "planning",
    "interface": "cli",
    "parent": "s-0",
    "root": "s-0",
    "task": "t-1",
    "name_prefix": "plan",
    "project_dir": "somewhere",
    "label": "prod",
    "metadata_key": "workspace",
    "metadata_value": "prod",
    "active_only": True,
    "resume_ready": True,
    "created_after": NOON,
    "created_before": NOON,
    "updated_after": NOON,
    "updated_before": NOON,
    "sort": "created",
}


@given(positions, fingerprints)
def test_a_cursor_is_read_back(position: int, fingerprint: int) -> None:
    assert read_cursor(make_cursor(position, fingerprint), fingerprint) == position


@given(positions, fingerprints, fingerprints)
def test_a_cursor_of_another_query_is_refused(position: int, fingerprint: int, other: int) -> None:
    if fingerprint != other:
        with pytest.raises(InvalidCursor, match="start again"):
            read_cursor(make_cursor(position, fingerprint), other)


@given(st.text() | st.none() | st.integers() | st.binary())
def test_invalid_cursor_is_refused(cursor: object) -> None:
    with pytest.raises(InvalidCursor):
        read_cursor(cursor, 0x1234_5678)


@given(st.text(max_size=30))
def test_whatever_follows_the_mark_is_a_small_number_or_refused(rest: str) -> None:
    try:
        position = read_cursor(f"12345678-{rest}", 0x1234_5678)
    except InvalidCursor:
        return
    assert 0 <= position < 2**63, "stores count no further"


def test_cursor_beyond_64_bits_is_refused() -> None:
    for rest in ("ffffffffffffffff", "8000000000000000", "-1", "0x1", "1_0", " 1", ""):
        with pytest.raises(InvalidCursor):
            read_cursor(f"12345678-{rest}", 0x1234_5678)


def test_a_query_goes_on_where_its_page_ended_whatever_the_page_size() -> None:
    query = SessionQuery(agent="echo-agent", limit=10)
    cursor = query.cursor_at(42)
    assert replace(query, cursor=cursor).position() == 42
    assert replace(query, cursor=cursor, limit=3).position() == 42
    assert query.position() is None


def test_every_filter_is_part_of_the_cursors_mark() -> None:
    assert FILTERS.keys() | {"limit", "cursor"} == set(SessionQuery.__struct_fields__)
    for name, value in FILTERS.items():
        known = SessionQuery(metadata_key="colour") if name == "metadata_value" else SessionQuery()
        with pytest.raises(InvalidCursor):
            replace(known, **{name: value, "cursor": known.cursor_at(42)}).position()


@pytest.mark.parametrize(
    ("name", "code"),
    [("state", "invalid_state"), ("status", "invalid_status"), ("phase", "unknown_phase"), ("sort", "invalid_sort")],
)
def test_a_choice_is_one_of_those_there_are(name: str, code: str) -> None:
    with pytest.raises(InvalidRequest, match="use one of") as refused:
        SessionQuery(**{name: "sleeping"})  # type: ignore[arg-type]  # a name stands for any of them
    assert refused.value.code == code


@pytest.mark.parametrize("limit", [0, -1, MAX_LIMIT + 1, True, 1.5, "10", None])
def test_a_page_has_between_one_and_a_thousand_items(limit: Any) -> None:
    with pytest.raises(InvalidField):
        SessionQuery(limit=limit)
    with pytest.raises(InvalidField) as refused:
        check_limit(limit)
    assert refused.value.code == "invalid_limit"


def test_the_limits_themselves_are_allowed() -> None:
    assert [check_limit(limit) for limit in (1, MAX_LIMIT)] == [1, MAX_LIMIT]


def test_query_admits_sessions_that_match_all_filters() -> None:
    head = a_head(
        State.ACTIVE,
        phase=Phase.PLANNING,
        session_name="plan-prod",
        metadata={"workspace": "prod", "empty": None},
        project_dir="somewhere",
        labels=["prod"],
    )
    fitting: dict[str, Any] = {
        "agent": "echo-agent",
        "state": "active",
        "status": "idle",
        "phase": "planning",
        "root": "s-1",
        "task": "task-of-nobody",
        "name_prefix": "plan",
        "project_dir": "somewhere",
        "label": "prod",
        "metadata_key": "workspace",
        "metadata_value": "prod",
        "active_only": True,
        "created_after": after(-1),
        "created_before": after(1),
        "updated_after": after(-1),
        "updated_before": after(1),
    }
    others: dict[str, Any] = {
        "agent": "other",
        "state": "created",
        "status": "waiting",
        "phase": "executing",
        "root": "s-2",
        "parent": "s-2",
        "task": "other",
        "name_prefix": "prod",
        "project_dir": "elsewhere",
        "label": "pro",
        "metadata_key": "missing",
        "metadata_value": "test",
        "created_after": NOON,
        "created_before": NOON,
        "updated_after": NOON,
        "updated_before": NOON,
    }
    assert SessionQuery(**fitting).admits(head)
    assert SessionQuery(metadata_key="empty").admits(head)
    for name, value in others.items():
        assert not SessionQuery(**{**fitting, name: value}).admits(head), name
    assert not SessionQuery(active_only=True).admits(a_head(State.FAILED))


def test_a_page_is_walked_and_counted() -> None:
    page = Page([1, 2, 3], "next")
    assert (list(page), len(page), page.next) == ([1, 2, 3], 3, "next")
    assert Page([]).next is None


def test_hours_do_not_matter_to_a_mark_but_instants_do() -> None:
    early, late = SessionQuery(created_after=NOON), SessionQuery(created_after=NOON + timedelta(microseconds=1))
    with pytest.raises(InvalidCursor):
        replace(late, cursor=early.cursor_at(1)).position()


def test_a_value_of_metadata_needs_its_key() -> None:
    with pytest.raises(InvalidField, match="needs a metadata_key"):
        SessionQuery(metadata_value="prod")
