"""Simulate worlds until so many steps were taken; print the seed of each that fails."""

from __future__ import annotations

import argparse
import logging
import sys
import time

from moorage.testing.simulation.world import STEPS, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m moorage.testing.simulation", description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000, help="messages in all worlds together")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--seed", type=int, help="simulate this world alone and tell what happens in it")
    given = parser.parse_args()
    if given.seed is not None:
        logging.basicConfig(level=logging.DEBUG, format="%(message)s", stream=sys.stderr)
        for noisy in ("asyncio", "moorage.launcher", "moorage.service"):
            logging.getLogger(noisy).setLevel(logging.CRITICAL)
        return report(given.seed, STEPS)[1]
    return campaign(given.first_seed, given.steps)


def campaign(seed: int, wanted: int) -> int:
    """Simulate world after world; return the exit code."""
    logging.disable(logging.CRITICAL)
    began, steps, failed = time.monotonic(), 0, list[int]()
    while steps < wanted:
        taken, code = report(seed, STEPS)
        steps += taken
        if code:
            failed.append(seed)
        seed += 1
    print(f"{steps} steps in {time.monotonic() - began:.1f} s; seeds that failed: {failed or 'none'}")
    return 1 if failed else 0


def report(seed: int, steps: int) -> tuple[int, int]:
    """Simulate one world and print its outcome; return its steps and the exit code."""
    outcome = simulate(seed, steps)
    verdict = "ok" if not outcome.problems else "FAILED"
    told = f"{outcome.steps} steps, {outcome.runs} runs, {outcome.faults} faults, {outcome.digest[:12]}"
    print(f"seed {seed}: {verdict} ({told})", *outcome.problems[:10], sep="\n  ", flush=True)
    return outcome.steps, int(bool(outcome.problems))


if __name__ == "__main__":
    sys.exit(main())
