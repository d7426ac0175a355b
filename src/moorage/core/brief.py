"""Short texts of values: one line at a prompt, a small table in a notebook.

A value has dozens of fields; a person who looks at it wants to identify it and see its state. `brief` names the fields
for that. Secrets are never among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    T = TypeVar("T")

MOST = 60  # characters of one field
ROWS = 50  # of a table
FEW = 3  # items of a list that are shown; longer lists are counted


def brief(*names: str) -> Callable[[type[T]], type[T]]:
    """Show these fields or properties of a class, if they are set, in its repr and in notebooks."""

    def named(kind: type[T]) -> type[T]:
        kind.__repr__ = _repr  # type: ignore[method-assign]
        kind.__brief__ = names  # type: ignore[attr-defined]
        kind._repr_html_ = _html  # type: ignore[attr-defined]
        return kind

    return named


def facts_of(value: Any) -> dict[str, Any]:
    """Return the brief fields of a value that are set."""
    found = ((name, getattr(value, name, None)) for name in type(value).__brief__)
    return {name: each for name, each in found if each not in (None, "", [], {}, ())}


def _repr(self: Any) -> str:
    return f"{type(self).__name__}({', '.join(f'{name}={short(each)}' for name, each in facts_of(self).items())})"


def short(value: Any) -> str:
    """Return a field as a short text."""
    if isinstance(value, str):
        return repr(_cut(str(value)))
    if hasattr(value, "isoformat"):
        return f"{value:%Y-%m-%dT%H:%M:%SZ}"
    if isinstance(value, (list, tuple)) and (len(value) > FEW or is_brief(value[0])):
        return f"[{len(value)} {'item' if len(value) == 1 else 'items'}]"
    if isinstance(value, (list, tuple)):
        value = [str(each) if isinstance(each, str) else each for each in value]  # words of an enumeration as texts
    return repr(value) if is_brief(value) else _cut(repr(value))


def is_brief(value: Any) -> bool:
    """Return whether the class of a value has brief fields."""
    return hasattr(type(value), "__brief__")


def _cut(text: str) -> str:
    return text if len(text) <= MOST else f"{text[: MOST - 1]}…"


def _html(value: Any) -> str:
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
    from html import escape  # a notebook has loaded it

    return escape(str(value) if isinstance(value, str) else short(value))
