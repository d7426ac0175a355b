"""Documents of one kind, as the values they hold."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Generic, TypeVar

from msgspec import DecodeError
from msgspec.json import Decoder

from moorage.core.codec import encode_text
from moorage.core.document import Document, DocumentKind
from moorage.core.errors import InvalidField, StoreCorrupt
from moorage.ports import Documents

T = TypeVar("T")

PAGE = 1000  # documents read at once


class Collection(Generic[T]):
    """All documents of a kind, read and written as values of one type."""

    def __init__(self, kind: DocumentKind, type_: type[T]) -> None:
        self._kind, self._decode = kind, Decoder(type_).decode

    async def get(self, store: Documents, key: str) -> T | None:
        """Return one value, or None."""
        return self._value(await store.document(self._kind, key) if _is_key(key) else None)

    async def all(self, store: Documents) -> list[T]:
        """Return every value, in the order of their keys."""
        found = page = await store.documents(self._kind, limit=PAGE)
        while len(page) == PAGE:
            page = await store.documents(self._kind, after=page[-1].key, limit=PAGE)
            found = found + page
        return [self._decoded(each) for each in found]

    async def put(
        self, store: Documents, key: str, decide: Callable[[T | None], T | None], *, expires_at: datetime | None = None
    ) -> T | None:
        """Write what `decide` makes of the present value, in one commit; None deletes it. Return the new value."""

        def decided(known: Document | None) -> Document | None:
            value = decide(self._value(known))
            return None if value is None else Document(self._kind, key, encode_text(value), expires_at)

        if not _is_key(key):
            if decided(None) is not None:
                raise InvalidField("key", f"is {key!r}; use other characters")
            return None
        return self._value(await store.put_document(self._kind, key, decided))

    def _value(self, found: Document | None) -> T | None:
        return None if found is None else self._decoded(found)

    def _decoded(self, found: Document) -> T:
        try:
            return self._decode(found.body)
        except DecodeError as error:
            raise StoreCorrupt("the store", f"{self._kind} {found.key}: {error}") from error


def _is_key(text: str) -> bool:
    """Return whether every store can look up this key."""
    return text.isprintable() and text != ""
