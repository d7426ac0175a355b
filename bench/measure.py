"""Fair comparison on a machine that is not quiet: interleaved rounds, paired ratios, medians.

Each round lets every entrant do a little, one right after another, and the order changes
every time; a slow minute of the machine so hits all of them. An entrant's figure is the median
over the rounds of its time divided by the floor's in the same round. The floor runs twice under two
names, and the ratio of the two is the noise that any other ratio has to be read against.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

from bench.remote import Failed, Took

FLOOR, FLOOR_AGAIN, OURS = "floor", "floor again", "moorage"
PATIENCE = 2.0  # seconds a round of the floor or of moorage may take
PEER_PATIENCE = 0.3  # a peer's round is cut to this many seconds, though never below one operation


class Rounds(Protocol):
    """Anything that can be timed in rounds."""

    def round(self, operations: int) -> Took: ...

    def check(self) -> str | None: ...


@dataclass
class Entrant:
    """A contender in a measurement: its work, the amount per round, and its times so far."""

    name: str
    rounds: Rounds
    operations: int
    patience: float = PATIENCE
    times: list[float] = field(default_factory=list)  # seconds for one operation, a number for each round
    dropped: str | None = None  # why it has no figure
    problem: str | None = None  # what its figure hides

    def warm_up(self) -> None:
        """Run a little unrecorded, and learn how many operations fit into a round."""
        took = self.rounds.round(max(1, self.operations // 10))
        self.operations = max(1, min(self.operations, int(self.patience / took.each)))

    def run(self) -> None:
        self.times.append(self.rounds.round(self.operations).each)

    def examine(self) -> None:
        self.problem = self.rounds.check()


def race(entrants: list[Entrant], rounds: int) -> None:
    """Let them all run `rounds` times. Who fails is dropped with the reason; the others go on."""
    _all(entrants, Entrant.warm_up)
    for number in range(rounds):
        _all(_order(entrants, number), Entrant.run)
    _all(entrants, Entrant.examine)


def _order(entrants: list[Entrant], number: int) -> list[Entrant]:
    """Start with another one each time, and go backwards every second time: neighbours change."""
    place = number % len(entrants)
    turned = entrants[place:] + entrants[:place]
    return turned[::-1] if number % 2 else turned


def _all(entrants: Iterable[Entrant], step: Callable[[Entrant], None]) -> None:
    for entrant in entrants:
        if entrant.dropped:
            continue
        try:
            step(entrant)
        except Failed as exc:
            entrant.dropped = str(exc)


def ratios(entrant: Entrant, base: Entrant) -> list[float]:
    """The entrant's time over the base's, round by round."""
    return [mine / theirs for mine, theirs in zip(entrant.times, base.times, strict=False)]


def ratio(entrant: Entrant | None, base: Entrant | None) -> float | None:
    """The median of the paired ratios; None when either has no figure."""
    if entrant is None or base is None or entrant.dropped or base.dropped:
        return None
    return median(ratios(entrant, base))


def typical(entrant: Entrant | None) -> float | None:
    """The median seconds for one operation."""
    return median(entrant.times) if entrant and not entrant.dropped else None
