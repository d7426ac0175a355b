"""Figures of a run: tests add to them, `./dev prove` and `./dev fuzz` print their sums."""

from __future__ import annotations

import json
import os
from pathlib import Path

FILE = os.environ.get("MOORAGE_COUNTS")  # read now: some tests clear the environment


def is_counting() -> bool:
    """Return whether `./dev prove` or `./dev fuzz` runs these tests."""
    return bool(FILE)


def count(name: str, number: int) -> None:
    """Add to a figure; does nothing unless a file for figures is named."""
    if FILE:
        with Path(FILE).open("a") as file:
            file.write(json.dumps([name, number]) + "\n")
