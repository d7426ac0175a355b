-- Lock first, in the order of all statements, then read: data read before the lock may be old.
SELECT 1 FROM moor.sessions s WHERE EXISTS (
    SELECT 1 FROM moor.turns t WHERE t.owner = s.owner AND t.session = s.pk AND t.state = 'running'
) ORDER BY s.owner, s.pk FOR NO KEY UPDATE OF s
