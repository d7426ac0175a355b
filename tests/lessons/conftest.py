"""The lessons are proven where users stand: on both stores, through the same doors."""

from tests.service.conftest import nobody_started_us, place, timed

__all__ = ["nobody_started_us", "place", "timed"]
