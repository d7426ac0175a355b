-- An item's id says what it is, so the index by it finds the callbacks of a session.
SELECT session, state, count(*) FROM moor.inbox INDEXED BY inbox_by_id
WHERE owner = ?1 AND session IN LIST(?2::bigint) AND id >= 'callback:' AND id < 'callback;' GROUP BY session, state
