-- When the next run of an owner has waited too long for a launcher; `runs_due` is for all owners together.
CREATE INDEX runs_untaken ON runs (owner, expires_at) WHERE expires_at IS NOT NULL;
