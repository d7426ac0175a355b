"""JSON as hosts write it: well formed, but with halves of letters where a long text was cut.

Such a half (a lone surrogate) cannot be stored; it is replaced by the sign for a broken letter,
rather than losing all that stands around it.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


def decoded(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    """The value; raises msgspec.DecodeError for what is no JSON, or not of that type."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if b"\\u" not in data:
            raise
        return decoder.decode(_with_whole_letters(data))


def _with_whole_letters(data: bytes) -> bytes:
    """The same JSON; the standard library reads values that cannot be stored."""
    import json

    try:
        text = json.dumps(json.loads(data), ensure_ascii=False)
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from None
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
