"""Usage: what counts as tokens, and how they are summed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.core.run import MOST_TOKENS, NAMES, added, count_of, summed, usage_of

told = st.dictionaries(
    st.sampled_from([*NAMES, "model"]),
    st.one_of(st.integers(), st.floats(), st.booleans(), st.none(), st.text(max_size=3)),
)


@pytest.mark.parametrize("value", [None, True, "12", [1], {}, -1, MOST_TOKENS + 1, float("nan"), float("inf")])
def test_invalid_token_counts_are_ignored(value: Any) -> None:
    assert count_of(value) is None


def test_a_total_that_is_not_told_is_the_sum_of_the_rest() -> None:
    assert usage_of({"input_tokens": 3, "output_tokens": 4}) == {
        "input_tokens": 3,
        "output_tokens": 4,
        "total_tokens": 7,
    }
    assert usage_of({"input_tokens": 3, "total_tokens": 9, "used": 5}) == {"input_tokens": 3, "total_tokens": 9}
    assert usage_of({"used": 5, "size": 10}) == {}


def test_other_metadata_is_kept() -> None:
    kept = {"model": "small", "input_tokens": "many", "output_tokens": 1}
    assert added(kept, {"input_tokens": 2, "total_tokens": 2}) == {
        "model": "small",
        "input_tokens": 2,
        "output_tokens": 1,
        "total_tokens": 3,
    }


@given(told, told)
def test_a_sum_is_a_usage_again_and_loses_nothing(one: dict[str, Any], other: dict[str, Any]) -> None:
    both = summed(usage_of(one), usage_of(other))
    assert both == summed(usage_of(other), usage_of(one))
    assert all(count_of(count) is not None for count in both.values())
    assert both.keys() == usage_of(one).keys() | usage_of(other).keys()
