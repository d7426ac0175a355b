-- Always change the revision: a decision based on the earlier state of the turn must be repeated.
UPDATE moor.sessions SET revision = revision + 1,
    hold_until = CASE WHEN live_turn IS NULL THEN hold_until ELSE ?1 END
WHERE owner = ?2 AND pk = ?3
