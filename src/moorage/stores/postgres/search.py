"""The index of words in PostgreSQL. `search_words` defines words: a search must find the same in every store."""

from __future__ import annotations

from moorage.core.entry import Hit, search_words, searchable_text
from moorage.stores import sql
from moorage.stores.postgres.connection import PostgresConnection

MOST_ROOM = 700_000  # bytes of an entry's distinct words: a tsvector has room for a megabyte
LONGEST_WORD = 500  # characters; PostgreSQL's limit is 2046 bytes
MOST_PLACES = 4  # of a word in an entry: its frequency up to this limit determines the rank
LAST_PLACE = 16383

_MARK = "SELECT feed FROM moor.search_marks WHERE owner = ?"
_PUT = """
INSERT INTO moor.search (owner, root, segment, number, words)
SELECT ?1, d.root, d.segment, d.number, d.words::tsvector
FROM unnest(?2::bigint[], ?3::bigint[], ?4::bigint[], ?5::text[]) d (root, segment, number, words)
ON CONFLICT DO NOTHING
"""


async def is_behind(db: PostgresConnection, owner: str, upto: int) -> bool:
    """Return whether there is something to index up to that cursor of the feed."""
    row = await db.one(_MARK, (owner,))
    return upto > (row[0] if row else 0)


async def catch_up(db: PostgresConnection, owner: str) -> None:
    """Index one chunk of new entries, within a transaction."""
    await db.run("INSERT INTO moor.search_marks (owner, feed) VALUES (?, 0) ON CONFLICT DO NOTHING", (owner,))
    [(mark,)] = await db.all(f"{_MARK} FOR UPDATE", (owner,))  # a second caller finds it done
    if (chunk := await sql.feed.unindexed(db, owner, mark)) is None:
        return
    upto, entries = chunk
    if entries:
        rows = [(*place, entry.number, vector_of(searchable_text(entry))) for place, entry in entries]
        await db.run(_PUT, (owner, *(list(column) for column in zip(*rows, strict=True))))
    await db.run("UPDATE moor.search_marks SET feed = ? WHERE owner = ?", (upto, owner))


def vector_of(text: str) -> str:
    """Return a text's words and positions as a tsvector literal: within a word only the quote needs quoting."""
    places: dict[str, list[int]] = {}
    room = MOST_ROOM
    for place, word in enumerate(search_words(text), 1):
        if (known := places.get(word := folded(word))) is None:
            room -= len(word.encode()) + 2 * MOST_PLACES
            if room < 0:
                break
            known = places[word] = []
        if len(known) < MOST_PLACES:
            known.append(min(place, LAST_PLACE))
    return " ".join(f"'{word}':{','.join(map(str, at))}" for word, at in places.items())


def folded(word: str) -> str:
    """Return a word in the form of the index."""
    return word.rstrip("*").casefold()[:LONGEST_WORD]


async def search(db: PostgresConnection, owner: str, words: list[str], limit: int) -> list[Hit]:
    """Return entries with all words, best first."""
    match = " & ".join(f"'{folded(word)}'{':*' if word.endswith('*') else ''}" for word in words)
    return await sql.feed.search(db, owner, words, match, limit) if words else []
