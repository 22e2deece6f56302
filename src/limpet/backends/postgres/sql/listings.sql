-- The statements that list and count, on a PostgreSQL server. The columns of a snapshot come in the
-- order of core.rows.Row, then its checksum; behind them those of its scope that the checksum of that
-- covers. An end of a range that may be open is given as a text
-- that is longer than any id, where an index could not be bounded otherwise.

-- name: history_of_scope
-- Newest first. A leaf has no child just behind it and none in the index of those apart.
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum,
       n.scope_pk, %(session_id)s::text, %(scope_id)s::text, %(kind)s::text
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
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum,
       n.scope_pk, x.session_id, s.scope_id, s.kind, s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner,
       s.lease_until, s.family, s.checksum
  FROM limpet.snapshots AS n
  JOIN limpet.scopes AS s ON s.pk = n.scope_pk
  JOIN limpet.sessions AS x ON x.pk = s.session_pk
 WHERE n.seq < %(before)s
   AND n.kept
   AND (%(status)s::text IS NULL OR n.status = %(status)s::text)
   AND x.session_id >= %(low)s AND (%(high)s::text IS NULL OR x.session_id < %(high)s::text)
 ORDER BY n.seq DESC
 LIMIT %(limit)s;

-- name: history_by_label
-- The same for those that carry a label, read from its index; the other labels are checked.
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum,
       n.scope_pk, x.session_id, s.scope_id, s.kind, s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner,
       s.lease_until, s.family, s.checksum
  FROM limpet.labels AS f
  JOIN limpet.snapshots AS n ON n.seq = f.seq
  JOIN limpet.scopes AS s ON s.pk = n.scope_pk
  JOIN limpet.sessions AS x ON x.pk = s.session_pk
 WHERE f.name = %(name)s AND f.value = %(value)s AND f.seq < %(before)s
   AND n.kept
   AND (%(status)s::text IS NULL OR n.status = %(status)s::text)
   AND x.session_id >= %(low)s AND (%(high)s::text IS NULL OR x.session_id < %(high)s::text)
   AND NOT EXISTS (SELECT 1 FROM json_each_text(%(labels)s::json) AS w
                     LEFT JOIN limpet.labels AS l
                       ON l.name = w.key AND l.value = w.value AND l.seq = n.seq
                    WHERE l.seq IS NULL)
 ORDER BY f.seq DESC
 LIMIT %(limit)s;

-- name: find
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum,
       n.scope_pk, x.session_id, s.scope_id, s.kind, s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner,
       s.lease_until, s.family, s.checksum
  FROM limpet.snapshots AS n
  JOIN limpet.scopes AS s ON s.pk = n.scope_pk
  JOIN limpet.sessions AS x ON x.pk = s.session_pk
 WHERE n.id = %(id)s
   AND n.seq < %(before)s
   AND n.kept
   AND x.session_id >= %(low)s AND (%(high)s::text IS NULL OR x.session_id < %(high)s::text)
 ORDER BY n.seq DESC
 LIMIT %(limit)s;

-- name: find_refs
-- By id, as the index has them. A draft is no answer.
SELECT n.id, x.session_id, s.scope_id, s.kind, s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner,
       s.lease_until, s.family, s.checksum
  FROM limpet.snapshots AS n
  JOIN limpet.scopes AS s ON s.pk = n.scope_pk
  JOIN limpet.sessions AS x ON x.pk = s.session_pk
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
-- A session counts if one of its scopes holds a snapshot, a note or a lease.
SELECT x.session_id, x.pk, x.checksum
  FROM limpet.sessions AS x
 WHERE x.session_id > %(after)s
   AND x.session_id >= %(low)s AND x.session_id < coalesce(%(high)s::text, repeat(U&'\+10FFFF', 513))
   AND EXISTS (SELECT 1 FROM limpet.scopes AS s
                WHERE s.session_pk = x.pk
                  AND (s.head_seq IS NOT NULL OR s.tip_seq IS NOT NULL OR s.fence IS NOT NULL
                       OR EXISTS (SELECT 1 FROM limpet.notes AS o WHERE o.scope_pk = s.pk)))
 ORDER BY x.session_id
 LIMIT %(limit)s;

-- name: list_newest
-- By the newest head: reads the time of every head in the range, and sorts the sessions. One without a
-- head comes last.
SELECT f.session_id, f.newest, f.pk, f.checksum
  FROM (SELECT x.session_id, max(n.created_at) AS newest, x.pk, x.checksum
          FROM limpet.sessions AS x
          JOIN limpet.scopes AS s ON s.session_pk = x.pk
          LEFT JOIN limpet.snapshots AS n ON n.seq = s.head_seq
         WHERE x.session_id >= %(low)s
           AND x.session_id < coalesce(%(high)s::text, repeat(U&'\+10FFFF', 513))
           AND (s.head_seq IS NOT NULL OR s.tip_seq IS NOT NULL OR s.fence IS NOT NULL
                OR EXISTS (SELECT 1 FROM limpet.notes AS o WHERE o.scope_pk = s.pk))
         GROUP BY x.pk) AS f
 WHERE %(first)s::boolean
    OR f.newest < %(newest)s::bigint OR (f.newest IS NULL AND %(newest)s::bigint IS NOT NULL)
    OR (f.newest IS NOT DISTINCT FROM %(newest)s::bigint AND f.session_id > %(after)s)
 ORDER BY f.newest DESC NULLS LAST, f.session_id
 LIMIT %(limit)s;

-- name: list_scopes
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum,
       s.pk, x.session_id, s.scope_id, s.kind, s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner,
       s.lease_until, s.family, s.checksum
  FROM limpet.sessions AS x
  JOIN limpet.scopes AS s ON s.session_pk = x.pk
  LEFT JOIN limpet.snapshots AS n ON n.seq = s.head_seq
 WHERE x.session_id >= %(low)s AND x.session_id < coalesce(%(high)s::text, repeat(U&'\+10FFFF', 513))
   AND (%(kind)s::text IS NULL OR s.kind = %(kind)s::text)
   AND (x.session_id, s.kind, s.scope_id) > (%(after_session)s, %(after_kind)s, %(after_scope)s)
   AND (s.head_seq IS NOT NULL OR s.tip_seq IS NOT NULL OR s.fence IS NOT NULL
        OR EXISTS (SELECT 1 FROM limpet.notes AS o WHERE o.scope_pk = s.pk))
 ORDER BY x.session_id, s.kind, s.scope_id
 LIMIT %(limit)s;

-- name: largest_heads
SELECT n.seq, n.id, n.rev, n.nonce, n.kept, n.parent_id, n.forked_from, n.status, n.labels,
       n.metadata, n.created_at, n.updated_at, n.saved_at, n.size, n.checksum,
       s.pk, x.session_id, s.scope_id, s.kind, s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner,
       s.lease_until, s.family, s.checksum
  FROM limpet.sessions AS x
  JOIN limpet.scopes AS s ON s.session_pk = x.pk
  JOIN limpet.snapshots AS n ON n.seq = s.head_seq
 WHERE x.session_id = %(session_id)s
 ORDER BY n.size DESC, n.seq
 LIMIT %(limit)s;

-- name: totals
-- Everything, or one session. octet_length() does not fetch what it measures.
SELECT count(DISTINCT s.session_pk), count(*),
       coalesce(sum(t.snapshots), 0)::bigint, coalesce(sum(t.size), 0)::bigint,
       coalesce(sum(t.stored), 0)::bigint
  FROM limpet.scopes AS s
  JOIN limpet.sessions AS x ON x.pk = s.session_pk
 CROSS JOIN LATERAL (SELECT count(*) AS snapshots, sum(n.size) AS size,
                            sum(octet_length(b.body)) AS stored
                       FROM limpet.snapshots AS n
                       LEFT JOIN limpet.bodies AS b ON b.seq = n.seq
                      WHERE n.scope_pk = s.pk) AS t
 WHERE x.session_id >= coalesce(%(session_id)s::text, '')
   AND x.session_id <= coalesce(%(session_id)s::text, repeat(U&'\+10FFFF', 513))
   AND (s.head_seq IS NOT NULL OR s.tip_seq IS NOT NULL OR s.fence IS NOT NULL
        OR EXISTS (SELECT 1 FROM limpet.notes AS o WHERE o.scope_pk = s.pk));

-- name: stored_bytes
SELECT coalesce(sum(octet_length(body)), 0)::bigint FROM limpet.bodies;

-- name: largest_sessions
SELECT x.session_id, coalesce(sum(octet_length(b.body)), 0)::bigint AS stored
  FROM limpet.sessions AS x
  JOIN limpet.scopes AS s ON s.session_pk = x.pk
  JOIN limpet.snapshots AS n ON n.scope_pk = s.pk
  LEFT JOIN limpet.bodies AS b ON b.seq = n.seq
 GROUP BY x.session_id
 ORDER BY stored DESC, x.session_id
 LIMIT %s;

-- name: list_noted
-- There is no index in this order, so that the notes of the scope are sorted; they are few.
SELECT DISTINCT on_id
  FROM limpet.notes
 WHERE scope_pk = %(pk)s AND on_id > %(after)s
 ORDER BY on_id
 LIMIT %(limit)s;

-- name: all_notes
-- As list_noted: there is no index in this order.
SELECT on_id, name, rev, nonce, updated_at, value, checksum, scope_pk
  FROM limpet.notes
 WHERE scope_pk = %(pk)s AND (on_id, name) > (%(on)s COLLATE "C", %(after)s COLLATE "C")
 ORDER BY on_id, name
 LIMIT %(limit)s;

-- name: list_notes
-- Those of a scope on several ids, in the order of these; `after` is a name on the first of them.
SELECT n.on_id, n.name, n.rev, n.nonce, n.updated_at, n.value, n.checksum, n.scope_pk,
       s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner,
       s.lease_until, s.family, s.checksum
  FROM limpet.sessions AS x
  JOIN limpet.scopes AS s ON s.session_pk = x.pk
 CROSS JOIN unnest(%(ons)s::text[]) WITH ORDINALITY AS o (on_id, at)
 CROSS JOIN LATERAL (
       SELECT i.* FROM limpet.notes AS i
        WHERE i.scope_pk = s.pk
          AND hashtextextended(i.on_id, 0) = hashtextextended(o.on_id COLLATE "C", 0)
          AND i.on_id = o.on_id AND i.name > CASE o.at WHEN 1 THEN %(after)s::text ELSE '' END
        ORDER BY i.name
        LIMIT %(limit)s) AS n
 WHERE x.session_id = %(session_id)s AND s.scope_id = %(scope_id)s AND s.kind = %(kind)s
 ORDER BY o.at, n.name
 LIMIT %(limit)s;

-- name: revisions
-- What is watched, as a list of [session, scope, kind, id or null]: where in the list something is,
-- and its revision. The limit keeps the server from reading all sessions to find some.
SELECT a.at - 1, n.seq, n.rev, n.nonce
  FROM json_array_elements(%s::json) WITH ORDINALITY AS a (asked, at)
 CROSS JOIN LATERAL (
       SELECT o.seq, o.rev, o.nonce
         FROM limpet.sessions AS x
         JOIN limpet.scopes AS s ON s.session_pk = x.pk
         JOIN limpet.snapshots AS o
           ON o.scope_pk = s.pk
          AND o.seq = CASE WHEN a.asked ->> 3 IS NULL THEN s.head_seq
                           ELSE (SELECT i.seq FROM limpet.snapshots AS i
                                  WHERE i.scope_pk = s.pk AND i.id = a.asked ->> 3 LIMIT 1) END
        WHERE x.session_id = a.asked ->> 0 AND s.scope_id = a.asked ->> 1
          AND s.kind = a.asked ->> 2
        LIMIT 1) AS n;

-- name: find_notes
-- Of a session and those below it, the last written first: of each scope only as many as are wanted,
-- by their time.
SELECT n.on_id, n.name, n.rev, n.nonce, n.updated_at, CASE WHEN %(values)s THEN n.value END,
       n.checksum, n.scope_pk, x.session_id, s.scope_id, s.kind, s.pk, s.head_seq, s.tip_seq, s.next_seq, s.floor, s.fence, s.lease_owner,
       s.lease_until, s.family, s.checksum
  FROM limpet.sessions AS x
  JOIN limpet.scopes AS s ON s.session_pk = x.pk
 CROSS JOIN LATERAL (SELECT i.*
                       FROM limpet.notes AS i
                      WHERE i.scope_pk = s.pk AND i.on_id = ''
                      ORDER BY i.updated_at DESC, i.pk
                      LIMIT %(limit)s) AS n
 WHERE (x.session_id = %(under)s
        OR x.session_id >= %(low)s
           AND x.session_id < coalesce(%(high)s::text, repeat(U&'\+10FFFF', 513)))
   AND s.scope_id = %(scope_id)s AND s.kind = %(kind)s
 ORDER BY n.updated_at DESC, n.pk
 LIMIT %(limit)s;
