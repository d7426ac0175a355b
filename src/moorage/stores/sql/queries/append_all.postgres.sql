-- Each session once: sessions are locked in the order of keys, so that there are no deadlocks. A session is refused if
-- it is final or the token is not that of its hold. For sessions missing from the answer, `append` finds the reason.
WITH asked AS (
    SELECT * FROM unnest(?1::text[], ?2::text[], ?3::bigint[], ?4::bigint[], ?5::text[], ?6::bigint[], ?7::boolean[])
        WITH ORDINALITY a (owner, id, count, at, token, hold_until, has_pins, place)
), locked AS (
    SELECT s.pk, a.* FROM asked a JOIN moor.sessions s ON s.owner = a.owner AND s.id = a.id
    ORDER BY s.owner, s.pk FOR NO KEY UPDATE OF s
), moved AS (
    UPDATE moor.sessions s SET
        last_entry = s.last_entry + a.count, last_activity_at = a.at, updated_at = a.at,
        state = CASE s.state WHEN 'created' THEN 'active' ELSE s.state END,
        hold_until = CASE WHEN a.token IS NULL OR s.live_turn IS NOT NULL THEN s.hold_until ELSE a.hold_until END,
        has_pins = s.has_pins OR a.has_pins, revision = s.revision + 1
    FROM locked a
    WHERE s.owner = a.owner AND s.pk = a.pk AND s.state NOT IN ('completed', 'failed', 'abandoned')
        AND (a.token IS NULL OR a.token = s.hold_token)
    RETURNING a.place, s.owner, s.pk, coalesce(s.root, s.pk) AS root, s.last_entry, a.count, s.task
), said AS (
    INSERT INTO moor.entries (owner, root, segment, number, kind, at, role, content, data, by, interface)
    SELECT m.owner, m.root, m.pk, m.last_entry - m.count + e.step, e.kind, e.at, e.role, e.content, e.data, e.by,
        e.interface
    FROM unnest(?8::bigint[], ?9::bigint[], ?10::text[], ?11::bigint[], ?12::text[], ?13::text[], ?14::text[],
        ?15::text[], ?16::text[]) e (place, step, kind, at, role, content, data, by, interface)
    JOIN moved m ON m.place = e.place
), told AS (
    INSERT INTO moor.arrivals (owner, subject, root, last, count) SELECT owner, pk, root, last_entry, count FROM moved
)
SELECT place, last_entry - count, task FROM moved
