"""Documents: small values by kind and key, written by decisions."""

from __future__ import annotations

import asyncio

import pytest

from moorage.core.document import Document
from moorage.ports import DocumentDecision, Store
from moorage.testing.builders import *


def a_document(key: str = "k", body: str = '"v"', **fields: object) -> Document:
    """Return a document of the kind `kind`."""
    return Document("kind", key, body, **fields)  # type: ignore[arg-type]


async def put(store: Store, *documents: Document) -> None:
    """Write documents, whatever their previous values were."""
    for each in documents:
        await store.put_document(each.kind, each.key, becomes(each))


def becomes(new: Document | None) -> DocumentDecision:
    """Return a decision that ignores the previous value."""
    return lambda _: new


class DocumentRules:
    """Rules of `document`, `documents` and `put_document`."""

    async def test_document_is_stored_whole(self, store: Store) -> None:
        plain, ends = a_document("é a:1", '{"a":"\\u0000é"}'), a_document("b", "[1.5]", expires_at=after(1))
        await put(store, plain, ends)

        assert [await store.document("kind", key) for key in ("é a:1", "b")] == [plain, ends]
        for kind, key in (("kind", "B"), ("kind", "b "), ("other", "b"), ("", "")):
            assert await store.document(kind, key) is None

    async def test_documents_come_in_the_order_of_their_keys(self, store: Store) -> None:
        await put(store, *(a_document(key) for key in ("b", "a-2", "B", "é", "a")), Document("other", "c", "1"))

        assert [each.key for each in await store.documents("kind")] == ["B", "a", "a-2", "b", "é"]
        assert [each.key for each in await store.documents("kind", after="a", limit=2)] == ["a-2", "b"]
        assert await store.documents("nothing") == []

    async def test_decision_sees_the_document_and_replaces_it(self, store: Store) -> None:
        seen: list[Document | None] = []

        def counted(known: Document | None) -> Document:
            seen.append(known)
            return a_document(body="1" if known is None else str(int(known.body) + 1), expires_at=after(len(seen)))

        first = await store.put_document("kind", "k", counted)
        second = await store.put_document("kind", "k", counted)
        assert (seen, second) == ([None, first], a_document(body="2", expires_at=after(2)))
        assert await store.document("kind", "k") == second

    async def test_none_deletes_a_document(self, store: Store) -> None:
        await put(store, a_document())
        for _ in range(2):
            assert await store.put_document("kind", "k", becomes(None)) is None
            assert await store.document("kind", "k") is None

    async def test_decision_that_changes_nothing_writes_nothing(self, store: Store) -> None:
        await put(store, a_document())
        async with nothing_changes(store):
            assert await store.put_document("kind", "k", lambda known: known) == a_document()

    async def test_decision_that_raises_leaves_the_document(self, store: Store) -> None:
        def refuse(known: Document | None) -> Document | None:
            raise LookupError(known)

        await put(store, a_document())
        with pytest.raises(LookupError):
            await store.put_document("kind", "k", refuse)
        assert await store.document("kind", "k") == a_document()

    async def test_concurrent_decisions_all_count(self, store: Store) -> None:
        def counted(known: Document | None) -> Document:
            return a_document(body=str(int(known.body) + 1 if known else 1))

        await asyncio.gather(*(store.put_document("kind", "k", counted) for _ in range(20)))
        assert await store.document("kind", "k") == a_document(body="20")

    async def test_purge_deletes_expired_documents_some_at_a_time(self, store: Store) -> None:
        await put(store, *(a_document(f"k{n}", expires_at=after(n)) for n in range(5)), a_document("stays"))

        assert [await store.purge(after(3), 3) for _ in range(3)] == [3, 1, 0]
        assert [each.key for each in await store.documents("kind")] == ["k4", "stays"]

    async def test_renewed_document_is_not_purged(self, store: Store) -> None:
        await put(store, a_document(expires_at=NOON), a_document(expires_at=after(9)))

        assert await store.purge(after(5), 9) == 0
        await put(store, a_document())
        assert await store.purge(after(99), 9) == 0
