#!/usr/bin/env python3
"""Send every door and reader input that makes no sense: short, or in rounds of other seeds until the time is up.

    ./dev fuzz                           a few inputs for each, as `./dev test` does
    ./dev fuzz --long [--minutes 60]     at least 100,000 inputs a round, with other seeds in each
    ./dev fuzz --seed 17                 one round of the long run again

Each run begins with tests/fuzz/corpus, and keeps there what fails.
"""

from __future__ import annotations

import sys
from itertools import groupby
from operator import itemgetter

from scripts import rounds

HOOKS, EXPORTS = "tests/doors/hooks/test_never_breaks.py", "tests/service/test_transfer.py"
LINES = "tests/launcher/test_supervisor_jsonl.py"
FUZZED = (  # how many inputs each test has in a long round, and the tests that make them up
    (12, "tests/doors/http/test_fuzzing.py"),  # for each operation
    (20_000, "tests/doors/graphql/test_fuzz.py"),
    (15_000, "tests/doors/grpc/test_fuzz.py"),
    (8_000, "tests/doors/mcp/test_fuzz.py"),
    # Slower and slower: each looks at what all before have left.
    (600, f"{HOOKS}::test_any_event_is_answered_and_changes_something_whole_or_nothing"),
    (600, f"{HOOKS}::test_kept_events_are_answered_and_change_something_whole_or_nothing"),
    (150, "tests/service/test_histories_mutilated.py"),
    (300, f"{EXPORTS}::test_whatever_stands_in_a_line_is_imported_or_refused_in_our_words"),
    (300, f"{EXPORTS}::test_kept_files_are_imported_or_refused_in_our_words"),
    (20_000, "tests/agents/test_fuzz.py"),
    (4_000, f"{LINES}::test_no_output_of_an_agent_upsets_its_driver"),
    (4_000, f"{LINES}::test_kept_output_of_an_agent_does_not_upset_its_driver"),
)


def short() -> int:
    return rounds.pytest(["tests/fuzz", *(test for _, test in FUZZED)])


def long(seed: int) -> int:
    """Fuzz everything with one seed; return the first exit code that is not 0."""
    for inputs, tests in groupby(FUZZED, key=itemgetter(0)):
        environment = {"MOORAGE_FUZZ": str(inputs), "MOORAGE_SEED": str(seed)}
        if code := rounds.pytest([f"--hypothesis-seed={seed}", *(test for _, test in tests)], environment):
            return code
    return 0


if __name__ == "__main__":
    sys.exit(rounds.main("fuzz", __doc__.splitlines()[0], short, long))
