-- Conditions follow.
SELECT created_at, pk, id, agent, task, state, duration_seconds,
    EXISTS (SELECT 1 FROM moor.entries WHERE segment = s.pk AND kind = 'error' AND {rare}),
    CASE WHEN instr(metadata, '"usage"') THEN metadata END
FROM moor.sessions s
