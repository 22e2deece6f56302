-- The statements that list and count, on a PostgreSQL server. A row that fails a checksum is not listed,
-- and the checksum of a scope covers its name. An end of a range that may be open is given as a text that is
-- longer than any id, where an index could not be bounded otherwise.

-- name: history_of_scope
-- Newest first. A leaf has no child just behind it and none in the index of those apart.
SELECT <row n>
  FROM limpet.snapshots AS n
 WHERE n.scope_pk = %(pk)s
   AND n.seq < %(before)s
   AND n.kept
   AND (%(status)s::text IS NULL OR n.status = %(status)s::text)
   AND (%(id)s::text IS NULL OR n.id = %(id)s::text)
   AND NOT (%(leaves)s AND EXISTS (SELECT 1 FROM limpet.snapshots AS c
                                    WHERE c.scope_pk = n.scope_pk AND c.parent_id = n.id AND c.apart
                                      AND c.kept))
   AND NOT (%(leaves)s AND coalesce((SELECT c.parent_id = n.id AND c.kept
                                       FROM limpet.snapshots AS c
                                      WHERE c.scope_pk = n.scope_pk AND c.seq > n.seq
                                      ORDER BY c.seq LIMIT 1), false))
   AND (%(labels)s::text = '{}'
        OR NOT EXISTS (SELECT 1 FROM json_each_text(%(labels)s::json) AS w
                         LEFT JOIN limpet.labels AS l
                           ON l.name = w.key AND l.value = w.value AND l.seq = n.seq
                        WHERE l.seq IS NULL))
 ORDER BY n.seq DESC
 LIMIT %(limit)s;

-- name: history_of_sessions
-- Over all sessions in a range of ids, by seq.
SELECT <row n>, <scope s>
  FROM limpet.snapshots AS n
  JOIN limpet.scopes AS s ON s.pk = n.scope_pk
 WHERE n.seq < %(before)s
   AND n.kept
   AND (%(status)s::text IS NULL OR n.status = %(status)s::text)
   AND s.session_id >= %(low)s AND (%(high)s::text IS NULL OR s.session_id < %(high)s::text)
 ORDER BY n.seq DESC
 LIMIT %(limit)s;

-- name: history_by_label
-- The same for those that carry a label, read from its index; the other labels are checked.
SELECT <row n>, <scope s>
  FROM limpet.labels AS f
  JOIN limpet.snapshots AS n ON n.seq = f.seq
  JOIN limpet.scopes AS s ON s.pk = n.scope_pk
 WHERE f.name = %(name)s AND f.value = %(value)s AND f.seq < %(before)s
   AND n.kept
   AND (%(status)s::text IS NULL OR n.status = %(status)s::text)
   AND s.session_id >= %(low)s AND (%(high)s::text IS NULL OR s.session_id < %(high)s::text)
   AND NOT EXISTS (SELECT 1 FROM json_each_text(%(labels)s::json) AS w
                     LEFT JOIN limpet.labels AS l
                       ON l.name = w.key AND l.value = w.value AND l.seq = n.seq
                    WHERE l.seq IS NULL)
 ORDER BY f.seq DESC
 LIMIT %(limit)s;

-- name: find
SELECT <row n>, <scope s>
  FROM limpet.snapshots AS n
  JOIN limpet.scopes AS s ON s.pk = n.scope_pk
 WHERE n.id = %(id)s
   AND n.seq < %(before)s
   AND n.kept
   AND s.session_id >= %(low)s AND (%(high)s::text IS NULL OR s.session_id < %(high)s::text)
 ORDER BY n.seq DESC
 LIMIT %(limit)s;

-- name: find_refs
-- By id, as the index has them. A draft is no answer.
SELECT n.id, <scope s>
  FROM limpet.snapshots AS n
  JOIN limpet.scopes AS s ON s.pk = n.scope_pk
 WHERE n.id >= %(low)s AND n.id < coalesce(%(high)s::text, repeat(U&'\+10FFFF', 513))
   AND n.kept
 ORDER BY n.id
 LIMIT %(limit)s;

-- name: list_ids
SELECT n.id
  FROM limpet.snapshots AS n
 WHERE n.scope_pk = %(pk)s AND n.id > %(after)s AND n.kept
 ORDER BY n.id
 LIMIT %(limit)s;

-- name: list_sessions
-- A session counts if one of its scopes holds a snapshot, a note or a lease: one of these each.
SELECT DISTINCT ON (s.session_id) <scope s>
  FROM limpet.scopes AS s
 WHERE s.session_id > %(after)s
   AND s.session_id >= %(low)s AND s.session_id < coalesce(%(high)s::text, repeat(U&'\+10FFFF', 513))
   AND (s.head IS NOT NULL OR s.tip IS NOT NULL OR s.fence IS NOT NULL OR s.notes > 0)
 ORDER BY s.session_id
 LIMIT %(limit)s;

-- name: list_newest
-- By the newest head: reads the time of every head in the range, and sorts the sessions. One without a
-- head comes last.
SELECT f.session_id, f.newest
  FROM (SELECT s.session_id, max(n.created_at) AS newest
          FROM limpet.scopes AS s
          LEFT JOIN limpet.snapshots AS n ON n.seq = s.head
         WHERE s.session_id >= %(low)s
           AND s.session_id < coalesce(%(high)s::text, repeat(U&'\+10FFFF', 513))
           AND (s.head IS NOT NULL OR s.tip IS NOT NULL OR s.fence IS NOT NULL OR s.notes > 0)
         GROUP BY s.session_id) AS f
 WHERE %(first)s::boolean
    OR f.newest < %(newest)s::bigint OR (f.newest IS NULL AND %(newest)s::bigint IS NOT NULL)
    OR (f.newest IS NOT DISTINCT FROM %(newest)s::bigint AND f.session_id > %(after)s)
 ORDER BY f.newest DESC NULLS LAST, f.session_id
 LIMIT %(limit)s;

-- name: list_scopes
SELECT <row n>, <scope s>
  FROM limpet.scopes AS s
  LEFT JOIN limpet.snapshots AS n ON n.seq = s.head
 WHERE s.session_id >= %(low)s AND s.session_id < coalesce(%(high)s::text, repeat(U&'\+10FFFF', 513))
   AND (%(kind)s::text IS NULL OR s.kind = %(kind)s::text)
   AND (s.session_id, s.kind, s.scope_id) > (%(after_session)s, %(after_kind)s, %(after_scope)s)
   AND (s.head IS NOT NULL OR s.tip IS NOT NULL OR s.fence IS NOT NULL OR s.notes > 0)
 ORDER BY s.session_id, s.kind, s.scope_id
 LIMIT %(limit)s;

-- name: sizes
-- Of every scope that holds anything, or of those of one session.
SELECT s.session_id, t.snapshots, t.size
  FROM limpet.scopes AS s
 CROSS JOIN LATERAL (SELECT count(*) AS snapshots, coalesce(sum(n.size), 0)::bigint AS size
                       FROM limpet.snapshots AS n
                      WHERE n.scope_pk = s.pk) AS t
 WHERE s.session_id >= coalesce(%(session_id)s::text, '')
   AND s.session_id <= coalesce(%(session_id)s::text, repeat(U&'\+10FFFF', 513))
   AND (s.head IS NOT NULL OR s.tip IS NOT NULL OR s.fence IS NOT NULL OR s.notes > 0);

-- name: stored_bytes
-- octet_length() does not fetch what it measures.
SELECT ((SELECT coalesce(sum(octet_length(body)), 0) FROM limpet.tails)
      + (SELECT coalesce(sum(octet_length(body)), 0) FROM limpet.segments)
      + (SELECT coalesce(sum(octet_length(body)), 0) FROM limpet.shared))::bigint;

-- name: stored_bytes_of_session
SELECT (coalesce(sum((SELECT coalesce(sum(octet_length(t.body)), 0)
                        FROM limpet.tails AS t WHERE t.scope_pk = s.pk)
                   + (SELECT coalesce(sum(octet_length(g.body)), 0)
                        FROM limpet.segments AS g WHERE g.scope_pk = s.pk)), 0)
      + (SELECT coalesce(sum(octet_length(h.body)), 0)
           FROM limpet.shared AS h WHERE h.session_id = %(session_id)s))::bigint
  FROM limpet.scopes AS s
 WHERE s.session_id = %(session_id)s;

-- name: find_notes
-- Of a session and those below it, the last written first: of each scope only as many as are wanted,
-- by their time.
SELECT <note n>, <scope s>
  FROM limpet.scopes AS s
 CROSS JOIN LATERAL (SELECT i.*
                       FROM limpet.notes AS i
                      WHERE i.scope_pk = s.pk AND i.on_id = ''
                      ORDER BY i.updated_at DESC, i.pk
                      LIMIT %(limit)s) AS n
 WHERE (s.session_id = %(under)s
        OR s.session_id >= %(low)s
           AND s.session_id < coalesce(%(high)s::text, repeat(U&'\+10FFFF', 513)))
   AND s.scope_id = %(scope_id)s AND s.kind = %(kind)s
 ORDER BY n.updated_at DESC, n.pk
 LIMIT %(limit)s;
