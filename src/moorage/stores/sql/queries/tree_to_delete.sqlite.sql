-- A session by its id and all of its descendants, leaves first, with the amount of their data.
WITH RECURSIVE tree (pk) AS (
    SELECT pk FROM moor.sessions WHERE owner = ?1 AND id = ?2
    UNION ALL
    SELECT s.pk FROM tree ORDERED JOIN moor.sessions s INDEXED BY sessions_by_parent
        ON s.owner = ?1 AND s.parent = tree.pk
)
SELECT s.pk, s.id, s.depth, s.live_turn IS NOT NULL, s.version, 0,
    (SELECT count(*) FROM moor.entries e WHERE e.segment = s.pk),
    (SELECT count(*) FROM moor.entries e WHERE e.segment = s.pk AND e.kind IN ('message', 'system')),
    (SELECT count(*) FROM moor.entries e WHERE e.segment = s.pk AND e.kind = 'checkpoint' AND {rare}),
    (SELECT count(*) FROM moor.runs r INDEXED BY runs_by_session WHERE r.session = s.pk)
FROM tree ORDERED JOIN moor.sessions s ON s.owner = ?1 AND s.pk = tree.pk
ORDER BY s.depth DESC, s.pk DESC
