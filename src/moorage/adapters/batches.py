"""Lists that only grow, stored as records: each append writes its items as batches, in one commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, TypeVar

from moorage.adapters.payload import form_of, packed, unpacked
from moorage.api import Moorage
from moorage.core.record import Append, Record

BATCH = 100  # items of one record: removing the last one rewrites the others
NEWEST, FIRST_PAGE, PAGE = 2, 100, 1000  # records read at once: a small page is faster

T = TypeVar("T")
Items = list[Any]
Decode = Callable[[Record], Items]  # the items of one batch


def in_batches(items: Sequence[T], size: int = BATCH) -> list[Sequence[T]]:
    """Return items in pieces of at most this size."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def appended(namespace: str, prefix: str, items: Items, where: str) -> list[Append]:
    """Return the writes that append items. Raises InvalidJson, naming the place, if one is no JSON."""
    batches = [packed(batch, where) for batch in in_batches(items)]
    return [Append(namespace=namespace, prefix=prefix, value=data, form=form_of(data)) for data in batches]


def items_of(record: Record) -> Items:
    """Return the items of a batch."""
    items: Items = unpacked(record.value)
    return items


async def read_all(
    moor: Moorage, ref: str, namespace: str, prefix: str, decode: Decode = items_of
) -> tuple[Items, int]:
    """Return all items, oldest first, and the number of pages read."""
    items: Items = []
    after, pages = None, 0
    while True:
        limit = FIRST_PAGE if pages == 0 else PAGE
        page = await moor.records.list(ref, namespace, prefix=prefix, after=after, limit=limit)
        items += chain.from_iterable(decode(record) for record in page.items)
        after, pages = page.next, pages + 1
        if after is None:
            return items, pages


async def read_last(
    moor: Moorage, ref: str, namespace: str, prefix: str, most: int, decode: Decode = items_of
) -> Items:
    """Return the latest items, oldest first, at most so many."""
    batches: list[Items] = []
    after, count = None, 0
    while count < most:
        # The newest batches tell how large they are: one of 100 items fills several pages of a database.
        limit = -(-(most - count) * len(batches) // count) if count else NEWEST
        page = await moor.records.list(
            ref, namespace, prefix=prefix, after=after, limit=min(limit, PAGE), descending=True
        )
        for record in page.items:
            if count < most:
                batches.append(decode(record))
                count += len(batches[-1])
        if (after := page.next) is None:
            break
    return list(chain.from_iterable(reversed(batches)))[-most:] if most > 0 else []
