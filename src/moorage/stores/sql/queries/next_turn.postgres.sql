-- The oldest ?5 of each owner and agent, found through an index each; those that had to wait for a time apart
-- (OFFSET 0: in order of `n` only once the index of times has found them, or all turns ever would be walked). Behind
-- what others have in hand just now there must be more to choose from.
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
