-- A row stands for several events: read as many rows as hold `limit` events, and no more.
SELECT f.id, f.last, s.id, s.task, {entry}, {tombstone}
FROM (
    SELECT *, sum(count) OVER (ORDER BY id) - count AS ahead
    FROM (SELECT * FROM moor.feed WHERE {of_owner} id > ?2 AND id < ?3 ORDER BY id LIMIT ?4) page
) f
LEFT JOIN moor.sessions s ON f.last > 0 AND s.owner = ?1 AND s.pk = f.subject
LEFT JOIN moor.entries e ON {own_entries} AND e.number > f.last - f.count AND e.number <= f.last
LEFT JOIN moor.tombstones t ON f.last = 0 AND t.owner = ?1 AND t.n = f.subject
WHERE f.ahead <= ?4 ORDER BY f.id, e.number
