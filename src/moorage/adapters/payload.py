"""Payloads: convert a framework's JSON values to bytes and back, exactly.

Our own codec converts a set to a list and NaN to null, and refuses integers of more than 64 bits. A framework must get
back exactly what it stored, or an error at once.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from moorage.core.errors import InvalidJson
from moorage.core.record import BYTES, JSON


def packed(value: Any, where: str) -> bytes:
    """Return a value as JSON. Raises InvalidJson, naming the place, if it is none."""
    try:
        return _encoder.encode(value).encode()
    except UnicodeEncodeError:  # a lone surrogate, for which JSON has an escape
        return _ascii_encoder.encode(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidJson(where, str(error)) from error


def unpacked(data: bytes) -> Any:
    """Return the value that was packed."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(data)


def form_of(data: bytes) -> str:
    """Return the form of a record for packed data: JSON if every reader accepts it as JSON."""
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return BYTES
    return JSON


def json_or_text(text: Any) -> Any:
    """Return the JSON value in a text, or the argument itself if it is no JSON text."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, TypeError):
        return text


_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_ascii_encoder = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
