-- The statements of the PostgreSQL engine. The columns of a snapshot always come in the order of
-- core.rows.Row, then its checksum. What locks and what reads under the lock are two statements:
-- the second sees what others committed while the first waited.

-- name: check_version
-- The last of each transaction that writes: it fails, by a division by zero, if the tables were
-- migrated by a newer version. Migrations lock this table, so that it stays true until the commit.
SELECT 1 / (NOT EXISTS (SELECT 1 FROM limpet.schema_migrations WHERE version > 0 /* newest */))::int;

-- name: lock_scope
-- The right to change a scope. Nothing wider is locked by a save.
SELECT s.pk
  FROM limpet.sessions AS x
  JOIN limpet.scopes AS s ON s.session_pk = x.pk
 WHERE x.session_id = %(session_id)s AND s.scope_id = %(scope_id)s AND s.kind = %(kind)s
   FOR NO KEY UPDATE OF s;

-- name: lock_fork_group
-- The right to change the states of a scope on which its forks may build, always in one order.
SELECT s.pk
  FROM limpet.scopes AS s
 WHERE s.pk IN (SELECT k.pk
                  FROM limpet.sessions AS x
                  JOIN limpet.scopes AS o ON o.session_pk = x.pk
                  JOIN limpet.scopes AS k ON k.pk = o.pk OR k.family = o.family
                 WHERE x.session_id = %(session_id)s AND o.scope_id = %(scope_id)s
                   AND o.kind = %(kind)s)
 ORDER BY s.pk
   FOR NO KEY UPDATE OF s;

-- name: lock_session
-- The right to remove a session: no other writer adds a scope to it.
SELECT pk FROM limpet.sessions WHERE session_id = %s FOR UPDATE;

-- name: lock_session_if_free
SELECT pk FROM limpet.sessions WHERE session_id = %s FOR UPDATE SKIP LOCKED;

-- name: session_scopes
SELECT s.pk
  FROM limpet.scopes AS s
 WHERE s.session_pk = (SELECT x.pk FROM limpet.sessions AS x WHERE x.session_id = %s)
 ORDER BY s.pk
   FOR UPDATE OF s;

-- name: lock_everybody_out
-- For one step of a repair.
LOCK TABLE limpet.scopes IN SHARE ROW EXCLUSIVE MODE;

-- name: scope
-- A scope, the snapshot it shows, the rest of its lease, and the time by which that ends: it is the
-- one clock that all who claim leases have in common.
SELECT s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner,
       s.lease_until, s.family, s.checksum, s.codec, s.stamps,
       (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now,
       n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum
  FROM limpet.sessions AS x
  JOIN limpet.scopes AS s ON s.session_pk = x.pk
  LEFT JOIN limpet.snapshots AS n ON n.seq = s.head_seq AND n.scope_pk = s.pk
 WHERE x.session_id = %(session_id)s AND s.scope_id = %(scope_id)s AND s.kind = %(kind)s;

-- name: scope_to_commit
-- The same for one who commits, in one go: the body that the scope shows unless it is large, which
-- is what the next one builds on.
SELECT s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner,
       s.lease_until, s.family, s.checksum, s.codec, s.stamps,
       NULL::bigint AS now,
       n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum,
       NULL::bigint AS last_seq, NULL::bigint AS last_saved_at,
       b.seq, b.base, b.encoding, CASE WHEN octet_length(b.body) <= 65536 THEN b.body END, b.checksum
  FROM limpet.sessions AS x
  JOIN limpet.scopes AS s ON s.session_pk = x.pk
  LEFT JOIN limpet.snapshots AS n ON n.seq = s.head_seq AND n.scope_pk = s.pk
  LEFT JOIN limpet.bodies AS b ON b.seq = s.head_seq
 WHERE x.session_id = %(session_id)s AND s.scope_id = %(scope_id)s AND s.kind = %(kind)s;

-- name: add_session
-- The key, if it was added.
INSERT INTO limpet.sessions (session_id) VALUES (%(session_id)s) ON CONFLICT DO NOTHING RETURNING pk;

-- name: sum_session
-- Its checksum covers its key.
UPDATE limpet.sessions SET checksum = %s WHERE pk = %s;

-- name: add_scope
-- Another writer that adds the same one makes this fail; the transaction is then tried again.
INSERT INTO limpet.scopes (session_pk, kind, scope_id, next_seq)
SELECT pk, %(kind)s, %(scope_id)s, 1 FROM limpet.sessions WHERE session_id = %(session_id)s
RETURNING pk, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- name: sum_scope
UPDATE limpet.scopes SET checksum = %s WHERE pk = %s;

-- name: add_scope_if_missing
-- Before it is locked, by one who has not seen it yet: saves a round trip where it is the first.
INSERT INTO limpet.scopes (session_pk, kind, scope_id, next_seq)
SELECT pk, %(kind)s, %(scope_id)s, 1 FROM limpet.sessions WHERE session_id = %(session_id)s
    ON CONFLICT DO NOTHING;

-- name: chain_of_head
-- What the next state of a scope is compared with, by one who has not got it.
WITH RECURSIVE chain (seq, base) AS (
    SELECT b.seq, b.base
      FROM limpet.sessions AS x
      JOIN limpet.scopes AS s ON s.session_pk = x.pk
      JOIN limpet.bodies AS b ON b.seq = s.head_seq
     WHERE x.session_id = %(session_id)s AND s.scope_id = %(scope_id)s AND s.kind = %(kind)s
     UNION
    SELECT b.seq, b.base FROM chain AS c JOIN limpet.bodies AS b ON b.seq = c.base
)
SELECT b.seq, b.base, b.encoding, b.body, b.checksum
  FROM chain AS c
  JOIN limpet.bodies AS b ON b.seq = c.seq;

-- name: join_fork_group
-- A scope is about to build on states of another: from now on one who removes states locks both.
UPDATE limpet.scopes SET family = %s, checksum = %s WHERE pk = %s;

-- name: save_in_one
-- The whole save of a writer that is still the last one to have changed the scope. No row comes
-- back if it is not, and then nothing was stored.
WITH moved AS (
    UPDATE limpet.scopes
       SET head_seq = %(head_seq)s, tip_seq = %(tip_seq)s, next_seq = %(next_seq)s,
           floor = %(floor)s, checksum = %(scope_checksum)s, codec = %(codec)s, stamps = %(stamps)s
     WHERE pk = %(pk)s AND stamps = %(known)s AND checksum = %(known_checksum)s
       AND head_seq = %(known_head)s  -- else it is damaged, and not overwritten
       AND (%(fence)s::text IS NULL OR fence = %(fence)s)
       AND NOT EXISTS (SELECT 1 FROM limpet.schema_migrations WHERE version > 0 /* newest */)
       AND NOT (%(overwrite)s
                AND EXISTS (SELECT 1 FROM limpet.snapshots WHERE scope_pk = %(pk)s AND id = %(id)s))
    RETURNING pk
), told AS (
    INSERT INTO limpet.snapshots
           (seq, id, rev, nonce, kept, parent_id, forked_from, status, labels, metadata, created_at,
            updated_at, saved_at, size, checksum, scope_pk, apart)
    SELECT %(seq)s, %(id)s, %(rev)s, %(nonce)s, %(kept)s, %(parent_id)s, %(forked_from)s, %(status)s,
           %(labels)s, %(metadata)s, %(created_at)s, %(updated_at)s, %(saved_at)s, %(size)s,
           %(checksum)s, pk, %(apart)s
      FROM moved
), stored AS (
    INSERT INTO limpet.bodies (seq, base, encoding, body, checksum)
    SELECT %(seq)s, %(base)s, %(encoding)s, %(body)s, %(body_checksum)s FROM moved
), labelled AS (
    INSERT INTO limpet.labels (name, value, seq)
    SELECT l.name, l.value, %(seq)s
      FROM moved CROSS JOIN unnest(%(names)s::text[], %(values)s::text[]) AS l (name, value)
)
/* fold */
SELECT 0 /* has_listeners */ FROM moved;

-- name: fold
-- Part of `save_and_fold`: small states become deltas, if all of them are as they were written.
, folded AS (
    UPDATE limpet.bodies AS b
       SET base = f.base, encoding = f.encoding, body = f.body, checksum = f.checksum
      FROM moved
     CROSS JOIN unnest(%(seqs)s::bigint[], %(bases)s::bigint[], %(encodings)s::int[],
                       %(bodies)s::bytea[], %(checksums)s::bigint[])
                AS f (seq, base, encoding, body, checksum)
     WHERE b.seq = f.seq
       AND cardinality(%(whole)s::bigint[]) =
           (SELECT count(*)
              FROM unnest(%(whole)s::bigint[], %(sums)s::bigint[]) AS w (seq, checksum)
              JOIN limpet.bodies AS u ON u.seq = w.seq AND u.checksum = w.checksum)
)

-- name: has_listeners
-- Whether any process listens. Listeners share a lock, so that it cannot be taken exclusively.
SELECT CASE WHEN pg_try_advisory_lock(%(listeners)s) THEN NOT pg_advisory_unlock(%(listeners)s)
            ELSE true END;

-- name: snapshot_by_id
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum, n.scope_pk
  FROM limpet.snapshots AS n
 WHERE n.scope_pk = %s AND n.id = %s;

-- name: read_snapshot
-- One snapshot with the chain of its state, in one go: the head if no id is given. The facts come
-- with the row of the snapshot's own body.
WITH RECURSIVE shown AS (
    SELECT s.pk AS owner, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner, s.lease_until, s.family,
           s.checksum AS scope_checksum, n.*
      FROM limpet.sessions AS x
      JOIN limpet.scopes AS s ON s.session_pk = x.pk
      LEFT JOIN limpet.snapshots AS n
        ON n.scope_pk = s.pk
       AND n.seq = CASE WHEN %(id)s::text IS NULL THEN s.head_seq
                        ELSE (SELECT i.seq FROM limpet.snapshots AS i
                               WHERE i.scope_pk = s.pk AND i.id = %(id)s::text LIMIT 1) END
     WHERE x.session_id = %(session_id)s AND s.scope_id = %(scope_id)s AND s.kind = %(kind)s
), chain (seq, base) AS (
    SELECT b.seq, b.base FROM shown AS n JOIN limpet.bodies AS b ON b.seq = n.seq
     UNION
    SELECT b.seq, b.base FROM chain AS c JOIN limpet.bodies AS b ON b.seq = c.base
)
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum,
       n.owner, n.head_seq, n.tip_seq, n.next_seq, n.floor, n.fence, n.lease_owner, n.lease_until, n.family,
       n.scope_checksum, b.seq, b.base, b.encoding, b.body, b.checksum
  FROM chain AS c
  JOIN limpet.bodies AS b ON b.seq = c.seq
  FULL JOIN shown AS n ON n.seq = c.seq;

-- name: read_snapshots
-- Several snapshots with all that their states build on, each body once however many need it.
WITH RECURSIVE shown AS (
    SELECT s.pk AS owner, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner, s.lease_until, s.family,
           s.checksum AS scope_checksum, n.*
      FROM limpet.sessions AS x
      JOIN limpet.scopes AS s ON s.session_pk = x.pk
      JOIN limpet.snapshots AS n
        ON n.scope_pk = s.pk AND n.id = ANY (%(ids)s::text[])
     WHERE x.session_id = %(session_id)s AND s.scope_id = %(scope_id)s AND s.kind = %(kind)s
), chain (seq, base) AS (
    SELECT b.seq, b.base FROM shown AS n JOIN limpet.bodies AS b ON b.seq = n.seq
     UNION
    SELECT b.seq, b.base FROM chain AS c JOIN limpet.bodies AS b ON b.seq = c.base
)
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum,
       n.owner, n.head_seq, n.tip_seq, n.next_seq, n.floor, n.fence, n.lease_owner, n.lease_until, n.family,
       n.scope_checksum, b.seq, b.base, b.encoding, b.body, b.checksum
  FROM chain AS c
  JOIN limpet.bodies AS b ON b.seq = c.seq
  FULL JOIN shown AS n ON n.seq = c.seq;

-- name: snapshot_info
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum,
       n.scope_pk, x.session_id, s.scope_id, s.kind, s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner,
       s.lease_until, s.family, s.checksum
  FROM limpet.sessions AS x
  JOIN limpet.scopes AS s ON s.session_pk = x.pk
  JOIN limpet.snapshots AS n ON n.scope_pk = s.pk AND n.id = %(id)s
 WHERE x.session_id = %(session_id)s AND s.scope_id = %(scope_id)s AND s.kind = %(kind)s;

-- name: seq_and_size
SELECT seq, size FROM limpet.snapshots WHERE scope_pk = %s AND id = %s;

-- name: snapshot_by_seq
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum, n.scope_pk
  FROM limpet.snapshots AS n
 WHERE n.scope_pk = %s AND n.seq = %s;

-- name: snapshot_by_nonce
-- Only for a commit whose answer may have been lost: the newest first, since it is among the last.
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum, n.scope_pk
  FROM limpet.snapshots AS n
 WHERE n.scope_pk = %s AND n.nonce = %s
 ORDER BY n.seq DESC LIMIT 1;

-- name: add_snapshot
INSERT INTO limpet.snapshots
       (seq, id, rev, nonce, kept, parent_id, forked_from, status, labels, metadata,
        created_at, updated_at, saved_at, size, checksum, scope_pk, apart)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s);

-- name: replace_snapshot
UPDATE limpet.snapshots
   SET rev = %(rev)s, nonce = %(nonce)s, kept = %(kept)s,
       apart = apart OR parent_id IS DISTINCT FROM %(parent_id)s::text, parent_id = %(parent_id)s,
       forked_from = %(forked_from)s, status = %(status)s, labels = %(labels)s,
       metadata = %(metadata)s, created_at = %(created_at)s, updated_at = %(updated_at)s,
       saved_at = %(saved_at)s, size = %(size)s, checksum = %(checksum)s
 WHERE seq = %(seq)s;

-- name: remove_snapshots_of
DELETE FROM limpet.snapshots WHERE scope_pk = %s;

-- name: set_apart
-- Before a snapshot goes: the one that follows it is no longer just behind its parent.
UPDATE limpet.snapshots SET apart = true
 WHERE seq = (SELECT c.seq FROM limpet.snapshots AS c
               WHERE c.scope_pk = %(pk)s AND c.seq > %(seq)s ORDER BY c.seq LIMIT 1)
   AND NOT apart;

-- name: remove_snapshot
DELETE FROM limpet.snapshots WHERE seq = %s;

-- name: add_label
INSERT INTO limpet.labels (name, value, seq) VALUES (%s, %s, %s);

-- name: remove_labels
DELETE FROM limpet.labels WHERE seq = %s;

-- name: move_scope
UPDATE limpet.scopes
   SET head_seq = %s, tip_seq = %s, next_seq = %s, floor = %s, checksum = %s, codec = %s, stamps = %s
 WHERE pk = %s;

-- name: forget_chains
-- Of a scope and all whose states may build on its own.
UPDATE limpet.scopes AS s
   SET codec = NULL,
       stamps = int8send(hashtextextended(encode(s.stamps, 'hex'), 0)) || substr(s.stamps, 1, 120)
  FROM limpet.scopes AS o
 WHERE o.pk = %s AND (s.pk = o.pk OR s.family = o.family) AND s.codec IS NOT NULL;

-- name: forget_chain
UPDATE limpet.scopes SET codec = NULL WHERE pk = %s;

-- name: stamp_scope
-- Every change of a scope or its notes leaves a stamp in it. It shows what became of a
-- change whose answer was lost, and that what others remember of the scope is out of date.
UPDATE limpet.scopes SET stamps = %s::bytea || substr(stamps, 1, 120) WHERE pk = %s;

-- name: newest_kept
SELECT (SELECT n.seq FROM limpet.snapshots AS n
         WHERE n.scope_pk = %s AND n.kept ORDER BY n.seq DESC LIMIT 1);

-- name: uncover
UPDATE limpet.scopes SET head_seq = %s, tip_seq = %s, checksum = %s WHERE pk = %s;

-- name: has_notes
SELECT 1 FROM limpet.notes WHERE scope_pk = %s LIMIT 1;

-- name: put_lease
UPDATE limpet.scopes SET fence = %s, lease_owner = %s, lease_until = %s, checksum = %s WHERE pk = %s;

-- name: seqs_of_scope
SELECT seq FROM limpet.snapshots WHERE scope_pk = %s;

-- name: scope_is_base
-- Whether something outside a scope builds on a state of it.
SELECT EXISTS (SELECT 1 FROM limpet.snapshots AS n
                 JOIN limpet.bodies AS d ON d.base = n.seq
                 LEFT JOIN limpet.snapshots AS o ON o.seq = d.seq
                WHERE n.scope_pk = %(pk)s AND (o.seq IS NULL OR o.scope_pk <> %(pk)s));

-- name: session_is_base
-- Whether a state of another session builds on one of a scope; only a repair can bring that about.
SELECT EXISTS (SELECT 1 FROM limpet.snapshots AS n
                 JOIN limpet.bodies AS d ON d.base = n.seq
                 JOIN limpet.snapshots AS o ON o.seq = d.seq AND o.scope_pk <> n.scope_pk
                 JOIN limpet.scopes AS s ON s.pk = o.scope_pk
                WHERE n.scope_pk = %(pk)s
                  AND s.session_pk <> (SELECT x.session_pk FROM limpet.scopes AS x
                                        WHERE x.pk = %(pk)s));

-- name: unlisted_bases
-- What the states of a scope build on that is no snapshot's.
SELECT DISTINCT b.base
  FROM limpet.snapshots AS n
  JOIN limpet.bodies AS b ON b.seq = n.seq
 WHERE n.scope_pk = %s AND b.base IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM limpet.snapshots AS o WHERE o.seq = b.base);

-- name: remove_scope_bodies
DELETE FROM limpet.bodies AS b USING limpet.snapshots AS n
 WHERE n.scope_pk = %s AND b.seq = n.seq;

-- name: last_seq_and_time
SELECT coalesce(max(seq), 0), 0 FROM limpet.bodies;

-- name: unlisted
-- The next state that is no snapshot's: of a draft that was replaced, on which others build.
SELECT b.seq FROM limpet.bodies AS b
 WHERE b.seq > %(after)s
   AND NOT EXISTS (SELECT 1 FROM limpet.snapshots AS n
                    WHERE n.seq = b.seq AND n.seq > %(after)s)
 ORDER BY b.seq LIMIT 1;

-- name: unfolded_scopes
-- Scopes with several small states that are whole.
SELECT x.session_id, s.scope_id, s.kind
  FROM (SELECT n.scope_pk AS pk
          FROM limpet.bodies AS b
          JOIN limpet.snapshots AS n ON n.seq = b.seq
         WHERE b.base IS NULL AND octet_length(b.body) <= %s AND n.kept
         GROUP BY n.scope_pk HAVING count(*) > 1) AS u
  JOIN limpet.scopes AS s ON s.pk = u.pk
  JOIN limpet.sessions AS x ON x.pk = s.session_pk;

-- name: small_bodies
-- The kept states of a scope, oldest first; without their bytes where those are many. OFFSET keeps
-- the planner from merging both tables, which would read all older bodies of the store.
SELECT b.seq, b.base, b.encoding, CASE WHEN octet_length(b.body) <= %s THEN b.body END, b.checksum
  FROM limpet.snapshots AS n
 CROSS JOIN LATERAL (SELECT * FROM limpet.bodies AS x WHERE x.seq = n.seq OFFSET 0) AS b
 WHERE n.scope_pk = %s AND n.seq > %s AND n.kept
 ORDER BY n.seq LIMIT %s;

-- name: scopes_above
-- Scopes with a state that builds on this one, over others or not.
WITH RECURSIVE above (seq) AS (
    SELECT seq FROM limpet.bodies WHERE base = %s
    UNION
    SELECT b.seq FROM above AS a JOIN limpet.bodies AS b ON b.base = a.seq
)
SELECT DISTINCT n.scope_pk FROM above AS a JOIN limpet.snapshots AS n ON n.seq = a.seq;

-- name: lock_scopes
SELECT s.pk FROM limpet.scopes AS s
 WHERE s.pk IN (SELECT k.pk
                  FROM limpet.scopes AS o
                  JOIN limpet.scopes AS k ON k.pk = o.pk OR k.family = o.family
                 WHERE o.pk = ANY (%(pks)s::bigint[]))
 ORDER BY s.pk
   FOR NO KEY UPDATE OF s;

-- name: remove_scope
DELETE FROM limpet.scopes WHERE pk = %s;

-- name: remove_empty_session
DELETE FROM limpet.sessions AS x
 WHERE x.session_id = %s
   AND NOT EXISTS (SELECT 1 FROM limpet.scopes AS s WHERE s.session_pk = x.pk);

-- name: note
SELECT on_id, name, rev, nonce, updated_at, value, checksum, scope_pk
  FROM limpet.notes
 WHERE scope_pk = %(pk)s AND hashtextextended(on_id, 0) = hashtextextended(%(on)s COLLATE "C", 0)
   AND on_id = %(on)s AND name = %(name)s;

-- name: note_in_scope
-- The same by the name of its scope, and the key of that.
SELECT n.on_id, n.name, n.rev, n.nonce, n.updated_at, n.value, n.checksum, n.scope_pk,
       s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner,
       s.lease_until, s.family, s.checksum
  FROM limpet.sessions AS x
  JOIN limpet.scopes AS s ON s.session_pk = x.pk
  JOIN limpet.notes AS n
    ON n.scope_pk = s.pk AND hashtextextended(n.on_id, 0) = hashtextextended(%(on)s COLLATE "C", 0)
   AND n.on_id = %(on)s AND n.name = %(name)s
 WHERE x.session_id = %(session_id)s AND s.scope_id = %(scope_id)s AND s.kind = %(kind)s;

-- name: notes_in_scope
-- The same for several names.
SELECT n.on_id, n.name, n.rev, n.nonce, n.updated_at, n.value, n.checksum, n.scope_pk,
       s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner,
       s.lease_until, s.family, s.checksum
  FROM limpet.sessions AS x
  JOIN limpet.scopes AS s ON s.session_pk = x.pk
 CROSS JOIN unnest(%(names)s::text[]) AS a (name)
  JOIN limpet.notes AS n
    ON n.scope_pk = s.pk AND hashtextextended(n.on_id, 0) = hashtextextended(%(on)s COLLATE "C", 0)
   AND n.on_id = %(on)s AND n.name = a.name
 WHERE x.session_id = %(session_id)s AND s.scope_id = %(scope_id)s AND s.kind = %(kind)s;

-- name: put_note
WITH changed AS (
    UPDATE limpet.notes
       SET rev = %(rev)s, nonce = %(nonce)s, updated_at = %(updated_at)s, value = %(value)s,
           checksum = %(checksum)s
     WHERE scope_pk = %(pk)s AND hashtextextended(on_id, 0) = hashtextextended(%(on)s COLLATE "C", 0)
       AND on_id = %(on)s AND name = %(name)s
    RETURNING pk
)
INSERT INTO limpet.notes (scope_pk, on_id, name, rev, nonce, updated_at, value, checksum)
SELECT %(pk)s, %(on)s, %(name)s, %(rev)s, %(nonce)s, %(updated_at)s, %(value)s, %(checksum)s
 WHERE NOT EXISTS (SELECT 1 FROM changed);

-- name: has_note
SELECT 1
  FROM limpet.sessions AS x
  JOIN limpet.scopes AS s ON s.session_pk = x.pk
  JOIN limpet.notes AS n
    ON n.scope_pk = s.pk AND hashtextextended(n.on_id, 0) = hashtextextended(%(on)s COLLATE "C", 0)
   AND n.on_id = %(on)s AND n.name = %(name)s
 WHERE x.session_id = %(session_id)s AND s.scope_id = %(scope_id)s AND s.kind = %(kind)s;

-- name: remove_note_in_one
-- By a writer that knows the stamps of the scope. No row comes back if they are others by now, and
-- then nothing was removed. A stamp is left only if a note was: to repeat it else is harmless.
WITH locked AS (
    SELECT pk
      FROM limpet.scopes
     WHERE pk = %(pk)s AND stamps = %(known)s AND (%(fence)s::text IS NULL OR fence = %(fence)s)
       AND NOT EXISTS (SELECT 1 FROM limpet.schema_migrations WHERE version > 0 /* newest */)
       FOR NO KEY UPDATE
), removed AS (
    DELETE FROM limpet.notes AS n USING locked
     WHERE n.scope_pk = locked.pk
       AND hashtextextended(n.on_id, 0) = hashtextextended(%(on)s COLLATE "C", 0)
       AND n.on_id = %(on)s AND n.name = %(name)s
    RETURNING n.scope_pk
), stamped AS (
    UPDATE limpet.scopes SET stamps = %(stamps)s WHERE pk IN (SELECT scope_pk FROM removed)
)
SELECT (SELECT count(*) FROM removed), 0 FROM locked;

-- name: remove_note
DELETE FROM limpet.notes
 WHERE scope_pk = %(pk)s AND hashtextextended(on_id, 0) = hashtextextended(%(on)s COLLATE "C", 0)
   AND on_id = %(on)s AND name = %(name)s;

-- name: remove_notes_on
DELETE FROM limpet.notes
 WHERE scope_pk = %(pk)s AND hashtextextended(on_id, 0) = hashtextextended(%(on)s COLLATE "C", 0)
   AND on_id = %(on)s;

-- What is stored begins with the key that it is encrypted with: five bytes.

-- name: beginnings_of_snapshots
SELECT n.seq, x.session_id, s.scope_id, s.kind, substring(n.metadata FOR 5), octet_length(n.metadata)
  FROM limpet.snapshots AS n
  JOIN limpet.scopes AS s ON s.pk = n.scope_pk
  JOIN limpet.sessions AS x ON x.pk = s.session_pk
 WHERE n.seq >= %(start)s
 ORDER BY n.seq LIMIT %(limit)s;

-- name: beginnings_of_bodies
SELECT b.seq, x.session_id, s.scope_id, s.kind, substring(b.body FOR 5), octet_length(b.body)
  FROM limpet.bodies AS b
  LEFT JOIN limpet.snapshots AS n ON n.seq = b.seq AND n.seq >= %(start)s
  LEFT JOIN limpet.scopes AS s ON s.pk = n.scope_pk
  LEFT JOIN limpet.sessions AS x ON x.pk = s.session_pk
 WHERE b.seq >= %(start)s
 ORDER BY b.seq LIMIT %(limit)s;

-- name: beginnings_of_notes
SELECT o.pk, x.session_id, s.scope_id, s.kind, substring(o.value FOR 5), octet_length(o.value)
  FROM limpet.notes AS o
  JOIN limpet.scopes AS s ON s.pk = o.scope_pk
  JOIN limpet.sessions AS x ON x.pk = s.session_pk
 WHERE o.pk >= %(start)s
 ORDER BY o.pk LIMIT %(limit)s;

-- name: beginnings_of_scopes
SELECT s.pk, x.session_id, s.scope_id, s.kind, substring(s.codec FOR 5), octet_length(s.codec),
       s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner, s.lease_until, s.family,
       s.checksum
  FROM limpet.scopes AS s
  JOIN limpet.sessions AS x ON x.pk = s.session_pk
 WHERE s.pk >= %(start)s
 ORDER BY s.pk LIMIT %(limit)s;
