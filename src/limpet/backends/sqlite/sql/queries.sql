-- The statements that read and change one scope, in a SQLite file. <row n> stands for the columns of
-- a snapshot, and so on (`backends.sql.columns`). A unary plus keeps an index from being used; a
-- parameter for `on_id` has one, or SQLite would plan the statement again for each value.

-- name: scope
SELECT <scope s> FROM scopes AS s WHERE session_id = ? AND kind = ? AND scope_id = ?;

-- name: scope_to_change
-- A transaction that writes has the lock of the file already.
SELECT <scope s> FROM scopes AS s WHERE session_id = ? AND kind = ? AND scope_id = ?;

-- name: head
SELECT <scope s>, <row n>, <tail t>
  FROM scopes AS s
  LEFT JOIN snapshots AS n ON n.seq = s.head
  LEFT JOIN tails AS t ON t.seq = s.head
 WHERE s.session_id = ? AND s.kind = ? AND s.scope_id = ?;

-- name: row_at
SELECT <row n> FROM snapshots AS n WHERE n.seq = :value AND n.scope_pk = :pk;

-- name: rows_by_ids
SELECT <row n>
  FROM json_each(:ids) AS a
 CROSS JOIN snapshots AS n ON n.id = a.value AND n.scope_pk = :pk;

-- name: row_by_nonce
SELECT <row n> FROM snapshots AS n WHERE n.scope_pk = :pk AND n.nonce = :value ORDER BY n.seq DESC;

-- name: rows_between
SELECT <row n> FROM snapshots AS n
 WHERE n.scope_pk = :pk AND n.seq BETWEEN :first AND :last ORDER BY n.seq;

-- name: seqs_and_sizes
SELECT n.seq, n.size
  FROM json_each(:ids) AS a
 CROSS JOIN snapshots AS n ON n.id = a.value AND n.scope_pk = :pk;

-- name: newest_kept
SELECT max(seq) FROM snapshots
 WHERE scope_pk = :pk AND kept AND seq NOT IN (SELECT value FROM json_each(:without));

-- name: count_snapshots
SELECT count(*) FROM snapshots WHERE scope_pk = ?;

-- name: tail_row
SELECT <tail t> FROM tails AS t WHERE t.seq = :value;

-- name: tail
SELECT <tail t>
  FROM snapshots AS n
 CROSS JOIN tails AS t ON t.seq = n.seq
 WHERE n.scope_pk = :pk
   AND n.seq > CASE WHEN :all THEN 0 ELSE
               coalesce((SELECT max(last_seq) FROM segments WHERE scope_pk = :pk), 0) END
 ORDER BY n.seq;

-- name: segment
SELECT <segment g> FROM segments AS g
 WHERE g.scope_pk = :pk AND g.last_seq >= :value ORDER BY g.last_seq LIMIT 1;

-- name: newest_segment
SELECT <segment g> FROM segments AS g WHERE g.scope_pk = :pk ORDER BY g.last_seq DESC LIMIT 1;

-- name: shared
SELECT name, session_id, body, checksum FROM shared WHERE name = ?;

-- name: has_shared
SELECT 1 FROM shared WHERE name = ?;

-- name: notes_on
SELECT <note o> FROM notes AS o
 WHERE o.scope_pk = :pk AND o.on_id IN (SELECT value FROM json_each(:on));

-- name: notes_named
SELECT <note o>
  FROM json_each(:on) AS a
 CROSS JOIN json_each(:names) AS b
 CROSS JOIN notes AS o ON o.scope_pk = :pk AND o.on_id = a.value AND o.name = b.value;

-- name: note_page
SELECT <note o> FROM notes AS o
 WHERE o.scope_pk = :pk AND o.on_id = +:on AND o.name > :after ORDER BY o.name;

-- name: note_addresses
SELECT on_id, name FROM notes
 WHERE scope_pk = :pk AND on_id IN (SELECT value FROM json_each(:on));

-- name: noted
SELECT DISTINCT on_id FROM notes WHERE scope_pk = :pk AND on_id > :after ORDER BY on_id;

-- name: add_scope
INSERT INTO scopes (version, head, tip, last, floor, fence, owner, until, notes, tail_count,
                    tail_bytes, offsets, trail, epoch, checksum, pk, session_id, kind, scope_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (session_id, kind, scope_id) DO NOTHING;

-- name: move_scope
UPDATE scopes
   SET version = ?, head = ?, tip = ?, last = ?, floor = ?, fence = ?, owner = ?, until = ?,
       notes = ?, tail_count = ?, tail_bytes = ?, offsets = ?, trail = ?, epoch = ?, checksum = ?
 WHERE pk = ? AND version = ?;

-- name: add_snapshot
INSERT INTO snapshots (seq, id, rev, nonce, kept, parent_id, forked_from, status, labels, metadata,
                       created_at, updated_at, size, checksum, scope_pk, apart)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: replace_snapshot
-- A draft that is kept from now on may come between another and its child.
UPDATE snapshots
   SET id = ?, rev = ?, nonce = ?, kept = ?, parent_id = ?, forked_from = ?, status = ?,
       labels = ?, metadata = ?, created_at = ?, updated_at = ?, size = ?, checksum = ?, apart = 1
 WHERE seq = ? AND scope_pk = ?;

-- name: set_apart
-- Before snapshots are removed: the next one may then follow another than its parent.
UPDATE snapshots SET apart = 1
 WHERE seq IN (SELECT (SELECT min(n.seq) FROM snapshots AS n
                        WHERE n.scope_pk = :pk AND n.seq > a.value)
                 FROM json_each(:seqs) AS a);

-- name: remove_snapshots
DELETE FROM snapshots WHERE scope_pk = :pk AND seq IN (SELECT value FROM json_each(:seqs));

-- name: add_label
INSERT OR REPLACE INTO labels (name, value, seq) VALUES (?, ?, ?);

-- name: remove_labels
DELETE FROM labels WHERE seq IN (SELECT value FROM json_each(:seqs));

-- name: put_tail
INSERT OR REPLACE INTO tails (seq, base, encoding, body, checksum) VALUES (?, ?, ?, ?, ?);

-- name: remove_tails
DELETE FROM tails WHERE seq IN (SELECT value FROM json_each(:seqs));

-- name: put_segment
INSERT INTO segments (scope_pk, first_seq, last_seq, body, checksum) VALUES (?, ?, ?, ?, ?);

-- name: remove_segments
DELETE FROM segments WHERE scope_pk = :pk AND last_seq IN (SELECT value FROM json_each(:seqs));

-- name: add_shared
INSERT OR IGNORE INTO shared (name, session_id, body, checksum) VALUES (?, ?, ?, ?);

-- name: drop_shared
DELETE FROM shared
 WHERE name = ?
   AND NOT EXISTS (SELECT 1 FROM tails AS t
                    WHERE t.encoding = 2 AND substr(t.body, 1, 16) = shared.name);

-- name: add_note
INSERT INTO notes (scope_pk, on_id, name, rev, nonce, updated_at, value, checksum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: put_note
INSERT INTO notes (scope_pk, on_id, name, rev, nonce, updated_at, value, checksum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (scope_pk, on_id, name)
    DO UPDATE SET rev = excluded.rev, nonce = excluded.nonce, updated_at = excluded.updated_at,
                  value = excluded.value, checksum = excluded.checksum;

-- name: remove_note
DELETE FROM notes WHERE scope_pk = ? AND on_id = +? AND name = ?;

-- name: pks_of_session
SELECT pk FROM scopes WHERE session_id = :session_id;

-- name: pks_of_scope
SELECT pk FROM scopes WHERE session_id = :session_id AND kind = :kind AND scope_id = :scope_id;

-- name: shared_of_scopes
SELECT DISTINCT substr(t.body, 1, 16)
  FROM json_each(?) AS a
 CROSS JOIN snapshots AS n ON n.scope_pk = a.value
 CROSS JOIN tails AS t ON t.seq = n.seq
 WHERE +t.encoding = 2;

-- name: remove_all_labels
-- This and the next five: of the scopes with some keys.
DELETE FROM labels
 WHERE seq IN (SELECT n.seq FROM json_each(?) AS a CROSS JOIN snapshots AS n ON n.scope_pk = a.value);

-- name: remove_all_tails
DELETE FROM tails
 WHERE seq IN (SELECT n.seq FROM json_each(?) AS a CROSS JOIN snapshots AS n ON n.scope_pk = a.value);

-- name: remove_all_segments
-- By the index of its UNIQUE, or SQLite may read the whole table where it takes it for small.
DELETE FROM segments INDEXED BY sqlite_autoindex_segments_1
 WHERE scope_pk IN (SELECT value FROM json_each(?));

-- name: remove_all_notes
DELETE FROM notes WHERE scope_pk IN (SELECT value FROM json_each(?));

-- name: remove_all_snapshots
DELETE FROM snapshots WHERE scope_pk IN (SELECT value FROM json_each(?));

-- name: remove_scopes
DELETE FROM scopes WHERE pk IN (SELECT value FROM json_each(?));

-- name: revisions
-- What is watched, as a list of [session, scope, kind, id or null]: where in the list something is,
-- and its revision.
SELECT a.key, n.seq, n.rev, n.nonce
  FROM json_each(?) AS a
 CROSS JOIN scopes AS s
         ON s.session_id = a.value ->> 0 AND s.kind = a.value ->> 2 AND s.scope_id = a.value ->> 1
 CROSS JOIN snapshots AS n
         ON n.scope_pk = s.pk
        AND n.seq = CASE WHEN a.value ->> 3 IS NULL THEN s.head
                         ELSE (SELECT i.seq FROM snapshots AS i
                                WHERE i.scope_pk = s.pk AND i.id = a.value ->> 3) END;

-- name: store_id
SELECT id FROM store;
