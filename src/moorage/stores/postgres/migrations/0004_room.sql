-- needs 3
-- Families do not outgrow their limit, however many have children at once. Whoever has one shares a lock with the others
-- and looks whether there is room for all who may be at it at that moment, which is one for each connection. Where there
-- is not, they are refused (MR001) and come again one by one, with the lock to themselves: then they can count.

CREATE FUNCTION moor.room_1(who text, root bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended('moor. room ' || who || ' ' || root, 0)
$$;

CREATE FUNCTION moor.check_room_1(who text, my_root bigint, open_at_most bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    others bigint;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(moor.room_1(who, my_root));
    -- A statement of its own, with its own snapshot: those who had the lock to themselves are counted.
    SELECT count(*) INTO others FROM moor.sessions WHERE owner = who AND root = my_root AND finalized_at IS NULL;
    IF others + current_setting('max_connections')::bigint > open_at_most THEN
        RAISE EXCEPTION 'little room' USING ERRCODE = 'MR001';
    END IF;
END $$;

-- As `write_1`, with room for a new session in its family.
CREATE FUNCTION moor.write_2(change jsonb) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF change ? 'room' THEN
        PERFORM moor.check_room_1(change ->> 'owner', (change -> 'room' ->> 'root')::bigint,
            (change -> 'room' ->> 'open_at_most')::bigint);
    END IF;
    RETURN moor.write_1(change);
END $$;
