"""`./dev soak` works, ends by itself and on Ctrl-C, and notices what grows."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.soak import BOUNDS, Values, judge, p99, p99_of

ROOT = Path(__file__).parents[1]
STEADY: Values = {
    **{f"{name} {what}": 40.0 for name in ("server", "launcher") for what in ("memory", "descriptors", "threads")},
    "WAL": 4.0,
    "commit p99": 12.0,
    "claim p99": 30.0,
}


def grown(samples: list[Values]) -> list[str]:
    return [row.name for row in judge(samples) if not row.is_flat]


def test_steady_samples_are_flat() -> None:
    noisy = [{name: value + number % 3 for name, value in STEADY.items()} for number in range(60)]
    assert [row.name for row in judge(noisy)] == list(BOUNDS)
    assert grown(noisy) == []


@pytest.mark.parametrize("leaking", list(BOUNDS))
def test_each_leak_is_noticed(leaking: str) -> None:
    samples = [{**STEADY, leaking: STEADY[leaking] * (1 + number)} for number in range(60)]
    assert grown(samples) == [leaking]


@pytest.mark.parametrize("leaking", list(BOUNDS))
def test_growth_is_a_leak_from_its_bound_on(leaking: str) -> None:
    [most] = [row.most for row in judge([STEADY] * 60) if row.name == leaking]
    assert grown([STEADY] * 36 + [{**STEADY, leaking: most}] * 24) == []
    assert grown([STEADY] * 36 + [{**STEADY, leaking: most + 0.1}] * 24) == [leaking]


def test_growth_during_warm_up_is_no_leak() -> None:
    samples = [{**STEADY, "server memory": min(40.0, 4.0 * number)} for number in range(60)]
    assert grown(samples) == []


def test_single_peak_is_no_leak() -> None:
    samples = [{**STEADY, "commit p99": 5000.0 if number == 55 else 12.0} for number in range(60)]
    assert grown(samples) == []


def test_values_that_no_sample_has_get_no_row() -> None:
    assert [row.name for row in judge([{"WAL": 4.0}] * 60)] == ["WAL"]


def test_p99_is_that_of_what_happened_between_two_readings() -> None:
    before = {0.01: 1000.0, 0.1: 1000.0, math.inf: 1000.0}
    assert p99_of(before, before) is None
    assert p99_of(before, {0.01: 1000.0, 0.1: 1100.0, math.inf: 1100.0}) == pytest.approx(0.0991)
    assert p99_of(before, {0.01: 1000.0, 0.1: 1000.0, math.inf: 1100.0}) == 0.1
    assert p99([*range(1, 101)]) == 99


def soak(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "scripts/soak.py", "--seed", "7", *arguments]
    environment = os.environ | {"TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment)


def processes_of(folder: Path) -> list[str]:
    """Return the command lines that name the folder."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:  # it has just ended
            continue
    return [line for line in lines if str(folder) in line]


@pytest.mark.timeout(180)
def test_short_soak_measures_everything_and_cleans_up(tmp_path: Path) -> None:
    with soak(tmp_path, "--minutes", "0.08") as running:
        said = running.communicate()[0]
    assert running.returncode == 0, said
    assert "seed 7" in said
    assert "0 failed" in said
    for name in BOUNDS:
        assert re.search(rf"^{name} +[\d.]+", said, re.MULTILINE), said
    assert list(tmp_path.iterdir()) == []
    assert processes_of(tmp_path) == []


@pytest.mark.timeout(180)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_soak_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    with soak(tmp_path, "--minutes", "60") as running:
        assert running.stdout is not None
        while "at work" not in (line := running.stdout.readline()):
            assert line, "it ended before it began"
        running.send_signal(number)
        said = running.communicate()[0]
    assert running.returncode == 128 + signal.SIGINT, said
    assert "interrupted" in said
    assert list(tmp_path.iterdir()) == []
    assert processes_of(tmp_path) == []
