#!/usr/bin/env python3
"""A gate of mutants: take one safeguard out of a copy of the sources; the tests named beside it must fail.

    python scripts/mutants.py              all of them
    python scripts/mutants.py NAME …       some of them
    python scripts/mutants.py --list       their names

Exits 0 if every mutant was caught, 1 if one survived, 2 if the gate itself is out of date: the text to
replace is not there exactly once, or the tests fail on unchanged sources too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
LONGEST = 180  # seconds for the tests of one mutant


class OutOfDate(Exception):
    """The gate no longer fits the sources or the tests."""


class Mutant(NamedTuple):
    """One safeguard taken out."""

    name: str
    file: str
    text: str
    becomes: str
    tests: tuple[str, ...]


SQLITE = "holdfast/stores/sqlite"
FAULTS, SERVICE, CORE = "tests/faults", "tests/service", "tests/core"

MUTANTS = (
    Mutant(
        "foreign keys",
        f"{SQLITE}/connection.py",
        '("foreign_keys", "ON", 1)',
        '("foreign_keys", "OFF", 0)',
        (f"{FAULTS}/test_statements.py::test_references_are_enforced_by_the_database",),
    ),
    Mutant(
        "immediate",
        f"{SQLITE}/connection.py",
        'self.execute("BEGIN IMMEDIATE")',
        'self.execute("BEGIN")',
        (f"{FAULTS}/test_statements.py::test_two_that_read_and_then_write_do_not_stumble_over_each_other",),
    ),
    Mutant(
        "version check",
        f"{SQLITE}/heads.py",
        "if expected is not None and session.version != expected:",
        "if False:",
        (f"{SERVICE}/test_life.py::test_a_version_from_yesterday_is_refused_and_nothing_of_its_change_kept[sqlite]",),
    ),
    Mutant(
        "busy handler",
        f"{SQLITE}/connection.py",
        "raw.set_busy_handler(_Patience(patience))",
        "pass",
        (f"{FAULTS}/test_processes.py::test_a_writer_that_dies_with_the_lock_holds_up_nobody",),
    ),
    Mutant(
        "synchronous",
        f"{SQLITE}/connection.py",
        '("synchronous", "FULL", 2)',
        '("synchronous", "OFF", 0)',
        (f"{FAULTS}/test_statements.py::test_a_connection_is_durable_checks_references_and_waits",),
    ),
    Mutant(
        "client key",
        f"{SQLITE}/log.py",
        "seen = _seen(db, pk, session_id, task, messages)",
        "seen: dict[str | None, Entry] = {}",
        (f"{SERVICE}/test_conversation.py::test_a_repeated_send_with_its_key_is_harmless[sqlite]",),
    ),
    Mutant(
        "hold check on append",
        f"{SQLITE}/log.py",
        "if token is not None and token != hold_token:",
        "if False:",
        (f"{SERVICE}/test_holds.py::test_a_wrong_token_is_refused_and_changes_nothing[sqlite-append]",),
    ),
    Mutant(
        "hold check on changes",
        "holdfast/core/session.py",
        "if self.hold is None or self.hold.token != token:",
        "if self.hold is None:",
        (f"{SERVICE}/test_holds.py::test_a_wrong_token_is_refused_and_changes_nothing[sqlite-update]",),
    ),
    Mutant(
        "one resumer wins",
        "holdfast/core/session.py",
        "if self.hold.holder != holder:",
        "if False:",
        (f"{SERVICE}/test_holds.py::test_another_is_told_who_holds_it_and_until_when[sqlite]",),
    ),
    Mutant(
        "final state on append",
        f"{SQLITE}/log.py",
        "if state in FINAL_STATES:",
        "if False:",
        (
            f"{SERVICE}/test_life.py::"
            "test_a_final_session_takes_nothing_but_reading_exporting_forking_and_deleting[sqlite-completed]",
        ),
    ),
    Mutant(
        "owner of the feed",
        f"{SQLITE}/log.py",
        "FROM (SELECT * FROM feed WHERE id > ?1 AND id < ?2 ORDER BY id LIMIT ?3)",
        "FROM (SELECT * FROM feed WHERE id > ?1 AND id < ?2 + (1 << 50) ORDER BY id LIMIT ?3)",
        (f"{SERVICE}/test_events.py::test_one_owners_stream_carries_nobody_elses_events[sqlite]",),
    ),
    Mutant(
        "what forks need",
        f"{SQLITE}/family.py",
        "coalesce((SELECT max(upto) FROM lineage WHERE segment = gone.value), 0)",
        "0",
        (f"{SERVICE}/test_forks.py::test_deleting_the_source_keeps_what_forks_still_need[sqlite-order0]",),
    ),
    Mutant(
        "rollback of half a change",
        f"{SQLITE}/access.py",
        "                self._db.rollback()\n                return False\n",
        "                return True\n",
        (f"{FAULTS}/test_groups.py::test_a_change_that_fails_midway_takes_no_neighbour_with_it_and_leaves_nothing[2]",),
    ),
    Mutant(
        "neighbours of a failure",
        f"{SQLITE}/access.py",
        "return self._run_apart(done), go_on",
        "return done, go_on",
        (f"{FAULTS}/test_groups.py::test_a_change_that_fails_midway_takes_no_neighbour_with_it_and_leaves_nothing[2]",),
    ),
    Mutant(
        "answers of a dying writer",
        f"{SQLITE}/access.py",
        "            _settle(self._in_hand)\n",
        "",
        (f"{FAULTS}/test_groups.py::test_a_writer_that_dies_after_its_commit_leaves_nobody_waiting",),
    ),
    Mutant(
        "redaction",
        "holdfast/core/redact.py",
        "            return REDACTED\n",
        "            return item\n",
        (f"{SERVICE}/test_secrets.py::test_metadata_keeps_no_secret_and_the_answer_lists_the_paths[sqlite]",),
    ),
    Mutant(
        "another program's database",
        f"{SQLITE}/connection.py",
        "            check_ours(raw, path)\n            if raw.pragma",
        "            if raw.pragma",
        (f"{FAULTS}/test_files.py::test_another_programs_database_is_refused_and_left_as_it_is[delete-0]",),
    ),
    Mutant(
        "a file cut to nothing",
        f"{SQLITE}/connection.py",
        "        _check_fresh(path)\n",
        "        pass\n",
        (f"{FAULTS}/test_files.py::test_a_file_truncated_to_nothing_while_its_log_has_content_is_refused",),
    ),
    Mutant(
        "locks of our own",
        f"{SQLITE}/connection.py",
        "    if os.path.isdir(path):\n",
        "    with suppress(OSError), open(path, 'rb'):\n        pass\n    if os.path.isdir(path):\n",
        (f"{FAULTS}/test_processes.py::test_another_program_that_opens_and_closes_the_file_takes_nothing_away",),
    ),
    Mutant(
        "pairs in a window",
        "holdfast/core/window.py",
        "        if self._open_results:\n            return\n",
        "",
        (f"{CORE}/test_window.py::test_pages_that_end_between_a_call_and_its_result_make_no_difference",),
    ),
)


def main(arguments: list[str]) -> int:
    """Run the gate; the exit code."""
    if arguments == ["--list"]:
        print("\n".join(mutant.name for mutant in MUTANTS))
        return 0
    try:
        survivors = run(chosen(arguments), sys.stdout.write)
    except OutOfDate as error:
        print(f"the gate is out of date: {error}", file=sys.stderr)
        return 2
    return 1 if survivors else 0


def chosen(names: Iterable[str]) -> list[Mutant]:
    """The mutants of these names, or all."""
    wanted = list(names)
    known = {mutant.name: mutant for mutant in MUTANTS}
    if unknown := [name for name in wanted if name not in known]:
        raise OutOfDate(f"there is no mutant {', '.join(unknown)}")
    return [known[name] for name in wanted] or list(MUTANTS)


def run(mutants: list[Mutant], say: object = None) -> list[str]:
    """Names of the mutants that no test caught. Raises OutOfDate."""
    tell = say if callable(say) else lambda _: None
    with copied_sources() as sources:
        for mutant in mutants:
            mutated(mutant, (sources / mutant.file).read_text(encoding="utf-8"))  # all of them, before any test runs
        check_tests_pass(sources, sorted({test for mutant in mutants for test in mutant.tests}))
        survivors = []
        for mutant in mutants:
            began = time.monotonic()
            caught = is_caught(sources, mutant)
            tell(f"{'caught' if caught else 'SURVIVED':9} {time.monotonic() - began:5.1f} s  {mutant.name}\n")
            if not caught:
                survivors.append(mutant.name)
    return survivors


@contextmanager
def copied_sources() -> Iterator[Path]:
    """A copy of the package that may be broken."""
    with tempfile.TemporaryDirectory(prefix="holdfast-mutants-") as folder:
        sources = Path(folder) / "src"
        shutil.copytree(ROOT / "src", sources, ignore=shutil.ignore_patterns("__pycache__"))
        found = subprocess.run(
            [sys.executable, "-c", "import holdfast; print(holdfast.__file__)"],
            env=environment(sources),
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        if not Path(found).is_relative_to(sources):
            raise OutOfDate(f"tests would import {found}, not the copy")
        yield sources


def environment(sources: Path) -> dict[str, str]:
    """The copy goes before whatever is installed."""
    return {**os.environ, "PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1"}


def mutated(mutant: Mutant, source: str) -> str:
    """The source without the safeguard."""
    if (count := source.count(mutant.text)) != 1:
        raise OutOfDate(f"{mutant.name}: {mutant.file} has {count} times {mutant.text!r}, not once")
    return source.replace(mutant.text, mutant.becomes)


def check_tests_pass(sources: Path, tests: list[str]) -> None:
    """A test that fails anyway catches nothing."""
    done = pytest(sources, tests)
    if done.returncode != 0:
        raise OutOfDate(f"tests fail on unchanged sources:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")


def is_caught(sources: Path, mutant: Mutant) -> bool:
    """Whether a test fails on the mutant, which is taken back afterwards."""
    file = sources / mutant.file
    original = file.read_text(encoding="utf-8")
    file.write_text(mutated(mutant, original), encoding="utf-8")
    try:
        done = pytest(sources, list(mutant.tests))
    except subprocess.TimeoutExpired:
        return True  # it hangs, and a test that hangs fails
    finally:
        file.write_text(original, encoding="utf-8")
    if done.returncode not in (0, 1):  # 1: tests failed; anything else: they were not even run
        raise OutOfDate(f"{mutant.name}: pytest gave {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
    return done.returncode == 1


def pytest(sources: Path, tests: list[str]) -> subprocess.CompletedProcess[str]:
    """Run some tests against the copy."""
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout", "60", "--no-header"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=ROOT,
        env=environment(sources),
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
