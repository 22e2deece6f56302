-- The statements of check and repair. Everything is walked by integer keys, a page at a time, from
-- `start` on; one key is then read with everything that belongs to it.

-- name: tables
-- The tables and views in the schema.
SELECT c.relname
  FROM pg_catalog.pg_class AS c
 WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind IN ('r', 'p', 'v');

-- name: indexes
-- The indexes in the schema that can be used.
SELECT c.relname
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_index AS i ON i.indexrelid = c.oid
 WHERE c.relnamespace = to_regnamespace(%s) AND i.indisvalid;

-- name: triggers
-- Those that are not Limpet's.
SELECT t.tgname, c.relname
  FROM pg_catalog.pg_trigger AS t
  JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid
 WHERE c.relnamespace = to_regnamespace(%s) AND NOT t.tgisinternal;

-- name: walk_watermark
-- There is none: a seq is a time.
SELECT 1 WHERE false AND %(start)s < %(limit)s;

-- name: walk_owners
-- The scopes that own snapshots or notes, each once. A step looks up the next greater key, so that
-- it does not matter how much a scope owns.
WITH RECURSIVE owner (pk) AS (
    SELECT min(o.pk)
      FROM (SELECT min(scope_pk) AS pk FROM limpet.snapshots WHERE scope_pk >= %(start)s
             UNION ALL
            SELECT min(scope_pk) FROM limpet.notes WHERE scope_pk >= %(start)s) AS o
     UNION ALL
    SELECT (SELECT min(o.pk)
              FROM (SELECT min(scope_pk) AS pk FROM limpet.snapshots WHERE scope_pk > owner.pk
                     UNION ALL
                    SELECT min(scope_pk) FROM limpet.notes WHERE scope_pk > owner.pk) AS o)
      FROM owner
     WHERE owner.pk IS NOT NULL
)
SELECT pk FROM owner WHERE pk IS NOT NULL LIMIT %(limit)s;

-- name: walk_scopes
SELECT pk FROM limpet.scopes WHERE pk >= %(start)s ORDER BY pk LIMIT %(limit)s;

-- name: walk_sessions
SELECT pk FROM limpet.sessions WHERE pk >= %(start)s ORDER BY pk LIMIT %(limit)s;

-- name: walk_snapshots
SELECT seq FROM limpet.snapshots WHERE seq >= %(start)s ORDER BY seq LIMIT %(limit)s;

-- name: walk_bodies
SELECT seq FROM limpet.bodies WHERE seq >= %(start)s ORDER BY seq LIMIT %(limit)s;

-- name: walk_labels
SELECT DISTINCT seq FROM limpet.labels WHERE seq >= %(start)s ORDER BY seq LIMIT %(limit)s;

-- name: walk_notes
SELECT pk FROM limpet.notes WHERE pk >= %(start)s ORDER BY pk LIMIT %(limit)s;

-- name: has_scope
SELECT EXISTS (SELECT 1 FROM limpet.scopes WHERE pk = %s);

-- name: owned
-- How much names a scope as its own.
SELECT (SELECT count(*) FROM limpet.snapshots WHERE scope_pk = %(pk)s),
       (SELECT count(*) FROM limpet.notes WHERE scope_pk = %(pk)s);

-- name: scope
-- A scope, and what its columns should say.
SELECT x.pk IS NOT NULL AS has_session, x.checksum, s.session_pk, x.session_id, s.scope_id, s.kind,
       s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner, s.lease_until, s.family,
       s.checksum,
       EXISTS (SELECT 1 FROM limpet.snapshots AS n
                WHERE n.seq = s.head_seq AND n.scope_pk = s.pk) AS head_found,
       (SELECT n.seq FROM limpet.snapshots AS n
         WHERE n.scope_pk = s.pk ORDER BY n.seq DESC LIMIT 1) AS newest,
       (SELECT n.seq FROM limpet.snapshots AS n
         WHERE n.scope_pk = s.pk AND n.kept ORDER BY n.seq DESC LIMIT 1) AS newest_kept
  FROM limpet.scopes AS s
  LEFT JOIN limpet.sessions AS x ON x.pk = s.session_pk
 WHERE s.pk = %s;

-- name: session
SELECT x.session_id, x.checksum, EXISTS (SELECT 1 FROM limpet.scopes AS s WHERE s.session_pk = x.pk)
  FROM limpet.sessions AS x
 WHERE x.pk = %s;

-- name: scopes_of_session
SELECT pk FROM limpet.scopes WHERE session_pk = %s;

-- name: all_scopes
-- With its session, and the columns that its checksum covers.
SELECT x.pk, x.checksum, x.session_id, s.scope_id, s.kind,
       s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner, s.lease_until, s.family,
       s.checksum
  FROM limpet.scopes AS s
  LEFT JOIN limpet.sessions AS x ON x.pk = s.session_pk;

-- name: all_sessions
SELECT pk, session_id FROM limpet.sessions;

-- name: snapshot
-- The columns of core.rows.Row and the checksum, then what must belong to it.
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum,
       n.scope_pk, s.pk IS NOT NULL AS has_scope, s.head_seq,
       EXISTS (SELECT 1 FROM limpet.bodies AS b WHERE b.seq = n.seq) AS has_body,
       n.apart
       OR NOT EXISTS (SELECT 1 FROM limpet.snapshots AS p
                       WHERE p.scope_pk = n.scope_pk AND p.id = n.parent_id)
       OR n.parent_id = (SELECT p.id FROM limpet.snapshots AS p
                          WHERE p.scope_pk = n.scope_pk AND p.seq < n.seq
                          ORDER BY p.seq DESC LIMIT 1) AS is_placed
  FROM limpet.snapshots AS n
  LEFT JOIN limpet.scopes AS s ON s.pk = n.scope_pk
 WHERE n.seq = %s;

-- name: address_of_snapshot
SELECT x.session_id, s.scope_id, s.kind, n.id
  FROM limpet.snapshots AS n
  LEFT JOIN limpet.scopes AS s ON s.pk = n.scope_pk
  LEFT JOIN limpet.sessions AS x ON x.pk = s.session_pk
 WHERE n.seq = %s;

-- name: address_of_scope
SELECT x.session_id, s.scope_id, s.kind
  FROM limpet.scopes AS s
  LEFT JOIN limpet.sessions AS x ON x.pk = s.session_pk
 WHERE s.pk = %s;

-- name: body
-- A body that is no snapshot's may still be the base of another.
SELECT n.seq IS NOT NULL AS has_snapshot, n.size, b.base,
       b.base IS NULL OR EXISTS (SELECT 1 FROM limpet.bodies AS o WHERE o.seq = b.base) AS has_base,
       EXISTS (SELECT 1 FROM limpet.bodies AS o WHERE o.base = b.seq) AS is_base,
       coalesce(s.head_seq = b.seq, false) AS is_head
  FROM limpet.bodies AS b
  LEFT JOIN limpet.snapshots AS n ON n.seq = b.seq
  LEFT JOIN limpet.scopes AS s ON s.pk = n.scope_pk
 WHERE b.seq = %s;

-- name: count_above
-- How many states cannot be read without this one.
WITH RECURSIVE above (seq) AS (
    SELECT seq FROM limpet.bodies WHERE base = %s
    UNION
    SELECT b.seq FROM above AS a JOIN limpet.bodies AS b ON b.base = a.seq
)
SELECT count(*) FROM above;

-- name: a_snapshot_without_body
-- Reads all keys, but is asked only when there is a body without a snapshot.
SELECT n.seq FROM limpet.snapshots AS n
 WHERE NOT EXISTS (SELECT 1 FROM limpet.bodies AS b WHERE b.seq = n.seq)
 LIMIT 1;

-- name: labels_of
SELECT name, value FROM limpet.labels WHERE seq = %s;

-- name: has_snapshot
SELECT EXISTS (SELECT 1 FROM limpet.snapshots WHERE seq = %s);

-- name: note
SELECT on_id, name, rev, nonce, updated_at, value, checksum, scope_pk FROM limpet.notes WHERE pk = %s;

-- name: drafts
-- In the order of the columns of core.rows.Row, then the checksum; the newest first.
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum, n.scope_pk
  FROM limpet.snapshots AS n
 WHERE n.scope_pk = %s AND NOT n.kept
 ORDER BY n.seq DESC;

-- name: ids_downwards
SELECT id, saved_at FROM limpet.snapshots WHERE scope_pk = %s ORDER BY id DESC;

-- name: put_scope
-- No row if another scope has the name.
UPDATE limpet.scopes
   SET session_pk = %(session_pk)s, kind = %(kind)s, scope_id = %(scope_id)s, head_seq = %(head_seq)s,
       tip_seq = %(tip_seq)s, next_seq = %(next_seq)s, floor = %(floor)s, fence = %(fence)s,
       lease_owner = %(lease_owner)s, lease_until = %(lease_until)s, checksum = %(checksum)s,
       family = %(family)s, stamps = int8send(hashtextextended(encode(stamps, 'hex'), 0)) || substr(stamps, 1, 120)
 WHERE pk = %(pk)s
   AND NOT EXISTS (SELECT 1 FROM limpet.scopes AS o
                    WHERE o.session_pk = %(session_pk)s AND o.kind = %(kind)s AND o.scope_id = %(scope_id)s
                      AND o.pk <> %(pk)s);

-- name: put_session
-- No row if another session has the name.
UPDATE limpet.sessions SET session_id = %(session_id)s, checksum = %(checksum)s
 WHERE pk = %(pk)s
   AND NOT EXISTS (SELECT 1 FROM limpet.sessions AS o WHERE o.session_id = %(session_id)s AND o.pk <> %(pk)s);

-- name: restore_session
-- Under the key that its scopes still name. No row if the name is taken.
INSERT INTO limpet.sessions (pk, session_id) VALUES (%(pk)s, %(session_id)s) ON CONFLICT DO NOTHING;

-- name: restore_scope
-- Under the key that its snapshots and notes still name, which is part of their checksums. No row
-- if the name is taken.
INSERT INTO limpet.scopes (pk, session_pk, kind, scope_id, next_seq)
SELECT %(pk)s, x.pk, %(kind)s, %(scope_id)s, 1
  FROM limpet.sessions AS x WHERE x.session_id = %(session_id)s
    ON CONFLICT DO NOTHING;

-- name: fork_group_of
-- The scopes whose states build on those of a scope, or its own on theirs, and all of their groups.
WITH fork_group AS (
    SELECT DISTINCT o.scope_pk AS pk
      FROM limpet.snapshots AS n
      JOIN limpet.bodies AS b ON b.seq = n.seq
      JOIN limpet.bodies AS k ON k.base = b.seq OR k.seq = b.base
      JOIN limpet.snapshots AS o ON o.seq = k.seq
     WHERE n.scope_pk = %(pk)s AND o.scope_pk <> %(pk)s
)
SELECT s.pk
  FROM limpet.scopes AS s
 WHERE s.pk IN (SELECT pk FROM fork_group)
    OR s.family IN (SELECT o.family FROM limpet.scopes AS o WHERE o.pk IN (SELECT pk FROM fork_group));

-- name: set_apart
UPDATE limpet.snapshots SET apart = true WHERE seq = %s;
