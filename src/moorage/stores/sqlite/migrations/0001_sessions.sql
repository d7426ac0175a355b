-- Sessions, their logs, context and approvals. Integer keys inside, text ids outside.

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
    parent_id         TEXT,                               -- as at birth; a parent's id and name never change
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
    context_version   INTEGER NOT NULL DEFAULT 0
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

-- What a fork shares: entries of `segment` up to `upto`, after those of the row before.
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

CREATE TABLE context (
    session     INTEGER NOT NULL REFERENCES sessions (pk) ON DELETE CASCADE,
    key         TEXT NOT NULL,
    value       TEXT NOT NULL,
    version     INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    expires_at  INTEGER,
    PRIMARY KEY (session, key)
) STRICT, WITHOUT ROWID;

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
