SELECT {columns} FROM moor.tombstones
WHERE owner = ?1 AND n < ?2 AND (?3::text IS NULL OR reason = ?3) AND (?4::bigint IS NULL OR deleted_at >= ?4)
ORDER BY n DESC LIMIT ?5
