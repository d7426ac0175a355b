-- A session's ancestors, from its parent up.
WITH RECURSIVE line (pk, step) AS (
    SELECT parent, 1 FROM moor.sessions WHERE owner = ?1 AND pk = ?2
    UNION ALL
    SELECT s.parent, step + 1 FROM line ORDERED JOIN moor.sessions s ON s.owner = ?1 AND s.pk = line.pk
    WHERE s.parent IS NOT NULL
)
SELECT {head} FROM line ORDERED JOIN moor.sessions s ON s.owner = ?1 AND s.pk = line.pk ORDER BY step
