"""Full-text search, indexed off the write path.

The index follows the feed: it remembers per owner how far it has come and catches up in
small chunks. Words are found as `search_words` parts them, not as PostgreSQL would: a search must
find the same in every store. Results are joined with the log, so what was deleted is never found.
"""

from __future__ import annotations

from contextlib import suppress

from moorage.core.entry import Kind, searchable_text, text_of
from moorage.core.errors import SessionCorrupt
from moorage.core.event import Hit, search_words, snippet_of
from moorage.stores import SEALED
from moorage.stores.postgres.connection import Connection
from moorage.stores.rows import ENTRY, ENTRY_OF_E, Row, entry_of

CHUNK_ROWS = 200  # of the feed, each some entries
MOST_ROOM = 700_000  # bytes of an entry's words, each once: a tsvector has room for a megabyte
LONGEST_WORD = 500  # characters, of which PostgreSQL takes 2046 bytes
MOST_PLACES = 4  # of a word in an entry: how often it comes tells how well it fits, up to here
LAST_PLACE = 16383
SEARCHED_KINDS = (Kind.MESSAGE.value, Kind.SUMMARY.value)
_DATA = ENTRY.split(", ").index("data")

_UNINDEXED = f"""
SELECT f.id, e.root, e.segment, {ENTRY_OF_E}
FROM (SELECT * FROM moor.feed WHERE owner = ?1 AND id > ?2 ORDER BY id LIMIT ?3) f
LEFT JOIN moor.entries e ON f.last > 0 AND e.owner = ?1 AND e.root = f.root AND e.segment = f.subject
    AND e.number > f.last - f.count AND e.number <= f.last
ORDER BY f.id
"""
_MARK = "SELECT feed FROM moor.search_marks WHERE owner = ?"
_SET_MARK = """
INSERT INTO moor.search_marks (owner, feed) VALUES (?, ?) ON CONFLICT (owner) DO UPDATE SET feed = excluded.feed
"""
_PUT = """
INSERT INTO moor.search (owner, root, segment, number, words)
SELECT ?1, d.root, d.segment, d.number, d.words::tsvector
FROM unnest(?2::bigint[], ?3::bigint[], ?4::bigint[], ?5::text[]) d (root, segment, number, words)
ON CONFLICT DO NOTHING
"""


async def is_behind(db: Connection, owner: str, upto: int) -> bool:
    """Whether there is something to index up to that cursor of the feed."""
    row = await db.one(_MARK, (owner,))
    return upto > (row[0] if row else 0)


async def catch_up(db: Connection, owner: str) -> None:
    """Index one chunk of what is new, within a transaction."""
    await db.run("INSERT INTO moor.search_marks (owner, feed) VALUES (?, 0) ON CONFLICT DO NOTHING", (owner,))
    [(mark,)] = await db.all(f"{_MARK} FOR UPDATE", (owner,))  # whoever comes second finds it done
    rows = await db.all(_UNINDEXED, (owner, mark, CHUNK_ROWS))
    if not rows:
        return
    documents = _documents(db, rows)
    if documents:
        await db.run(_PUT, (owner, *(list(column) for column in zip(*documents, strict=True))))
    await db.run(_SET_MARK, (owner, rows[-1][0]))


def _documents(db: Connection, rows: list[Row]) -> list[tuple[int, int, int, str]]:
    found = []
    for _, root, segment, *columns in rows:
        if segment is None or str(columns[_DATA]).startswith(SEALED):  # deleted, or sealed: it stays so
            continue
        with suppress(SessionCorrupt):  # reading its session says so; the index goes on
            entry = entry_of(tuple(columns), "", "", db.opener)
            if entry.kind in SEARCHED_KINDS:
                found.append((root, segment, entry.number, vector_of(searchable_text(entry))))
    return found


def vector_of(text: str) -> str:
    """A text's words with their places, as a tsvector is written: nothing in a word needs quoting but itself."""
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
    """A word as the index has it."""
    return word.rstrip("*").casefold()[:LONGEST_WORD]


# A segment outlives its session when a fork needs it: then the fork is where it is found.
_FOUND = f"""
SELECT {ENTRY_OF_E}, coalesce(s.id, f.id)
FROM moor.search w JOIN moor.entries e USING (owner, root, segment, number)
LEFT JOIN moor.sessions s ON s.owner = e.owner AND s.pk = e.segment
LEFT JOIN moor.sessions f ON s.pk IS NULL AND f.owner = e.owner AND f.pk = (
    SELECT l.session FROM moor.lineage l WHERE l.owner = e.owner AND l.segment = e.segment AND l.upto >= e.number
    ORDER BY l.session LIMIT 1
)
WHERE w.owner = ?1 AND w.words @@ ?2::text::tsquery AND coalesce(s.pk, f.pk) IS NOT NULL
ORDER BY ts_rank(w.words, ?2::text::tsquery) DESC, e.at DESC, e.segment DESC, e.number DESC LIMIT ?3
"""


async def search(db: Connection, owner: str, words: list[str], limit: int) -> list[Hit]:
    """Entries with all words, best first."""
    if not words:
        return []
    hits: list[Hit] = []
    for row in await db.all(_FOUND, (owner, _match(words), limit)):
        with suppress(SessionCorrupt):
            hits.append(_hit(db, row, words))
    return hits


def _match(words: list[str]) -> str:
    return " & ".join(f"'{folded(word)}'{':*' if word.endswith('*') else ''}" for word in words)


def _hit(db: Connection, row: Row, words: list[str]) -> Hit:
    entry = entry_of(row[:-1], row[-1], "", db.opener)
    text = text_of(entry.content) or searchable_text(entry)
    return Hit(
        session_id=row[-1],
        number=entry.number,
        kind=entry.kind,
        role=entry.role,
        at=entry.at,
        snippet=snippet_of(text, [word.rstrip("*") for word in words]),
    )
