SELECT t.id FROM moor.turns t {of_session}
WHERE t.state = 'running' AND t.launcher = ? AND EXISTS (
    SELECT 1 FROM moor.runs r
    WHERE r.owner = s.owner AND r.parent = s.id AND r.state IN ('queued', 'running') AND r.mode = 'sync'
) ORDER BY t.n
