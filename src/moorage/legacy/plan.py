"""The plan of an import from an older orchestrator: the new key, id, name and family of each session."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from moorage.core.ids import looks_like_ref, uuid7


class Planned(Struct, eq=False):
    """One of the old sessions: the facts from its row, and its new identity."""

    source: int  # the row
    old_id: Any
    old_name: Any
    at: int | None  # in microseconds; None until the plan is made, if the row has no time
    is_open: bool
    parent_ref: Any  # an id
    parent_name: Any
    n: int = 0  # the new key, in order of creation
    id: str = ""
    name: str | None = None
    parent: Planned | None = None
    root: Planned | None = None
    depth: int = -1  # not known yet
    is_cut: bool = False  # whether its parent link was part of a cycle

    @property
    def family(self) -> tuple[int | None, int | None]:
        """Return the keys of parent and root; None for a root."""
        return (None, None) if self.parent is None or self.root is None else (self.parent.n, self.root.n)

    @property
    def root_id(self) -> str:
        """Return the id of the root of its tree."""
        return self.id if self.root is None else self.root.id


def planned(scanned: Iterable[Planned], now: int) -> list[Planned]:
    """Sort sessions in the order of creation, and give each its key, id, name and family."""
    plan = list(scanned)
    first = min((each.at for each in plan if each.at is not None), default=now)
    for each in plan:
        each.at = first if each.at is None else each.at
    plan.sort(key=lambda each: each.at or 0)
    for number, each in enumerate(plan, 1):
        each.n = number
    by_id = _give_ids(plan)
    _find_parents(plan, by_id)
    _cut_cycles(plan)
    for each in plan:
        _place(each)
    _keep_names(plan)
    return plan


def _give_ids(plan: list[Planned]) -> dict[Any, Planned]:
    """Keep valid ids; make new ones for the others, and for the second session with the same id."""
    by_id: dict[Any, Planned] = {}
    for each in plan:
        is_first = by_id.setdefault(each.old_id, each) is each
        kept = is_first and looks_like_ref(each.old_id)
        each.id = each.old_id if kept else uuid7((each.at or 0) // 1000, os.urandom(10))
    return by_id


def _find_parents(plan: list[Planned], by_id: dict[Any, Planned]) -> None:
    """Link each session to its parent.

    An id means one session: if it was deleted, no other of the same name replaces it. A name means the newest session.
    """
    by_name: dict[Any, Planned] = {}
    for each in plan:
        if each.parent_ref is not None:
            each.parent = by_id.get(each.parent_ref)
        elif each.parent_name is not None:
            each.parent = by_name.get(each.parent_name)
        by_name[each.old_name] = each


def _cut_cycles(plan: list[Planned]) -> None:
    """Make the oldest session of each cycle a root."""
    met: dict[int, int] = {}  # a session, and the session from which the walk up reached it
    for start in plan:
        line: list[Planned] = []
        each: Planned | None = start
        while each is not None and each.n not in met:
            met[each.n] = start.n
            line.append(each)
            each = each.parent
        if each is not None and met[each.n] == start.n:
            oldest = min(line[line.index(each) :], key=lambda member: member.n)
            oldest.parent, oldest.is_cut = None, True


def _place(session: Planned) -> None:
    """Set depth and root, from the first ancestor whose depth is known."""
    line = [session]
    while (parent := line[-1].parent) is not None and parent.depth < 0:
        line.append(parent)
    for each in reversed(line):
        each.depth = 0 if each.parent is None else each.parent.depth + 1
        each.root = each if each.parent is None else each.parent.root


def _keep_names(plan: list[Planned]) -> None:
    """Keep valid names; the newest open session with a name keeps it, unless it is another session's id."""
    newest = {each.old_name: each for each in plan if each.is_open}
    by_id = {each.id: each for each in plan}
    for each in plan:
        is_free = newest.get(each.old_name) is each and by_id.get(each.old_name, each) is each
        if looks_like_ref(each.old_name) and (not each.is_open or is_free):
            each.name = each.old_name
