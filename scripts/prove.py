#!/usr/bin/env python3
"""Prove the promises of docs/guarantees.md: short, or in rounds of other seeds until the time is up.

./dev prove                          each proof once; `./dev test` has the same tests
./dev prove --long [--minutes 60]    longer storms, more stores, other seeds each round, 500,000 simulated steps
./dev prove --seed 17                one round of the long run again
"""

from __future__ import annotations

import sys

from scripts import rounds

MODELS = (  # comparisons of the stores with the model
    "tests/contract/test_sqlite_store.py::TestSqliteAgainstTheModel",
    "tests/contract/test_sqlite_store.py::TestSqliteAtWorkAgainstTheModel",
    "tests/contract/test_postgres_store.py::test_postgres_matches_the_model",
    "tests/contract/test_redis_store.py::test_redis_matches_the_model",
)
PROOFS = {  # the promise, and the tests that check it
    "crash points, lost answers, history, a storm on SQLite": ("tests/faults",),
    "stops of growing families": ("tests/launcher/test_stops.py",),
    "steps of the clock": ("tests/launcher/test_clock_steps.py", "tests/doors/http/test_clock_steps.py"),
    "writers of many processes": ("tests/postgres/test_together.py", "tests/redis/test_together.py"),
    "storms": ("tests/postgres/test_storm.py", "tests/redis/test_storm.py"),
    "kills of the database": ("tests/redis/test_kills.py",),
    "access": ("tests/attack",),
}
MORE = (  # of the long run
    "tests/contract/test_postgres_store.py::test_oldest_postgres_matches_the_model",
    *("tests/launcher/test_storm.py", "tests/launcher/test_families.py", "tests/launcher/test_lost_answers.py"),
    "tests/launcher/test_kills.py",
)
WITHOUT = tuple(  # scripts/mutants.py
    f"--deselect=tests/faults/test_mutants.py::{test}"
    for test in (
        "test_without_a_safeguard_a_test_fails",
        "test_share_of_the_mutants_that_the_commit_chooses_is_caught",
    )
)
LONGER = {"MOORAGE_LONG": "1", "MOORAGE_STORM": "3", "MOORAGE_TEST_STOPS": "6", "MOORAGE_KILLS": "40"}
STEPS_A_ROUND = 500_000


def short() -> int:
    return rounds.pytest([*tests(), *WITHOUT])


def long(seed: int) -> int:
    """Run all proofs with one seed, then the simulation; return the first exit code that is not 0."""
    environment = {**LONGER, "MOORAGE_SEED": str(seed)}
    steps = ["--first-seed", str(seed), "--steps", str(STEPS_A_ROUND)]
    return rounds.pytest([*tests(), *MORE, *WITHOUT, f"--hypothesis-seed={seed}"], environment) or rounds.run(
        ["-m", "moorage.testing.simulation", *steps]
    )


def tests() -> list[str]:
    return [*MODELS, *(test for tests in PROOFS.values() for test in tests)]


if __name__ == "__main__":
    sys.exit(rounds.main("prove", __doc__.splitlines()[0], short, long))
