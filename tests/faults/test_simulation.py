"""Simulated worlds of the run protocol: 100,000 steps with every test run, and the simulation's own promises."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain

import pytest

from moorage.core import work
from moorage.core.errors import TurnLost
from moorage.core.session import View
from moorage.core.turn import Turn
from moorage.testing.simulation import machines, simulate

STEPS = 25_000  # of each of four parts
COMMAND = [sys.executable, "-m", "moorage.testing.simulation"]


pytestmark = pytest.mark.timeout(600)  # a few seconds each, on a machine that does nothing else


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Launchers say much of what they survive."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("part", range(4))
def test_everything_asked_for_ends_once_whatever_gets_lost(part: int) -> None:
    seed, steps = 1 + 1000 * part, 0
    while steps < STEPS:
        outcome = simulate(seed)
        assert outcome.problems == [], f"python -m moorage.testing.simulation --seed {seed}"
        steps, seed = steps + outcome.steps, seed + 1


def test_seed_is_one_world_in_every_process() -> None:
    told = [
        subprocess.run(
            [*COMMAND, "--first-seed", "5", "--steps", "1"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=100,
        ).stdout.splitlines()[0]
        for seed in ("1", "2")
    ]
    assert told[0] == told[1]
    assert told[0].startswith("seed 5: ok")


def without_epochs(view: View, turn_id: str, epoch: int) -> Turn:
    if view.work.running is None:
        raise TurnLost(turn_id, epoch)
    return view.work.running


BROKEN = {
    "supervisors never give up": (machines, "patience", lambda _: 1e9),
    "late reports are taken": (work, "_fenced", without_epochs),
}


@pytest.mark.parametrize("name", BROKEN)
def test_world_without_a_safeguard_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, function, instead = BROKEN[name]
    monkeypatch.setattr(module, function, instead)
    seeds = chain((26, 22), range(1, 60))  # the first showed it; a change of the code may move it to another
    problems = chain.from_iterable(simulate(seed).problems for seed in seeds)
    assert any("two agents are at work" in problem for problem in problems)
