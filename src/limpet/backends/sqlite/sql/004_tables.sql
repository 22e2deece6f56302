-- The tables. Times are microseconds since 1970 in UTC. Text is compared by code points (SQLite's
-- BINARY collation). A place (`seq`) is a time with ten more bits, and unique in the whole store.

CREATE TABLE schema_migrations (
    version    INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    applied_at INTEGER NOT NULL DEFAULT (1000000 * CAST(strftime('%s', 'now') AS INTEGER))
) STRICT;

-- One row: what tells this store from every other one. Keys are derived from it.
CREATE TABLE store (id BLOB PRIMARY KEY) STRICT;
INSERT INTO store (id) VALUES (randomblob(16));

-- One line of state. Stays, unlisted, when it becomes empty, so that the ids minted in it grow.
CREATE TABLE scopes (
    pk         INTEGER PRIMARY KEY,      -- the place of its first change
    session_id TEXT NOT NULL,
    kind       TEXT NOT NULL,
    scope_id   TEXT NOT NULL,
    version    INTEGER NOT NULL,         -- the nonce of its last change: every change compares it
    head       INTEGER,                  -- the snapshot it shows
    tip        INTEGER,                  -- the newest kept snapshot
    last       INTEGER NOT NULL,         -- the greatest place given out
    floor      TEXT NOT NULL,            -- the greatest id minted in it
    fence      TEXT,                     -- the key of the lease that holds it
    owner      TEXT,
    until      INTEGER,
    notes      INTEGER NOT NULL,         -- how many
    tail_count INTEGER NOT NULL,         -- how many states are in `tails`, and their bytes
    tail_bytes INTEGER NOT NULL,
    offsets    BLOB,                     -- where the lists of the tip's state end
    trail      BLOB NOT NULL,            -- the versions of the last 16 changes
    epoch      INTEGER NOT NULL,         -- the version of the last that moved or changed states
    checksum   INTEGER NOT NULL,         -- over the whole row
    UNIQUE (session_id, kind, scope_id)
) STRICT;

-- Metadata only; the state is in `tails` or `segments`. The checksum covers all of the row but `apart`.
CREATE TABLE snapshots (
    seq         INTEGER PRIMARY KEY,     -- its place in history
    scope_pk    INTEGER NOT NULL,
    id          TEXT NOT NULL,
    rev         INTEGER NOT NULL,        -- how often it was changed in place
    nonce       TEXT NOT NULL,           -- of its last write; seq.rev.nonce is its revision
    kept        INTEGER NOT NULL,        -- 0: a draft, which only the head shows
    parent_id   TEXT,                    -- a statement: may name what is gone or yet to come
    apart       INTEGER NOT NULL,        -- 0: its parent is the snapshot saved just before it
    forked_from BLOB,                    -- JSON [session, scope, kind, id]
    status      TEXT NOT NULL,
    labels      BLOB NOT NULL,           -- JSON object in the order of names; indexed in `labels`
    metadata    BLOB NOT NULL,           -- JSON object
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    size        INTEGER NOT NULL,        -- bytes of the encoded state
    checksum    INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX snapshots_by_id ON snapshots (scope_pk, id);  -- load(id), ids()
CREATE INDEX snapshots_anywhere ON snapshots (id);                -- find(id)
CREATE INDEX snapshots_by_scope ON snapshots (scope_pk);          -- history(): ends in seq by itself
CREATE INDEX snapshots_by_parent ON snapshots (scope_pk, parent_id) WHERE apart;

-- The states of the newest snapshots: whole, or a delta on the state of `base`.
CREATE TABLE tails (
    seq      INTEGER PRIMARY KEY,
    base     INTEGER,
    encoding INTEGER NOT NULL,           -- 0 as it is, 1 zstd, 2 the name of a row in `shared`
    body     BLOB NOT NULL,
    checksum INTEGER NOT NULL            -- over the whole row
) STRICT;
CREATE INDEX tails_by_shared ON tails (substr(body, 1, 16)) WHERE encoding = 2;

-- The states of older snapshots, many in one row (docs/format.md).
CREATE TABLE segments (
    pk        INTEGER PRIMARY KEY,
    scope_pk  INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq  INTEGER NOT NULL,
    body      BLOB NOT NULL,
    checksum  INTEGER NOT NULL,          -- over the whole row
    UNIQUE (scope_pk, last_seq)
) STRICT;

-- States that forks begin at, as long as one of them has it in its tail.
CREATE TABLE shared (
    name       BLOB PRIMARY KEY,         -- the place of its snapshot, and the nonce of its write
    session_id TEXT NOT NULL,
    body       BLOB NOT NULL,
    checksum   INTEGER NOT NULL          -- over the whole row
) STRICT;

-- The index of labels, made from snapshots.labels.
CREATE TABLE labels (
    name  TEXT NOT NULL,
    value TEXT NOT NULL,
    seq   INTEGER NOT NULL,
    PRIMARY KEY (name, value, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX labels_by_seq ON labels (seq);                       -- deletes

-- Small documents beside a scope (on_id '') or beside a snapshot id, which need not exist.
CREATE TABLE notes (
    pk         INTEGER PRIMARY KEY,
    scope_pk   INTEGER NOT NULL,
    on_id      TEXT NOT NULL,
    name       TEXT NOT NULL,
    rev        INTEGER NOT NULL,
    nonce      TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    value      BLOB NOT NULL,            -- JSON, or a zstd frame of it
    checksum   INTEGER NOT NULL,         -- over the whole row
    UNIQUE (scope_pk, on_id, name)
) STRICT;
CREATE INDEX notes_by_time ON notes (scope_pk, updated_at DESC) WHERE on_id = '';
