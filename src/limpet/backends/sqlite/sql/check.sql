-- The statements of check and repair. Everything is walked by integer keys, a page at a time, from
-- `:start` on; one key is then read with everything that belongs to it. No statement is given
-- text from the file, which may not be text any more.

-- name: objects
-- The objects in the file, without SQLite's own.
SELECT type, name, tbl_name, sql
  FROM sqlite_schema
 WHERE substr(name, 1, 7) <> 'sqlite_'
 ORDER BY type, name;

-- name: walk_watermark
-- The key of its one row, if that is missing.
SELECT 1 WHERE :start <= 1 AND NOT EXISTS (SELECT 1 FROM watermark) LIMIT :limit;

-- name: walk_owners
-- The scopes that own snapshots or notes, each once. A step looks up the next greater key, so that
-- it does not matter how much a scope owns.
WITH RECURSIVE owner (pk) AS (
    SELECT min(o.pk)
      FROM (SELECT min(scope_pk) AS pk FROM snapshots WHERE scope_pk >= :start
             UNION ALL
            SELECT min(scope_pk) FROM notes WHERE scope_pk >= :start) AS o
     UNION ALL
    SELECT (SELECT min(o.pk)
              FROM (SELECT min(scope_pk) AS pk FROM snapshots WHERE scope_pk > owner.pk
                     UNION ALL
                    SELECT min(scope_pk) FROM notes WHERE scope_pk > owner.pk) AS o)
      FROM owner
     WHERE owner.pk IS NOT NULL
)
SELECT pk FROM owner WHERE pk IS NOT NULL LIMIT :limit;

-- name: walk_scopes
SELECT pk FROM scopes WHERE pk >= :start ORDER BY pk LIMIT :limit;

-- name: walk_sessions
SELECT pk FROM sessions WHERE pk >= :start ORDER BY pk LIMIT :limit;

-- name: walk_snapshots
SELECT seq FROM snapshots WHERE seq >= :start ORDER BY seq LIMIT :limit;

-- name: walk_bodies
SELECT seq FROM bodies WHERE seq >= :start ORDER BY seq LIMIT :limit;

-- name: walk_labels
SELECT DISTINCT seq FROM labels WHERE seq >= :start ORDER BY seq LIMIT :limit;

-- name: walk_notes
SELECT pk FROM notes WHERE pk >= :start ORDER BY pk LIMIT :limit;

-- name: has_scope
SELECT EXISTS (SELECT 1 FROM scopes WHERE pk = ?);

-- name: owned
-- How much names a scope as its own.
SELECT (SELECT count(*) FROM snapshots WHERE scope_pk = :pk),
       (SELECT count(*) FROM notes WHERE scope_pk = :pk);

-- name: scope
-- A scope, and what its columns should say.
SELECT x.pk IS NOT NULL AS has_session, x.checksum, s.session_pk, x.session_id, s.scope_id, s.kind,
       s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner, s.lease_until, NULL AS family,
       s.checksum,
       EXISTS (SELECT 1 FROM snapshots AS n
                WHERE n.seq = s.head_seq AND n.scope_pk = s.pk) AS head_found,
       (SELECT n.seq FROM snapshots AS n
         WHERE n.scope_pk = s.pk ORDER BY n.seq DESC LIMIT 1) AS newest,
       (SELECT n.seq FROM snapshots AS n
         WHERE n.scope_pk = s.pk AND n.kept ORDER BY n.seq DESC LIMIT 1) AS newest_kept
  FROM scopes AS s
  LEFT JOIN sessions AS x ON x.pk = s.session_pk
 WHERE s.pk = ?;

-- name: session
SELECT x.session_id, x.checksum, EXISTS (SELECT 1 FROM scopes AS s WHERE s.session_pk = x.pk)
  FROM sessions AS x
 WHERE x.pk = ?;

-- name: scopes_of_session
SELECT pk FROM scopes WHERE session_pk = ?;

-- name: all_scopes
-- With its session, and the columns that its checksum covers.
SELECT x.pk, x.checksum, x.session_id, s.scope_id, s.kind,
       s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner, s.lease_until, NULL AS family,
       s.checksum
  FROM scopes AS s
  LEFT JOIN sessions AS x ON x.pk = s.session_pk;

-- name: all_sessions
SELECT pk, session_id FROM sessions;

-- name: snapshot
-- The columns of core.rows.Row and the checksum, then what must belong to it.
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum,
       n.scope_pk, s.pk IS NOT NULL AS has_scope, s.head_seq,
       EXISTS (SELECT 1 FROM bodies AS b WHERE b.seq = n.seq) AS has_body,
       n.apart
       OR NOT EXISTS (SELECT 1 FROM snapshots AS p
                       WHERE p.scope_pk = n.scope_pk AND p.id = n.parent_id)
       OR n.parent_id = (SELECT p.id FROM snapshots AS p
                          WHERE p.scope_pk = n.scope_pk AND p.seq < n.seq
                          ORDER BY p.seq DESC LIMIT 1) AS is_placed
  FROM snapshots AS n
  LEFT JOIN scopes AS s ON s.pk = n.scope_pk
 WHERE n.seq = ?;

-- name: address_of_snapshot
SELECT x.session_id, s.scope_id, s.kind, n.id
  FROM snapshots AS n
  LEFT JOIN scopes AS s ON s.pk = n.scope_pk
  LEFT JOIN sessions AS x ON x.pk = s.session_pk
 WHERE n.seq = ?;

-- name: address_of_scope
SELECT x.session_id, s.scope_id, s.kind
  FROM scopes AS s
  LEFT JOIN sessions AS x ON x.pk = s.session_pk
 WHERE s.pk = ?;

-- name: body
-- A body that is no snapshot's may still be the base of another.
SELECT n.seq IS NOT NULL AS has_snapshot, n.size, b.base,
       b.base IS NULL OR EXISTS (SELECT 1 FROM bodies AS o WHERE o.seq = b.base) AS has_base,
       EXISTS (SELECT 1 FROM bodies AS o WHERE o.base = b.seq) AS is_base,
       coalesce(s.head_seq = b.seq, 0) AS is_head
  FROM bodies AS b
  LEFT JOIN snapshots AS n ON n.seq = b.seq
  LEFT JOIN scopes AS s ON s.pk = n.scope_pk
 WHERE b.seq = ?;

-- name: count_above
-- How many states cannot be read without this one.
WITH RECURSIVE above (seq) AS (
    SELECT seq FROM bodies WHERE base = ?
    UNION
    SELECT b.seq FROM above AS a CROSS JOIN bodies AS b ON b.base = a.seq
)
SELECT count(*) FROM above;

-- name: a_snapshot_without_body
-- Reads all keys, but is asked only when there is a body without a snapshot.
SELECT n.seq FROM snapshots AS n
 WHERE NOT EXISTS (SELECT 1 FROM bodies AS b WHERE b.seq = n.seq)
 LIMIT 1;

-- name: labels_of
SELECT name, value FROM labels WHERE seq = ?;

-- name: has_snapshot
SELECT EXISTS (SELECT 1 FROM snapshots WHERE seq = ?);

-- name: note
SELECT on_id, name, rev, nonce, updated_at, value, checksum, scope_pk FROM notes WHERE pk = ?;

-- name: drafts
-- In the order of the columns of core.rows.Row, then the checksum; the newest first.
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum, n.scope_pk
  FROM snapshots AS n
 WHERE n.scope_pk = ? AND NOT n.kept
 ORDER BY n.seq DESC;

-- name: ids_downwards
SELECT id, saved_at FROM snapshots WHERE scope_pk = ? ORDER BY id DESC;

-- name: put_scope
-- No row if another scope has the name.
UPDATE scopes
   SET session_pk = :session_pk, kind = :kind, scope_id = :scope_id, head_seq = :head_seq,
       tip_seq = :tip_seq, next_seq = :next_seq, floor = :floor, fence = :fence,
       lease_owner = :lease_owner, lease_until = :lease_until, checksum = :checksum
 WHERE pk = :pk
   AND NOT EXISTS (SELECT 1 FROM scopes AS o
                    WHERE o.session_pk = :session_pk AND o.kind = :kind AND o.scope_id = :scope_id
                      AND o.pk <> :pk);

-- name: put_session
-- No row if another session has the name.
UPDATE sessions SET session_id = :session_id, checksum = :checksum
 WHERE pk = :pk
   AND NOT EXISTS (SELECT 1 FROM sessions AS o WHERE o.session_id = :session_id AND o.pk <> :pk);

-- name: restore_watermark
-- As high as can be known: above every seq that a scope remembers to have given.
INSERT INTO watermark (pk, seq, saved_at)
SELECT 1,
       max(coalesce((SELECT max(next_seq) - 1 FROM scopes), 0),
           coalesce((SELECT max(seq) FROM snapshots), 0)),
       coalesce((SELECT saved_at FROM snapshots ORDER BY seq DESC LIMIT 1), -1);

-- name: restore_session
-- Under the key that its scopes still name. No row if the name is taken.
INSERT INTO sessions (pk, session_id) VALUES (:pk, :session_id) ON CONFLICT DO NOTHING;

-- name: restore_scope
-- Under the key that its snapshots and notes still name, which is part of their checksums. No row
-- if the name is taken.
INSERT INTO scopes (pk, session_pk, kind, scope_id, next_seq)
SELECT :pk, x.pk, :kind, :scope_id, 1 FROM sessions AS x WHERE x.session_id = :session_id
    ON CONFLICT DO NOTHING;

-- name: fork_group_of
-- One writer at a time: forks need no group.
SELECT 1 WHERE false AND :pk;

-- name: set_apart
UPDATE snapshots SET apart = 1 WHERE seq = ?;
