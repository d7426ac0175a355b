SELECT {entry}, coalesce(s.id, f.id)
FROM search JOIN moor.entries e ON e.id = search.rowid
LEFT JOIN moor.sessions s ON s.pk = e.segment
LEFT JOIN moor.sessions f ON s.pk IS NULL AND f.pk = (
    SELECT l.session FROM moor.lineage l WHERE l.segment = e.segment AND l.upto >= e.number ORDER BY l.session LIMIT 1
)
WHERE search MATCH ?2 AND coalesce(s.owner, f.owner) = ?1
ORDER BY search.rank, e.at DESC LIMIT ?3
