-- Families are small: all queued turns of one are read.
SELECT min(t.n) FROM sessions s CROSS JOIN turns t ON t.root = s.pk
WHERE s.owner IN (SELECT value FROM json_each(?1)) AND s.id = ?5 AND t.n > ?3 AND t.state = 'queued'
    AND t.agent IN (SELECT value FROM json_each(?2)) AND (t.not_before IS NULL OR t.not_before <= ?4)
