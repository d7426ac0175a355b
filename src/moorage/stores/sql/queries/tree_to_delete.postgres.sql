-- A session by its id and all of its descendants, leaves first, with the amount of their data.
WITH RECURSIVE tree (pk) AS (
    SELECT pk FROM moor.sessions WHERE owner = ?1 AND id = ?2
    UNION ALL
    SELECT s.pk FROM tree JOIN moor.sessions s ON s.owner = ?1 AND s.parent = tree.pk
)
SELECT s.pk, s.id, s.depth, s.live_turn IS NOT NULL, s.version, s.revision, said.*, (
        SELECT count(*) FROM moor.runs r WHERE r.owner = s.owner AND r.session = s.pk
    )
FROM tree JOIN moor.sessions s ON s.owner = ?1 AND s.pk = tree.pk CROSS JOIN LATERAL (
    SELECT count(*), count(*) FILTER (WHERE e.kind IN ('message', 'system')), count(*) FILTER (WHERE e.kind = 'checkpoint')
    FROM moor.entries e WHERE e.owner = s.owner AND e.root = coalesce(s.root, s.pk) AND e.segment = s.pk
) said
ORDER BY s.depth DESC, s.pk DESC
