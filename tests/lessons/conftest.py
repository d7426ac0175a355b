"""The lessons are proven where users stand: on both stores, through the same doors."""

from tests.service.conftest import doors, nobody_started_us, place, timed

__all__ = ["doors", "nobody_started_us", "place", "timed"]
