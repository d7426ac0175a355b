-- How many entries, messages, checkpoints and runs these sessions have.
SELECT count(*), count(*) FILTER (WHERE e.kind IN ('message', 'system')), count(*) FILTER (WHERE e.kind = 'checkpoint'),
    (SELECT count(*) FROM moor.runs r INDEXED BY runs_by_session WHERE r.session IN LIST(?2::bigint))
FROM moor.entries e WHERE e.segment IN LIST(?2::bigint)
