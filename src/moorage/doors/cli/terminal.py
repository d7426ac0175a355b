"""Text on a terminal: its width, colours, cutting and wrapping.

Colours are omitted if the stream is no terminal, or if `NO_COLOR` or `TERM=dumb` is set. Text is measured in columns of
the terminal: many characters of Asian scripts take two.
"""

from __future__ import annotations

import os
import sys
from typing import IO

_CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36}
STATE_STYLES = {  # of states and statuses
    "running": "green", "completed": "green", "approved": "green", "answered": "green", "valid": "green",
    "waiting": "yellow", "pending": "yellow", "queued": "yellow", "suspended": "blue",
    "failed": "red", "run failed": "red", "rejected": "red", "lost": "red", "revoked": "red",
    "abandoned": "dim", "stopped": "dim", "expired": "dim", "withdrawn": "dim",
}  # fmt: skip


def columns() -> int:
    from shutil import get_terminal_size

    return get_terminal_size().columns


def has_colour(stream: IO[str] | None = None) -> bool:
    """Return whether a stream, by default standard output, shows colours."""
    shown = stream or sys.stdout
    return shown.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str | None, *, stream: IO[str] | None = None) -> str:
    """Return the text in a style, such as `bold`; unchanged without colours."""
    if style is None or not text or not has_colour(stream):
        return text
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def width_of(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """Return the text cut to this number of columns; an ellipsis marks the cut."""
    if width_of(text) <= width:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, max(width - 1, 0)).rstrip() + "…"


def wrapped(text: str, indent: int) -> str:
    """Return a text that follows a head of `indent` columns, wrapped at words and indented below that head."""
    from textwrap import wrap

    room = max(columns() - indent, 20)
    lines = [
        part
        for line in text.split("\n")
        for part in wrap(line, room, break_long_words=False, break_on_hyphens=False, drop_whitespace=True) or [""]
    ]
    return f"\n{' ' * indent}".join(lines)
