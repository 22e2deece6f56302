-- The statements of the SQLite engine. The columns of a snapshot always come in the order of
-- core.rows.Row, then its checksum; those of a scope in the order of sql.tables.ScopeRow.

-- name: last_seq_and_time
-- The last seq given in the whole store, and its logical time: a new snapshot must exceed both.
SELECT max(w.seq, coalesce(n.seq, 0)), max(w.saved_at, coalesce(n.saved_at, -1))
  FROM watermark AS w
  LEFT JOIN snapshots AS n ON n.seq = (SELECT max(seq) FROM snapshots);

-- name: save_last_seq
-- Before a delete, so that no seq is given twice.
UPDATE watermark SET seq = ?, saved_at = ?;

-- name: scope
-- A scope, and the snapshot it shows. It has no key if an index led to the row of another name.
SELECT CASE WHEN t.session_id = :session_id AND s.session_pk = x.pk
             AND s.scope_id = :scope_id AND s.kind = :kind THEN s.pk END, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner,
       s.lease_until, NULL AS family, s.checksum, s.codec, x'' AS stamps, NULL AS now,
       n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum
  FROM sessions AS x
  JOIN scopes AS i ON i.session_pk = x.pk
  LEFT JOIN sessions AS t ON t.pk = x.pk
  LEFT JOIN scopes AS s ON s.pk = i.pk
  LEFT JOIN snapshots AS n ON n.seq = s.head_seq AND n.scope_pk = s.pk
 WHERE x.session_id = :session_id AND i.scope_id = :scope_id AND i.kind = :kind;

-- name: scope_to_commit
-- The same for a commit, in one statement: the last seq given in the whole store, and the body
-- that the scope shows unless it is large, which is what the next one builds on.
SELECT CASE WHEN t.session_id = :session_id AND s.session_pk = x.pk
             AND s.scope_id = :scope_id AND s.kind = :kind THEN s.pk END, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner,
       s.lease_until, NULL AS family, s.checksum, s.codec, x'' AS stamps, NULL AS now,
       n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum,
       max(w.seq, coalesce(p.seq, 0)), max(w.saved_at, coalesce(p.saved_at, -1)),
       b.seq, b.base, b.encoding, CASE WHEN length(b.body) <= 65536 THEN b.body END, b.checksum
  FROM sessions AS x
  JOIN scopes AS i ON i.session_pk = x.pk
  LEFT JOIN watermark AS w ON true
  LEFT JOIN sessions AS t ON t.pk = x.pk
  LEFT JOIN scopes AS s ON s.pk = i.pk
  LEFT JOIN snapshots AS n ON n.seq = s.head_seq AND n.scope_pk = s.pk
  LEFT JOIN bodies AS b ON b.seq = s.head_seq
  LEFT JOIN snapshots AS p ON p.seq = (SELECT max(seq) FROM snapshots)
 WHERE x.session_id = :session_id AND i.scope_id = :scope_id AND i.kind = :kind;

-- name: add_session
-- The key, if it was added.
INSERT INTO sessions (session_id) VALUES (:session_id) ON CONFLICT DO NOTHING RETURNING pk;

-- name: sum_session
-- Its checksum covers its key.
UPDATE sessions SET checksum = ? WHERE pk = ?;

-- name: add_scope
INSERT INTO scopes (session_pk, kind, scope_id, next_seq)
SELECT pk, :kind, :scope_id, 1 FROM sessions WHERE session_id = :session_id
RETURNING pk;

-- name: sum_scope
UPDATE scopes SET checksum = ? WHERE pk = ?;

-- name: existing_snapshot
-- For a commit, which mostly finds none.
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum, n.scope_pk
  FROM snapshots AS n
 WHERE n.scope_pk = ? AND n.id = ?;

-- name: snapshot_by_id
-- For a reader. What one index does not have, since it is damaged, another may have; a row without
-- values means that it is in an index alone.
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum, n.scope_pk
  FROM (SELECT coalesce((SELECT i.seq FROM snapshots AS i
                          WHERE i.scope_pk = given.scope_pk AND i.id = given.id),
                        (SELECT found.seq
                           FROM (SELECT seq, scope_pk
                                   FROM snapshots INDEXED BY snapshots_anywhere
                                  WHERE id = given.id LIMIT 64) AS found
                          WHERE found.scope_pk = given.scope_pk)) AS seq
          FROM (SELECT ? AS scope_pk, ? AS id) AS given) AS asked
  LEFT JOIN snapshots AS n ON n.seq = asked.seq
 WHERE asked.seq IS NOT NULL;

-- name: seq_and_size
SELECT seq, size FROM snapshots WHERE scope_pk = ? AND id = ?;

-- name: snapshot_by_seq
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum, n.scope_pk
  FROM snapshots AS n
 WHERE n.scope_pk = ? AND n.seq = ?;

-- name: snapshot_by_nonce
-- Only for a commit whose answer may have been lost: the newest first, since it is among the last.
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum, n.scope_pk
  FROM snapshots AS n
 WHERE n.scope_pk = ? AND n.nonce = ?
 ORDER BY n.seq DESC LIMIT 1;

-- name: add_snapshot
INSERT INTO snapshots (seq, id, rev, nonce, kept, parent_id, forked_from, status, labels, metadata,
                       created_at, updated_at, saved_at, size, checksum, scope_pk, apart)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: replace_snapshot
UPDATE snapshots
   SET rev = :rev, nonce = :nonce, kept = :kept, apart = apart OR parent_id IS NOT :parent_id,
       parent_id = :parent_id, forked_from = :forked_from, status = :status, labels = :labels,
       metadata = :metadata, created_at = :created_at, updated_at = :updated_at,
       saved_at = :saved_at, size = :size, checksum = :checksum
 WHERE seq = :seq;

-- name: remove_snapshots_of
DELETE FROM snapshots WHERE scope_pk = ?;

-- name: set_apart
-- Before a snapshot goes: the one that follows it is no longer just behind its parent.
UPDATE snapshots SET apart = 1
 WHERE seq = (SELECT c.seq FROM snapshots AS c
               WHERE c.scope_pk = :pk AND c.seq > :seq ORDER BY c.seq LIMIT 1)
   AND NOT apart;

-- name: remove_snapshot
DELETE FROM snapshots WHERE seq = ?;

-- name: add_label
INSERT INTO labels (name, value, seq) VALUES (?, ?, ?);

-- name: remove_labels
DELETE FROM labels WHERE seq = ?;

-- name: move_scope
UPDATE scopes SET head_seq = ?, tip_seq = ?, next_seq = ?, floor = ?, checksum = ?, codec = ?
 WHERE pk = ?;

-- name: continue_scope
-- If it is as this process left it, and no other scope was written to since. Whoever changes the lease
-- changes the checksum too. The other columns are compared so that damage is not overwritten.
UPDATE scopes SET head_seq = ?, tip_seq = ?, next_seq = ?, floor = ?, checksum = ?, codec = ?
 WHERE head_seq IS ? AND tip_seq IS ? AND next_seq = ? AND floor = ? AND checksum = ? AND codec = ?
   AND pk = ?
   AND ? = (SELECT max(w.seq, coalesce((SELECT max(seq) FROM snapshots), 0)) FROM watermark AS w);

-- name: scope_to_continue
-- The last seq given in the whole store, and its logical time, if the scope is as it was left.
SELECT max(w.seq, coalesce(n.seq, 0)), max(w.saved_at, coalesce(n.saved_at, -1))
  FROM scopes AS s
 CROSS JOIN watermark AS w
  LEFT JOIN snapshots AS n ON n.seq = (SELECT max(seq) FROM snapshots)
 WHERE s.head_seq IS ? AND s.tip_seq IS ? AND s.next_seq = ? AND s.floor = ? AND s.checksum = ?
   AND s.codec = ? AND s.pk = ?;

-- name: forget_chains
-- Of a whole session: a body of one of its scopes may build on one of another.
UPDATE scopes SET codec = NULL
 WHERE codec IS NOT NULL
   AND session_pk = (SELECT x.session_pk FROM scopes AS x WHERE x.pk = ?);

-- name: forget_chain
UPDATE scopes SET codec = NULL WHERE pk = ?;

-- name: newest_kept
SELECT max(seq) FROM snapshots WHERE scope_pk = ? AND kept;

-- name: uncover
UPDATE scopes SET head_seq = ?, tip_seq = ?, checksum = ? WHERE pk = ?;

-- name: has_notes
SELECT 1 FROM notes WHERE scope_pk = ? LIMIT 1;

-- name: put_lease
UPDATE scopes SET fence = ?, lease_owner = ?, lease_until = ?, checksum = ? WHERE pk = ?;

-- name: revisions
-- What is watched, as a list of [session, scope, kind, id or null]: where in the list something is,
-- and its revision.
SELECT a.key, n.seq, n.rev, n.nonce
  FROM json_each(?) AS a
 CROSS JOIN sessions AS x ON x.session_id = a.value ->> 0
 CROSS JOIN scopes AS s
         ON s.session_pk = x.pk AND s.kind = a.value ->> 2 AND s.scope_id = a.value ->> 1
 CROSS JOIN snapshots AS n
         ON n.scope_pk = s.pk
        AND n.seq = CASE WHEN a.value ->> 3 IS NULL THEN s.head_seq
                         ELSE (SELECT i.seq FROM snapshots AS i
                                WHERE i.scope_pk = s.pk AND i.id = a.value ->> 3) END;

-- name: seqs_of_scope
SELECT seq FROM snapshots WHERE scope_pk = ?;

-- name: scope_is_base
-- Whether something outside a scope builds on a state of it.
SELECT EXISTS (SELECT 1 FROM snapshots AS n
                 JOIN bodies AS d ON d.base = n.seq
                 LEFT JOIN snapshots AS o ON o.seq = d.seq
                WHERE n.scope_pk = :pk AND (o.seq IS NULL OR o.scope_pk <> :pk));

-- name: session_is_base
-- Whether a state of another session builds on one of a scope; only a repair can bring that about.
SELECT EXISTS (SELECT 1 FROM snapshots AS n
                 JOIN bodies AS d ON d.base = n.seq
                 JOIN snapshots AS o ON o.seq = d.seq AND o.scope_pk <> n.scope_pk
                 JOIN scopes AS s ON s.pk = o.scope_pk
                WHERE n.scope_pk = :pk
                  AND s.session_pk <> (SELECT x.session_pk FROM scopes AS x WHERE x.pk = :pk));

-- name: unlisted_bases
-- What the states of a scope build on that is no snapshot's.
SELECT DISTINCT b.base
  FROM snapshots AS n
  JOIN bodies AS b ON b.seq = n.seq
 WHERE n.scope_pk = ? AND b.base IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM snapshots AS o WHERE o.seq = b.base);

-- name: remove_scope_bodies
DELETE FROM bodies WHERE seq IN (SELECT seq FROM snapshots WHERE scope_pk = ?);

-- name: unlisted
-- The next state that is no snapshot's: of a draft that was replaced, on which others build.
SELECT b.seq FROM bodies AS b
 WHERE b.seq > :after AND NOT EXISTS (SELECT 1 FROM snapshots AS n WHERE n.seq = b.seq)
 ORDER BY b.seq LIMIT 1;

-- name: unfolded_scopes
-- Scopes with several small states that are whole.
SELECT x.session_id, s.scope_id, s.kind
  FROM (SELECT n.scope_pk AS pk
          FROM bodies AS b
          JOIN snapshots AS n ON n.seq = b.seq
         WHERE b.base IS NULL AND length(b.body) <= ? AND n.kept
         GROUP BY n.scope_pk HAVING count(*) > 1) AS u
  JOIN scopes AS s ON s.pk = u.pk
  JOIN sessions AS x ON x.pk = s.session_pk;

-- name: small_bodies
-- The kept states of a scope, oldest first; without their bytes where those are many.
SELECT b.seq, b.base, b.encoding, CASE WHEN length(b.body) <= ? THEN b.body END, b.checksum
  FROM snapshots AS n
  JOIN bodies AS b ON b.seq = n.seq
 WHERE n.scope_pk = ? AND n.seq > ? AND n.kept
 ORDER BY n.seq LIMIT ?;

-- name: scopes_above
-- Scopes with a state that builds on this one, over others or not.
WITH RECURSIVE above (seq) AS (
    SELECT seq FROM bodies WHERE base = ?
    UNION
    SELECT b.seq FROM above AS a CROSS JOIN bodies AS b ON b.base = a.seq
)
SELECT DISTINCT n.scope_pk FROM above AS a CROSS JOIN snapshots AS n ON n.seq = a.seq;

-- name: remove_scope
DELETE FROM scopes WHERE pk = ?;

-- name: remove_empty_session
DELETE FROM sessions
 WHERE session_id = ? AND NOT EXISTS (SELECT 1 FROM scopes WHERE session_pk = sessions.pk);

-- name: session_scopes
SELECT s.pk FROM sessions AS x JOIN scopes AS s ON s.session_pk = x.pk WHERE x.session_id = ?;

-- A parameter for `on_id` has a plus: else SQLite would plan the statement again each time it runs,
-- since some of its values would permit the index notes_by_time.

-- name: note
-- A row without values means that it is in the index alone.
SELECT n.on_id, n.name, n.rev, n.nonce, n.updated_at, n.value, n.checksum, n.scope_pk
  FROM notes AS i
  LEFT JOIN notes AS n ON n.pk = i.pk
 WHERE i.scope_pk = :pk AND i.on_id = +:on AND i.name = :name;

-- name: scope_and_note
-- The same with its scope, which has no key if an index led to the row of another name.
SELECT CASE WHEN t.session_id = :session_id AND s.session_pk = x.pk
             AND s.scope_id = :scope_id AND s.kind = :kind THEN s.pk END, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner,
       s.lease_until, NULL AS family, s.checksum, o.pk IS NOT NULL,
       n.on_id, n.name, n.rev, n.nonce, n.updated_at, n.value, n.checksum
  FROM sessions AS x
 CROSS JOIN scopes AS i ON i.session_pk = x.pk AND i.kind = :kind AND i.scope_id = :scope_id
  LEFT JOIN sessions AS t ON t.pk = x.pk
  LEFT JOIN scopes AS s ON s.pk = i.pk
  LEFT JOIN notes AS o ON o.scope_pk = i.pk AND o.on_id = +:on AND o.name = :name
  LEFT JOIN notes AS n ON n.pk = o.pk
 WHERE x.session_id = :session_id;

-- name: note_in_scope
-- The same by the name of its scope, and the key of that.
SELECT n.on_id, n.name, n.rev, n.nonce, n.updated_at, n.value, n.checksum, s.pk,
       s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner,
       s.lease_until, NULL AS family, s.checksum
  FROM sessions AS x
 CROSS JOIN scopes AS s ON s.session_pk = x.pk AND s.kind = :kind AND s.scope_id = :scope_id
 CROSS JOIN notes AS i ON i.scope_pk = s.pk AND i.on_id = +:on AND i.name = :name
  LEFT JOIN notes AS n ON n.pk = i.pk
 WHERE x.session_id = :session_id;

-- name: notes_in_scope
-- The same for several names, a list.
SELECT n.on_id, n.name, n.rev, n.nonce, n.updated_at, n.value, n.checksum, s.pk,
       s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner,
       s.lease_until, NULL AS family, s.checksum
  FROM sessions AS x
 CROSS JOIN scopes AS s ON s.session_pk = x.pk AND s.kind = :kind AND s.scope_id = :scope_id
 CROSS JOIN json_each(:names) AS a
 CROSS JOIN notes AS i ON i.scope_pk = s.pk AND i.on_id = +:on AND i.name = a.value
  LEFT JOIN notes AS n ON n.pk = i.pk
 WHERE x.session_id = :session_id;

-- name: put_note
INSERT INTO notes (scope_pk, on_id, name, rev, nonce, updated_at, value, checksum)
VALUES (:pk, :on, :name, :rev, :nonce, :updated_at, :value, :checksum)
ON CONFLICT (scope_pk, on_id, name) DO UPDATE
   SET rev = excluded.rev, nonce = excluded.nonce, updated_at = excluded.updated_at,
       value = excluded.value, checksum = excluded.checksum;

-- name: add_note
-- In one statement, if the scope is the one that is known.
INSERT INTO notes (scope_pk, on_id, name, rev, nonce, updated_at, value, checksum)
SELECT s.pk, :on, :name, :rev, :nonce, :updated_at, :value, :checksum
  FROM scopes AS s JOIN sessions AS x ON x.pk = s.session_pk
 WHERE s.pk = :pk AND s.kind = :kind AND s.scope_id = :scope_id AND x.session_id = :session_id
    ON CONFLICT (scope_pk, on_id, name) DO NOTHING;

-- name: remove_note
DELETE FROM notes WHERE scope_pk = :pk AND on_id = +:on AND name = :name;

-- name: remove_notes_on
DELETE FROM notes WHERE scope_pk = :pk AND on_id = +:on;

-- What is stored begins with the key that it is encrypted with: five bytes.

-- name: beginnings_of_snapshots
SELECT n.seq, x.session_id, s.scope_id, s.kind, substr(n.metadata, 1, 5), length(n.metadata)
  FROM snapshots AS n
  JOIN scopes AS s ON s.pk = n.scope_pk
  JOIN sessions AS x ON x.pk = s.session_pk
 WHERE n.seq >= :start
 ORDER BY n.seq LIMIT :limit;

-- name: beginnings_of_bodies
SELECT b.seq, x.session_id, s.scope_id, s.kind, substr(b.body, 1, 5), length(b.body)
  FROM bodies AS b
  LEFT JOIN snapshots AS n ON n.seq = b.seq
  LEFT JOIN scopes AS s ON s.pk = n.scope_pk
  LEFT JOIN sessions AS x ON x.pk = s.session_pk
 WHERE b.seq >= :start
 ORDER BY b.seq LIMIT :limit;

-- name: beginnings_of_notes
SELECT o.pk, x.session_id, s.scope_id, s.kind, substr(o.value, 1, 5), length(o.value)
  FROM notes AS o
  JOIN scopes AS s ON s.pk = o.scope_pk
  JOIN sessions AS x ON x.pk = s.session_pk
 WHERE o.pk >= :start
 ORDER BY o.pk LIMIT :limit;

-- name: beginnings_of_scopes
SELECT s.pk, x.session_id, s.scope_id, s.kind, substr(s.codec, 1, 5), length(s.codec),
       s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner, s.lease_until, NULL AS family,
       s.checksum
  FROM scopes AS s
  JOIN sessions AS x ON x.pk = s.session_pk
 WHERE s.pk >= :start
 ORDER BY s.pk LIMIT :limit;
