-- One lookup for each row of the feed, in its order, until the page is full: a plan that reads all rows first is slow.
SELECT {head_of_s}, place FROM (
    SELECT id AS place, subject, last FROM moor.feed WHERE owner = ?1 AND id > ?2 AND id < ?3 ORDER BY id {{order}}
    LIMIT {{walk}}
) f CROSS JOIN LATERAL (
    SELECT * FROM moor.sessions WHERE {{conditions}} AND pk = subject AND last_entry = last OFFSET 0
) s ORDER BY place {{order}} LIMIT {{limit}}
