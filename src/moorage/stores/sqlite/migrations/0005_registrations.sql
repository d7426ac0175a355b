-- Agents, workers and tools that registered at one of the servers of this store, each until its lease ends.
CREATE TABLE registrations (
    role      TEXT NOT NULL,
    name      TEXT NOT NULL,
    endpoint  TEXT NOT NULL,
    until     INTEGER NOT NULL,
    body      TEXT NOT NULL,
    PRIMARY KEY (role, name, endpoint)
) STRICT, WITHOUT ROWID;
