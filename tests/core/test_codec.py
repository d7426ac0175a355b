"""JSON, in and out the same, and nothing that JSON cannot carry."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.core.codec import MAX_DEPTH, canonical, check_json, decode, encode, encode_text
from moorage.core.errors import InvalidJson
from moorage.core.session import State
from moorage.testing.texts import DEEP, TEXTS

# Text without lone surrogates, numbers of 64 bits, finite floats: what JSON carries everywhere.
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
json_values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@given(json_values)
def test_values_survive_a_round_trip(value: Any) -> None:
    check_json(value, "value")
    assert decode(encode(value)) == value
    assert encode_text(value).encode() == encode(value)


@pytest.mark.parametrize("text", TEXTS)
def test_difficult_texts_come_out_the_same(text: str) -> None:
    check_json({text: text}, "value")
    assert decode(encode({text: text})) == {text: text}


def test_deep_values_come_out_the_same() -> None:
    check_json(DEEP, "value")
    assert decode(encode(DEEP)) == DEEP


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (math.nan, "nan is not a JSON number"),
        (math.inf, "inf is not a JSON number"),
        (-math.inf, "-inf is not a JSON number"),
        ("\ud800", "not valid UTF-8"),
        ("tail \udfff", "not valid UTF-8"),
        (2**63, "more than 64 bits"),
        (-(2**63) - 1, "more than 64 bits"),
        (10**400, "more than 64 bits"),
        ({1: "a"}, "the key 1 is not text"),
        ({None: "a"}, "the key None is not text"),
        ({"\udc80": 1}, "not valid UTF-8"),
        (b"bytes", "type bytes"),
        ({1, 2}, "type set"),
        (Decimal("1.5"), "type Decimal"),
        (datetime(2026, 1, 1, tzinfo=UTC), "type datetime"),
        (object(), "type object"),
        (State.ACTIVE, "type State"),
        (1j, "type complex"),
    ],
)
def test_values_outside_json_are_refused_with_their_path(value: Any, why: str) -> None:
    for wrapped, place in ((value, "metadata"), ({"a": [0, value]}, "metadata.a[1]")):
        with pytest.raises(InvalidJson) as refused:
            check_json(wrapped, "metadata")
        assert refused.value.code == "invalid_json"
        assert why in refused.value.message
        assert refused.value.facts == {"field": place}


def nested(depth: int, kind: str) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind == "list" else {"k": value}
    return value


@pytest.mark.parametrize("kind", ["list", "object"])
def test_nesting_has_a_bottom(kind: str) -> None:
    check_json(nested(MAX_DEPTH, kind), "value")
    with pytest.raises(InvalidJson, match="nested deeper than 64"):
        check_json(nested(MAX_DEPTH + 1, kind), "value")
    with pytest.raises(InvalidJson, match="nested deeper than 64"):
        check_json(nested(5000, kind), "value")


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidJson, match="nested deeper"):
        check_json(loop, "value")


@given(st.dictionaries(st.text(), scalars, min_size=2))
def test_equal_values_have_equal_canonical_bytes(value: dict[str, Any]) -> None:
    backwards = dict(reversed(value.items()))
    assert canonical(value) == canonical(backwards)
    assert decode(canonical(value)) == value


@pytest.mark.parametrize("data", [b"", b"{", b"nul", b"[1,]", b"{'a': 1}", b"\xff", b'"\xed\xa0\x80"', b"NaN", b"1 2"])
def test_invalid_json_is_not_decoded(data: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeError)):
        decode(data)


def test_nothing_but_plain_values_comes_out() -> None:
    assert type(decode(b'{"__class__": "os.system", "!python/object": [1]}')) is dict
