"""JSON, the only form anything is stored in.

Every value survives a round trip: no NaN, no lone surrogates, no keys other than text, no unlimited nesting.
Data from a store is trusted to be JSON, but nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import msgspec

from moorage.core.errors import InvalidField, InvalidJson

MAX_DEPTH = 64
MAX_INTEGER = 2**63  # larger numbers differ between stores and languages
NOT_JSON = (msgspec.DecodeError, UnicodeError, RecursionError)  # errors of decoding a text that is no JSON, or too deep

_encoder = msgspec.json.Encoder()


def check_items(values: object, name: str) -> Iterable[Any]:
    """Return a list, or anything else that gives items; a text or an object is refused."""
    if isinstance(values, (str, bytes, dict)) or not isinstance(values, Iterable):
        raise InvalidField(name, "must be a list")
    return values


def check_list(values: object, name: str) -> list[Any]:
    """Return the items as a list."""
    return list(check_items(values, name))


def check_json(value: Any, where: str) -> None:
    """Raise InvalidJson, naming the place, unless `value` is plain JSON."""
    if not _is_plain(value, 0):  # tracking every place on the way would take most of the time
        _blame(value, where, 0)


def _is_plain(value: Any, depth: int) -> bool:
    kind = type(value)
    if kind is str:
        return is_text(value)
    if kind is bool or value is None:
        return True
    if kind is int:
        return bool(-MAX_INTEGER <= value < MAX_INTEGER)
    if kind is float:
        return math.isfinite(value)
    if depth >= MAX_DEPTH:
        return False
    if kind is dict:
        return all(type(key) is str and is_text(key) and _is_plain(item, depth + 1) for key, item in value.items())
    return (kind is list or kind is tuple) and all(_is_plain(item, depth + 1) for item in value)


def _blame(value: Any, where: str, depth: int) -> None:
    """Raise InvalidJson for the first value that is not plain JSON."""
    kind = type(value)
    if kind is str:
        _check_text(value, where)
    elif kind is bool or value is None:
        return
    elif kind is int:
        if not -MAX_INTEGER <= value < MAX_INTEGER:
            raise InvalidJson(where, "the number needs more than 64 bits")
    elif kind is float:
        if not math.isfinite(value):
            raise InvalidJson(where, f"{value} is not a JSON number")
    elif depth >= MAX_DEPTH:
        raise InvalidJson(where, f"nested deeper than {MAX_DEPTH}")
    elif kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise InvalidJson(where, f"the key {key!r} is not text")
            _check_text(key, where)
            _blame(item, f"{where}.{key}", depth + 1)
    elif kind is list or kind is tuple:
        for index, item in enumerate(value):
            _blame(item, f"{where}[{index}]", depth + 1)
    else:
        raise InvalidJson(where, f"a value of type {kind.__name__}")


def is_text(text: str) -> bool:
    """Return whether a text can be written as UTF-8: it has no lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_text(text: str, where: str) -> None:
    if not is_text(text):
        raise InvalidJson(where, "the text is not valid UTF-8")


def encode(value: Any) -> bytes:
    """Encode a value as compact JSON. It has passed `check_json`, or is one of ours."""
    return _encoder.encode(value)


def encode_text(value: Any) -> str:
    """Encode a value as compact JSON text."""
    return _encoder.encode(value).decode()


def as_text(value: Any) -> str:
    """Return a text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else encode_text(value)


def decode(data: bytes | str) -> Any:
    """Decode plain JSON values. Raises msgspec.DecodeError for anything else."""
    return msgspec.json.decode(data)


def canonical(value: Any) -> bytes:
    """Encode a value as JSON with sorted keys, for digests: equal values give equal bytes."""
    return msgspec.json.encode(value, order="sorted")
