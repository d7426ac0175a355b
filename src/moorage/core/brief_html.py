"""Values as tables in notebooks."""

from __future__ import annotations

from html import escape
from typing import Any

from moorage.core.brief import facts_of, is_brief, short

ROWS = 50  # of a table


def html_of(value: Any) -> str:
    """Return a table of a page of values, or of the fields of any other value."""
    items = getattr(value, "items", None)
    if isinstance(items, list) and items and is_brief(items[0]):
        more = "" if getattr(value, "next", None) is None else "<p>There are more: see <code>next</code>.</p>"
        return _table(items) + more
    rows = "".join(f"<tr><th>{name}</th><td>{_cell(each)}</td></tr>" for name, each in facts_of(value).items())
    return f"<table><caption>{type(value).__name__}</caption>{rows}</table>"


def _table(items: list[Any]) -> str:
    names = type(items[0]).__brief__
    head = "".join(f"<th>{name}</th>" for name in names)
    rows = (facts_of(item) for item in items[:ROWS])
    cells = ("".join(f"<td>{_cell(row.get(name, ''))}</td>" for name in names) for row in rows)
    more = f"<p>and {len(items) - ROWS} more</p>" if len(items) > ROWS else ""
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>{more}"


def _cell(value: Any) -> str:
    return escape(str(value) if isinstance(value, str) else short(value))
