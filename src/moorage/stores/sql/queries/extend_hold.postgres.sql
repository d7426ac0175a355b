-- In any case it moves the revision: whoever has read the turn as it was has to decide anew.
UPDATE moor.sessions SET revision = revision + 1,
    hold_until = CASE WHEN live_turn IS NULL THEN hold_until ELSE ?1 END
WHERE owner = ?2 AND pk = ?3
