"""Plots: as high as what they show, as wide as the terminal."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.doors.cli.stats import BLOCKS, GUTTER, HEIGHT, PLAIN, Point, columns_of, room_in, without_gaps

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def points(*heights: int, share: float | None = None) -> list[Point]:
    return [Point(NOON + HOUR * number, height, share) for number, height in enumerate(heights)]


def drawn(*heights: int, width: int = 80, levels: str = BLOCKS) -> list[str]:
    """The columns without what is written beside and above them."""
    lines = columns_of("title", "shares", points(*heights), width=width, levels=levels)
    assert lines[0] == "title"
    return [line[GUTTER + 2 :] for line in lines[1:]]


def test_columns_are_as_high_as_their_numbers() -> None:
    assert drawn(0, 1, 8, 16, 32, width=13) == [
        "    █",
        "    █",
        "   ██",
        " ▁███",
    ]


def test_few_columns_are_wide() -> None:
    assert drawn(2, 1)[-1] == "█████ █████"
    assert drawn(2, 1)[0] == "█████"


def test_the_scale_stands_at_the_left() -> None:
    lines = columns_of("title", "shares", points(1, 1234), width=80)
    assert lines[1].startswith("  1234 │")
    assert lines[HEIGHT].startswith("     0 │")
    assert columns_of("title", "shares", points(12_340_000), width=80)[1].startswith("12.34M │")


def test_shares_are_drawn_only_of_something() -> None:
    some = [Point(NOON, 1, 0.0), Point(NOON, 1, None), Point(NOON, 1, 0.5), Point(NOON, 1, 1.0)]
    lines = columns_of("title", "shares", some, width=GUTTER + 2 + 4)
    assert lines[-2] == "shares"
    assert lines[-1][GUTTER + 2 :] == "▁ ▅█"
    assert "shares" not in columns_of("title", "shares", points(1, 2), width=80)


def test_where_not_all_fit_the_newest_are_drawn() -> None:
    heights = [9] * 50 + [0] * 9 + [1]
    assert drawn(*heights, width=18) == [f"{'█':>10}"] * HEIGHT
    assert room_in(18) == 10


def test_a_terminal_without_blocks_gets_plain_characters() -> None:
    lines = columns_of("title", "shares", points(1, 4, share=0.5), width=40, levels=PLAIN)
    assert "".join(lines).isascii()
    assert "#" in lines[1]


def test_nothing_at_all_is_an_empty_plot() -> None:
    assert drawn() == [""] * HEIGHT
    assert without_gaps([], HOUR, 10) == []


@given(st.lists(st.integers(0, 10**9), max_size=200), st.integers(1, 200))
def test_no_line_is_wider_than_the_terminal(heights: list[int], width: int) -> None:
    for line in drawn(*heights, width=width):
        assert len(line) <= max(1, width - GUTTER - 2)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=60))
def test_whatever_happened_shows(heights: list[int]) -> None:
    lowest = drawn(*heights, width=GUTTER + 2 + len(heights))[-1]
    assert len(lowest) == len(heights)
    assert " " not in lowest


@pytest.mark.parametrize(("most", "hours"), [(10, [0, 1, 2, 3, 4]), (3, [2, 3, 4])])
def test_gaps_between_points_are_filled(most: int, hours: list[int]) -> None:
    known = [Point(NOON + 4 * HOUR, 7), Point(NOON, 5), Point(NOON + HOUR, 6)]
    filled = without_gaps(known, HOUR, most)
    assert [point.start for point in filled] == [NOON + HOUR * hour for hour in hours]
    assert [point.height for point in filled] == [5, 6, 0, 0, 7][-len(hours) :]


def test_a_long_gap_takes_no_more_room_than_there_is() -> None:
    years = [Point(NOON - timedelta(days=365 * 500), 1), Point(NOON, 1)]
    assert len(without_gaps(years, HOUR, 80)) == 80
