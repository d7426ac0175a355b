-- From one owner to the next: however many sessions each has, that many steps.
WITH RECURSIVE line (owner) AS (
    SELECT min(owner) FROM moor.sessions
    UNION ALL
    SELECT (SELECT min(s.owner) FROM moor.sessions s WHERE s.owner > line.owner) FROM line WHERE line.owner IS NOT NULL
)
SELECT owner FROM line WHERE owner IS NOT NULL
