"""Rates: a burst, then a steady rate; several servers part both."""

from __future__ import annotations

import pytest

from moorage.core.errors import RateLimited
from moorage.doors.http import authorizer
from moorage.doors.http.authorizer import Rates


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(authorizer, "monotonic", lambda: now[0])
    return now


def taken(rates: Rates, most: int = 100) -> int:
    """How many requests are let through at once."""
    for count in range(most):
        try:
            rates.take("somebody")
        except RateLimited:
            return count
    return most


def test_a_burst_then_the_rate(clock: list[float]) -> None:
    rates = Rates(2, 10)
    assert taken(rates) == 10
    clock[0] += 3
    assert taken(rates) == 6


def test_servers_share_the_rate_limit_of_a_client(clock: list[float]) -> None:
    servers = [Rates(9, 30) for _ in range(3)]
    for rates in servers:
        rates.share(3)
    assert [taken(rates) for rates in servers] == [10, 10, 10]
    clock[0] += 1
    assert [taken(rates) for rates in servers] == [3, 3, 3]


def test_who_is_left_alone_has_all_of_it(clock: list[float]) -> None:
    rates = Rates(9, 30)
    rates.share(3)
    assert taken(rates) == 10
    rates.share(1)
    clock[0] += 10
    assert taken(rates) == 30


def test_each_of_many_servers_allows_at_least_one_request(clock: list[float]) -> None:
    rates = Rates(1, 2)
    rates.share(50)
    assert taken(rates) == 1
    with pytest.raises(RateLimited) as refused:
        rates.take("somebody")
    assert refused.value.retry_after == pytest.approx(50)
