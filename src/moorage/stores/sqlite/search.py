"""The index of words in SQLite: FTS5, which stores no text. Words of deleted entries are purged later."""

from __future__ import annotations

from moorage.core.entry import Hit, searchable_text
from moorage.stores import sql
from moorage.stores.sqlite.connection import Driven

PURGE_CHUNK = 500
_BEHIND = "SELECT EXISTS (SELECT 1 FROM feed WHERE id > ? AND id <= ?) OR EXISTS (SELECT 1 FROM search_purges)"


async def is_behind(db: Driven, owner: str, upto: int) -> bool:
    """Return whether there is something to index up to that cursor of the feed, or to purge."""
    base = await db.feed_start(owner)
    if base is None:
        return False
    row = await db.one(_BEHIND, ((await _mark(db, owner))[0], base + upto))
    return bool(row and row[0])


async def catch_up(db: Driven, owner: str) -> None:
    """Index one chunk of new entries, and purge some deleted ones."""
    gone = await db.all("SELECT id FROM search_purges ORDER BY id LIMIT ?", (PURGE_CHUNK,))
    await db.many("DELETE FROM search WHERE rowid = ?", gone)
    await db.many("DELETE FROM search_purges WHERE id = ?", gone)
    feed, newest = await _mark(db, owner)
    if (chunk := await sql.feed.unindexed(db, owner, feed)) is None:
        return
    upto, entries = chunk
    await db.many(
        "INSERT INTO search (rowid, text) VALUES (?, ?)", [(id_, searchable_text(entry)) for (id_,), entry in entries]
    )
    newest = max([newest, *(id_ for (id_,), _ in entries)])
    await db.run("INSERT OR REPLACE INTO search_marks VALUES (?, ?, ?)", (db.connection.owner_no(owner), upto, newest))


async def _mark(db: Driven, owner: str) -> tuple[int, int]:
    """Return the progress of the index, in the feed and in the log."""
    row = await db.one("SELECT feed, entry FROM search_marks WHERE owner = ?", (db.connection.owner_no(owner),))
    return (row[0], row[1]) if row else (await db.feed_start(owner) or 0, 0)


async def search(db: Driven, owner: str, words: list[str], limit: int) -> list[Hit]:
    """Return entries with all words, best first. Each word is quoted, so that no part of it is syntax."""
    match = " AND ".join(f'"{word.rstrip("*")}"{"*" if word.endswith("*") else ""}' for word in words)
    return await sql.feed.search(db, owner, words, match, limit) if words else []
