-- What commits: one call, one statement, one round trip. A released function is never edited: another one with the next
-- number takes its place, so that an older release beside a newer one still finds its own.
--
-- Refusals, by SQLSTATE: MR001 somebody changed a session since it was read; MR002 a request under this key was made
-- before (detail: what it became); MR003 the id is taken (detail: spent or used); MR004 the name is taken (detail: by
-- which session); MR005 a run was asked for under this key (detail: the key).

-- Give what has arrived the next cursors of the feed; whether there may be more of it.
CREATE FUNCTION moor.number_feed_1(who text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    at_once CONSTANT bigint := 20000;
    start bigint;
    taken bigint;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM moor.arrivals WHERE owner = who) THEN
        RETURN false;
    END IF;
    INSERT INTO moor.owners (name) VALUES (who) ON CONFLICT DO NOTHING;
    SELECT feed_end INTO start FROM moor.owners WHERE name = who FOR UPDATE;
    -- A statement of its own, with its own snapshot: what others have numbered while we waited is gone from here.
    WITH arrived AS (
        DELETE FROM moor.arrivals a USING (SELECT n FROM moor.arrivals WHERE owner = who ORDER BY n LIMIT at_once) first
        WHERE a.owner = who AND a.n = first.n RETURNING a.*
    ), placed AS (
        SELECT *, sum(count) OVER (ORDER BY n) AS place FROM arrived
    ), put AS (
        INSERT INTO moor.feed (owner, id, subject, root, last, count)
        SELECT owner, start + place, subject, root, last, count FROM placed
    ), moved AS (
        UPDATE moor.owners SET feed_end = start + (SELECT coalesce(max(place), 0) FROM placed) WHERE name = who
    )
    SELECT count(*) INTO taken FROM placed;
    RETURN taken = at_once;
END $$;

-- Commit changes of some sessions of one owner, all or nothing; the key of the first of them.
CREATE FUNCTION moor.write_1(change jsonb) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    who CONSTANT text := change ->> 'owner';
    one jsonb;
    done bigint;
    first_done bigint;
BEGIN
    IF change ? 'once' THEN
        PERFORM moor.note_once_1(who, change -> 'once');
    END IF;
    IF jsonb_array_length(change -> 'changes') > 1 THEN  -- always in one order, so that nobody waits in a circle
        PERFORM 1 FROM moor.sessions WHERE owner = who
            AND pk IN (SELECT (each ->> 'pk')::bigint FROM jsonb_array_elements(change -> 'changes') each)
        ORDER BY pk FOR NO KEY UPDATE;
    END IF;
    FOR one IN SELECT * FROM jsonb_array_elements(change -> 'changes') LOOP
        done := moor.write_session_1(who, one);
        first_done := coalesce(first_done, done);
    END LOOP;
    RETURN first_done;
END $$;

CREATE FUNCTION moor.note_once_1(who text, request jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    known moor.once;
BEGIN
    INSERT INTO moor.once (owner, operation, key, digest, ref, at)
    SELECT who, r.operation, r.key, r.digest, r.ref, r.at FROM jsonb_populate_record(NULL::moor.once, request) r
    ON CONFLICT (owner, operation, key) DO UPDATE SET digest = excluded.digest, ref = excluded.ref, at = excluded.at
        WHERE once.at <= (request ->> 'old')::bigint;
    IF NOT FOUND THEN
        SELECT * INTO known FROM moor.once
            WHERE owner = who AND operation = request ->> 'operation' AND key = request ->> 'key';
        RAISE EXCEPTION 'done before' USING ERRCODE = 'MR002', DETAIL = to_jsonb(known)::text;
    END IF;
END $$;

CREATE FUNCTION moor.check_names_1(who text, head jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    new_id CONSTANT text := head ->> 'id';
    new_name CONSTANT text := head ->> 'name';
    other text;
BEGIN
    -- A name must not be another's id: no index says that, so those who want the same word wait for each other.
    PERFORM pg_advisory_xact_lock(word) FROM (
        SELECT DISTINCT hashtextextended('moor. ' || who || ' ' || each, 0) AS word
        FROM unnest(ARRAY[new_id, new_name]) each WHERE each IS NOT NULL ORDER BY 1
    ) words;
    IF EXISTS (SELECT 1 FROM moor.tombstones WHERE owner = who AND id = new_id) THEN
        RAISE EXCEPTION 'spent' USING ERRCODE = 'MR003', DETAIL = 'spent';
    END IF;
    IF EXISTS (SELECT 1 FROM moor.sessions WHERE owner = who AND id = new_id)
        OR EXISTS (SELECT 1 FROM moor.sessions WHERE owner = who AND name = new_id AND finalized_at IS NULL)
    THEN
        RAISE EXCEPTION 'used' USING ERRCODE = 'MR003', DETAIL = 'used';
    END IF;
    IF new_name IS NULL OR head ->> 'finalized_at' IS NOT NULL THEN
        RETURN;
    END IF;
    SELECT id INTO other FROM moor.sessions WHERE owner = who AND name = new_name AND finalized_at IS NULL;
    IF other IS NULL THEN
        SELECT id INTO other FROM moor.sessions WHERE owner = who AND id = new_name;
    END IF;
    IF other IS NOT NULL THEN
        RAISE EXCEPTION 'name taken' USING ERRCODE = 'MR004', DETAIL = other;
    END IF;
END $$;

-- One session: its head, made or changed, and all that came with it.
CREATE FUNCTION moor.write_session_1(who text, one jsonb) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    my_pk bigint := (one ->> 'pk')::bigint;
    my_root bigint;
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
        INSERT INTO moor.sessions
        SELECT made.* FROM jsonb_populate_record(NULL::moor.sessions,
            one -> 'new' || jsonb_build_object('pk', my_pk, 'owner', who, 'revision', 1)) made
        RETURNING coalesce(root, pk) INTO my_root;
    ELSIF one ? 'head' THEN
        UPDATE moor.sessions s SET
            phase = h.phase, resume_ready = h.resume_ready, version = h.version, last_entry = h.last_entry,
            error_count = h.error_count, last_error = h.last_error, metadata = h.metadata, updated_at = h.updated_at,
            last_activity_at = h.last_activity_at, duration_seconds = h.duration_seconds, summary = h.summary,
            holder = h.holder, hold_until = h.hold_until, hold_token = h.hold_token,
            pending_approvals = h.pending_approvals, suspended_by = h.suspended_by, phase_before = h.phase_before,
            last_checkpoint = h.last_checkpoint, context_version = h.context_version, state = h.state,
            finalized_at = h.finalized_at, launched = h.launched, live_turn = h.live_turn, turns = h.turns,
            epoch = h.epoch, has_pins = s.has_pins OR h.has_pins, revision = s.revision + 1
        FROM jsonb_populate_record(NULL::moor.sessions, one -> 'head') h
        WHERE s.owner = who AND s.pk = my_pk AND s.revision = (one ->> 'revision')::bigint
        RETURNING coalesce(s.root, s.pk) INTO my_root;
    ELSE
        UPDATE moor.sessions s SET revision = s.revision + 1
        WHERE s.owner = who AND s.pk = my_pk AND s.revision = (one ->> 'revision')::bigint
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
        FROM jsonb_populate_recordset(NULL::moor.entries, one -> 'entries') e;
        INSERT INTO moor.arrivals (owner, subject, root, last, count)
        SELECT who, my_pk, my_root, (f ->> 0)::bigint, (f ->> 1)::bigint
        FROM jsonb_array_elements(one -> 'arrivals') WITH ORDINALITY a (f, place) ORDER BY place;
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
        PERFORM moor.write_work_1(who, my_pk, my_root, one -> 'work');
    END IF;
    RETURN my_pk;
END $$;

CREATE FUNCTION moor.write_context_1(who text, my_pk bigint, one jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF one ? 'at' THEN
        DELETE FROM moor.context WHERE owner = who AND session = my_pk AND expires_at <= (one ->> 'at')::bigint;
    END IF;
    IF one ? 'drop' THEN
        DELETE FROM moor.context WHERE owner = who AND session = my_pk
            AND key IN (SELECT jsonb_array_elements_text(one -> 'drop'));
    END IF;
    IF one ? 'copy' THEN
        INSERT INTO moor.context (owner, session, key, value, version, updated_at, expires_at)
        SELECT who, my_pk, key, value, version, updated_at, expires_at
        FROM moor.context WHERE owner = who AND session = (one ->> 'copy')::bigint;
    END IF;
    INSERT INTO moor.context (owner, session, key, value, version, updated_at, expires_at)
    SELECT who, my_pk, c.key, c.value, c.version, c.updated_at, c.expires_at
    FROM jsonb_populate_recordset(NULL::moor.context, one -> 'put') c
    ON CONFLICT (owner, session, key) DO UPDATE SET
        value = excluded.value, version = excluded.version, updated_at = excluded.updated_at,
        expires_at = excluded.expires_at;
END $$;

-- Runs, turns and items. What a decision has seen (`known`) is updated, everything else is new: an id that comes twice
-- is refused by its index.
CREATE FUNCTION moor.write_work_1(who text, my_pk bigint, my_root bigint, work jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    taken text;
BEGIN
    IF work ? 'runs' THEN
        SELECT r.key INTO taken FROM jsonb_to_recordset(work -> 'runs') n (known boolean, key text)
        JOIN moor.runs r ON r.owner = who AND r.key = n.key WHERE NOT n.known LIMIT 1;
        IF taken IS NOT NULL THEN
            RAISE EXCEPTION 'key reused' USING ERRCODE = 'MR005', DETAIL = taken;
        END IF;
        UPDATE moor.runs r SET state = c.state, expires_at = c.expires_at, body = c.body
        FROM jsonb_to_recordset(work -> 'runs') c (known boolean, id text, state text, expires_at bigint, body text)
        WHERE c.known AND r.owner = who AND r.id = c.id;
        INSERT INTO moor.runs (owner, session, id, agent, state, mode, is_joined, parent, parent_run, key, expires_at, body)
        SELECT who, my_pk, c.id, c.agent, c.state, c.mode, c.is_joined, c.parent, c.parent_run, c.key, c.expires_at, c.body
        FROM jsonb_array_elements(work -> 'runs') WITH ORDINALITY a (value, place),
            jsonb_populate_record(NULL::moor.runs, a.value) c
        WHERE NOT (a.value ->> 'known')::boolean ORDER BY a.place;
    END IF;
    IF work ? 'turns' THEN
        UPDATE moor.turns t SET
            state = c.state, launcher = c.launcher, not_before = c.not_before, due_at = c.due_at, body = c.body
        FROM jsonb_to_recordset(work -> 'turns') c
            (known boolean, id text, state text, launcher text, not_before bigint, due_at bigint, body text)
        WHERE c.known AND t.owner = who AND t.id = c.id;
        INSERT INTO moor.turns (owner, session, root, id, agent, state, launcher, not_before, due_at, body)
        SELECT who, my_pk, my_root, c.id, c.agent, c.state, c.launcher, c.not_before, c.due_at, c.body
        FROM jsonb_array_elements(work -> 'turns') WITH ORDINALITY a (value, place),
            jsonb_populate_record(NULL::moor.turns, a.value) c
        WHERE NOT (a.value ->> 'known')::boolean ORDER BY a.place;
    END IF;
    IF work ? 'items' THEN
        UPDATE moor.inbox i SET state = c.state, given = c.given, turn = c.turn, run = c.run
        FROM jsonb_to_recordset(work -> 'items') c
            (known boolean, id text, state text, given bigint, turn text, run text)
        WHERE c.known AND i.owner = who AND i.session = my_pk AND i.id = c.id;
        INSERT INTO moor.inbox
            (owner, session, id, kind, state, given, turn, run, entry, is_joined, created_at, body)
        SELECT who, my_pk, c.id, c.kind, c.state, c.given, c.turn, c.run, c.entry, c.is_joined, c.created_at, c.body
        FROM jsonb_array_elements(work -> 'items') WITH ORDINALITY a (value, place),
            jsonb_populate_record(NULL::moor.inbox, a.value) c
        WHERE NOT (a.value ->> 'known')::boolean ORDER BY a.place;
    END IF;
END $$;

-- Whether a text is JSON; PostgreSQL has a question for that from version 16 on only.
CREATE FUNCTION moor.is_json_1(body text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    PERFORM body::json;
    RETURN true;
EXCEPTION WHEN OTHERS THEN
    RETURN false;
END $$;
