SELECT f.id, e.id, {entry}
FROM (SELECT * FROM moor.feed WHERE id > ?2 AND id < ?3 ORDER BY id LIMIT ?4) f
LEFT JOIN moor.entries e ON f.last > 0 AND e.segment = f.subject AND e.number > f.last - f.count AND e.number <= f.last
ORDER BY f.id
