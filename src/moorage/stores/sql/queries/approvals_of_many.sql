SELECT body, id, session_id FROM (
    SELECT t.body, t.id, s.id AS session_id, t.n, row_number() OVER (PARTITION BY t.session ORDER BY t.n) AS place
    FROM moor.sessions s ORDERED JOIN moor.approvals t INDEXED BY approvals_by_session
        ON t.owner = s.owner AND t.session = s.pk AND (NOT ?3 OR t.state = 'pending')
    WHERE s.owner = ?1 AND s.id IN LIST(?2::text)
) each WHERE place <= ?4 ORDER BY n
