-- Sessions whose own entries are not numbered without gaps.
SELECT s.id, s.last_entry - s.shared_upto, count(e.number)
FROM moor.sessions s LEFT JOIN moor.entries e ON {own_entries}
GROUP BY s.pk, s.owner HAVING count(e.number) <> s.last_entry - s.shared_upto
    OR coalesce(min(e.number), s.shared_upto + 1) <> s.shared_upto + 1
    OR coalesce(max(e.number), s.last_entry) <> s.last_entry
