-- Sessions, their logs, records and approvals. Integer keys inside, text ids outside.

CREATE TABLE sessions (
    pk                INTEGER PRIMARY KEY,                -- never reused: it names a segment of the log for ever
    owner             TEXT NOT NULL,
    id                TEXT NOT NULL,
    name              TEXT,
    task              TEXT NOT NULL,
    agent             TEXT,
    purpose           TEXT,
    project_dir       TEXT,
    state             TEXT NOT NULL,
    phase             TEXT NOT NULL,
    resume_ready      INTEGER NOT NULL,
    interface         TEXT,
    parent            INTEGER REFERENCES sessions (pk) ON DELETE CASCADE,
    root              INTEGER,                            -- NULL for a root: it is its own
    parent_id         TEXT,                               -- as at birth; a parent's id never changes
    parent_name       TEXT,
    root_id           TEXT,
    depth             INTEGER NOT NULL,
    forked_from       TEXT,
    shared_upto       INTEGER NOT NULL DEFAULT 0,         -- entries up to here live in the segments of `lineage`
    has_pins          INTEGER NOT NULL DEFAULT 0,         -- whether there may be system messages or a summary to look for
    version           INTEGER NOT NULL,
    last_entry        INTEGER NOT NULL,
    error_count       INTEGER NOT NULL,
    last_error        TEXT,
    metadata          TEXT NOT NULL,
    labels            TEXT NOT NULL DEFAULT '[]',  -- a JSON array of words
    created_at        INTEGER NOT NULL,                   -- instants are microseconds since 1970, UTC
    updated_at        INTEGER NOT NULL,
    last_activity_at  INTEGER NOT NULL,
    expires_at        INTEGER,
    finalized_at      INTEGER,
    duration_seconds  REAL,
    summary           TEXT,
    holder            TEXT,
    hold_until        INTEGER,
    hold_token        TEXT,
    pending_approvals INTEGER NOT NULL DEFAULT 0,
    suspended_by      TEXT,
    phase_before      TEXT,
    last_checkpoint   INTEGER,
    context_version   INTEGER NOT NULL DEFAULT 0,
    launched          INTEGER NOT NULL DEFAULT 0,
    live_turn         TEXT,
    turns             INTEGER NOT NULL DEFAULT 0,
    epoch             INTEGER NOT NULL DEFAULT 0,
    waits             INTEGER NOT NULL DEFAULT 0,  -- whether its inbox holds something for a turn
    run_failed        INTEGER NOT NULL DEFAULT 0,  -- whether the run that settled last did
    last_run          TEXT  -- that run as JSON: id, state, reason, settled_at
) STRICT;

-- The highest key of a deleted session. AUTOINCREMENT would do, and write one more page for every session created.
CREATE TABLE spent_keys (pk INTEGER NOT NULL) STRICT;
INSERT INTO spent_keys VALUES (0);

CREATE UNIQUE INDEX sessions_by_id ON sessions (owner, id);
CREATE UNIQUE INDEX sessions_by_open_name ON sessions (owner, name) WHERE name IS NOT NULL AND finalized_at IS NULL;
CREATE INDEX sessions_by_name ON sessions (owner, name, pk) WHERE name IS NOT NULL;
CREATE INDEX sessions_by_state ON sessions (owner, state, pk);
CREATE INDEX sessions_by_agent ON sessions (owner, agent, pk);
CREATE INDEX sessions_by_task ON sessions (owner, task, pk) WHERE task <> id;  -- the others are found by their id
CREATE INDEX sessions_by_project ON sessions (owner, project_dir, pk) WHERE project_dir IS NOT NULL;
CREATE INDEX sessions_ready ON sessions (owner, pk) WHERE resume_ready = 1;
CREATE INDEX sessions_waiting ON sessions (owner, pk) WHERE pending_approvals > 0;
CREATE INDEX sessions_by_parent ON sessions (parent, pk) WHERE parent IS NOT NULL;
CREATE INDEX sessions_by_root ON sessions (root, finalized_at) WHERE root IS NOT NULL;
CREATE INDEX sessions_by_expiry ON sessions (owner, expires_at) WHERE expires_at IS NOT NULL;

-- Sessions by their labels.
CREATE TABLE labels (
    session  INTEGER NOT NULL REFERENCES sessions (pk) ON DELETE CASCADE,
    label    TEXT NOT NULL,
    owner    TEXT NOT NULL,
    PRIMARY KEY (session, label)
) STRICT, WITHOUT ROWID;

CREATE INDEX labels_by_owner ON labels (owner, label, session);

-- The log: rows in the order they were committed, found by session through an index. New rows fill whole pages at
-- the end; clustered by session, sixty-four sessions written to at once cost two thirds more. An id is never used
-- again while the search index may know it: segment 0 holds the place of the newest one if that was deleted.
CREATE TABLE entries (
    id          INTEGER PRIMARY KEY,
    segment     INTEGER NOT NULL,  -- the session that wrote it; forks share segments, so it may outlive its session
    number      INTEGER NOT NULL,
    kind        TEXT NOT NULL,   -- 'system' is a message of that role: windows keep those, so they are indexed
    at          INTEGER NOT NULL,
    role        TEXT,
    content     TEXT,            -- what was said, if it is plain text
    data        TEXT,            -- JSON: the parts of a message that is more than text; what happened, otherwise
    by          TEXT,
    interface   TEXT,
    client_key  TEXT
) STRICT;

CREATE UNIQUE INDEX entries_by_number ON entries (segment, number);
-- Rare kinds are found without reading messages. Every log begins with 'created', which need not be looked for.
CREATE INDEX entries_by_kind ON entries (segment, kind, number) WHERE kind <> 'message' AND kind <> 'created';
-- Not unique: a restored fork may have a key twice, its source's and its own. The newest counts.
CREATE INDEX entries_by_key ON entries (segment, client_key, number) WHERE client_key IS NOT NULL;

-- Segments shared by a fork: entries of `segment` up to `upto`, after those of the row before.
CREATE TABLE lineage (
    session  INTEGER NOT NULL REFERENCES sessions (pk) ON DELETE CASCADE,
    segment  INTEGER NOT NULL,
    upto     INTEGER NOT NULL,
    PRIMARY KEY (session, segment)
) STRICT, WITHOUT ROWID;

CREATE INDEX lineage_by_segment ON lineage (segment, upto);

CREATE TABLE owners (
    no    INTEGER PRIMARY KEY,
    name  TEXT NOT NULL UNIQUE
) STRICT;

-- One cursor over all of an owner's sessions: id = owners.no << 40 | cursor. A row stands for `count` events
-- that end there: entries up to number `last` of a session, or (last = 0) the deletion that tombstone `subject`
-- tells of. A plain integer key: finding the end through (owner, cursor) took five times as long.
CREATE TABLE feed (
    id       INTEGER PRIMARY KEY,
    subject  INTEGER NOT NULL,
    last     INTEGER NOT NULL,
    count    INTEGER NOT NULL
) STRICT;

CREATE TABLE tombstones (
    n                INTEGER PRIMARY KEY,
    owner            TEXT NOT NULL,
    id               TEXT NOT NULL,
    name             TEXT,
    agent            TEXT,
    task             TEXT,
    state            TEXT NOT NULL,
    root_of_deletion TEXT NOT NULL,
    deleted_at       INTEGER NOT NULL,
    deleted_by       TEXT,
    reason           TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX tombstones_by_id ON tombstones (owner, id);

-- Opaque values beside the log. The session is a key of `sessions`, or 0 for what belongs to the owner. Values come last:
-- whatever else is asked of a record, their pages are not read.
CREATE TABLE records (
    owner       TEXT NOT NULL,
    session     INTEGER NOT NULL,
    namespace   TEXT NOT NULL,
    key         TEXT NOT NULL,
    form        TEXT NOT NULL,
    size        INTEGER NOT NULL,
    parts       INTEGER NOT NULL,
    version     INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    expires_at  INTEGER,
    value       TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX records_by_name ON records (owner, session, namespace, key);
CREATE INDEX records_by_expiry ON records (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE approvals (
    n           INTEGER PRIMARY KEY,
    session     INTEGER NOT NULL REFERENCES sessions (pk) ON DELETE CASCADE,
    owner       TEXT NOT NULL,
    id          TEXT NOT NULL,
    state       TEXT NOT NULL,
    expires_at  INTEGER,
    body        TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX approvals_by_id ON approvals (owner, id);
CREATE INDEX approvals_by_session ON approvals (session);
CREATE INDEX approvals_pending ON approvals (owner, n) WHERE state = 'pending';
CREATE INDEX approvals_due ON approvals (owner, expires_at) WHERE state = 'pending' AND expires_at IS NOT NULL;

-- Full text, filled from the feed off the write path. rowid = entries.id.
CREATE VIRTUAL TABLE search USING fts5 (text, content = '', contentless_delete = 1);
-- How far the index has come: of which owner (owners.no), in the feed (feed.id), in the log (entries.id).
CREATE TABLE search_marks (owner INTEGER PRIMARY KEY, feed INTEGER NOT NULL, entry INTEGER NOT NULL) STRICT;
CREATE TABLE search_purges (id INTEGER PRIMARY KEY) STRICT;

-- Delegations, and what is looked for before them; sessions by the time they were created.

CREATE TABLE delegations (
    n            INTEGER PRIMARY KEY,
    owner        TEXT NOT NULL,
    id           TEXT NOT NULL,
    at           INTEGER NOT NULL,
    agent        TEXT,
    task         TEXT,
    project_dir  TEXT,
    session      TEXT,             -- an id, not a reference: they are counted long after their session is gone
    host         TEXT,
    resumed      INTEGER NOT NULL,
    reason       TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX delegations_by_id ON delegations (owner, id);
CREATE INDEX delegations_by_time ON delegations (owner, at);

CREATE INDEX sessions_by_time ON sessions (owner, created_at);

-- Before every delegation: is there work of this agent to pick up, in this folder or for this task?
CREATE INDEX sessions_ready_by_folder ON sessions (owner, project_dir, agent, pk)
    WHERE resume_ready = 1 AND project_dir IS NOT NULL;
CREATE INDEX sessions_ready_by_task ON sessions (owner, task, agent, pk) WHERE resume_ready = 1;

-- The audit, newest first: by the index of ids it sorted all that the owner ever deleted, for every page.
CREATE INDEX tombstones_by_owner ON tombstones (owner, n);

-- Runs, turns and inboxes: what a launcher works on. The rules that must hold whatever the code does are indexes here:
-- a session has at most one queued and one running turn, a child calls back once, an idempotency key asks once.

CREATE INDEX sessions_running ON sessions (owner, pk) WHERE live_turn IS NOT NULL;
CREATE INDEX sessions_queued ON sessions (owner, pk) WHERE waits = 1;
CREATE INDEX sessions_run_failed ON sessions (owner, pk) WHERE run_failed = 1;

-- Columns are what statements look for; the body is the whole run as JSON.
CREATE TABLE runs (
    n           INTEGER PRIMARY KEY,
    session     INTEGER NOT NULL REFERENCES sessions (pk) ON DELETE CASCADE,
    owner       TEXT NOT NULL,
    id          TEXT NOT NULL,
    agent       TEXT,
    state       TEXT NOT NULL,
    mode        TEXT NOT NULL,
    is_joined   INTEGER NOT NULL,   -- delivered together with its siblings
    parent      TEXT,               -- an id: a parent may be deleted before its child's run has settled
    parent_run  TEXT,
    key         TEXT,
    expires_at  INTEGER,            -- while no launcher has taken it
    body        TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX runs_by_id ON runs (owner, id);
CREATE UNIQUE INDEX runs_by_key ON runs (owner, key) WHERE key IS NOT NULL;
CREATE INDEX runs_by_session ON runs (session, state, n);
CREATE INDEX runs_by_state ON runs (owner, state, n);
CREATE INDEX runs_by_parent ON runs (owner, parent, n) WHERE parent IS NOT NULL;
CREATE INDEX runs_to_call_back ON runs (owner, parent_run, is_joined)
    WHERE state IN ('queued', 'running') AND mode = 'async_callback';
CREATE INDEX runs_calling_back ON runs (owner, parent, n) WHERE state IN ('queued', 'running') AND mode = 'async_callback';
CREATE INDEX runs_awaited ON runs (owner, parent) WHERE state IN ('queued', 'running') AND mode = 'sync';
CREATE INDEX runs_due ON runs (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE turns (
    n           INTEGER PRIMARY KEY,
    session     INTEGER NOT NULL REFERENCES sessions (pk) ON DELETE CASCADE,
    root        INTEGER NOT NULL,   -- of the session's family
    owner       TEXT NOT NULL,
    id          TEXT NOT NULL,
    agent       TEXT,
    state       TEXT NOT NULL,
    launcher    TEXT,
    not_before  INTEGER,
    due_at      INTEGER,            -- of a running turn: when silence has consequences
    body        TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX turns_by_id ON turns (owner, id);
CREATE INDEX turns_by_session ON turns (session);
CREATE UNIQUE INDEX turns_queued ON turns (session) WHERE state = 'queued';
CREATE UNIQUE INDEX turns_running ON turns (session) WHERE state = 'running';
-- A claim looks for the oldest turn of each agent it can start: what waits for other agents is never walked past.
CREATE INDEX turns_ready ON turns (owner, agent, n) WHERE state = 'queued' AND not_before IS NULL;
CREATE INDEX turns_later ON turns (owner, agent, not_before) WHERE state = 'queued' AND not_before IS NOT NULL;
CREATE INDEX turns_of_family ON turns (root, n) WHERE state = 'queued';
CREATE INDEX turns_due ON turns (due_at) WHERE state = 'running';
CREATE INDEX turns_of_launcher ON turns (launcher, n) WHERE state = 'running';

-- Columns are what changes or is looked for; the body never changes, and is read only where an item is shown.
CREATE TABLE inbox (
    n           INTEGER PRIMARY KEY,
    session     INTEGER NOT NULL REFERENCES sessions (pk) ON DELETE CASCADE,
    owner       TEXT NOT NULL,
    id          TEXT NOT NULL,
    kind        TEXT NOT NULL,
    state       TEXT NOT NULL,
    given       INTEGER NOT NULL,
    turn        TEXT,
    run         TEXT,
    entry       INTEGER,
    is_joined   INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    body        TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX inbox_by_id ON inbox (session, id);
CREATE INDEX inbox_open ON inbox (session, state, n) WHERE state <> 'consumed';
CREATE INDEX inbox_by_state ON inbox (owner, state, n) WHERE state <> 'consumed';

-- Small JSON values that belong to no session, by kind and key; `DocumentKind` in core/document.py lists the kinds.
CREATE TABLE documents (
    kind        TEXT NOT NULL,
    key         TEXT NOT NULL,
    body        TEXT NOT NULL,
    expires_at  INTEGER,            -- from then on it may be purged
    PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX documents_by_expiry ON documents (expires_at) WHERE expires_at IS NOT NULL;

-- A creating request, and what it became: written in the same commit.
CREATE TABLE once (
    owner      TEXT NOT NULL,
    operation  TEXT NOT NULL,
    key        TEXT NOT NULL,
    digest     TEXT NOT NULL,
    ref        TEXT NOT NULL,
    at         INTEGER NOT NULL,
    PRIMARY KEY (owner, operation, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX once_by_time ON once (at);

-- Not by state: a run changes that several times, and its agent never.
CREATE INDEX runs_by_agent ON runs (owner, agent, n);
