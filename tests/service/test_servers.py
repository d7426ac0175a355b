"""Servers: the first that comes back extends leases by the time in which they could not be renewed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from moorage.core.turn import LOST_AFTER
from moorage.service.inline import drive
from moorage.service.leases import SILENT_AFTER, arrive, living
from moorage.testing.builders import OWNER
from moorage.testing.work import launch, start, taken
from tests.service.doors import Timed


@pytest.fixture
def timed(timed_store: Timed) -> Timed:
    """No door in between: this is what servers do with keys, tokens and each other."""
    return timed_store


@pytest.fixture
def working(timed: Timed) -> Timed:
    """A turn that was started when a server was last there."""
    assert drive(arrive(timed.deps, "one")) == 0
    drive(launch(timed.store, "s-1", "run-1"))
    drive(start(timed.store, drive(taken(timed.store))))
    return timed


def is_overdue(timed: Timed) -> bool:
    return drive(timed.store.overdue(timed.clock.now(), 9)) == [(OWNER, "s-1")]


def test_a_server_that_comes_back_late_helps_all_turns(working: Timed) -> None:
    working.clock.forward(LOST_AFTER + timedelta(seconds=1))
    assert is_overdue(working)

    assert drive(arrive(working.deps, "two")) == 1

    assert not is_overdue(working)
    working.clock.forward(LOST_AFTER - timedelta(seconds=1))
    assert not is_overdue(working)
    working.clock.forward(timedelta(seconds=1))
    assert is_overdue(working)


def test_while_another_serves_a_silent_turn_is_late_all_the_same(working: Timed) -> None:
    for _ in range(LOST_AFTER // SILENT_AFTER):
        working.clock.forward(SILENT_AFTER)
        assert drive(arrive(working.deps, "one")) == 0

    assert drive(arrive(working.deps, "two")) == 0
    assert is_overdue(working)


def test_a_server_that_was_frozen_helps_as_if_it_had_come_back(working: Timed) -> None:
    working.clock.forward(LOST_AFTER + timedelta(hours=1))

    assert drive(arrive(working.deps, "one")) == 1
    assert drive(arrive(working.deps, "one")) == 0
    assert not is_overdue(working)


def test_first_server_extends_leases_of_earlier_launchers(timed: Timed) -> None:
    drive(launch(timed.store, "s-1", "run-1"))
    drive(taken(timed.store))

    assert drive(arrive(timed.deps, "one")) == 1


def test_a_server_that_dies_before_its_beat_leaves_the_help_to_the_next(
    working: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    working.clock.forward(timedelta(hours=1))

    async def dying(*_: object) -> None:
        raise OSError("no more power")

    with monkeypatch.context() as patched:
        patched.setattr(working.store, "put_document", dying)
        with pytest.raises(OSError, match="power"):
            drive(arrive(working.deps, "two"))
    working.clock.forward(timedelta(seconds=1))
    assert drive(arrive(working.deps, "three")) == 1


def test_server_that_died_before_the_clock_was_set_back_does_not_count_as_living(working: Timed) -> None:
    working.clock.step(-timedelta(hours=1))

    assert drive(arrive(working.deps, "two")) == 1
    assert drive(living(working.deps)) == 1
    assert drive(arrive(working.deps, "two")) == 0
    working.clock.forward(LOST_AFTER)
    assert is_overdue(working)
