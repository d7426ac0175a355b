-- Sessions whose own entries are not numbered without gaps.
SELECT s.id, s.last_entry - s.shared_upto, count(e.number)
FROM moor.sessions s LEFT JOIN moor.entries e ON e.owner = s.owner AND e.root = coalesce(s.root, s.pk) AND e.segment = s.pk
GROUP BY s.owner, s.pk HAVING count(e.number) <> s.last_entry - s.shared_upto
    OR coalesce(min(e.number), s.shared_upto + 1) <> s.shared_upto + 1
    OR coalesce(max(e.number), s.last_entry) <> s.last_entry
