-- The statements of check, repair and rekey. Every table is walked by its key, a page at a time; then
-- each key is read with what belongs to it.

-- name: tables
SELECT c.relname FROM pg_class AS c
 WHERE c.relnamespace = to_regnamespace($1) AND c.relkind IN ('r', 'p', 'v');

-- name: indexes
-- Without those that are not valid, as a failed CREATE INDEX CONCURRENTLY leaves them.
SELECT c.relname FROM pg_class AS c JOIN pg_index AS i ON i.indexrelid = c.oid
 WHERE c.relnamespace = to_regnamespace($1) AND i.indisvalid;

-- name: triggers
SELECT t.tgname, c.relname FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
 WHERE c.relnamespace = to_regnamespace($1) AND NOT t.tgisinternal
 ORDER BY t.tgname;

-- name: lock_everybody_out
-- For one step of a repair.
LOCK TABLE limpet.scopes IN SHARE ROW EXCLUSIVE MODE;

-- name: walk_scopes
-- The keys of scopes, also of those that are missing and still own something. A step looks up the
-- next greater key, so that it does not matter how much a scope owns.
WITH RECURSIVE owner (pk) AS (
    SELECT %(after)s::bigint
     UNION ALL
    SELECT (SELECT min(o.pk)
              FROM (SELECT min(pk) AS pk FROM limpet.scopes WHERE pk > owner.pk
                     UNION ALL
                    SELECT min(scope_pk) FROM limpet.snapshots WHERE scope_pk > owner.pk
                     UNION ALL
                    SELECT min(scope_pk) FROM limpet.segments WHERE scope_pk > owner.pk
                     UNION ALL
                    SELECT min(scope_pk) FROM limpet.notes WHERE scope_pk > owner.pk) AS o)
      FROM owner
     WHERE owner.pk IS NOT NULL
)
SELECT pk FROM owner WHERE pk > %(after)s LIMIT %(limit)s;

-- name: walk_snapshots
SELECT seq FROM limpet.snapshots WHERE seq > %(after)s ORDER BY seq LIMIT %(limit)s;

-- name: walk_tails
SELECT seq FROM limpet.tails WHERE seq > %(after)s ORDER BY seq LIMIT %(limit)s;

-- name: walk_segments
SELECT pk FROM limpet.segments WHERE pk > %(after)s ORDER BY pk LIMIT %(limit)s;

-- name: walk_shared
SELECT name FROM limpet.shared WHERE name > %(after)s ORDER BY name LIMIT %(limit)s;

-- name: walk_labels
SELECT DISTINCT seq FROM limpet.labels WHERE seq > %(after)s ORDER BY seq LIMIT %(limit)s;

-- name: walk_notes
SELECT pk FROM limpet.notes WHERE pk > %(after)s ORDER BY pk LIMIT %(limit)s;

-- name: check_scopes
-- A scope, which may be missing, and what its columns should say.
SELECT <scope s>,
       EXISTS (SELECT 1 FROM limpet.snapshots AS n WHERE n.seq = s.head AND n.scope_pk = s.pk) AS has_head,
       (SELECT max(n.seq) FROM limpet.snapshots AS n WHERE n.scope_pk = a.pk) AS newest,
       (SELECT n.seq FROM limpet.snapshots AS n
         WHERE n.scope_pk = a.pk AND n.kept ORDER BY n.seq DESC LIMIT 1) AS newest_kept,
       (SELECT count(*) FROM limpet.notes AS o WHERE o.scope_pk = a.pk) AS notes
  FROM (SELECT %(key)s::bigint AS pk) AS a
  LEFT JOIN limpet.scopes AS s ON s.pk = a.pk;

-- name: check_snapshots
-- This and the next three end with the scope that owns the row: its key, address and head.
SELECT <row n>,
       n.apart
       OR NOT EXISTS (SELECT 1 FROM limpet.snapshots AS p
                       WHERE p.scope_pk = n.scope_pk AND p.id = n.parent_id)
       OR n.parent_id = (SELECT p.id FROM limpet.snapshots AS p
                          WHERE p.scope_pk = n.scope_pk AND p.seq < n.seq
                          ORDER BY p.seq DESC LIMIT 1) AS is_placed,
       s.pk, s.session_id, s.scope_id, s.kind, s.head
  FROM limpet.snapshots AS n
  LEFT JOIN limpet.scopes AS s ON s.pk = n.scope_pk
 WHERE n.seq = %(key)s;

-- name: check_tails
SELECT <tail t>, t.scope_pk, n.seq IS NOT NULL AS has_snapshot,
       s.pk, s.session_id, s.scope_id, s.kind, s.head
  FROM limpet.tails AS t
  LEFT JOIN limpet.snapshots AS n ON n.seq = t.seq AND n.scope_pk = t.scope_pk
  LEFT JOIN limpet.scopes AS s ON s.pk = n.scope_pk
 WHERE t.seq = %(key)s;

-- name: check_segments
-- With whether another one of its scope reaches into it.
SELECT <segment g>, g.scope_pk,
       EXISTS (SELECT 1 FROM limpet.segments AS o
                WHERE o.scope_pk = g.scope_pk AND o.pk <> g.pk
                  AND o.last_seq >= g.first_seq AND o.first_seq <= g.last_seq) AS overlaps,
       s.pk, s.session_id, s.scope_id, s.kind, s.head
  FROM limpet.segments AS g
  LEFT JOIN limpet.scopes AS s ON s.pk = g.scope_pk
 WHERE g.pk = %(key)s;

-- name: check_notes
SELECT <note o>, o.scope_pk, s.pk, s.session_id, s.scope_id, s.kind, s.head
  FROM limpet.notes AS o
  LEFT JOIN limpet.scopes AS s ON s.pk = o.scope_pk
 WHERE o.pk = %(key)s;

-- name: check_shared
SELECT h.name, h.session_id, h.body, h.checksum,
       EXISTS (SELECT 1 FROM limpet.tails AS t
                WHERE t.encoding = 2 AND substring(t.body FOR 16) = h.name) AS is_used
  FROM limpet.shared AS h
 WHERE h.name = %(key)s;

-- name: check_labels
-- The labels of a snapshot in the index, and whether there is such a snapshot.
SELECT l.name, l.value, EXISTS (SELECT 1 FROM limpet.snapshots AS n WHERE n.seq = l.seq)
  FROM limpet.labels AS l
 WHERE l.seq = %(key)s;

-- name: snapshots_between
-- The places of a scope's snapshots, the newest first.
SELECT seq FROM limpet.snapshots
 WHERE scope_pk = %(pk)s AND seq BETWEEN %(first)s AND %(last)s ORDER BY seq DESC;

-- name: a_state_that_names
-- This and the next two read whole tables, but are asked only when there is a state without a user.
SELECT seq FROM limpet.tails WHERE substring(body FOR 16) = %(key)s LIMIT 1;

-- name: a_state_built_on
SELECT seq FROM limpet.tails WHERE base BETWEEN %(first)s AND %(last)s LIMIT 1;

-- name: a_snapshot_without_state
SELECT n.seq FROM limpet.snapshots AS n
 WHERE NOT EXISTS (SELECT 1 FROM limpet.tails AS t WHERE t.scope_pk = n.scope_pk AND t.seq = n.seq)
   AND NOT EXISTS (SELECT 1 FROM limpet.segments AS g
                    WHERE g.scope_pk = n.scope_pk AND g.last_seq >= n.seq AND g.first_seq <= n.seq)
 LIMIT 1;

-- name: rows_of_scope
SELECT <row n> FROM limpet.snapshots AS n WHERE n.scope_pk = %(pk)s ORDER BY n.seq DESC;

-- name: notes_of_scope
SELECT pk FROM limpet.notes WHERE scope_pk = %(pk)s ORDER BY on_id, name;

-- name: all_scopes
SELECT <scope s> FROM limpet.scopes AS s;

-- name: put_scope
-- All of a scope but its key. No row if another scope has the name.
UPDATE limpet.scopes
   SET session_id = %(session_id)s, kind = %(kind)s, scope_id = %(scope_id)s, version = %(version)s,
       head = %(head)s, tip = %(tip)s, last = %(last)s, floor = %(floor)s, fence = %(fence)s,
       owner = %(owner)s, until = %(until)s, notes = %(notes)s, tail_count = %(tail_count)s,
       tail_bytes = %(tail_bytes)s, offsets = %(offsets)s, trail = %(trail)s, epoch = %(epoch)s,
       checksum = %(checksum)s
 WHERE pk = %(pk)s
   AND NOT EXISTS (SELECT 1 FROM limpet.scopes AS o
                    WHERE o.session_id = %(session_id)s AND o.kind = %(kind)s
                      AND o.scope_id = %(scope_id)s AND o.pk <> %(pk)s);

-- name: put_apart
UPDATE limpet.snapshots SET apart = true WHERE seq = $1;

-- name: put_encrypted
-- What encryption changes of a snapshot.
UPDATE limpet.snapshots SET status = $1, labels = $2, metadata = $3, checksum = $4 WHERE seq = $5;

-- name: put_shared
UPDATE limpet.shared SET body = $1, checksum = $2 WHERE name = $3;
