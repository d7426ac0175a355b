"""Copying a whole store into another one, unchanged, so that its users can continue there.

Records are copied kind by kind, some in each commit, with a mark of the progress. The mark is part of the commit, so
an interrupted copy continues where it stopped, and nothing is copied twice. At the end both stores are read again and
compared, by counts and by digests that do not depend on order. Reading does not change the source; the comparison
detects a concurrent writer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from functools import partial
from hashlib import sha256
from itertools import pairwise

from msgspec import Struct
from msgspec.json import Decoder

from moorage.core.codec import encode_text
from moorage.core.document import LOAD_MARK, DocumentKind
from moorage.core.dump import DumpKind, DumpRecord, parts
from moorage.core.errors import CopyDiffers, StoreInUse, StoreNotEmpty
from moorage.core.query import SessionQuery, each_item, each_page
from moorage.ports import Store
from moorage.service.leases import count_live, heartbeats

CHUNK = 200  # records in one commit
SHOWN = 5  # sessions named in a refusal
_DIGEST_BITS = 256

CopyProgress = Callable[[str, str, int], None]  # the step, the kind of records, and how many are done


class CopyMark(Struct, frozen=True):
    """The progress of a copy."""

    source: str
    kind: DumpKind | None  # None: everything is copied, but not compared yet
    cursor: str | None = None  # None: at the beginning of this kind


class Copied(Struct, frozen=True):
    """Counts and a digest of the content of both stores."""

    counts: dict[str, int]
    digest: str
    went_on: bool  # whether an interrupted copy was completed


async def copy_store(
    source: Store, target: Store, name: str, at: datetime, *, force: bool = False, progress: CopyProgress | None = None
) -> Copied:
    """Copy everything. `name` identifies the source, so that a copy of another source cannot continue.

    Raises:
        StoreInUse: a server uses the source, or turns run; with `force` they are copied as they are.
        StoreNotEmpty: the target has content that is not the beginning of this copy.
        CopyDiffers: the stores differ at the end.
    """
    tell = progress or (lambda *_: None)
    if not force:
        await _check_unused(source, at)
    begun = await _begun(target, name)
    await _copy(source, target, begun or CopyMark(name, DumpKind.TOMBSTONE), tell)
    counts, digest = await _compared(source, target, tell)
    await target.load([], None)
    return Copied(counts, digest, begun is not None)


async def _check_unused(source: Store, at: datetime) -> None:
    if count_live(await heartbeats(source), at):
        raise StoreInUse("a server is using it")
    if (await source.totals()).backlog.running:
        running: list[str] = []
        for owner in await source.owners():
            [page] = await source.find(owner, SessionQuery(status="running", limit=SHOWN))
            running += [session.session_id for session in page.items]
        more = ", …" if len(running) > SHOWN else ""
        raise StoreInUse(f"turns are running: {', '.join(running[:SHOWN])}{more}")


async def _begun(target: Store, name: str) -> CopyMark | None:
    """Return the progress of a copy of this source; None if the target is empty."""
    kept = await target.document(DocumentKind.STORE, LOAD_MARK)
    if kept is not None:
        mark = Decoder(CopyMark).decode(kept.body)
        if mark.source == name:
            return mark
        raise StoreNotEmpty(f"a copy of {mark.source} was begun in it")
    for kind in DumpKind:
        if (await target.dump(kind, 1)).items:
            raise StoreNotEmpty(f"there is a {kind} in it")
    return None


async def _copy(source: Store, target: Store, begun: CopyMark, tell: CopyProgress) -> None:
    kinds, cursor = [*DumpKind, None], begun.cursor
    for kind, next_kind in pairwise(kinds[kinds.index(begun.kind) :]):
        assert kind is not None
        done = 0
        async for page in each_page(partial(source.dump, kind, CHUNK), cursor):
            cursor = page.next
            mark = CopyMark(begun.source, next_kind if cursor is None else kind, cursor)
            await target.load(page.items, encode_text(mark))
            done += len(page.items)
            tell("Copying", kind, done)


async def _compared(source: Store, target: Store, tell: CopyProgress) -> tuple[dict[str, int], str]:
    counts, digests = dict[str, int](), list[str]()
    for kind in DumpKind:
        ours, theirs = await _told(source, kind, tell), await _told(target, kind, tell)
        if ours != theirs:
            raise CopyDiffers(kind, ours[0], theirs[0])
        counts[kind.value] = ours[0]
        digests.append(ours[1])
    return counts, sha256("".join(digests).encode()).hexdigest()


async def _told(store: Store, kind: DumpKind, tell: CopyProgress) -> tuple[int, str]:
    """Return the count of a kind and a digest of it, whatever the order."""
    count = total = 0
    async for record in all_records(store, kind):
        for part in parts(record):
            count += 1
            total += int.from_bytes(sha256(part).digest())
        if count % CHUNK == 0:
            tell("Comparing", kind, count)
    return count, f"{total % (1 << _DIGEST_BITS):064x}"


def all_records(store: Store, kind: DumpKind) -> AsyncIterator[DumpRecord]:
    """Return all records of a kind."""
    return each_item(partial(store.dump, kind, CHUNK))
