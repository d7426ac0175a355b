-- Step from one owner to the next: one step per owner, however many sessions each has.
WITH RECURSIVE line (owner) AS (
    SELECT min(owner) FROM moor.sessions
    UNION ALL
    SELECT (SELECT min(s.owner) FROM moor.sessions s WHERE s.owner > line.owner) FROM line WHERE line.owner IS NOT NULL
)
SELECT owner FROM line WHERE owner IS NOT NULL
