-- needs 3
-- Agents, workers and tools that registered at one of the servers of this store, each until its lease ends.
CREATE TABLE moor.registrations (
    role      text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    endpoint  text COLLATE "C" NOT NULL,
    until     bigint NOT NULL,
    body      text NOT NULL,
    PRIMARY KEY (role, name, endpoint)
);
