-- The tables. Times are microseconds since 1970 in UTC; the views show them as timestamps. Text is
-- compared by code points (COLLATE "C"), so that an order does not depend on the server's locale. Wide
-- columns come first: there is no padding between them. A place (`seq`) is a time with ten more bits,
-- unique in the whole store. No foreign keys: a writer holds the row of its scope.

CREATE TABLE limpet.schema_migrations (
    version    integer PRIMARY KEY,
    name       text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE  limpet.schema_migrations IS 'Which migrations have been run. The greatest version is that of the tables.';
COMMENT ON COLUMN limpet.schema_migrations.version IS 'Number of the migration.';
COMMENT ON COLUMN limpet.schema_migrations.name IS 'What it was for.';
COMMENT ON COLUMN limpet.schema_migrations.applied_at IS 'When it was run.';

CREATE TABLE limpet.store (id bytea PRIMARY KEY);
INSERT INTO limpet.store (id) VALUES (uuid_send(gen_random_uuid()));
COMMENT ON TABLE  limpet.store IS 'One row.';
COMMENT ON COLUMN limpet.store.id IS 'What tells this store from every other one. Keys are derived from it.';

-- Every save updates one row here, which stays on its page (HOT): no index has a column of those.
CREATE TABLE limpet.scopes (
    pk         bigint PRIMARY KEY,
    version    bigint NOT NULL,
    head       bigint,
    tip        bigint,
    last       bigint NOT NULL,
    until      bigint,
    tail_bytes bigint NOT NULL,
    epoch      bigint NOT NULL,
    checksum   bigint NOT NULL,
    notes      integer NOT NULL,
    tail_count integer NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    scope_id   text COLLATE "C" NOT NULL,
    floor      text COLLATE "C" NOT NULL,
    fence      text,
    owner      text,
    offsets    bytea,
    trail      bytea NOT NULL
) WITH (fillfactor = 50);
-- By a hash, since two names of 512 characters are too long for one row of an index.
CREATE UNIQUE INDEX scopes_by_name ON limpet.scopes (session_id, kind, hashtextextended(scope_id, 0));
COMMENT ON TABLE  limpet.scopes IS 'One line of state inside a session. A writer locks its row. Stays, unlisted, when it becomes empty, so that the ids minted in it grow.';
COMMENT ON COLUMN limpet.scopes.pk IS 'The place of its first change; part of the checksums of what the scope holds.';
COMMENT ON COLUMN limpet.scopes.version IS 'The nonce of its last change: every change compares it.';
COMMENT ON COLUMN limpet.scopes.head IS 'The snapshot that it shows.';
COMMENT ON COLUMN limpet.scopes.tip IS 'Its newest kept snapshot.';
COMMENT ON COLUMN limpet.scopes.last IS 'The greatest place given out in it.';
COMMENT ON COLUMN limpet.scopes.until IS 'When the lease ends, in microseconds.';
COMMENT ON COLUMN limpet.scopes.tail_bytes IS 'The bytes of its states in tails.';
COMMENT ON COLUMN limpet.scopes.epoch IS 'The version of the last change that moved or changed stored states.';
COMMENT ON COLUMN limpet.scopes.checksum IS 'Over the whole row.';
COMMENT ON COLUMN limpet.scopes.notes IS 'How many notes it has.';
COMMENT ON COLUMN limpet.scopes.tail_count IS 'How many of its states are in tails.';
COMMENT ON COLUMN limpet.scopes.session_id IS 'The conversation or workflow that it belongs to: the unit of deletion. A tenant is a prefix of names.';
COMMENT ON COLUMN limpet.scopes.kind IS 'What the line of state belongs to: agent, graph, thread, run, ...';
COMMENT ON COLUMN limpet.scopes.scope_id IS 'Its name, unique for its kind in its session.';
COMMENT ON COLUMN limpet.scopes.floor IS 'The greatest id minted in it: the next one is greater.';
COMMENT ON COLUMN limpet.scopes.fence IS 'The key of the lease that holds it.';
COMMENT ON COLUMN limpet.scopes.owner IS 'Who holds the lease, for people to read.';
COMMENT ON COLUMN limpet.scopes.offsets IS 'Where the lists of the tip''s state end, so that an append need not read it.';
COMMENT ON COLUMN limpet.scopes.trail IS 'The versions of the last 16 changes, 8 bytes each: by them a writer sees that its own lost answer was a yes.';

CREATE TABLE limpet.snapshots (
    seq         bigint PRIMARY KEY,
    scope_pk    bigint NOT NULL,
    created_at  bigint NOT NULL,
    updated_at  bigint NOT NULL,
    size        bigint NOT NULL,
    checksum    bigint NOT NULL,
    rev         integer NOT NULL,
    kept        boolean NOT NULL,
    apart       boolean NOT NULL,
    id          text COLLATE "C" NOT NULL,
    parent_id   text COLLATE "C",
    nonce       text NOT NULL,
    status      text NOT NULL,
    labels      bytea NOT NULL,
    metadata    bytea NOT NULL,
    forked_from bytea
);
CREATE UNIQUE INDEX snapshots_by_id ON limpet.snapshots (scope_pk, id);     -- load(id), ids()
CREATE INDEX snapshots_anywhere ON limpet.snapshots (id);                   -- find(id)
CREATE INDEX snapshots_by_scope ON limpet.snapshots (scope_pk, seq);        -- history()
CREATE INDEX snapshots_by_parent ON limpet.snapshots (scope_pk, parent_id) WHERE apart; -- leaves()
COMMENT ON TABLE  limpet.snapshots IS 'What a scope was at one moment: the facts. The state itself is in tails or segments.';
COMMENT ON COLUMN limpet.snapshots.seq IS 'Its place: greater than all before it in its scope, and never used again there. Microseconds in the upper bits, so that places of all scopes are in the order of their clocks.';
COMMENT ON COLUMN limpet.snapshots.scope_pk IS 'The scope it belongs to.';
COMMENT ON COLUMN limpet.snapshots.created_at IS 'When it was made, in microseconds.';
COMMENT ON COLUMN limpet.snapshots.updated_at IS 'When it was last changed in place, in microseconds.';
COMMENT ON COLUMN limpet.snapshots.size IS 'Bytes of the encoded state, before it is stored as a delta and compressed.';
COMMENT ON COLUMN limpet.snapshots.checksum IS 'Over all of the row but apart.';
COMMENT ON COLUMN limpet.snapshots.rev IS 'How often it was changed in place.';
COMMENT ON COLUMN limpet.snapshots.kept IS 'False: a draft, which only the head shows.';
COMMENT ON COLUMN limpet.snapshots.apart IS 'False: its parent is the snapshot saved just before it.';
COMMENT ON COLUMN limpet.snapshots.id IS 'Its name, unique in its scope.';
COMMENT ON COLUMN limpet.snapshots.parent_id IS 'What it was made from. A statement: may name what is gone or yet to come.';
COMMENT ON COLUMN limpet.snapshots.nonce IS 'Mark of its last write; seq.rev.nonce, in hex, is its revision.';
COMMENT ON COLUMN limpet.snapshots.status IS 'Free text of whoever saved it.';
COMMENT ON COLUMN limpet.snapshots.labels IS 'JSON object of texts, in the order of names; indexed in the table labels.';
COMMENT ON COLUMN limpet.snapshots.metadata IS 'JSON object. Bytes, since jsonb would reorder it and refuse NUL.';
COMMENT ON COLUMN limpet.snapshots.forked_from IS 'JSON [session, scope, kind, id] of the snapshot that a fork began at.';

-- Every row goes soon after it came, when it is moved to a segment, so it pays to vacuum early. What is
-- large is compressed before it comes here.
CREATE TABLE limpet.tails (
    scope_pk bigint NOT NULL,
    seq      bigint NOT NULL,
    base     bigint,
    checksum bigint NOT NULL,
    encoding smallint NOT NULL,
    body     bytea NOT NULL,
    PRIMARY KEY (scope_pk, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200);
ALTER TABLE limpet.tails ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX tails_by_seq ON limpet.tails (seq);                            -- check and rekey
CREATE INDEX tails_by_shared ON limpet.tails (substring(body FOR 16)) WHERE encoding = 2; -- who uses it
COMMENT ON TABLE  limpet.tails IS 'The states of the newest snapshots of each scope.';
COMMENT ON COLUMN limpet.tails.scope_pk IS 'The scope of its snapshot.';
COMMENT ON COLUMN limpet.tails.seq IS 'The place of its snapshot.';
COMMENT ON COLUMN limpet.tails.base IS 'The state that a delta builds on, in the same scope. NULL: a whole state.';
COMMENT ON COLUMN limpet.tails.checksum IS 'Over the whole row.';
COMMENT ON COLUMN limpet.tails.encoding IS '0 as it is, 1 compressed by zstd, 2 the name of a row in shared.';
COMMENT ON COLUMN limpet.tails.body IS 'The state as JSON, or what changed.';

CREATE TABLE limpet.segments (
    pk        bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    scope_pk  bigint NOT NULL,
    first_seq bigint NOT NULL,
    last_seq  bigint NOT NULL,
    checksum  bigint NOT NULL,
    body      bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 50);
ALTER TABLE limpet.segments ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX segments_by_place ON limpet.segments (scope_pk, last_seq);
COMMENT ON TABLE  limpet.segments IS 'The states of older snapshots, many in one row.';
COMMENT ON COLUMN limpet.segments.pk IS 'Key inside the database.';
COMMENT ON COLUMN limpet.segments.scope_pk IS 'The scope of its snapshots.';
COMMENT ON COLUMN limpet.segments.first_seq IS 'The place of its oldest snapshot.';
COMMENT ON COLUMN limpet.segments.last_seq IS 'The place of its newest snapshot.';
COMMENT ON COLUMN limpet.segments.checksum IS 'Over the whole row.';
COMMENT ON COLUMN limpet.segments.body IS 'The states, compressed (docs/format.md).';

CREATE TABLE limpet.shared (
    name       bytea PRIMARY KEY,
    checksum   bigint NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    body       bytea NOT NULL
);
ALTER TABLE limpet.shared ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX shared_by_session ON limpet.shared (session_id);               -- stats
COMMENT ON TABLE  limpet.shared IS 'States that forks begin at, as long as one of them has it in its tail.';
COMMENT ON COLUMN limpet.shared.name IS 'The place of its snapshot, and the nonce of the write of that.';
COMMENT ON COLUMN limpet.shared.checksum IS 'Over the whole row.';
COMMENT ON COLUMN limpet.shared.session_id IS 'The session of the forks.';
COMMENT ON COLUMN limpet.shared.body IS 'The state, compressed.';

CREATE TABLE limpet.labels (
    seq   bigint NOT NULL,
    name  text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    PRIMARY KEY (name, value, seq)                                            -- history(labels=)
);
CREATE INDEX labels_by_seq ON limpet.labels (seq);                          -- deletes
COMMENT ON TABLE  limpet.labels IS 'The index of labels, made from snapshots.labels.';
COMMENT ON COLUMN limpet.labels.seq IS 'The snapshot that carries it.';
COMMENT ON COLUMN limpet.labels.name IS 'Name of the label.';
COMMENT ON COLUMN limpet.labels.value IS 'Its value.';

CREATE TABLE limpet.notes (
    pk         bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    scope_pk   bigint NOT NULL,
    updated_at bigint NOT NULL,
    checksum   bigint NOT NULL,
    rev        integer NOT NULL,
    on_id      text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    nonce      text NOT NULL,
    value      bytea NOT NULL
);
-- By a hash, as scopes are. That a name is used once is seen to under the lock of the scope.
CREATE INDEX notes_by_name ON limpet.notes (scope_pk, hashtextextended(on_id, 0), name);
CREATE INDEX notes_by_time ON limpet.notes (scope_pk, updated_at DESC, pk) WHERE on_id = '';
COMMENT ON TABLE  limpet.notes IS 'Small documents beside a scope or beside a snapshot id, which need not exist.';
COMMENT ON COLUMN limpet.notes.pk IS 'Key inside the database.';
COMMENT ON COLUMN limpet.notes.scope_pk IS 'The scope it belongs to.';
COMMENT ON COLUMN limpet.notes.updated_at IS 'When it was written, in microseconds.';
COMMENT ON COLUMN limpet.notes.checksum IS 'Over the whole row.';
COMMENT ON COLUMN limpet.notes.rev IS 'How often it was written.';
COMMENT ON COLUMN limpet.notes.on_id IS 'The snapshot id that it stands beside; empty: the scope itself.';
COMMENT ON COLUMN limpet.notes.name IS 'Its name.';
COMMENT ON COLUMN limpet.notes.nonce IS 'Mark of its last write.';
COMMENT ON COLUMN limpet.notes.value IS 'JSON, or a zstd frame of it.';

-- For people. Nothing reads these views but you. JSON is shown as json, not jsonb, which refuses NUL. A
-- value that begins with 01 is not JSON: it is encrypted, and shown as NULL.

CREATE VIEW limpet.session_list AS
SELECT s.session_id,
       count(*) AS scopes,
       coalesce(sum(n.snapshots), 0)::bigint AS snapshots,
       coalesce(sum(n.size), 0)::bigint AS state_bytes,
       coalesce(sum(s.tail_bytes + coalesce(g.size, 0)), 0)::bigint AS stored_bytes,
       to_timestamp(max(n.updated_at) / 1000000.0) AS last_saved
  FROM limpet.scopes AS s
 CROSS JOIN LATERAL (SELECT count(*) AS snapshots, sum(i.size) AS size, max(i.updated_at) AS updated_at
                       FROM limpet.snapshots AS i WHERE i.scope_pk = s.pk) AS n
 CROSS JOIN LATERAL (SELECT sum(octet_length(i.body)) AS size
                       FROM limpet.segments AS i WHERE i.scope_pk = s.pk) AS g
 GROUP BY s.session_id;
COMMENT ON VIEW limpet.session_list IS 'What each session holds and takes.';

CREATE VIEW limpet.scope_list AS
SELECT s.session_id, s.kind, s.scope_id, n.id AS head_id, n.kept AS head_kept, n.status,
       to_timestamp(n.updated_at / 1000000.0) AS head_saved,
       s.owner AS lease_owner, to_timestamp(s.until / 1000000.0) AS lease_until
  FROM limpet.scopes AS s
  LEFT JOIN limpet.snapshots AS n ON n.seq = s.head;
COMMENT ON VIEW limpet.scope_list IS 'Each scope and the snapshot it shows.';

CREATE VIEW limpet.snapshot_list AS
SELECT s.session_id, s.kind, s.scope_id, n.id, n.parent_id, n.status, n.kept,
       n.seq = s.head AS is_head,
       CASE WHEN substring(n.labels FOR 1) <> '\x01' THEN convert_from(n.labels, 'UTF8')::json END AS labels,
       CASE WHEN substring(n.metadata FOR 1) <> '\x01' THEN convert_from(n.metadata, 'UTF8')::json END AS metadata,
       to_timestamp(n.created_at / 1000000.0) AS created,
       to_timestamp(n.updated_at / 1000000.0) AS updated,
       n.size AS state_bytes,
       CASE WHEN substring(n.forked_from FOR 1) <> '\x01' THEN convert_from(n.forked_from, 'UTF8')::json END AS forked_from,
       n.seq
  FROM limpet.snapshots AS n
  JOIN limpet.scopes AS s ON s.pk = n.scope_pk;
COMMENT ON VIEW limpet.snapshot_list IS 'The facts of each snapshot, readable. Newest first: ORDER BY seq DESC.';

CREATE VIEW limpet.note_list AS
SELECT s.session_id, s.kind, s.scope_id, nullif(o.on_id, '') AS on_id, o.name,
       -- What is compressed is a matter for programs.
       CASE WHEN substring(o.value FOR 4) <> '\x28b52ffd' AND substring(o.value FOR 1) <> '\x01'
            THEN convert_from(o.value, 'UTF8')::json END AS value,
       to_timestamp(o.updated_at / 1000000.0) AS updated
  FROM limpet.notes AS o
  JOIN limpet.scopes AS s ON s.pk = o.scope_pk;
COMMENT ON VIEW limpet.note_list IS 'The notes, readable but for long ones and encrypted ones.';
