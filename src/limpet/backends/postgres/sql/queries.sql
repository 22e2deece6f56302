-- The statements that read and change one scope, on a PostgreSQL server. <row n> stands for the columns
-- of a snapshot, and so on (`backends.sql.columns`). What locks and what reads under the lock are two
-- statements: one that had to wait would still see what was there before.

-- name: check_version
-- The last of each transaction that writes: it fails, by a division by zero, if the tables were
-- migrated by a newer version. Migrations lock this table, so that it stays true until the commit.
SELECT 1 / (NOT EXISTS (SELECT 1 FROM limpet.schema_migrations WHERE version > 0 /* newest */))::int;

-- name: has_listeners
-- Whether any process listens. Listeners share a lock, so that it cannot be taken exclusively.
SELECT CASE WHEN pg_try_advisory_lock(%(listeners)s) THEN NOT pg_advisory_unlock(%(listeners)s)
            ELSE true END;

-- name: store_id
SELECT id FROM limpet.store;

-- name: scope
SELECT <scope s> FROM limpet.scopes AS s
 WHERE s.session_id = $1 AND s.kind = $2 AND s.scope_id = $3
   AND hashtextextended(s.scope_id, 0) = hashtextextended($3 COLLATE "C", 0);

-- name: scope_to_change
-- The right to change a scope. Nothing wider is locked by a save.
SELECT <scope s> FROM limpet.scopes AS s
 WHERE s.session_id = $1 AND s.kind = $2 AND s.scope_id = $3
   AND hashtextextended(s.scope_id, 0) = hashtextextended($3 COLLATE "C", 0)
   FOR UPDATE;

-- name: scope_to_fork
-- Nobody changes it until the fork is stored; others may fork it meanwhile.
SELECT <scope s> FROM limpet.scopes AS s
 WHERE s.session_id = $1 AND s.kind = $2 AND s.scope_id = $3
   AND hashtextextended(s.scope_id, 0) = hashtextextended($3 COLLATE "C", 0)
   FOR SHARE;

-- name: with_scope
-- Sent along with the above: the server's clock, by which leases end, and the head, with its state
-- unless that is large. One row, also if there is no scope.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, <row n>,
       t.seq, t.base, t.encoding, CASE WHEN octet_length(t.body) <= 65536 THEN t.body END, t.checksum
  FROM (SELECT 1) AS one
  LEFT JOIN limpet.scopes AS s
         ON s.session_id = $1 AND s.kind = $2 AND s.scope_id = $3
        AND hashtextextended(s.scope_id, 0) = hashtextextended($3 COLLATE "C", 0)
  LEFT JOIN limpet.snapshots AS n ON n.seq = s.head AND n.scope_pk = s.pk
  LEFT JOIN limpet.tails AS t ON t.scope_pk = s.pk AND t.seq = s.head;

-- name: head
SELECT <scope s>, <row n>, <tail t>
  FROM limpet.scopes AS s
  LEFT JOIN limpet.snapshots AS n ON n.seq = s.head
  LEFT JOIN limpet.tails AS t ON t.scope_pk = s.pk AND t.seq = s.head
 WHERE s.session_id = $1 AND s.kind = $2 AND s.scope_id = $3
   AND hashtextextended(s.scope_id, 0) = hashtextextended($3 COLLATE "C", 0);

-- name: row_at
SELECT <row n> FROM limpet.snapshots AS n WHERE n.seq = %(value)s AND n.scope_pk = %(pk)s;

-- name: rows_by_ids
SELECT <row n>
  FROM unnest(%(ids)s::text[]) AS a (id)
 CROSS JOIN LATERAL (SELECT * FROM limpet.snapshots AS i
                      WHERE i.id = a.id AND i.scope_pk = %(pk)s OFFSET 0) AS n;

-- name: tails_of
-- Sent along by one who may read the states of snapshots, or that of the head: those in the tail, with
-- what they are made of. That is the whole tail if one builds on another; and if they are going to be
-- changed (`whole`). A large tail is not read in vain. The last column tells whether it is the tail.
WITH wanted AS MATERIALIZED (
    SELECT n.seq, (%(head)s::boolean OR s.tail_bytes <= 65536) AND (%(whole)s::boolean OR EXISTS (
               SELECT 1 FROM limpet.tails AS t
                WHERE t.scope_pk = s.pk AND t.seq = n.seq AND t.base IS NOT NULL)) AS whole
      FROM limpet.scopes AS s
     CROSS JOIN LATERAL (SELECT i.seq FROM limpet.snapshots AS i
                          WHERE i.scope_pk = s.pk AND i.id = ANY (%(ids)s::text[])
                          UNION ALL SELECT s.head WHERE %(head)s::boolean) AS n
     WHERE s.pk = %(pk)s
)
SELECT <tail t>, w.whole
  FROM limpet.tails AS t CROSS JOIN (SELECT bool_or(whole) AS whole FROM wanted) AS w
 WHERE t.scope_pk = %(pk)s
   AND (w.whole OR (NOT %(head)s::boolean AND t.seq IN (SELECT seq FROM wanted)));

-- name: newest_segment_of
-- Sent along by one who may change snapshots, if they exist, or reads the head, if all states in the
-- tail are deltas. One row then, unless it is large and may not be needed.
SELECT <segment g>
  FROM limpet.scopes AS s
  LEFT JOIN LATERAL (SELECT * FROM limpet.segments AS i
                      WHERE i.scope_pk = s.pk ORDER BY i.last_seq DESC LIMIT 1) AS g ON true
 WHERE s.pk = %(pk)s
   AND CASE WHEN %(head)s::boolean
            THEN NOT EXISTS (SELECT 1 FROM limpet.tails AS t WHERE t.scope_pk = s.pk AND t.base IS NULL)
            ELSE octet_length(g.body) > 65536 IS NOT TRUE
                 AND EXISTS (SELECT 1 FROM limpet.snapshots AS n
                              WHERE n.scope_pk = s.pk AND n.id = ANY (%(ids)s::text[])) END;

-- name: row_by_nonce
-- Only for a commit whose answer may have been lost: the newest first, since it is among the last.
SELECT <row n> FROM limpet.snapshots AS n
 WHERE n.scope_pk = %(pk)s AND n.nonce = %(value)s ORDER BY n.seq DESC LIMIT 1;

-- name: rows_between
SELECT <row n> FROM limpet.snapshots AS n
 WHERE n.scope_pk = %(pk)s AND n.seq BETWEEN %(first)s AND %(last)s ORDER BY n.seq;

-- name: seqs_and_sizes
SELECT n.seq, n.size
  FROM unnest(%(ids)s::text[]) AS a (id)
  JOIN limpet.snapshots AS n ON n.id = a.id AND n.scope_pk = %(pk)s;

-- name: newest_kept
SELECT (SELECT n.seq FROM limpet.snapshots AS n
         WHERE n.scope_pk = %(pk)s AND n.kept AND n.seq <> ALL (%(without)s::bigint[])
         ORDER BY n.seq DESC LIMIT 1);

-- name: count_snapshots
SELECT count(*) FROM limpet.snapshots WHERE scope_pk = $1;

-- name: tail_row
SELECT <tail t> FROM limpet.tails AS t WHERE t.scope_pk = %(pk)s AND t.seq = %(value)s;

-- name: tail
SELECT <tail t> FROM limpet.tails AS t WHERE t.scope_pk = %(pk)s ORDER BY t.seq;

-- name: segment
SELECT <segment g> FROM limpet.segments AS g
 WHERE g.scope_pk = %(pk)s AND g.last_seq >= %(value)s ORDER BY g.last_seq LIMIT 1;

-- name: newest_segment
SELECT <segment g> FROM limpet.segments AS g WHERE g.scope_pk = %(pk)s ORDER BY g.last_seq DESC LIMIT 1;

-- name: shared
SELECT name, session_id, body, checksum FROM limpet.shared WHERE name = $1;

-- name: has_shared
-- It stays until the end of the transaction: who drops it locks it first.
SELECT 1 FROM limpet.shared WHERE name = $1 FOR KEY SHARE;

-- name: notes_on
-- OFFSET keeps the server from reading all notes of the scope, here and in the next two.
SELECT <note o>
  FROM unnest(%(on)s::text[]) AS a (on_id)
 CROSS JOIN LATERAL (
       SELECT * FROM limpet.notes AS i
        WHERE i.scope_pk = %(pk)s AND i.on_id = a.on_id
          AND hashtextextended(i.on_id, 0) = hashtextextended(a.on_id COLLATE "C", 0)
       OFFSET 0) AS o;

-- name: notes_named
SELECT <note o>
  FROM unnest(%(on)s::text[]) AS a (on_id)
 CROSS JOIN unnest(%(names)s::text[]) AS b (name)
 CROSS JOIN LATERAL (
       SELECT * FROM limpet.notes AS i
        WHERE i.scope_pk = %(pk)s AND i.on_id = a.on_id AND i.name = b.name
          AND hashtextextended(i.on_id, 0) = hashtextextended(a.on_id COLLATE "C", 0)
       OFFSET 0) AS o;

-- name: note_page
SELECT <note o> FROM limpet.notes AS o
 WHERE o.scope_pk = %(pk)s AND o.on_id = %(on)s
   AND hashtextextended(o.on_id, 0) = hashtextextended(%(on)s COLLATE "C", 0)
   AND o.name > %(after)s
 ORDER BY o.name
 LIMIT %(limit)s;

-- name: note_addresses
SELECT o.on_id, o.name
  FROM unnest(%(on)s::text[]) AS a (on_id)
 CROSS JOIN LATERAL (
       SELECT i.on_id, i.name FROM limpet.notes AS i
        WHERE i.scope_pk = %(pk)s AND i.on_id = a.on_id
          AND hashtextextended(i.on_id, 0) = hashtextextended(a.on_id COLLATE "C", 0)
       OFFSET 0) AS o;

-- name: noted
-- There is no index in this order, so that the notes of the scope are sorted; they are few.
SELECT DISTINCT on_id FROM limpet.notes
 WHERE scope_pk = %(pk)s AND on_id > %(after)s ORDER BY on_id LIMIT %(limit)s;

-- name: save
-- The whole save of a writer that is still the last one to have changed the scope. No row comes
-- back if it is not, and then nothing was stored.
WITH moved AS (
    UPDATE limpet.scopes
       SET version = $1, head = $2, tip = $3, last = $4, floor = $5, fence = $6, owner = $7,
           until = $8, notes = $9, tail_count = $10, tail_bytes = $11, offsets = $12, trail = $13,
           epoch = $14, checksum = $15
     WHERE pk = $16 AND version = $17
       AND NOT EXISTS (SELECT 1 FROM limpet.schema_migrations WHERE version > 0 /* newest */)
       /* no_such_note */
    RETURNING pk
), told AS (
    INSERT INTO limpet.snapshots
           (seq, id, rev, nonce, kept, parent_id, forked_from, status, labels, metadata, created_at,
            updated_at, size, checksum, scope_pk, apart)
    SELECT $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33 FROM moved
), stored AS (
    INSERT INTO limpet.tails (seq, base, encoding, body, checksum, scope_pk)
    SELECT $34, $35, $36, $37, $38, $32 FROM moved
), labelled AS (
    INSERT INTO limpet.labels (name, value, seq)
    SELECT l.name, l.value, $18
      FROM moved CROSS JOIN unnest($39::text[], $40::text[]) AS l (name, value)
) /* add_notes */
SELECT 0 /* has_listeners */ FROM moved;

-- name: no_such_note
-- This and the next one are parts of `save_with_notes`, which is `save` with new notes.
AND NOT EXISTS (
    SELECT 1 FROM unnest($42::text[], $43::text[]) AS a (on_id, name)
     CROSS JOIN LATERAL (
           SELECT 1 FROM limpet.notes AS i
            WHERE i.scope_pk = $16 AND i.on_id = a.on_id AND i.name = a.name
              AND hashtextextended(i.on_id, 0) = hashtextextended(a.on_id COLLATE "C", 0)
           OFFSET 0) AS o)

-- name: add_notes
, noted AS (
    INSERT INTO limpet.notes (scope_pk, on_id, name, rev, nonce, updated_at, value, checksum)
    SELECT o.* FROM moved CROSS JOIN unnest($41::bigint[], $42::text[], $43::text[], $44::integer[],
           $45::text[], $46::bigint[], $47::bytea[], $48::bigint[]) AS o)

-- name: add_scope
INSERT INTO limpet.scopes (version, head, tip, last, floor, fence, owner, until, notes, tail_count,
                           tail_bytes, offsets, trail, epoch, checksum, pk, session_id, kind, scope_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
    ON CONFLICT (session_id, kind, hashtextextended(scope_id, 0)) DO NOTHING;

-- name: insert_scope
-- The same for one who has not found it: another writer that adds it meanwhile makes this fail, and the
-- transaction is then tried again.
INSERT INTO limpet.scopes (version, head, tip, last, floor, fence, owner, until, notes, tail_count,
                           tail_bytes, offsets, trail, epoch, checksum, pk, session_id, kind, scope_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19);

-- name: move_scope
-- Its row is locked, and so is its version what it was.
UPDATE limpet.scopes
   SET version = $1, head = $2, tip = $3, last = $4, floor = $5, fence = $6, owner = $7, until = $8,
       notes = $9, tail_count = $10, tail_bytes = $11, offsets = $12, trail = $13, epoch = $14,
       checksum = $15
 WHERE pk = $16 AND version = $17;

-- name: add_snapshot
INSERT INTO limpet.snapshots
       (seq, id, rev, nonce, kept, parent_id, forked_from, status, labels, metadata, created_at,
        updated_at, size, checksum, scope_pk, apart)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16);

-- name: replace_snapshot
-- A draft that is kept from now on may come between another and its child.
UPDATE limpet.snapshots
   SET id = $1, rev = $2, nonce = $3, kept = $4, parent_id = $5, forked_from = $6, status = $7,
       labels = $8, metadata = $9, created_at = $10, updated_at = $11, size = $12, checksum = $13,
       apart = true
 WHERE seq = $14 AND scope_pk = $15;

-- name: set_apart
-- Before snapshots are removed: the next one may then follow another than its parent.
UPDATE limpet.snapshots SET apart = true
 WHERE seq IN (SELECT (SELECT n.seq FROM limpet.snapshots AS n
                        WHERE n.scope_pk = %(pk)s AND n.seq > a.seq ORDER BY n.seq LIMIT 1)
                 FROM unnest(%(seqs)s::bigint[]) AS a (seq))
   AND NOT apart;

-- name: remove_snapshots
-- A sum keeps the server from reading all snapshots of the scope.
DELETE FROM limpet.snapshots WHERE scope_pk + 0 = %(pk)s AND seq = ANY (%(seqs)s::bigint[]);

-- name: add_label
INSERT INTO limpet.labels (name, value, seq) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING;

-- name: remove_labels
DELETE FROM limpet.labels WHERE seq = ANY (%(seqs)s::bigint[]);

-- name: put_tail
-- Its scope is that of its snapshot.
INSERT INTO limpet.tails (seq, base, encoding, body, checksum, scope_pk)
SELECT $1, $2, $3, $4, $5, n.scope_pk FROM limpet.snapshots AS n WHERE n.seq = $1
    ON CONFLICT (scope_pk, seq)
    DO UPDATE SET base = excluded.base, encoding = excluded.encoding, body = excluded.body,
                  checksum = excluded.checksum;

-- name: remove_tails
DELETE FROM limpet.tails WHERE scope_pk = %(pk)s AND seq = ANY (%(seqs)s::bigint[]);

-- name: put_segment
INSERT INTO limpet.segments (scope_pk, first_seq, last_seq, body, checksum) VALUES ($1, $2, $3, $4, $5);

-- name: remove_segments
DELETE FROM limpet.segments WHERE scope_pk = %(pk)s AND last_seq = ANY (%(seqs)s::bigint[]);

-- name: add_shared
-- One that is there is locked, as by `has_shared`.
INSERT INTO limpet.shared (name, session_id, body, checksum) VALUES ($1, $2, $3, $4)
    ON CONFLICT (name) DO UPDATE SET checksum = shared.checksum;

-- name: lock_shared
-- Before it is dropped: waits for forks that are about to use it, so that the next statement sees them.
SELECT 1 FROM limpet.shared WHERE name = $1 FOR UPDATE;

-- name: drop_shared
DELETE FROM limpet.shared
 WHERE name = $1
   AND NOT EXISTS (SELECT 1 FROM limpet.tails WHERE encoding = 2 AND substring(body FOR 16) = $1);

-- name: save_note
-- The same as `save` for a note that must not be there yet.
WITH moved AS (
    UPDATE limpet.scopes
       SET version = $1, head = $2, tip = $3, last = $4, floor = $5, fence = $6, owner = $7,
           until = $8, notes = $9, tail_count = $10, tail_bytes = $11, offsets = $12, trail = $13,
           epoch = $14, checksum = $15
     WHERE pk = $16 AND version = $17
       AND NOT EXISTS (SELECT 1 FROM limpet.schema_migrations WHERE version > 0 /* newest */)
       AND NOT EXISTS (SELECT 1 FROM limpet.notes
                        WHERE scope_pk = $16 AND on_id = $19 AND name = $20
                          AND hashtextextended(on_id, 0) = hashtextextended($19 COLLATE "C", 0))
    RETURNING pk
), added AS (
    INSERT INTO limpet.notes (scope_pk, on_id, name, rev, nonce, updated_at, value, checksum)
    SELECT $18, $19, $20, $21, $22, $23, $24, $25 FROM moved
)
SELECT false FROM moved;

-- name: put_note
WITH changed AS (
    UPDATE limpet.notes
       SET rev = $4, nonce = $5, updated_at = $6, value = $7, checksum = $8
     WHERE scope_pk = $1 AND hashtextextended(on_id, 0) = hashtextextended($2 COLLATE "C", 0)
       AND on_id = $2 AND name = $3
    RETURNING pk
)
INSERT INTO limpet.notes (scope_pk, on_id, name, rev, nonce, updated_at, value, checksum)
SELECT $1, $2, $3, $4, $5, $6, $7, $8 WHERE NOT EXISTS (SELECT 1 FROM changed);

-- name: remove_note
DELETE FROM limpet.notes
 WHERE scope_pk = $1 AND hashtextextended(on_id, 0) = hashtextextended($2 COLLATE "C", 0)
   AND on_id = $2 AND name = $3;

-- name: pks_of_session
SELECT pk FROM limpet.scopes WHERE session_id = %(session_id)s ORDER BY pk FOR UPDATE;

-- name: pks_of_scope
SELECT pk FROM limpet.scopes
 WHERE session_id = %(session_id)s AND kind = %(kind)s AND scope_id = %(scope_id)s
   AND hashtextextended(scope_id, 0) = hashtextextended(%(scope_id)s COLLATE "C", 0)
   FOR UPDATE;

-- name: shared_of_scopes
-- In one order, in which they are locked.
SELECT DISTINCT substring(body FOR 16) AS name FROM limpet.tails
 WHERE scope_pk = ANY ($1::bigint[]) AND encoding = 2 ORDER BY name;

-- name: remove_all_labels
DELETE FROM limpet.labels AS l USING limpet.snapshots AS n
 WHERE n.scope_pk = ANY ($1::bigint[]) AND l.seq = n.seq;

-- name: remove_all_tails
DELETE FROM limpet.tails WHERE scope_pk = ANY ($1::bigint[]);

-- name: remove_all_segments
DELETE FROM limpet.segments WHERE scope_pk = ANY ($1::bigint[]);

-- name: remove_all_notes
DELETE FROM limpet.notes WHERE scope_pk = ANY ($1::bigint[]);

-- name: remove_all_snapshots
DELETE FROM limpet.snapshots WHERE scope_pk = ANY ($1::bigint[]);

-- name: remove_scopes
DELETE FROM limpet.scopes WHERE pk = ANY ($1::bigint[]);

-- name: revisions
-- What is watched, as a list of [session, scope, kind, id or null]: where in the list something is,
-- and its revision. The limit keeps the server from reading all scopes to find some.
SELECT a.at - 1, n.seq, n.rev, n.nonce
  FROM json_array_elements($1::json) WITH ORDINALITY AS a (asked, at)
 CROSS JOIN LATERAL (
       SELECT o.seq, o.rev, o.nonce
         FROM limpet.scopes AS s
         JOIN limpet.snapshots AS o
           ON o.scope_pk = s.pk
          AND o.seq = CASE WHEN a.asked ->> 3 IS NULL THEN s.head
                           ELSE (SELECT i.seq FROM limpet.snapshots AS i
                                  WHERE i.scope_pk = s.pk AND i.id = a.asked ->> 3 LIMIT 1) END
        WHERE s.session_id = a.asked ->> 0 AND s.scope_id = a.asked ->> 1
          AND hashtextextended(s.scope_id, 0) = hashtextextended((a.asked ->> 1) COLLATE "C", 0)
          AND s.kind = a.asked ->> 2
        LIMIT 1) AS n;
