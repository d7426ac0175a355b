"""Limits of an import's lines, checked while its parts come in."""

from __future__ import annotations

import pytest

from moorage.core.errors import InvalidImport
from moorage.doors.http.transfer import MAX_FOREIGN, MAX_FOREIGN_VALUES, MAX_LINE, MAX_VALUES, ReceivedLines

HALF = MAX_VALUES // 2


@pytest.mark.parametrize("mark", [b",", b"{", b"["])
def test_line_of_too_many_values_is_refused_in_whichever_parts_it_comes(mark: bytes) -> None:
    lines = ReceivedLines(len)
    lines.take(mark * HALF)
    lines.take(mark * HALF)
    with pytest.raises(InvalidImport, match="1,000,000 values"):
        lines.take(mark)


def test_values_of_several_lines_are_not_added_up() -> None:
    lines = ReceivedLines(len)
    for _ in range(4):
        lines.take(b"," * HALF + b"\n" + b"," * HALF)


def test_line_that_is_too_long_is_refused_in_whichever_parts_it_comes() -> None:
    lines = ReceivedLines(len)
    lines.take(b"x" * MAX_LINE)
    with pytest.raises(InvalidImport, match="16 MiB"):
        lines.take(b"x")


@pytest.mark.parametrize("part", [b"x\n" * (MAX_FOREIGN // 2), b",\n" * MAX_FOREIGN_VALUES])
def test_file_that_is_no_export_may_be_smaller_than_an_export(part: bytes) -> None:
    lines = ReceivedLines(len)
    lines.take(part)
    assert not lines.are_many
    lines.take(b",")
    assert lines.are_many
