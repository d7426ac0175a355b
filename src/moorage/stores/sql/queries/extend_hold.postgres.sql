-- Always move the revision: a decision made on the turn as it was has to be made again.
UPDATE moor.sessions SET revision = revision + 1,
    hold_until = CASE WHEN live_turn IS NULL THEN hold_until ELSE ?1 END
WHERE owner = ?2 AND pk = ?3
