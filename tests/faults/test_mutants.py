"""The gate of mutants: without its safeguards the store must fail its tests.

Some run with every test run; `python scripts/mutants.py` runs them all.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def gate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "scripts" / "mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_mutant_still_fits_the_sources(gate: ModuleType) -> None:
    for mutant in gate.MUTANTS:
        source = (ROOT / "src" / mutant.file).read_text(encoding="utf-8")
        assert gate.mutated(mutant, source) != source
        for test in mutant.tests:
            path, *of_class, name = test.split("::")
            places = (ROOT / "src/moorage/testing/contract").glob("*.py") if of_class else [ROOT / path]
            wanted = f"def {name.partition('[')[0]}("
            assert any(wanted in place.read_text(encoding="utf-8") for place in places), test


def test_a_mutant_that_no_longer_fits_is_noticed(gate: ModuleType) -> None:
    for source in ("nothing of it", "x = 1\nx = 1\n"):
        with pytest.raises(gate.OutOfDate):
            gate.mutated(gate.Mutant("gone", "file.py", "x = 1", "x = 2", ()), source)
    assert gate.main(["no such mutant"]) == 2


@pytest.mark.timeout(300)
def test_without_a_safeguard_a_test_fails(gate: ModuleType) -> None:
    of_the_file = ["foreign keys", "immediate", "version check"]
    of_turns = ["epoch of a turn", "one queued turn", "callback in the same commit"]
    assert gate.run(gate.chosen(of_the_file + of_turns)) == []
