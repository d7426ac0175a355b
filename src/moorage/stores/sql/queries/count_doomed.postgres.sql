-- How many entries, messages, checkpoints and runs these sessions have. Entries are found by their root.
SELECT count(*), count(*) FILTER (WHERE e.kind IN ('message', 'system')), count(*) FILTER (WHERE e.kind = 'checkpoint'),
    (SELECT count(*) FROM moor.runs r WHERE r.owner = ?1 AND r.session IN LIST(?2::bigint))
FROM moor.sessions s JOIN moor.entries e ON e.owner = s.owner AND e.root = coalesce(s.root, s.pk) AND e.segment = s.pk
WHERE s.owner = ?1 AND s.pk IN LIST(?2::bigint)
