-- Other conditions on the sessions follow `last = last_entry`, which says that this row is their newest.
SELECT {head}, place FROM (
    SELECT id AS place, subject, last FROM moor.feed WHERE id > ?2 AND id < ?3 ORDER BY id {{order}} LIMIT {{walk}}
) CROSS JOIN moor.sessions ON pk = subject
WHERE last = last_entry AND {{conditions}} ORDER BY place {{order}} LIMIT {{limit}}
