-- The whole session of the oldest turn that no concurrent claim has locked.
WITH due AS MATERIALIZED (
    SELECT * FROM ({{due}}) each WHERE n <> ALL(?7::bigint[]) ORDER BY n
), taken AS (
    SELECT t.* FROM due CROSS JOIN LATERAL (
        SELECT t.owner, t.session, t.n, t.state FROM moor.turns t
        JOIN moor.sessions s ON s.owner = t.owner AND s.pk = t.session
        WHERE t.owner = due.owner AND t.n = due.n {lock}
    ) t
    WHERE t.state = 'queued' LIMIT 1
)
{view}
FROM taken JOIN moor.sessions s ON s.owner = taken.owner AND s.pk = taken.session
