-- What a server needs besides: keys and what it signs with, requests that are done once, and which servers live.

-- Columns are what statements look for; the body is the whole key as JSON, without its secret, of which nobody but its
-- bearer knows more than the digest.
CREATE TABLE keys (
    n       INTEGER PRIMARY KEY,
    id      TEXT NOT NULL UNIQUE,
    owner   TEXT NOT NULL,
    digest  TEXT NOT NULL,
    body    TEXT NOT NULL
) STRICT;

CREATE INDEX keys_by_owner ON keys (owner, n);

-- What the servers of this store share and nobody else knows, by what it is for.
CREATE TABLE secrets (
    purpose  TEXT PRIMARY KEY,
    body     TEXT NOT NULL
) STRICT, WITHOUT ROWID;

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

CREATE TABLE servers (
    id       TEXT PRIMARY KEY,
    beat_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Not by state: a run changes that several times, and its agent never.
CREATE INDEX runs_by_agent ON runs (owner, agent, n);
