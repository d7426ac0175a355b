-- The oldest ?5 of each owner and agent, each found through an index; turns for a later time are read separately
-- (OFFSET 0: sort by `n` only after the index of times has found them, or all turns ever would be walked). Behind
-- the turns that others are taking just now there must be more to choose from.
SELECT w.owner, t.n FROM unnest(?1::text[]) w (owner) CROSS JOIN unnest(?2::text[]) a (agent) CROSS JOIN LATERAL (
    SELECT * FROM (
        SELECT n FROM moor.turns WHERE owner = w.owner AND agent = a.agent AND n > ?3
            AND state = 'queued' AND not_before IS NULL ORDER BY n LIMIT ?5
    ) now
    UNION ALL
    SELECT * FROM (
        SELECT n FROM (
            SELECT n FROM moor.turns WHERE owner = w.owner AND agent = a.agent AND n > ?3 AND state = 'queued'
                AND not_before IS NOT NULL AND not_before <= ?4 OFFSET 0
        ) due ORDER BY n LIMIT ?5
    ) later
) t WHERE {may_claim}
