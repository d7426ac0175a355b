"""The mutants of mutants: without its safeguards the store must fail its tests.

Some run with every test run; `python scripts/mutants.py` runs them all.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "scripts" / "mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_mutant_still_fits_the_sources(mutants: ModuleType) -> None:
    for mutant in mutants.MUTANTS:
        source = (ROOT / "src" / mutant.file).read_text(encoding="utf-8")
        assert mutants.mutated(mutant, source) != source
        for test in mutant.tests:
            path, *of_class, name = test.split("::")
            places = (ROOT / "src/moorage/testing/contract").glob("*.py") if of_class else [ROOT / path]
            wanted = f"def {name.partition('[')[0]}("
            assert any(wanted in place.read_text(encoding="utf-8") for place in places), test


def test_safeguard_of_shared_code_is_taken_out_on_every_store(mutants: ModuleType) -> None:
    every = mutants.on_every_store()
    names = [mutant.name for mutant in every]
    assert len(set(names)) == len(names) > len(mutants.MUTANTS)
    one = next(mutant for mutant in mutants.MUTANTS if mutant.tests[0].startswith(mutants.MODEL))
    there = {mutant.tests[0].rsplit("::", 1)[0] for mutant in every if mutant.name.startswith(one.name)}
    assert there == set(mutants.CONTRACTS.values())
    assert mutants.chosen(["--from", names[-2]]) == every[-2:]


def test_a_mutant_that_no_longer_fits_is_noticed(mutants: ModuleType) -> None:
    for source in ("nothing of it", "x = 1\nx = 1\n"):
        with pytest.raises(mutants.OutOfDate):
            mutants.mutated(mutants.Mutant("gone", "file.py", "x = 1", "x = 2", ()), source)
    assert mutants.main(["no such mutant"]) == 2


@pytest.mark.timeout(600)
def test_mutant_that_no_test_reaches_is_told_from_one_that_survives(mutants: ModuleType, tmp_path: Path) -> None:
    """Lesson 94: a mutant in code that is no longer called proves nothing."""
    (tmp_path / "src").mkdir()
    source = "def called():\n    if True:\n        return 1\n\n\ndef forgotten():\n    return 2\n"
    (tmp_path / "src/guarded_example.py").write_text(source)
    (tmp_path / "test_it.py").write_text(
        "from guarded_example import called\n\n\ndef test_it():\n    assert called() > 0\n"
    )
    reached = [
        mutants.is_reached(
            tmp_path / "src", mutants.Mutant("x", "guarded_example.py", text, "", (str(tmp_path / "test_it.py"),))
        )
        for text in ("return 1", "return 2")
    ]
    assert reached == [True, False]


def test_every_python_mutant_can_be_probed(mutants: ModuleType) -> None:
    for mutant in mutants.MUTANTS:
        source = (ROOT / "src" / mutant.file).read_text(encoding="utf-8")
        assert mutants.probed(mutant, source, Path("x")) or not mutant.file.endswith(".py"), mutant.name


def test_commits_take_every_mutant_in_turn(mutants: ModuleType) -> None:
    taken = {mutant.name for number in range(2000) for mutant in mutants.share(4, f"commit {number}")}
    assert taken == {mutant.name for mutant in mutants.MUTANTS}
    assert mutants.share(4, "a commit") == mutants.share(4, "a commit")


@pytest.mark.timeout(900)
def test_without_a_safeguard_a_test_fails(mutants: ModuleType) -> None:
    of_the_file = ["foreign keys", "immediate", "version check"]
    of_turns = ["epoch of a turn", "one queued turn", "callback in the same commit"]
    assert mutants.run(mutants.chosen(of_the_file + of_turns)) == []


@pytest.mark.timeout(900)
def test_share_of_the_mutants_that_the_commit_chooses_is_caught(mutants: ModuleType) -> None:
    assert mutants.run(mutants.share(2)) == []
