-- Entries whose data is no valid JSON.
SELECT e.number, coalesce(s.id, CAST(e.segment AS text)) FROM moor.entries e
LEFT JOIN moor.sessions s ON s.pk = e.segment
WHERE e.data IS NOT NULL AND substr(e.data, 1, 1) <> '~' AND NOT json_valid(e.data) LIMIT 20
