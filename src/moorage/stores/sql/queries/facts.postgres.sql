-- Conditions follow. Entries are found by their root.
SELECT created_at, pk, id, agent, task, state, duration_seconds, EXISTS (
        SELECT 1 FROM moor.entries e WHERE e.owner = s.owner AND e.root = coalesce(s.root, s.pk) AND e.segment = s.pk
            AND kind = 'error' AND {rare}
    ), CASE WHEN position('"usage"' IN metadata) > 0 THEN metadata END
FROM moor.sessions s
