SELECT {entry}, coalesce(s.id, f.id)
FROM moor.search w JOIN moor.entries e USING (owner, root, segment, number)
LEFT JOIN moor.sessions s ON s.owner = e.owner AND s.pk = e.segment
LEFT JOIN moor.sessions f ON s.pk IS NULL AND f.owner = e.owner AND f.pk = (
    SELECT l.session FROM moor.lineage l WHERE l.owner = e.owner AND l.segment = e.segment AND l.upto >= e.number
    ORDER BY l.session LIMIT 1
)
WHERE w.owner = ?1 AND w.words @@ ?2::text::tsquery AND coalesce(s.pk, f.pk) IS NOT NULL
ORDER BY ts_rank(w.words, ?2::text::tsquery) DESC, e.at DESC, e.segment DESC, e.number DESC LIMIT ?3
