-- One statement, so that it reads one instant without the cost of a transaction.
SELECT * FROM (SELECT {entry}, 0 AS part FROM moor.entries WHERE {of_segment} AND {rare} AND kind = 'summary' ORDER BY number DESC LIMIT 1) a
UNION ALL
SELECT * FROM (SELECT {entry}, 0 AS part FROM moor.entries WHERE {of_segment} AND {rare} AND kind = 'system' ORDER BY number DESC LIMIT ?5) b
UNION ALL
SELECT * FROM (
    SELECT {entry}, 1 AS part FROM moor.entries WHERE {of_segment} AND kind IN ('message', 'system') ORDER BY number DESC LIMIT ?4
) c
