-- Families are small: all queued turns of one are read.
SELECT t.owner, t.n FROM moor.sessions s JOIN moor.turns t ON t.owner = s.owner AND t.root = s.pk
WHERE s.owner = ANY(?1::text[]) AND s.id = ?{{root}} AND t.n > ?3 AND (t.state = 'queued') IS TRUE
    AND t.agent = ANY(?2::text[]) AND (t.not_before IS NULL OR t.not_before <= ?4) AND {may_claim}
ORDER BY t.n LIMIT ?5
