-- Conditions follow.
SELECT created_at, pk, id, agent, task, state, duration_seconds,
    EXISTS (SELECT 1 FROM moor.entries e WHERE {own_entries} AND kind = 'error' AND {rare}),
    CASE WHEN instr(metadata, '"usage"') > 0 THEN metadata END
FROM moor.sessions s
