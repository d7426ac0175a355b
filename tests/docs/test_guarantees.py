"""docs/guarantees.md names tests that are there, and figures that are true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from moorage.doors.mcp.tools import TOOLS
from scripts.mutants import MUTANTS
from tests.attack.access import COVERS, ROWS
from tests.attack.family import VISIBLE_TO
from tests.attack.test_tokens import METHODS, VISIBLE, every_query

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", PAGE)))
UNKNOWN_CALLERS = 3  # without a key, with another scheme, with a key that does not count


@pytest.mark.parametrize("named", NAMED)
def test_every_named_test_exists(named: str) -> None:
    path, _, name = named.partition("::")
    wanted = rf"def {name}\(" if name else r"def test_|Test\w+ = |class Test"
    assert re.search(rf"^(async )?({wanted})", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)


def test_every_promise_names_a_test() -> None:
    promises = PAGE.partition("| promise |")[2].partition("## Figures")[0].splitlines()[2:]
    assert all("`tests/" in line for line in promises if line)


def test_figures_are_true() -> None:
    callers = UNKNOWN_CALLERS + 2 * len(COVERS) + len(VISIBLE_TO)
    (routes, kinds), (others, of_others) = re.findall(r"at least (\d+) × (\d+) \|", PAGE)
    [safeguards] = re.findall(r"taken out one by one \| at least (\d+) \|", PAGE)
    assert int(routes) <= len(ROWS)
    assert int(kinds) == callers
    assert int(others) <= len([*every_query()]) + len(METHODS) + len(TOOLS)
    assert int(of_others) == len(VISIBLE)
    assert int(safeguards) <= len(MUTANTS)
