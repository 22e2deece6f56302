-- The statements of check, repair and rekey. Every table is walked by its key, a page at a time; then
-- each key is read with what belongs to it. No statement is given text from the file, which may not
-- be text any more.

-- name: objects
-- The objects in the file, without SQLite's own.
SELECT type, name, tbl_name, sql
  FROM sqlite_schema
 WHERE substr(name, 1, 7) <> 'sqlite_'
 ORDER BY type, name;

-- name: walk_scopes
-- The keys of scopes, also of those that are missing and still own something. A step looks up the
-- next greater key, so that it does not matter how much a scope owns.
WITH RECURSIVE owner (pk) AS (
    SELECT :after
     UNION ALL
    SELECT (SELECT min(o.pk)
              FROM (SELECT min(pk) AS pk FROM scopes WHERE pk > owner.pk
                     UNION ALL
                    SELECT min(scope_pk) FROM snapshots WHERE scope_pk > owner.pk
                     UNION ALL
                    SELECT min(scope_pk) FROM segments WHERE scope_pk > owner.pk
                     UNION ALL
                    SELECT min(scope_pk) FROM notes WHERE scope_pk > owner.pk) AS o)
      FROM owner
     WHERE owner.pk IS NOT NULL
)
SELECT pk FROM owner WHERE pk > :after LIMIT :limit;

-- name: walk_snapshots
SELECT seq FROM snapshots WHERE seq > :after ORDER BY seq LIMIT :limit;

-- name: walk_tails
SELECT seq FROM tails WHERE seq > :after ORDER BY seq LIMIT :limit;

-- name: walk_segments
SELECT pk FROM segments WHERE pk > :after ORDER BY pk LIMIT :limit;

-- name: walk_shared
SELECT name FROM shared WHERE name > :after ORDER BY name LIMIT :limit;

-- name: walk_labels
SELECT DISTINCT seq FROM labels WHERE seq > :after ORDER BY seq LIMIT :limit;

-- name: walk_notes
SELECT pk FROM notes WHERE pk > :after ORDER BY pk LIMIT :limit;

-- name: check_scopes
-- A scope, which may be missing, and what its columns should say.
SELECT <scope s>,
       EXISTS (SELECT 1 FROM snapshots AS n WHERE n.seq = s.head AND n.scope_pk = s.pk) AS has_head,
       (SELECT max(n.seq) FROM snapshots AS n WHERE n.scope_pk = a.pk) AS newest,
       (SELECT n.seq FROM snapshots AS n
         WHERE n.scope_pk = a.pk AND n.kept ORDER BY n.seq DESC LIMIT 1) AS newest_kept,
       (SELECT count(*) FROM notes AS o WHERE o.scope_pk = a.pk) AS notes
  FROM (SELECT :key AS pk) AS a
  LEFT JOIN scopes AS s ON s.pk = a.pk;

-- name: check_snapshots
-- This and the next three end with the scope that owns the row: its key, address and head.
SELECT <row n>,
       n.apart
       OR NOT EXISTS (SELECT 1 FROM snapshots AS p
                       WHERE p.scope_pk = n.scope_pk AND p.id = n.parent_id)
       OR n.parent_id = (SELECT p.id FROM snapshots AS p
                          WHERE p.scope_pk = n.scope_pk AND p.seq < n.seq
                          ORDER BY p.seq DESC LIMIT 1) AS is_placed,
       s.pk, s.session_id, s.scope_id, s.kind, s.head
  FROM snapshots AS n
  LEFT JOIN scopes AS s ON s.pk = n.scope_pk
 WHERE n.seq = :key;

-- name: check_tails
SELECT <tail t>, n.scope_pk, n.seq IS NOT NULL AS has_snapshot,
       s.pk, s.session_id, s.scope_id, s.kind, s.head
  FROM tails AS t
  LEFT JOIN snapshots AS n ON n.seq = t.seq
  LEFT JOIN scopes AS s ON s.pk = n.scope_pk
 WHERE t.seq = :key;

-- name: check_segments
-- With whether another one of its scope reaches into it.
SELECT <segment g>, g.scope_pk,
       EXISTS (SELECT 1 FROM segments AS o
                WHERE o.scope_pk = g.scope_pk AND o.pk <> g.pk
                  AND o.last_seq >= g.first_seq AND o.first_seq <= g.last_seq) AS overlaps,
       s.pk, s.session_id, s.scope_id, s.kind, s.head
  FROM segments AS g
  LEFT JOIN scopes AS s ON s.pk = g.scope_pk
 WHERE g.pk = :key;

-- name: check_notes
SELECT <note o>, o.scope_pk, s.pk, s.session_id, s.scope_id, s.kind, s.head
  FROM notes AS o
  LEFT JOIN scopes AS s ON s.pk = o.scope_pk
 WHERE o.pk = :key;

-- name: check_shared
SELECT name, session_id, body, checksum,
       EXISTS (SELECT 1 FROM tails
                WHERE encoding = 2 AND substr(tails.body, 1, 16) = :key) AS is_used
  FROM shared
 WHERE name = :key;

-- name: check_labels
-- The labels of a snapshot in the index, and whether there is such a snapshot.
SELECT l.name, l.value, EXISTS (SELECT 1 FROM snapshots AS n WHERE n.seq = l.seq)
  FROM labels AS l
 WHERE l.seq = :key;

-- name: snapshots_between
-- The places of a scope's snapshots, the newest first.
SELECT seq FROM snapshots WHERE scope_pk = :pk AND seq BETWEEN :first AND :last ORDER BY seq DESC;

-- name: a_state_that_names
-- This and the next two read whole tables, but are asked only when there is a state without a user.
SELECT seq FROM tails WHERE substr(body, 1, 16) = :key LIMIT 1;

-- name: a_state_built_on
SELECT seq FROM tails WHERE base BETWEEN :first AND :last LIMIT 1;

-- name: a_snapshot_without_state
SELECT n.seq FROM snapshots AS n
 WHERE NOT EXISTS (SELECT 1 FROM tails AS t WHERE t.seq = n.seq)
   AND NOT EXISTS (SELECT 1 FROM segments AS g
                    WHERE g.scope_pk = n.scope_pk AND g.last_seq >= n.seq AND g.first_seq <= n.seq)
 LIMIT 1;

-- name: rows_of_scope
SELECT <row n> FROM snapshots AS n WHERE n.scope_pk = :pk ORDER BY n.seq DESC;

-- name: notes_of_scope
SELECT pk FROM notes WHERE scope_pk = :pk ORDER BY on_id, name;

-- name: all_scopes
SELECT <scope s> FROM scopes AS s;

-- name: put_scope
-- All of a scope but its key. No row if another scope has the name.
UPDATE scopes
   SET session_id = :session_id, kind = :kind, scope_id = :scope_id, version = :version,
       head = :head, tip = :tip, last = :last, floor = :floor, fence = :fence, owner = :owner,
       until = :until, notes = :notes, tail_count = :tail_count, tail_bytes = :tail_bytes,
       offsets = :offsets, trail = :trail, epoch = :epoch, checksum = :checksum
 WHERE pk = :pk
   AND NOT EXISTS (SELECT 1 FROM scopes AS o
                    WHERE o.session_id = :session_id AND o.kind = :kind
                      AND o.scope_id = :scope_id AND o.pk <> :pk);

-- name: put_apart
UPDATE snapshots SET apart = 1 WHERE seq = ?;

-- name: put_encrypted
-- What encryption changes of a snapshot.
UPDATE snapshots SET status = ?, labels = ?, metadata = ?, checksum = ? WHERE seq = ?;

-- name: put_shared
UPDATE shared SET body = ?, checksum = ? WHERE name = ?;
