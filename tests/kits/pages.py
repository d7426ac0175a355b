"""The page of an adapter: its examples run, and it is short."""

from __future__ import annotations

from pathlib import Path

from tests.docs.page import ROOT
from tests.docs.runner import run_page

MOST_LINES = 60


def check_page(name: str, folder: Path) -> None:
    """Run the examples of docs/adapters/NAME.md in an empty folder."""
    page = ROOT / "docs" / "adapters" / f"{name}.md"
    assert len(page.read_text(encoding="utf-8").splitlines()) < MOST_LINES
    run_page(page, folder)
