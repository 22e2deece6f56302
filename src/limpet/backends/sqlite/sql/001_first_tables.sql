-- The first tables. Times are microseconds since 1970 in UTC. Integer keys inside, so that a row of
-- an index holds at most one id. Text is compared by code points (SQLite's BINARY collation).

CREATE TABLE schema_migrations (
    version    INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    applied_at INTEGER NOT NULL DEFAULT (1000000 * CAST(strftime('%s', 'now') AS INTEGER))
) STRICT;

-- The last place and time that were given to a snapshot that has been deleted since. One row.
CREATE TABLE watermark (
    pk       INTEGER PRIMARY KEY CHECK (pk = 1),
    seq      INTEGER NOT NULL,
    saved_at INTEGER NOT NULL
) STRICT;
INSERT INTO watermark (pk, seq, saved_at) VALUES (1, 0, -1);

-- The unit of deletion. Exists as long as one of its scopes does.
CREATE TABLE sessions (
    pk         INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL UNIQUE
) STRICT;

-- One line of state. Stays, unlisted, when it becomes empty, so that the ids minted in it grow.
CREATE TABLE scopes (
    pk          INTEGER PRIMARY KEY,
    session_pk  INTEGER NOT NULL REFERENCES sessions (pk) ON DELETE CASCADE,
    kind        TEXT NOT NULL,
    scope_id    TEXT NOT NULL,
    head_seq    INTEGER,                  -- the snapshot it shows
    tip_seq     INTEGER,                  -- the newest kept snapshot
    next_seq    INTEGER NOT NULL,         -- the next place is not below this
    floor       TEXT NOT NULL DEFAULT '', -- the greatest id minted in it
    fence       TEXT,                     -- the key of the lease that holds it
    lease_owner TEXT,
    lease_until INTEGER,
    codec       BLOB,                     -- what is remembered of the body stored last
    UNIQUE (session_pk, kind, scope_id)
) STRICT;

-- Metadata only; the state is in `bodies`. The checksum covers all of the row but `apart`.
CREATE TABLE snapshots (
    seq         INTEGER PRIMARY KEY,      -- its place in history, never used again in its scope
    scope_pk    INTEGER NOT NULL REFERENCES scopes (pk) ON DELETE CASCADE,
    id          TEXT NOT NULL,
    rev         INTEGER NOT NULL,         -- how often it was changed in place
    nonce       TEXT NOT NULL,            -- of its last write; seq.rev.nonce is its revision
    kept        INTEGER NOT NULL,         -- 0: a draft, which only the head shows
    parent_id   TEXT,                     -- a statement: may name what is gone or yet to come
    apart       INTEGER NOT NULL,         -- 0: its parent is the snapshot saved just before it
    forked_from BLOB,                     -- JSON [session, scope, kind, id]
    status      TEXT NOT NULL,
    labels      BLOB NOT NULL,            -- JSON object in the order of names; indexed in `labels`
    metadata    BLOB NOT NULL,            -- JSON object
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    saved_at    INTEGER NOT NULL,         -- logical commit time, greater than all before it
    size        INTEGER NOT NULL,         -- bytes of the encoded state
    checksum    INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX snapshots_by_id ON snapshots (scope_pk, id); -- load(id), ids()
CREATE INDEX snapshots_by_place ON snapshots (scope_pk);         -- history(): ends in seq by itself
CREATE INDEX snapshots_by_parent ON snapshots (scope_pk, parent_id) WHERE apart;
CREATE INDEX snapshots_anywhere ON snapshots (id);               -- find(id)

-- The states, under the same seq. `base` is the body that a delta builds on. A body without a
-- snapshot was that of a draft, and others build on it.
CREATE TABLE bodies (
    seq      INTEGER PRIMARY KEY,
    base     INTEGER,
    encoding INTEGER NOT NULL,            -- 0 whole, 2 delta, 4 sealed delta; and 1 if zstd
    body     BLOB NOT NULL,
    checksum INTEGER NOT NULL             -- over all of the row
) STRICT;
CREATE INDEX bodies_by_base ON bodies (base) WHERE base IS NOT NULL;

-- The index of labels, made from snapshots.labels.
CREATE TABLE labels (
    name  TEXT NOT NULL,
    value TEXT NOT NULL,
    seq   INTEGER NOT NULL REFERENCES snapshots (seq) ON DELETE CASCADE,
    PRIMARY KEY (name, value, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX labels_by_seq ON labels (seq);                      -- deletes

-- Small documents beside a scope (on_id '') or beside a snapshot id, which need not exist.
CREATE TABLE notes (
    pk         INTEGER PRIMARY KEY,
    scope_pk   INTEGER NOT NULL REFERENCES scopes (pk) ON DELETE CASCADE,
    on_id      TEXT NOT NULL,
    name       TEXT NOT NULL,
    rev        INTEGER NOT NULL,
    nonce      TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    value      BLOB NOT NULL,             -- JSON, or a zstd frame of it
    checksum   INTEGER NOT NULL,          -- over the whole row
    UNIQUE (scope_pk, on_id, name)
) STRICT;
