SELECT a.body, a.id, s.id FROM moor.sessions s CROSS JOIN LATERAL (
    SELECT body, id, n FROM moor.approvals WHERE owner = s.owner AND session = s.pk AND (NOT ?3 OR state = 'pending')
    ORDER BY n LIMIT ?4
) a WHERE s.owner = ?1 AND s.id = ANY(?2::text[]) ORDER BY a.n
