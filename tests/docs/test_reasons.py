"""Reasons of `because`: every list of them is complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.core.status import Reason

ROOT = Path(__file__).parents[2]
PLACES = (*(ROOT / "docs").rglob("*.md"), *(ROOT / "proto").rglob("*.proto"), *(ROOT / "src").rglob("static/format.js"))


def listing() -> list[Path]:
    """Return the files that have most of the reasons in them, in either case."""
    counts = {path: sum(reason in path.read_text().lower() for reason in Reason) for path in PLACES}
    return sorted(path for path, count in counts.items() if count > len(Reason) - 3)


@pytest.mark.parametrize("path", listing(), ids=lambda path: str(path.relative_to(ROOT)))
def test_list_of_reasons_is_whole(path: Path) -> None:
    text = path.read_text().lower()
    assert [reason.value for reason in Reason if reason not in text] == []


def test_pages_that_list_reasons_are_found() -> None:
    assert {path.name for path in listing()} >= {"lifecycle.md", "runs.md", "graphql.md", "sessions.proto", "format.js"}
