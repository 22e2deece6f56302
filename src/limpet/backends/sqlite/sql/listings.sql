-- The statements that list and count, in a SQLite file. A reader of a listing stops when its page is
-- full. The columns of a snapshot come in the order of core.rows.Row, then its checksum; behind them
-- those of its scope that the checksum of that covers. A row whose index and table do not agree on a name is
-- not listed, nor is one that fails a checksum. A range of names ends
-- before :high, or if that is null before a blob, which sorts behind every text; with OR it would be read
-- to the end of the index.

-- name: history_of_scope
-- The key of the scope is the one asked for: what an index wrongly leads to fails its checksum.
-- Newest first. A leaf has no child just behind it and none in the index of those apart.
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum,
       :pk, :session_id, :scope_id, :kind
  FROM snapshots AS n
 WHERE n.scope_pk = :pk
   AND n.seq < :before
   AND n.kept
   AND (:status IS NULL OR n.status = :status)
   AND (:id IS NULL OR n.id = :id)
   AND NOT (:leaves AND EXISTS (SELECT 1 FROM snapshots AS c
                                 WHERE c.scope_pk = n.scope_pk AND c.parent_id = n.id AND c.apart
                                   AND c.kept))
   AND NOT (:leaves AND coalesce((SELECT c.parent_id = n.id AND c.kept FROM snapshots AS c
                                   WHERE c.scope_pk = n.scope_pk AND c.seq > n.seq
                                   ORDER BY c.seq LIMIT 1), 0))
   AND NOT EXISTS (SELECT 1 FROM json_each(:labels) AS w
                    WHERE NOT EXISTS (SELECT 1 FROM labels AS l
                                       WHERE l.name = w.key AND l.value = w.value AND l.seq = n.seq))
 ORDER BY n.seq DESC;

-- name: history_of_sessions
-- Over all sessions in a range of ids, by seq. CROSS JOIN keeps SQLite from sorting.
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum,
       n.scope_pk, x.session_id, s.scope_id, s.kind, s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner,
       s.lease_until, NULL AS family, s.checksum
  FROM snapshots AS n
 CROSS JOIN scopes AS s ON s.pk = n.scope_pk
 CROSS JOIN sessions AS x ON x.pk = s.session_pk
 WHERE n.seq < :before
   AND n.kept
   AND (:status IS NULL OR n.status = :status)
   AND x.session_id >= :low AND x.session_id < coalesce(:high, x'ff')
   AND EXISTS (SELECT 1 FROM sessions AS i JOIN scopes AS j ON j.session_pk = i.pk
                WHERE i.session_id = x.session_id AND j.kind = s.kind AND j.scope_id = s.scope_id
                  AND +j.pk = s.pk)
 ORDER BY n.seq DESC;

-- name: history_by_label
-- The same for those that carry a label, read from its index; the other labels are checked.
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum,
       n.scope_pk, x.session_id, s.scope_id, s.kind, s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner,
       s.lease_until, NULL AS family, s.checksum
  FROM labels AS f
 CROSS JOIN snapshots AS n ON n.seq = f.seq
 CROSS JOIN scopes AS s ON s.pk = n.scope_pk
 CROSS JOIN sessions AS x ON x.pk = s.session_pk
 WHERE f.name = :name AND f.value = :value AND f.seq < :before
   AND n.kept
   AND (:status IS NULL OR n.status = :status)
   AND x.session_id >= :low AND x.session_id < coalesce(:high, x'ff')
   AND NOT EXISTS (SELECT 1 FROM json_each(:labels) AS w
                    WHERE NOT EXISTS (SELECT 1 FROM labels AS l
                                       WHERE l.name = w.key AND l.value = w.value AND l.seq = n.seq))
   AND EXISTS (SELECT 1 FROM sessions AS i JOIN scopes AS j ON j.session_pk = i.pk
                WHERE i.session_id = x.session_id AND j.kind = s.kind AND j.scope_id = s.scope_id
                  AND +j.pk = s.pk)
 ORDER BY f.seq DESC;

-- name: find
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum,
       n.scope_pk, x.session_id, s.scope_id, s.kind, s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner,
       s.lease_until, NULL AS family, s.checksum
  FROM snapshots AS n
 CROSS JOIN scopes AS s ON s.pk = n.scope_pk
 CROSS JOIN sessions AS x ON x.pk = s.session_pk
 WHERE n.id = :id
   AND n.seq < :before
   AND n.kept
   AND x.session_id >= :low AND x.session_id < coalesce(:high, x'ff')
   AND EXISTS (SELECT 1 FROM sessions AS i JOIN scopes AS j ON j.session_pk = i.pk
                WHERE i.session_id = x.session_id AND j.kind = s.kind AND j.scope_id = s.scope_id
                  AND +j.pk = s.pk)
 ORDER BY n.seq DESC;

-- name: find_refs
-- By id, as the index has them. A draft is no answer.
SELECT n.id, x.session_id, s.scope_id, s.kind, s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner,
       s.lease_until, NULL AS family, s.checksum
  FROM snapshots AS i
 CROSS JOIN snapshots AS n ON n.seq = i.seq AND n.id = i.id
 CROSS JOIN scopes AS s ON s.pk = n.scope_pk
 CROSS JOIN sessions AS x ON x.pk = s.session_pk
 WHERE i.id >= :low AND i.id < coalesce(:high, x'ff')
   AND n.kept
   AND EXISTS (SELECT 1 FROM sessions AS i JOIN scopes AS j ON j.session_pk = i.pk
                WHERE i.session_id = x.session_id AND j.kind = s.kind AND j.scope_id = s.scope_id
                  AND +j.pk = s.pk)
 ORDER BY i.id;

-- name: list_ids
SELECT n.id
  FROM snapshots AS i
 CROSS JOIN snapshots AS n ON n.seq = i.seq AND n.id = i.id AND n.scope_pk = i.scope_pk
 WHERE i.scope_pk = :pk AND i.id > :after AND n.kept
 ORDER BY i.id;

-- name: list_sessions
-- A session counts if one of its scopes holds a snapshot, a note or a lease.
SELECT x.session_id, x.pk, x.checksum
  FROM sessions AS i
 CROSS JOIN sessions AS x ON x.pk = i.pk AND x.session_id = i.session_id
 WHERE i.session_id > :after
   AND i.session_id >= :low AND i.session_id < coalesce(:high, x'ff')
   AND EXISTS (SELECT 1 FROM scopes AS s
                WHERE s.session_pk = x.pk
                  AND (s.head_seq IS NOT NULL OR s.tip_seq IS NOT NULL OR s.fence IS NOT NULL
                       OR EXISTS (SELECT 1 FROM notes AS o WHERE o.scope_pk = s.pk)))
 ORDER BY i.session_id;

-- name: list_newest
-- By the newest head: reads the time of every head in the range, and sorts the sessions. One without a
-- head comes last: null is the smallest.
SELECT x.session_id, max(n.created_at) AS newest, x.pk, x.checksum
  FROM sessions AS i
 CROSS JOIN sessions AS x ON x.pk = i.pk AND x.session_id = i.session_id
 CROSS JOIN scopes AS s ON s.session_pk = x.pk
  LEFT JOIN snapshots AS n ON n.seq = s.head_seq
 WHERE i.session_id >= :low AND i.session_id < coalesce(:high, x'ff')
   AND (s.head_seq IS NOT NULL OR s.tip_seq IS NOT NULL OR s.fence IS NOT NULL
        OR EXISTS (SELECT 1 FROM notes AS o WHERE o.scope_pk = s.pk))
 GROUP BY i.session_id
HAVING :first
    OR newest < :newest OR (newest IS NULL AND :newest IS NOT NULL)
    OR (newest IS :newest AND i.session_id > :after)
 ORDER BY newest DESC, i.session_id;

-- name: list_scopes
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum,
       s.pk, x.session_id, s.scope_id, s.kind, s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner,
       s.lease_until, NULL AS family, s.checksum
  FROM sessions AS i
 CROSS JOIN sessions AS x ON x.pk = i.pk AND x.session_id = i.session_id
 CROSS JOIN scopes AS j ON j.session_pk = i.pk
 CROSS JOIN scopes AS s ON s.pk = j.pk AND s.session_pk = j.session_pk
                       AND s.kind = j.kind AND s.scope_id = j.scope_id
  LEFT JOIN snapshots AS n ON n.seq = s.head_seq
 WHERE i.session_id >= :low AND i.session_id < coalesce(:high, x'ff')
   AND (:kind IS NULL OR j.kind = :kind)
   AND (i.session_id, j.kind, j.scope_id) > (:after_session, :after_kind, :after_scope)
   AND (s.head_seq IS NOT NULL OR s.tip_seq IS NOT NULL OR s.fence IS NOT NULL
        OR EXISTS (SELECT 1 FROM notes AS o WHERE o.scope_pk = s.pk))
 ORDER BY i.session_id, j.kind, j.scope_id;

-- name: largest_heads
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum,
       s.pk, x.session_id, s.scope_id, s.kind, s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner,
       s.lease_until, NULL AS family, s.checksum
  FROM sessions AS x
 CROSS JOIN scopes AS s ON s.session_pk = x.pk
 CROSS JOIN snapshots AS n ON n.seq = s.head_seq
 WHERE x.session_id = :session_id
 ORDER BY n.size DESC, n.seq
 LIMIT :limit;

-- name: count_everything
-- Everything, or one session. A blob sorts behind every text.
SELECT count(DISTINCT s.session_pk), count(*)
  FROM sessions AS x
 CROSS JOIN scopes AS s ON s.session_pk = x.pk
 WHERE x.session_id >= coalesce(:session_id, '') AND x.session_id <= coalesce(:session_id, x'ff')
   AND (s.head_seq IS NOT NULL OR s.tip_seq IS NOT NULL OR s.fence IS NOT NULL
        OR EXISTS (SELECT 1 FROM notes AS o WHERE o.scope_pk = s.pk));

-- name: stored_bytes
SELECT coalesce(sum(length(body)), 0) FROM bodies;

-- name: sizes_by_session
-- What each session holds, the biggest first; length() reads no more than a row's header. Everything,
-- or one session, found by its name: a blob sorts behind every text.
SELECT x.session_id, count(*), sum(n.size), sum(length(b.body)) AS stored
  FROM sessions AS x
 CROSS JOIN scopes AS s ON s.session_pk = x.pk
 CROSS JOIN snapshots AS n ON n.scope_pk = s.pk
  LEFT JOIN bodies AS b ON b.seq = n.seq
 WHERE x.session_id >= coalesce(:session_id, '') AND x.session_id <= coalesce(:session_id, x'ff')
 GROUP BY x.session_id
 ORDER BY stored DESC, x.session_id;

-- name: list_noted
SELECT DISTINCT on_id FROM notes WHERE scope_pk = :pk AND on_id > :after ORDER BY on_id;

-- name: all_notes
SELECT on_id, name, rev, nonce, updated_at, value, checksum, :pk
  FROM notes
 WHERE scope_pk = :pk AND (on_id, name) > (:on, :after)
 ORDER BY on_id, name;

-- name: list_notes
SELECT on_id, name, rev, nonce, updated_at, value, checksum, :pk
  FROM notes WHERE scope_pk = :pk AND on_id = +:on AND name > :after ORDER BY name;

-- name: find_notes
-- Of a session and those below it, the last written first: of each scope only as many as are wanted,
-- by their time. A test of one member leaves out most values that do not match; compressed ones pass.
SELECT n.on_id, n.name, n.rev, n.nonce, n.updated_at, CASE WHEN :values THEN n.value END, n.checksum,
       n.scope_pk,
       z.session_id, :scope_id, :kind, s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner,
       s.lease_until, NULL AS family, s.checksum
  FROM (SELECT y.pk, y.session_id FROM sessions AS y WHERE y.session_id = :under
         UNION ALL
        SELECT y.pk, y.session_id FROM sessions AS y
         WHERE y.session_id >= :low AND y.session_id < coalesce(:high, x'ff')) AS x
 CROSS JOIN sessions AS z ON z.pk = x.pk AND z.session_id = x.session_id
 CROSS JOIN scopes AS s ON s.session_pk = x.pk AND s.kind = :kind AND s.scope_id = :scope_id
 CROSS JOIN notes AS n
         ON +n.scope_pk = s.pk AND +n.on_id = ''  -- not by these: by its key
        AND n.pk IN (SELECT i.pk FROM notes AS i INDEXED BY notes_by_time
                      WHERE i.scope_pk = s.pk AND i.on_id = ''
                        AND CASE WHEN :test IS NULL OR substr(i.value, 1, 4) = x'28b52ffd' THEN 1
                                 WHEN :test = 'contains' THEN instr(i.value, :bound)
                                 WHEN :test = 'eq'
                                 THEN json_extract(CAST(i.value AS TEXT), :path) = :bound
                                 WHEN :test = 'ge'
                                 THEN json_extract(CAST(i.value AS TEXT), :path) >= :bound
                                 WHEN :test = 'le'
                                 THEN json_extract(CAST(i.value AS TEXT), :path) <= :bound
                                 WHEN :test = 'ge number'
                                 THEN CAST(json_extract(CAST(i.value AS TEXT), :path) AS NUMERIC) >= :bound
                                 ELSE CAST(json_extract(CAST(i.value AS TEXT), :path) AS NUMERIC) <= :bound
                             END
                      ORDER BY i.updated_at DESC, i.pk
                      LIMIT :limit)
 ORDER BY n.updated_at DESC, n.pk
 LIMIT :limit;
