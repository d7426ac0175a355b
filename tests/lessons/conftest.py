"""The lessons are proven where users stand: on both stores, through the same doors."""

from tests.service.conftest import doors, outside_any_session, place, timed

__all__ = ["doors", "outside_any_session", "place", "timed"]
