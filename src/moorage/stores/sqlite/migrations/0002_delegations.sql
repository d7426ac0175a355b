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
