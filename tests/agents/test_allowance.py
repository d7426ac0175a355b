"""The time an agent has while its machine sleeps."""

from __future__ import annotations

from moorage.agents.allowance import IDLE_TIMEOUT, TIMED_OUT, Allowance


def test_time_stands_still_while_the_machine_sleeps() -> None:
    allowance = Allowance(100, None, 0)
    allowance.slept(7200, 7250)
    assert allowance.is_used_up(7299) is None
    assert allowance.is_used_up(7300) == (TIMED_OUT, "it took longer than 100 seconds")


def test_silence_stands_still_while_the_machine_sleeps() -> None:
    allowance = Allowance(None, 60, 0)
    allowance.slept(7200, 7250)
    assert allowance.is_used_up(7259) is None
    assert allowance.is_used_up(7260) == (IDLE_TIMEOUT, "it was silent for 60 seconds")


def test_agent_heard_after_a_sleep_was_not_heard_in_the_future() -> None:
    allowance = Allowance(None, 60, 0)
    allowance.heard(7250)
    allowance.slept(7200, 7251)
    used_up = allowance.is_used_up(7311)
    assert used_up is not None
    assert used_up[0] == IDLE_TIMEOUT


def test_sleep_during_a_wait_counts_once() -> None:
    allowance = Allowance(100, None, 0)
    allowance.wait_for("approval", 10)
    allowance.slept(7200, 7250)
    allowance.go_on("approval", 7300)
    assert allowance.is_used_up(7389) is None
    used_up = allowance.is_used_up(7390)
    assert used_up is not None
    assert used_up[0] == TIMED_OUT
