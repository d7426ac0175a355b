"""JSON as hosts write it: valid, but with half characters where a long text was cut.

Half a character (a lone surrogate) cannot be stored. It is replaced by the replacement character, so that the text
around it is kept.
"""

from __future__ import annotations

from typing import Any

import msgspec


def decoded(data: bytes, kind: Any = Any) -> Any:
    """Return the value. Raises msgspec.DecodeError for invalid JSON or another type."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if b"\\u" not in data:
            raise
        return msgspec.json.decode(_with_whole_letters(data), type=kind)


def _with_whole_letters(data: bytes) -> bytes:
    """Return the same JSON without lone surrogates; the standard library can decode them."""
    import json

    try:
        text = json.dumps(json.loads(data), ensure_ascii=False)
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from None
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
