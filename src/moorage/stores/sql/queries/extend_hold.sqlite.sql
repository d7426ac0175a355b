UPDATE moor.sessions SET hold_until = ?1
WHERE owner = ?2 AND pk = ?3 AND live_turn IS NOT NULL AND hold_until <> ?1
