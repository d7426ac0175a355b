-- needs 3
-- Whether somebody wants a launcher to take no more turns. A column of its own: the body is what the launcher tells of
-- itself, and it is written anew with every sign of life.
ALTER TABLE moor.launchers ADD COLUMN drain boolean NOT NULL DEFAULT false;
