SELECT id, state, 0 FROM moor.sessions WHERE owner = ?1 AND id IN LIST(?2::text)
UNION ALL
SELECT id, state, 1 FROM moor.tombstones WHERE owner = ?1 AND id IN LIST(?2::text)
