SELECT t.owner, EXISTS (
    SELECT 1 FROM moor.runs r
    WHERE r.owner = s.owner AND r.parent = s.id AND r.state IN ('queued', 'running') AND r.mode = 'sync'
), t.body, t.id, s.id
FROM moor.turns t {of_session}
WHERE t.state = 'running' AND t.launcher = ? ORDER BY t.n
