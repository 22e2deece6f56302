-- The statements that list and count, in a SQLite file. A reader of a listing stops when its page is
-- full. A row that fails a checksum is not listed, and the checksum of a scope covers its name. A range of
-- names ends before :high, or if that is null before a blob, which sorts behind every text; with OR it would
-- be read to the end of the index.

-- name: history_of_scope
-- Newest first. A leaf has no child just behind it and none in the index of those apart.
SELECT <row n>
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
SELECT <row n>, <scope s>
  FROM snapshots AS n
 CROSS JOIN scopes AS s ON s.pk = n.scope_pk
 WHERE n.seq < :before
   AND n.kept
   AND (:status IS NULL OR n.status = :status)
   AND s.session_id >= :low AND s.session_id < coalesce(:high, x'ff')
 ORDER BY n.seq DESC;

-- name: history_by_label
-- The same for those that carry a label, read from its index; the other labels are checked.
SELECT <row n>, <scope s>
  FROM labels AS f
 CROSS JOIN snapshots AS n ON n.seq = f.seq
 CROSS JOIN scopes AS s ON s.pk = n.scope_pk
 WHERE f.name = :name AND f.value = :value AND f.seq < :before
   AND n.kept
   AND (:status IS NULL OR n.status = :status)
   AND s.session_id >= :low AND s.session_id < coalesce(:high, x'ff')
   AND NOT EXISTS (SELECT 1 FROM json_each(:labels) AS w
                    WHERE NOT EXISTS (SELECT 1 FROM labels AS l
                                       WHERE l.name = w.key AND l.value = w.value AND l.seq = n.seq))
 ORDER BY f.seq DESC;

-- name: find
SELECT <row n>, <scope s>
  FROM snapshots AS n
 CROSS JOIN scopes AS s ON s.pk = n.scope_pk
 WHERE n.id = :id
   AND n.seq < :before
   AND n.kept
   AND s.session_id >= :low AND s.session_id < coalesce(:high, x'ff')
 ORDER BY n.seq DESC;

-- name: find_refs
-- By id, as the index has them. A draft is no answer.
SELECT n.id, <scope s>
  FROM snapshots AS i
 CROSS JOIN snapshots AS n ON n.seq = i.seq AND n.id = i.id
 CROSS JOIN scopes AS s ON s.pk = n.scope_pk
 WHERE i.id >= :low AND i.id < coalesce(:high, x'ff')
   AND n.kept
 ORDER BY i.id;

-- name: list_ids
-- An id counts if the index and the table agree on it: no checksum is verified here.
SELECT n.id
  FROM snapshots AS i
 CROSS JOIN snapshots AS n ON n.seq = i.seq AND n.id = i.id AND n.scope_pk = i.scope_pk
 WHERE i.scope_pk = :pk AND i.id > :after AND n.kept
 ORDER BY i.id;

-- name: list_sessions
-- A session counts if one of its scopes holds a snapshot, a note or a lease.
SELECT <scope s>
  FROM scopes AS s
 WHERE s.session_id > :after
   AND s.session_id >= :low AND s.session_id < coalesce(:high, x'ff')
   AND (s.head IS NOT NULL OR s.tip IS NOT NULL OR s.fence IS NOT NULL OR s.notes > 0)
 ORDER BY s.session_id;

-- name: list_newest
-- By the newest head: reads the time of every head in the range, and sorts the sessions. One without a
-- head comes last: null is the smallest.
SELECT s.session_id, max(n.created_at) AS newest
  FROM scopes AS s
  LEFT JOIN snapshots AS n ON n.seq = s.head
 WHERE s.session_id >= :low AND s.session_id < coalesce(:high, x'ff')
   AND (s.head IS NOT NULL OR s.tip IS NOT NULL OR s.fence IS NOT NULL OR s.notes > 0)
 GROUP BY s.session_id
HAVING :first
    OR newest < :newest OR (newest IS NULL AND :newest IS NOT NULL)
    OR (newest IS :newest AND s.session_id > :after)
 ORDER BY newest DESC, s.session_id;

-- name: list_scopes
SELECT <row n>, <scope s>
  FROM scopes AS s
  LEFT JOIN snapshots AS n ON n.seq = s.head
 WHERE s.session_id >= :low AND s.session_id < coalesce(:high, x'ff')
   AND (:kind IS NULL OR s.kind = :kind)
   AND (s.session_id, s.kind, s.scope_id) > (:after_session, :after_kind, :after_scope)
   AND (s.head IS NOT NULL OR s.tip IS NOT NULL OR s.fence IS NOT NULL OR s.notes > 0)
 ORDER BY s.session_id, s.kind, s.scope_id;

-- name: sizes
-- Of every scope that holds anything, or of those of one session: a blob sorts behind every text.
SELECT s.session_id, count(n.seq), coalesce(sum(n.size), 0)
  FROM scopes AS s
  LEFT JOIN snapshots AS n ON n.scope_pk = s.pk
 WHERE s.session_id >= coalesce(:session_id, '') AND s.session_id <= coalesce(:session_id, x'ff')
   AND (s.head IS NOT NULL OR s.tip IS NOT NULL OR s.fence IS NOT NULL OR s.notes > 0)
 GROUP BY s.session_id, s.kind, s.scope_id;

-- name: stored_bytes
SELECT (SELECT coalesce(sum(length(body)), 0) FROM tails)
     + (SELECT coalesce(sum(length(body)), 0) FROM segments)
     + (SELECT coalesce(sum(length(body)), 0) FROM shared);

-- name: stored_bytes_of_session
-- length() reads no more than a row's header.
SELECT coalesce(sum((SELECT coalesce(sum(length(t.body)), 0)
                       FROM snapshots AS n CROSS JOIN tails AS t ON t.seq = n.seq
                      WHERE n.scope_pk = s.pk)
                  + (SELECT coalesce(sum(length(g.body)), 0)
                       FROM segments AS g WHERE g.scope_pk = s.pk)), 0)
     + (SELECT coalesce(sum(length(h.body)), 0)
          FROM (SELECT DISTINCT substr(t.body, 1, 16) AS name
                  FROM scopes AS y
                 CROSS JOIN snapshots AS n ON n.scope_pk = y.pk
                 CROSS JOIN tails AS t ON t.seq = n.seq
                 WHERE y.session_id = :session_id AND +t.encoding = 2) AS u
         CROSS JOIN shared AS h ON h.name = u.name)
  FROM scopes AS s
 WHERE s.session_id = :session_id;

-- name: find_notes
-- Of a session and those below it, the last written first: of each scope only as many as are wanted,
-- by their time. A test of one member leaves out most values that do not match; compressed ones pass.
SELECT <note n>, <scope s>
  FROM (SELECT y.pk FROM scopes AS y
         WHERE y.session_id = :under AND y.kind = :kind AND y.scope_id = :scope_id
         UNION ALL
        SELECT y.pk FROM scopes AS y
         WHERE y.session_id >= :low AND y.session_id < coalesce(:high, x'ff')
           AND y.kind = :kind AND y.scope_id = :scope_id) AS x
 CROSS JOIN scopes AS s ON s.pk = x.pk
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
