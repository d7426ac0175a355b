-- Sessions that wait, from two indexes: for an approval, and for a child.
SELECT pk FROM moor.sessions INDEXED BY sessions_waiting WHERE owner = ? AND pending_approvals > 0 UNION
SELECT s.pk FROM moor.runs r INDEXED BY runs_calling_back ORDERED JOIN moor.sessions s ON s.owner = r.owner AND s.id = r.parent
WHERE r.owner = ? AND r.state IN ('queued', 'running') AND r.mode = 'async_callback'
