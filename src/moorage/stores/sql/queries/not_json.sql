-- Entries whose data is no valid JSON.
SELECT e.number, coalesce(s.id, CAST(e.segment AS text)) FROM moor.entries e LEFT JOIN moor.sessions s ON {own_entries}
WHERE e.data IS NOT NULL AND substr(e.data, 1, 1) <> '~' AND NOT {{is_json}}(e.data) LIMIT 20
