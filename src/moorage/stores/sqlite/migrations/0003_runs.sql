-- Runs, turns and inboxes: what a launcher works on. The rules that must hold whatever the code does are indexes here:
-- a session has at most one queued and one running turn, a child calls back once, an idempotency key asks once.

ALTER TABLE sessions ADD COLUMN launched INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN live_turn TEXT;
ALTER TABLE sessions ADD COLUMN turns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN waits INTEGER NOT NULL DEFAULT 0;       -- whether its inbox holds something for a turn
ALTER TABLE sessions ADD COLUMN run_failed INTEGER NOT NULL DEFAULT 0;  -- whether the run that settled last did
ALTER TABLE sessions ADD COLUMN last_run TEXT;                          -- that run as JSON: id, state, reason, settled_at

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

CREATE TABLE launchers (
    n     INTEGER PRIMARY KEY,
    id    TEXT NOT NULL UNIQUE,
    body  TEXT NOT NULL
) STRICT;
