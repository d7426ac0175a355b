-- Delegations, and sessions by the time they were created.

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
