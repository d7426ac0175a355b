-- The oldest of each owner and agent, each found through an index; turns for a later time are read separately.
WITH wanted (owner, agent) AS (SELECT o.value, a.value FROM json_each(?1) o CROSS JOIN json_each(?2) a)
SELECT min(first) FROM (
    SELECT (
        SELECT n FROM turns WHERE owner = wanted.owner AND agent = wanted.agent AND n > ?3
            AND state = 'queued' AND not_before IS NULL ORDER BY n LIMIT 1
    ) AS first FROM wanted
    UNION ALL
    SELECT (
        SELECT min(n) FROM turns WHERE owner = wanted.owner AND agent = wanted.agent AND n > ?3
            AND state = 'queued' AND not_before IS NOT NULL AND not_before <= ?4
    ) FROM wanted
)
