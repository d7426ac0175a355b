"""Redaction: secrets are not stored in metadata and context.

A string whose key is, as a whole word, the name of a secret is stored as
`[redacted]`; the answer lists the paths, so the caller can see what was removed.
`token_count` is a number and `tokenizer` another word: both are kept.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

REDACTED = "[redacted]"
SECRET_WORDS = (
    "password", "passwd", "passphrase", "pwd", "secret", "secrets", "token", "apikey", "authorization",
    "credential", "credentials", "cookie", "bearer", "private_key", "api_key", "access_key",
)  # fmt: skip

_boundary = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+")


class Redactor:
    """Replaces secret values by `[redacted]`, for one list of secret words."""

    def __init__(self, words: tuple[str, ...] = SECRET_WORDS) -> None:
        self._words = tuple(f"_{'_'.join(_words_of(word))}_" for word in words)
        self.is_secret = lru_cache(4096)(self._is_secret)  # most objects have the same keys

    def clean(self, value: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the value without its secrets, and their paths."""
        paths: list[str] = []
        cleaned = self._clean(value, "", paths)
        return (cleaned, tuple(paths)) if paths else (value, ())

    def _is_secret(self, key: str) -> bool:
        """Return whether a key, as whole words, names a secret: `db_password`, `apiKey`, not `tokenizer`."""
        spelled = f"_{'_'.join(_words_of(key))}_"
        return any(word in spelled for word in self._words)

    def _clean(self, value: Any, path: str, paths: list[str]) -> Any:
        if isinstance(value, dict):
            return {key: self._item(key, item, f"{path}.{key}" if path else key, paths) for key, item in value.items()}
        if isinstance(value, (list, tuple)):  # JSON does not distinguish them
            return [self._clean(item, f"{path}[{index}]", paths) for index, item in enumerate(value)]
        return value

    def _item(self, key: str, item: Any, path: str, paths: list[str]) -> Any:
        if isinstance(item, str) and item and self.is_secret(key):
            if item != REDACTED:
                paths.append(path)
            return REDACTED
        return self._clean(item, path, paths)


def _words_of(key: str) -> list[str]:
    return [word.lower() for word in _boundary.split(key) if word]
