-- A session and all of its descendants.
WITH RECURSIVE tree (pk) AS (
    SELECT ?2::bigint
    UNION ALL
    SELECT s.pk FROM tree ORDERED JOIN moor.sessions s INDEXED BY sessions_by_parent
        ON s.owner = ?1 AND s.parent = tree.pk
)
SELECT {columns} FROM tree ORDERED JOIN moor.sessions s ON s.owner = ?1 AND s.pk = tree.pk {ending}
