-- needs 3
-- The same commit as before, row by row: a join with the rows of a JSON value is planned for a hundred of them, which
-- reads whole tables while these are small and looks wrong while nothing is known of them. What is looked up one at a
-- time goes through its own index, always. A commit has a few rows of each kind.

-- Commit changes of some sessions of one owner, all or nothing; the key of the first of them.
CREATE FUNCTION moor.write_3(change jsonb) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    who CONSTANT text := change ->> 'owner';
    changes CONSTANT jsonb := change -> 'changes';
    room CONSTANT jsonb := change -> 'room';
    first_done bigint;
BEGIN
    IF room IS NOT NULL THEN
        PERFORM moor.check_room_1(who, (room ->> 'root')::bigint, (room ->> 'open_at_most')::bigint);
    END IF;
    IF change ? 'once' THEN
        PERFORM moor.note_once_1(who, change -> 'once');
    END IF;
    IF jsonb_array_length(changes) > 1 THEN
        PERFORM moor.lock_sessions_1(who, changes);
    END IF;
    first_done := moor.write_session_2(who, changes -> 0);
    FOR place IN 1 .. jsonb_array_length(changes) - 1 LOOP
        PERFORM moor.write_session_2(who, changes -> place);
    END LOOP;
    RETURN first_done;
END $$;

-- Always in one order, so that nobody waits in a circle.
CREATE FUNCTION moor.lock_sessions_1(who text, changes jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    one bigint;
BEGIN
    FOR one IN SELECT (each ->> 'pk')::bigint FROM jsonb_array_elements(changes) each ORDER BY 1 LOOP
        PERFORM 1 FROM moor.sessions WHERE owner = who AND pk = one FOR NO KEY UPDATE;
    END LOOP;
END $$;

-- One session: its head, made or changed, and all that came with it.
CREATE FUNCTION moor.write_session_2(who text, one jsonb) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    my_pk bigint := (one ->> 'pk')::bigint;
    my_revision CONSTANT bigint := (one ->> 'revision')::bigint;
    my_root bigint;
    h moor.sessions;
    arrival jsonb;
BEGIN
    IF one ? 'shares' THEN  -- a fork: its source must not go meanwhile
        PERFORM 1 FROM moor.sessions WHERE owner = who AND pk = (one ->> 'shares')::bigint FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'stale' USING ERRCODE = 'MR001';
        END IF;
    END IF;
    IF one ? 'new' THEN
        PERFORM moor.check_names_1(who, one -> 'new');
        my_pk := coalesce(my_pk, nextval('moor.sessions_pk_seq'));
        h := jsonb_populate_record(NULL::moor.sessions, one -> 'new');
        h.pk := my_pk;
        h.owner := who;
        h.revision := 1;
        INSERT INTO moor.sessions VALUES (h.*);
        my_root := coalesce(h.root, my_pk);
    ELSIF one ? 'head' THEN
        h := jsonb_populate_record(NULL::moor.sessions, one -> 'head');
        UPDATE moor.sessions s SET
            phase = h.phase, resume_ready = h.resume_ready, version = h.version, last_entry = h.last_entry,
            error_count = h.error_count, last_error = h.last_error, metadata = h.metadata, updated_at = h.updated_at,
            last_activity_at = h.last_activity_at, duration_seconds = h.duration_seconds, summary = h.summary,
            holder = h.holder, hold_until = h.hold_until, hold_token = h.hold_token,
            pending_approvals = h.pending_approvals, suspended_by = h.suspended_by, phase_before = h.phase_before,
            last_checkpoint = h.last_checkpoint, context_version = h.context_version, state = h.state,
            finalized_at = h.finalized_at, launched = h.launched, live_turn = h.live_turn, turns = h.turns,
            epoch = h.epoch, waits = h.waits, run_failed = h.run_failed, last_run = h.last_run, has_pins = s.has_pins OR h.has_pins, revision = s.revision + 1
        WHERE s.owner = who AND s.pk = my_pk AND s.revision = my_revision
        RETURNING coalesce(s.root, s.pk) INTO my_root;
    ELSE
        UPDATE moor.sessions s SET revision = s.revision + 1
        WHERE s.owner = who AND s.pk = my_pk AND s.revision = my_revision
        RETURNING coalesce(s.root, s.pk) INTO my_root;
    END IF;
    IF my_root IS NULL THEN
        RAISE EXCEPTION 'stale' USING ERRCODE = 'MR001';
    END IF;
    IF one ? 'lineage' THEN
        INSERT INTO moor.lineage (owner, session, segment, segment_root, upto)
        SELECT who, my_pk, l.segment, l.segment_root, l.upto
        FROM jsonb_to_recordset(one -> 'lineage') l (segment bigint, segment_root bigint, upto bigint);
    END IF;
    IF one ? 'entries' THEN
        INSERT INTO moor.entries (owner, root, segment, number, kind, at, role, content, data, by, interface, client_key)
        SELECT who, my_root, my_pk, e.number, e.kind, e.at, e.role, e.content, e.data, e.by, e.interface, e.client_key
        FROM jsonb_to_recordset(one -> 'entries') e (number bigint, kind text, at bigint, role text, content text,
            data text, by text, interface text, client_key text);
        FOR arrival IN SELECT jsonb_array_elements(one -> 'arrivals') LOOP
            INSERT INTO moor.arrivals (owner, subject, root, last, count)
            VALUES (who, my_pk, my_root, (arrival ->> 0)::bigint, (arrival ->> 1)::bigint);
        END LOOP;
    END IF;
    IF one ? 'context' THEN
        PERFORM moor.write_context_1(who, my_pk, one -> 'context');
    END IF;
    IF one ? 'approvals' THEN
        INSERT INTO moor.approvals (owner, session, id, state, expires_at, body)
        SELECT who, my_pk, a.value ->> 'id', a.value ->> 'state', (a.value ->> 'expires_at')::bigint, a.value ->> 'body'
        FROM jsonb_array_elements(one -> 'approvals') WITH ORDINALITY a (value, place) ORDER BY place
        ON CONFLICT (owner, id) DO UPDATE SET state = excluded.state, body = excluded.body;
    END IF;
    IF one ? 'work' THEN
        PERFORM moor.write_work_2(who, my_pk, my_root, one -> 'work');
    END IF;
    RETURN my_pk;
END $$;

-- Runs, turns and items. What a decision has seen (`known`) is updated, everything else is new: an id that comes twice
-- is refused by its index.
CREATE FUNCTION moor.write_work_2(who text, my_pk bigint, my_root bigint, work jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    one jsonb;
BEGIN
    FOR one IN SELECT jsonb_array_elements(work -> 'runs') LOOP
        IF (one -> 'known')::boolean THEN
            UPDATE moor.runs SET state = one ->> 'state', expires_at = (one ->> 'expires_at')::bigint, body = one ->> 'body'
            WHERE owner = who AND id = one ->> 'id';
        ELSE
            IF one ->> 'key' IS NOT NULL AND EXISTS (SELECT 1 FROM moor.runs WHERE owner = who AND key = one ->> 'key') THEN
                RAISE EXCEPTION 'key reused' USING ERRCODE = 'MR005', DETAIL = one ->> 'key';
            END IF;
            INSERT INTO moor.runs
                (owner, session, id, agent, state, mode, is_joined, parent, parent_run, key, expires_at, body)
            VALUES (who, my_pk, one ->> 'id', one ->> 'agent', one ->> 'state', one ->> 'mode',
                (one -> 'is_joined')::boolean, one ->> 'parent', one ->> 'parent_run', one ->> 'key',
                (one ->> 'expires_at')::bigint, one ->> 'body');
        END IF;
    END LOOP;
    FOR one IN SELECT jsonb_array_elements(work -> 'turns') LOOP
        IF (one -> 'known')::boolean THEN
            UPDATE moor.turns SET state = one ->> 'state', launcher = one ->> 'launcher',
                not_before = (one ->> 'not_before')::bigint, due_at = (one ->> 'due_at')::bigint, body = one ->> 'body'
            WHERE owner = who AND id = one ->> 'id';
        ELSE
            INSERT INTO moor.turns (owner, session, root, id, agent, state, launcher, not_before, due_at, body)
            VALUES (who, my_pk, my_root, one ->> 'id', one ->> 'agent', one ->> 'state', one ->> 'launcher',
                (one ->> 'not_before')::bigint, (one ->> 'due_at')::bigint, one ->> 'body');
        END IF;
    END LOOP;
    FOR one IN SELECT jsonb_array_elements(work -> 'items') LOOP
        IF (one -> 'known')::boolean THEN
            UPDATE moor.inbox SET state = one ->> 'state', given = (one ->> 'given')::bigint, turn = one ->> 'turn',
                run = one ->> 'run'
            WHERE owner = who AND session = my_pk AND id = one ->> 'id';
        ELSE
            INSERT INTO moor.inbox (owner, session, id, kind, state, given, turn, run, entry, is_joined, created_at, body)
            VALUES (who, my_pk, one ->> 'id', one ->> 'kind', one ->> 'state', (one ->> 'given')::bigint, one ->> 'turn',
                one ->> 'run', (one ->> 'entry')::bigint, (one -> 'is_joined')::boolean,
                (one ->> 'created_at')::bigint, one ->> 'body');
        END IF;
    END LOOP;
END $$;

-- Which sessions run is asked of their turns: whatever an index of heads is about makes a change of it dear.
DROP INDEX moor.sessions_running;
