-- Only where the schema does not exist: a role that owns it need not be one that may create it.

CREATE SCHEMA IF NOT EXISTS limpet;
COMMENT ON SCHEMA limpet IS 'The state of agents: sessions, their scopes, and snapshots of what each scope was.';
