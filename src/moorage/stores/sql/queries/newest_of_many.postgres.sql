SELECT s.place, e.* FROM unnest(?2::bigint[], ?3::bigint[]) WITH ORDINALITY s (root, pk, place) CROSS JOIN LATERAL (
    SELECT {entry} FROM moor.entries WHERE owner = ?1 AND root = s.root AND segment = s.pk AND number < ?4
        AND kind = ANY(?5::text[]) ORDER BY number DESC LIMIT ?6
) e ORDER BY s.place, e.number DESC
