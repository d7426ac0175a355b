-- Like append_all, for one session, with a simpler plan.
WITH moved AS (
    UPDATE moor.sessions s SET
        last_entry = s.last_entry + ?3::bigint, last_activity_at = ?4::bigint, updated_at = ?4::bigint,
        state = CASE s.state WHEN 'created' THEN 'active' ELSE s.state END,
        hold_until = CASE WHEN ?5::text IS NULL OR s.live_turn IS NOT NULL THEN s.hold_until ELSE ?6::bigint END,
        has_pins = s.has_pins OR ?7::boolean, revision = s.revision + 1
    WHERE s.owner = ?1::text AND s.id = ?2::text AND s.state NOT IN ('completed', 'failed', 'abandoned')
        AND (?5::text IS NULL OR ?5::text = s.hold_token)
    RETURNING s.owner, s.pk, coalesce(s.root, s.pk) AS root, s.last_entry, s.task
), said AS (
    INSERT INTO moor.entries (owner, root, segment, number, kind, at, role, content, data, by, interface)
    SELECT m.owner, m.root, m.pk, m.last_entry - ?3 + (e ->> 0)::bigint, e ->> 1, (e ->> 2)::bigint, e ->> 3, e ->> 4,
        e ->> 5, e ->> 6, e ->> 7
    FROM moved m CROSS JOIN jsonb_array_elements(?8::jsonb) e
), told AS (
    INSERT INTO moor.arrivals (owner, subject, root, last, count) SELECT owner, pk, root, last_entry, ?3 FROM moved
)
SELECT last_entry - ?3, task FROM moved
